"""Extra heads, blockwise and Medusa's: drafted lengths, stored trees of ranks, and the shipped heads."""

import json

import pytest
import torch
from drafted_rows import altered
from heads_zoo import random_heads
from models_zoo import PROMPT, native, shipped

from specdec_book import recordings
from specdec_lite import TokenTree, generate, load_pair, stream
from specdec_lite.acceptance import Proposal
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter
from specdec_lite.drafters.heads import FullHeads, Heads, ReducedHeads, load_report, stored_heads
from specdec_lite.drafters.parallel import Correction, Selector, stored_correction
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.texts.corpus import evaluation_prompts

TARGET = native()


def test_an_empty_tree_is_plain_decoding():
    nothing = MedusaDrafter(TARGET, random_heads(TARGET), TokenTree([], []))
    empty = generate(TARGET, PROMPT, nothing, 8)
    assert empty.stats.target_passes == 8 and empty.stats.drafted == 0


def test_heads_load_from_a_folder(tmp_path):
    heads = random_heads(TARGET)
    save(tmp_path, heads, TARGET, heads.config)
    with pytest.raises(ValueError, match="report.json"):
        MedusaDrafter.from_pretrained(TARGET, tmp_path)
    tree = {"tokens": [0, 1, 0], "parents": [-1, -1, 0]}
    (tmp_path / "report.json").write_text(json.dumps({"tree": tree}))
    assert MedusaDrafter.from_pretrained(TARGET, tmp_path).tree == TokenTree(**tree)
    chain = MedusaDrafter.from_pretrained(TARGET, str(tmp_path), TokenTree.chain([0]))
    assert chain.limits().levels == 1
    with pytest.raises(ValueError, match="another target"):
        MedusaDrafter.from_pretrained(native(seed=3), tmp_path)


def test_the_shipped_tree_is_the_best_for_the_measured_heads():
    report = load_report()
    assert report["target"] == fingerprint(shipped().target)
    best = TokenTree.best(report["accuracies"]["greedy"], len(report["tree"]["tokens"]))
    assert MedusaDrafter.from_pretrained(shipped().target).tree == best


@pytest.mark.slow
def test_the_shipped_tree_emits_more_tokens_per_pass_than_a_chain():
    target = shipped().target
    prompts = [shipped().tokenizer.encode(i[0]["text"]) for i in evaluation_prompts().values()]
    tree = MedusaDrafter.from_pretrained(target)
    chain = MedusaDrafter(target, tree.heads, TokenTree.chain([0] * tree.heads.count))
    tau = []
    for drafter in (tree, chain):
        runs = [generate(target, prompt, drafter, 64).stats for prompt in prompts]
        tau.append(sum(s.tokens for s in runs) / sum(s.target_passes for s in runs))
    assert tau[0] > tau[1] > 1.05


# Blockwise decoding -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_of_one_is_plain_decoding(temperature):
    drafter = BlockwiseDrafter(TARGET, random_heads(TARGET), 1)
    out = generate(TARGET, PROMPT, drafter, 20, temperature, seed=3)
    plain = generate(TARGET, PROMPT, None, 20, temperature, seed=3)
    assert torch.equal(out.tokens, plain.tokens) and out.stats.target_passes == 20
    assert out.stats.drafted == out.stats.draft_passes == 0
    assert all(step.kind == "sampled" for step in out.steps)


def test_drafts_fit_the_remaining_tokens_and_take_one_pass():
    steps = list(stream(TARGET, PROMPT, BlockwiseDrafter(TARGET, random_heads(TARGET), 4), 9))
    left = [9 - sum(len(s.tokens) for s in steps[:i]) for i in range(len(steps))]
    assert [len(s.tree) for s in steps] == [min(3, wanted - 1) for wanted in left]
    assert all(s.draft_passes == (len(s.tree) > 0) for s in steps)


def test_a_shift_by_one_lowers_acceptance_but_keeps_the_text():
    """A published bug: the target's own head, whose token is committed already, takes the
    first draft's place.
    """
    pair = load_pair(dtype="float64")
    prompt = pair.tokenizer.encode("def mean(values):\n    return sum(values)")
    heads = BlockwiseDrafter.from_pretrained(pair.target).heads
    shifted = lambda session, made, context: Proposal(
        TokenTree.chain([int(context.tokens[-1]), *made.tree.tokens.tolist()[:-1]])
    )
    right, wrong = BlockwiseDrafter(pair.target, heads), BlockwiseDrafter(pair.target, heads)
    outs = [generate(pair.target, prompt, each, 20) for each in (right, altered(wrong, shifted))]
    assert torch.equal(outs[0].tokens, outs[1].tokens)
    assert outs[0].stats.acceptance_rate > 0.2 and outs[1].stats.acceptance_rate < 0.1
    assert outs[0].stats.target_passes < 18


# Heads, and what is refused --------------------------------------------------------------------


def test_new_heads_are_copies_of_the_targets_own_head():
    hidden = torch.randn(2, 5, TARGET.hidden_size, dtype=TARGET.dtype)
    heads = Heads(TARGET.hidden_size, 3).to(TARGET.dtype)
    assert torch.equal(heads(hidden), hidden[:, :, None].expand(2, 5, 3, -1)) and heads.count == 3
    assert heads.up.std().item() == pytest.approx(TARGET.hidden_size**-0.5, rel=0.1)
    random = random_heads(TARGET)
    assert torch.allclose(random(hidden, slice(1, 2))[..., 0, :], random(hidden)[..., 1, :])


STORED = {
    "blockwise": (stored_heads, Heads(8, 2, 4)),
    "Medusa, reduced": (stored_heads, ReducedHeads(8, 2, 5)),
    "Medusa, its authors'": (stored_heads, FullHeads(8, 2, 9)),
    "a correction": (stored_correction, Correction(9, 2)),
    "a correction of some tokens": (stored_correction, Correction(5, 2, others=True)),
    "a correction with all inputs": (stored_correction, Correction(5, 2, inputs=9)),
    "a selector": (stored_correction, Selector(9, 2, candidates=4, width=8)),
}


@pytest.mark.parametrize("build, module", STORED.values(), ids=STORED)
def test_a_stored_config_builds_the_same_module(build, module):
    again = build(**module.config)
    shapes = [{n: w.shape for n, w in each.state_dict().items()} for each in (module, again)]
    assert type(again) is type(module) and shapes[0] == shapes[1]
    assert again.config == module.config


# What ships ------------------------------------------------------------------------------------


def test_the_shipped_heads_are_seven():
    recorded = recordings.load("blockwise-training").data
    assert recorded["target"] == fingerprint(shipped().target)
    drafter = BlockwiseDrafter.from_pretrained(shipped().target)
    assert drafter.k == 4 and drafter.heads.count == 7
    assert BlockwiseDrafter.from_pretrained(shipped().target, k=8).k == 8
    with pytest.raises(ValueError, match="k=9"):
        BlockwiseDrafter.from_pretrained(shipped().target, k=9)


def test_heads_of_the_targets_own_dtype_are_taken():
    target = native(dtype=torch.bfloat16)
    BlockwiseDrafter(target, Heads(32, 3).to(target.device, target.dtype), k=4)
