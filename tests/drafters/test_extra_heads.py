"""Extra heads, blockwise and Medusa's: accepted blocks and branches, pass counts, trees of ranks, and
the shipped heads. The registry's tests cover the rest.
"""

import json
import math

import pytest
import torch
from caches import contents, watched_caches
from chosen import one_in
from drafted_rows import altered
from heads_zoo import random_heads, taught_heads
from models_zoo import FAMILIES, PROMPT, VOCABULARY, native, shipped
from text_laws import NATIVE, SAMPLINGS, TINY, distance, exact_text_law, model_named, own_text_law

from specdec_book import recordings
from specdec_lite import TokenTree, generate, stream
from specdec_lite.acceptance import Proposal, typical
from specdec_lite.contract import Context
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter, TemperedDrafter
from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import load_report
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.sampling import Sampling, SeededRng, outcomes
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


@pytest.mark.parametrize("make, draft", [(MedusaDrafter, TREE), (BlockwiseDrafter, 4)])
def test_after_a_prompt_of_one_token_the_first_round_drafts_nothing(make, draft):
    steps = list(stream(TARGET, PROMPT[:1], make(TARGET, random_heads(TARGET), draft), 12))
    assert steps[0].kind == "sampled" and len(steps[0].tree) == 0 < 3 <= len(steps[1].tree)


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


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 24, 25])
def test_perfect_drafts_need_m_over_k_passes_and_useless_ones_at_most_m(k, m):
    text = PROMPT + generate(TARGET, PROMPT, max_new_tokens=m).tokens.tolist()

    def passes(shift):
        def known(session, made, context):
            after = text[len(context.tokens) :][: len(made.tree)]
            return Proposal(TokenTree.chain([(token + shift) % VOCABULARY for token in after]))

        drafter = altered(BlockwiseDrafter(TARGET, random_heads(TARGET, 7), k), known)
        out = generate(TARGET, PROMPT, drafter, m)
        assert out.tokens.tolist() == text[len(PROMPT) :]
        return out.stats.target_passes

    assert passes(0) == math.ceil(m / k) and passes(1) == m


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_of_one_is_plain_decoding(temperature):
    drafter = BlockwiseDrafter(TARGET, random_heads(TARGET), 1)
    out = generate(TARGET, PROMPT, drafter, 20, temperature, seed=3)
    plain = generate(TARGET, PROMPT, None, 20, temperature, seed=3)
    assert torch.equal(out.tokens, plain.tokens) and out.stats.target_passes == 20
    assert out.stats.drafted == out.stats.draft_passes == 0
    assert all(step.kind == "sampled" for step in out.steps)


def test_drafts_fit_the_remaining_tokens_and_take_one_pass():
    steps = list(stream(TARGET, PROMPT, BlockwiseDrafter(TARGET, taught_heads("native"), 4), 9))
    left = [9 - sum(len(s.tokens) for s in steps[:i]) for i in range(len(steps))]
    assert [len(s.tree) for s in steps] == [min(3, wanted - 1) for wanted in left]
    assert all(s.draft_passes == (len(s.tree) > 0) for s in steps)


# Which row q is --------------------------------------------------------------------------------


def distance_of(target, drafter, sampling=Sampling()):  # noqa: B008
    own = own_text_law(target, sampling, 3)
    return distance(exact_text_law(target, drafter, sampling, 3), own)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_distribution_is_exact_at_another_draft_temperature(sampling):
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = TemperedDrafter(BlockwiseDrafter(target, random_heads(target, 2, seed=1), 3), 2.0)
    assert distance_of(target, drafter, sampling) < 1e-12


def another_heads_row(session, made, context):
    return Proposal(made.tree, made.probs.flip(0)) if len(made.tree) else made


def soft_row(session, made, context):
    """Broken: choose the argmax and report the row."""
    if not len(made.tree):
        return made
    return Proposal(TokenTree.chain(made.probs.argmax(-1).tolist()), made.probs)


@pytest.mark.parametrize("change, scale", [(another_heads_row, 2.0), (soft_row, 0.3)])
def test_the_same_check_rejects(change, scale):
    target = native(seed=5, vocab_size=3, **TINY)
    heads = random_heads(target, 2, seed=1, scale=scale)
    assert distance_of(target, altered(BlockwiseDrafter(target, heads, 3), change)) > 0.01


def test_a_shift_by_one_lowers_acceptance_but_keeps_the_text():
    """A published bug: the target's own head, whose token is committed already, takes the
    first draft's place.
    """
    heads = taught_heads("native")
    shifted = lambda session, made, context: Proposal(
        TokenTree.chain([int(context.tokens[-1]), *made.tree.tokens.tolist()[:-1]])
    )
    right = generate(TARGET, PROMPT, BlockwiseDrafter(TARGET, heads, 4), 20)
    wrong = generate(TARGET, PROMPT, altered(BlockwiseDrafter(TARGET, heads, 4), shifted), 20)
    assert torch.equal(right.tokens, wrong.tokens)
    assert right.stats.acceptance_rate > 0.8 and wrong.stats.acceptance_rate < 0.2
    longer = generate(TARGET, PROMPT, BlockwiseDrafter(TARGET, heads, 4), 30)
    assert longer.stats.target_passes < 25


@pytest.mark.parametrize("own", [None, 0, 2.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_session_draws_from_the_last_row_at_the_draft_temperature(own, temperature):
    heads = random_heads(TARGET)
    rows = torch.randn(1, 6, TARGET.hidden_size, dtype=TARGET.dtype)
    scores = Scores(rows, {"final": rows})
    sampling = Sampling(temperature)
    context = Context(torch.tensor(PROMPT), scores, sampling, SeededRng(0), 9, VOCABULARY)
    drafter = BlockwiseDrafter(TARGET, heads, 4)
    drafter = drafter if own is None else TemperedDrafter(drafter, own)
    proposal = drafter.start(context).propose(context)
    logits = TARGET.head(heads(rows[0, -1]))
    if (temperature if own is None else own) == 0:
        assert proposal.probs is None
        assert proposal.tree.tokens.tolist() == logits.argmax(-1).tolist()
    else:
        assert torch.equal(proposal.probs, Sampling(own or temperature)(logits))


# Heads, and what is refused --------------------------------------------------------------------


def test_new_heads_are_copies_of_the_targets_own_head():
    hidden = torch.randn(2, 5, TARGET.hidden_size, dtype=TARGET.dtype)
    heads = Heads(TARGET.hidden_size, 3).to(TARGET.dtype)
    assert torch.equal(heads(hidden), hidden[:, :, None].expand(2, 5, 3, -1)) and heads.count == 3
    assert heads.up.std().item() == pytest.approx(TARGET.hidden_size**-0.5, rel=0.1)
    taught = taught_heads("native")
    assert torch.allclose(taught(hidden, slice(1, 2))[..., 0, :], taught(hidden)[..., 1, :])


# What ships ------------------------------------------------------------------------------------


def test_the_shipped_heads_are_seven():
    drafter = BlockwiseDrafter.from_pretrained(shipped().target)
    assert drafter.k == 4 and drafter.heads.count == 7
    assert BlockwiseDrafter.from_pretrained(shipped().target, k=8).k == 8
    with pytest.raises(ValueError, match="k=9"):
        BlockwiseDrafter.from_pretrained(shipped().target, k=9)


def test_the_recording_is_of_the_shipped_target_and_heads_learned():
    recorded = recordings.load("blockwise-training").data
    assert recorded["target"] == fingerprint(shipped().target)
    runs = {(run["regime"], run["loss_kind"]): run for run in recorded["runs"]}
    others = {("distilled", "mean"), ("finetuned", "mean")}
    assert set(runs) == {("frozen", "random"), ("frozen", "mean")} | others
    before = recorded["untrained"]["loss"][1:]
    for run in runs.values():
        assert all(after < first for after, first in zip(run["held_out"]["loss"][1:], before))
        assert run["blocks"]["k"] == [1, 2, 4, 6, 8] and run["blocks"]["all"][0] == 1.0
    for kind in ("random", "mean"):
        blocks = runs["frozen", kind]["blocks"]
        assert set(blocks["identical_to_greedy"]) == {blocks["prompts"]}
        assert runs["frozen", kind]["change"]["texts_changed"] == 0


def test_heads_of_the_targets_own_dtype_are_taken():
    target = native(dtype=torch.bfloat16)
    BlockwiseDrafter(target, Heads(32, 3).to(target.device, target.dtype), k=4)
