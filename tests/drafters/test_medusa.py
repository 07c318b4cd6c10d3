"""Test what is special to Medusa: which head predicts which token, accepted branches, trees of
ranks, and the shipped heads. The registry's tests cover the rest.
"""

import json

import pytest
import torch
from caches import contents, watched_caches
from chosen import one_in
from heads_zoo import random_heads, taught_heads
from models_zoo import FAMILIES, PROMPT, native, shipped
from text_laws import NATIVE, TINY, model_named

from specdec_lite import TokenTree, generate, stream
from specdec_lite.acceptance import typical
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter
from specdec_lite.drafters.medusa import load_report
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.sampling import outcomes
from specdec_lite.texts.corpus import evaluation_prompts

TARGET = native()
TREE = TokenTree([0, 1, 0, 2, 1, 0, 0], [-1, -1, 0, -1, 0, 1, 2])
"""Three levels with unequal branches."""


@pytest.mark.parametrize("make, draft", [(MedusaDrafter, TREE), (BlockwiseDrafter, 4)])
@pytest.mark.parametrize("name", one_in(4, [*NATIVE, *FAMILIES], NATIVE))
def test_accepted_branches_change_neither_greedy_text_nor_cache(name, make, draft, monkeypatch):
    target, heads = model_named(name), taught_heads(name)
    plain = generate(target, PROMPT, max_new_tokens=36).tokens
    assert plain.unique().numel() > 3, "a text this plain would hide mistakes"
    caches, committed, steps = watched_caches(target, monkeypatch), list(PROMPT), []
    for step in stream(target, PROMPT, make(target, heads, draft), 36):
        committed += step.tokens
        steps.append(step)
        assert caches[0].length == len(committed) - 1
    assert committed[len(PROMPT) :] == plain.tolist()
    assert max(step.accepted for step in steps) >= 2 and "bonus" in {s.kind for s in steps}
    fresh = target.new_cache()
    target.score(committed[:-1], fresh)
    pairs = zip(contents(caches[0]), contents(fresh))
    assert all((ours - theirs).abs().max() < 1e-5 for ours, theirs in pairs)


def test_typical_acceptance_keeps_the_greedy_text():
    drafter = MedusaDrafter(TARGET, taught_heads("native"), TREE)
    out = generate(TARGET, PROMPT, drafter, 36, rule=typical())
    assert torch.equal(out.tokens, generate(TARGET, PROMPT, max_new_tokens=36).tokens)
    assert out.stats.accepted


def test_the_first_level_is_accepted_with_the_mass_of_its_children():
    target = native(seed=5, vocab_size=7, **TINY)
    drafter = MedusaDrafter(target, random_heads(target, 2, 1), TokenTree([0, 1], [-1, -1]))
    first = list(outcomes(lambda rng: next(stream(target, [1, 2], drafter, 3, 1.0, rng=rng))))
    accepted = sum(weight for step, weight in first if step.path)
    assert accepted == pytest.approx(sum(first[0][0].p), abs=1e-12)
    assert 0.02 < accepted < 0.98


def test_the_first_round_after_one_token_and_an_empty_tree_draft_nothing():
    steps = list(stream(TARGET, PROMPT[:1], MedusaDrafter(TARGET, random_heads(TARGET), TREE), 8))
    assert len(steps[0].tree) == 0
    assert len(steps[1].tree) > 0
    nothing = MedusaDrafter(TARGET, random_heads(TARGET), TokenTree([], []))
    empty = generate(TARGET, PROMPT, nothing, 8)
    assert empty.stats.target_passes == 8
    assert empty.stats.drafted == 0


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
