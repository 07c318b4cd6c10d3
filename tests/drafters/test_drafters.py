"""Test the draft model over every family of targets whose cache can be cut back."""

from itertools import product

import broken
import pytest
import torch
from broken import grow
from chosen import one_in
from drafted_rows import altered
from models_zoo import (
    COMMON,
    FAMILIES,
    PROMPT,
    VOCABULARY,
    WINDOW,
    TreeDrafter,
    build,
    hugging_face,
    native,
)
from text_laws import NATIVE, SAMPLINGS, TINY, distance, exact_text_law, model_named, own_text_law

from specdec_lite import CausalLM, generate, stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.drafters.chain import fit
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling


@pytest.mark.parametrize(
    "first, second", [(None, None), ("GPT2", None), (None, "Bloom"), ("Gemma3", "Falcon")]
)
def test_an_unrelated_draft_keeps_the_greedy_text(first, second):
    target = hugging_face(first) if first else native()
    draft = hugging_face(second) if second else native(seed=99, num_layers=1)
    plain = generate(target, PROMPT, max_new_tokens=20).tokens
    assert torch.equal(generate(target, PROMPT, ModelDrafter(draft, 3), 20).tokens, plain)


# The exact distribution of real rounds, by running the engine under the enumerating rng ----------

WIDTHS = {
    "equal vocabularies": (3, 3),
    "the draft's is padded": (3, 5),
    "the target's is padded": (4, 3),
}


@pytest.mark.parametrize(
    "widths, sampling",
    one_in(4, product(WIDTHS, SAMPLINGS), [f"equal vocabularies {SAMPLINGS[0]}"]),
)
def test_the_distribution_is_exact_for_padded_vocabularies(widths, sampling):
    ours, theirs = WIDTHS[widths]
    target = native(seed=5, vocab_size=ours, **TINY)
    drafter = ModelDrafter(native(seed=6, vocab_size=theirs, **TINY), 2)
    assert (
        distance(exact_text_law(target, drafter, sampling, 3), own_text_law(target, sampling, 3))
        < 1e-12
    )


def another_q(session, proposal, context):
    """Broken: draw from the adjusted q and report another one."""
    if proposal.probs is None:
        return proposal
    rows = proposal.probs**0.5
    return Proposal(proposal.tree, rows / rows.sum(-1, keepdim=True))


def tree_of(grown):
    return lambda model: TreeDrafter(model, grown, 1)


BROKEN = {
    "chosen siblings with soft rows": (tree_of(grow(broken.chosen(2, soft=True))), None),
    "siblings sorted by q": (tree_of(grow(broken.sorted_by_q(2))), None),
    "rows before the siblings": (tree_of(grow(broken.without_replacement(2, honest=False))), None),
    "recovered from p": (lambda model: ModelDrafter(model, 2), broken.recovered_from_p),
    "an argmax as bonus": (lambda model: ModelDrafter(model, 2), broken.bonus_by_argmax),
    "another q": (lambda model: altered(ModelDrafter(model, 2), another_q), None),
}


@pytest.mark.parametrize("make, rule", BROKEN.values(), ids=BROKEN)
def test_the_check_detects_broken_drafts_and_rules(make, rule):
    target = native(seed=5, vocab_size=3, **TINY)
    drafters = [make(native(seed=seed, vocab_size=3, **TINY)) for seed in (6, 7, 8)]
    length = 2 if isinstance(drafters[0], TreeDrafter) else 3
    own = own_text_law(target, Sampling(), length)
    laws = [exact_text_law(target, drafter, Sampling(), length, rule) for drafter in drafters]
    assert max(distance(law, own) for law in laws) > 0.01


# Draft == target: everything is accepted ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.parametrize("window", [None, WINDOW])
def test_a_perfect_draft_is_always_accepted_for_300_rounds(gamma, window):
    model = native(window=window, max_positions=4096)
    out = generate(
        model, PROMPT, ModelDrafter(model, gamma), 300 * (gamma + 1), temperature=1.0, seed=gamma
    )
    assert out.stats.acceptance_rate == 1.0 == out.stats.drafted_acceptance
    assert out.stats.target_passes == 300
    assert all(step.kind == "bonus" and step.accepted == gamma for step in out.steps)


@pytest.mark.parametrize("name", one_in(8, [*NATIVE, *FAMILIES], NATIVE))
def test_a_perfect_draft_is_always_accepted_in_every_family(name):
    """A stale or missing key in a draft's cache lowers acceptance, whatever cache a family has."""
    target = model_named(name)
    out = generate(target, PROMPT, ModelDrafter(target, 5), 180, temperature=1.0, seed=0)
    assert out.stats.acceptance_rate == 1.0 and out.stats.tested == 150


@pytest.mark.weekly
@pytest.mark.parametrize("family", FAMILIES)
def test_a_perfect_draft_is_accepted_for_300_rounds_in_every_family(family):
    room = {
        name: 1024 if size == 512 else size for name, size in (COMMON | FAMILIES[family]).items()
    }
    model = CausalLM(build(family, room).double())
    out = generate(model, PROMPT, ModelDrafter(model, 2), 900, temperature=1.0, seed=0)
    assert out.stats.acceptance_rate == 1.0
    assert (out.stats.target_passes, out.stats.tested) == (300, 600)


def test_the_draft_is_fed_two_tokens_after_a_fully_accepted_block():
    model, fed = native(), []
    score = model.score

    class Counted(CausalLM):
        def score(self, tokens, *args, **options):
            fed.append(len(tokens))
            return score(tokens, *args, **options)

    draft = Counted(model.model)
    out = generate(model, PROMPT, ModelDrafter(draft, 2), 9)
    assert fed == [len(PROMPT) - 1, 1, 1, 2, 1, 2, 1] and out.stats.draft_passes == 6


# Padded vocabularies, limits, bad input ----------------------------------------------------------


@pytest.mark.parametrize("width", [VOCABULARY - 16, VOCABULARY + 16])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_with_a_padded_vocabulary_stay_in_the_targets(width, temperature):
    target, draft = native(), native(seed=8, vocab_size=width)
    out = generate(target, PROMPT, ModelDrafter(draft, 3), 40, temperature, seed=0)
    assert int(out.tokens.max()) > 40
    assert all(step.tree.tokens.max() < VOCABULARY for step in out.steps if len(step.tree))
    assert temperature or torch.equal(
        out.tokens, generate(target, PROMPT, max_new_tokens=40).tokens
    )


def test_fit_cuts_or_fills_logits():
    logits = torch.tensor([1.0, 2.0, 9.0])
    assert fit(logits, 2).tolist() == [1, 2]
    assert fit(logits, 3) is not None
    assert fit(logits, 5).tolist() == [1, 2, 9, float("-inf"), float("-inf")]
    assert Sampling(2.0)(fit(logits, 2)).sum().item() == pytest.approx(1)
    assert Sampling(0)(fit(logits, 5)).tolist() == [0, 0, 1, 0, 0]


def test_drafts_are_no_longer_than_the_remaining_tokens():
    model = native()
    lengths = [len(step.tree) for step in stream(model, PROMPT, ModelDrafter(model, 8), 13)]
    assert lengths == [8, 3]
    assert [len(s.tree) for s in stream(model, PROMPT, ModelDrafter(model, 8), 1)] == [0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_with_nan_logits_raises(monkeypatch, temperature):
    draft = native(seed=3)
    with torch.no_grad():
        draft.model.head.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="(?i)nan"):
        generate(native(), PROMPT, ModelDrafter(draft, 2), 8, temperature=temperature)
    monkeypatch.delenv("SPECDEC_CHECK")
    with pytest.raises(ValueError, match="(?i)nan"):
        generate(native(), PROMPT, ModelDrafter(draft, 2), 8, temperature=temperature)
