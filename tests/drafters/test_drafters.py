"""Test the draft model over every family of targets whose cache can be cut back."""

from itertools import product

import broken
import pytest
from broken import grow
from chosen import one_in
from drafted_rows import altered
from models_zoo import FAMILIES, PROMPT, TreeDrafter, native, perturbed, shipped
from text_laws import NATIVE, SAMPLINGS, TINY, distance, exact_text_law, model_named, own_text_law

from specdec_lite import TokenTree, generate, stream
from specdec_lite.drafters import (
    BanditDrafter,
    CascadeDrafter,
    CoupledDrafter,
    FixedTreeDrafter,
    LayerSkipDrafter,
    MergedDrafter,
    ModelDrafter,
    PromptLookupDrafter,
    RelayDrafter,
    SparseCacheDrafter,
    same_noise,
)
from specdec_lite.drafters.self_drafts import Chunks
from specdec_lite.drafters.trees import balanced
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.texts.corpus import evaluation_prompts

# The exact distribution of real rounds, by running the engine under the enumerating rng ----------

WIDTHS = {
    "equal vocabularies": (3, 3),
    "the draft's is padded": (3, 5),
    "the target's is padded": (4, 3),
}


@pytest.mark.parametrize(
    "widths, sampling",
    one_in(4, product(WIDTHS, SAMPLINGS), [f"{w} {s}" for w in WIDTHS for s in SAMPLINGS[::4]]),
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


def soft_rows(session, proposal, context):
    """Broken: choose the likeliest tokens and report the rows."""
    if proposal.probs is None:
        return proposal
    return Proposal(TokenTree.chain(proposal.probs.argmax(-1)), proposal.probs)


BROKEN = {
    "chosen siblings with soft rows": (tree_of(grow(broken.chosen(2, soft=True))), None),
    "siblings sorted by q": (tree_of(grow(broken.sorted_by_q(2))), None),
    "rows before the siblings": (tree_of(grow(broken.without_replacement(2, honest=False))), None),
    "recovered from p": (lambda model: ModelDrafter(model, 2), broken.recovered_from_p),
    "an argmax as bonus": (lambda model: ModelDrafter(model, 2), broken.bonus_by_argmax),
    "another q": (lambda model: altered(ModelDrafter(model, 2), another_q), None),
    "an argmax with its row": (lambda model: altered(ModelDrafter(model, 2), soft_rows), None),
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


@pytest.mark.parametrize("name", one_in(8, [*NATIVE, *FAMILIES], NATIVE))
def test_a_perfect_draft_is_always_accepted_in_every_family(name):
    """A stale or missing key in a draft's cache lowers acceptance, whatever cache a family has."""
    target = model_named(name)
    out = generate(target, PROMPT, ModelDrafter(target, 1), 480, temperature=1.0, seed=0)
    assert out.stats.acceptance_rate == 1.0 and out.stats.tested == 240


TARGET = native(num_layers=4)
ERRING = perturbed(TARGET)
PERFECT = {
    "a chain": (ModelDrafter(TARGET, 5),),
    "a cascade": (CascadeDrafter(TARGET, ModelDrafter(ERRING, 2), 5),),
    "a relay": (RelayDrafter([(ModelDrafter(TARGET, 1), 2), (ModelDrafter(TARGET, 2), 2)]),),
    "a bandit": (BanditDrafter([ModelDrafter(TARGET, 3)]),),
    "its own noise": (CoupledDrafter(ModelDrafter(TARGET, 3)), same_noise),
    "merged with others": (MergedDrafter([ModelDrafter(each, 3) for each in (TARGET, ERRING)]),),
    "a tree": (FixedTreeDrafter(TARGET, balanced([2, 1, 1])),),
    "nothing is skipped": (LayerSkipDrafter(TARGET, [], 3),),
    "a window as wide as the text": (SparseCacheDrafter(TARGET, 0, 500, 3),),
    "every chunk": (SparseCacheDrafter(TARGET, 0, 1, 3, Chunks([1], 500, 1)),),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "drafter, rule", [(*row, None)[:2] for row in PERFECT.values()], ids=PERFECT
)
def test_whatever_drafts_with_the_target_itself_is_always_accepted(drafter, rule, temperature):
    """A cache one position off, a wrong mask or another row lowers acceptance and keeps the text."""
    steps = list(stream(TARGET, PROMPT, drafter, 160, temperature, rule=rule, seed=5))
    assert all(step.accepted == step.tree.levels for step in steps)
    assert len(steps) <= 160 / (1 + min(2, drafter.limits().levels)) + 3


def test_the_shipped_draft_is_accepted_as_often_as_its_report_says():
    """Above temperature 0, where no text shows a draft that was loaded wrongly."""
    pair, accepted, tested = shipped(), 0, 0
    for items in evaluation_prompts().values():
        prompt = pair.tokenizer.encode(items[0]["text"])
        stats = generate(pair.target, prompt, ModelDrafter(pair.draft, 4), 64, 1.0, seed=0).stats
        accepted, tested = accepted + stats.accepted, tested + stats.tested
    reported = 0.785  # α on the held-out text: weights/pair/report.json
    assert tested > 100 and abs(accepted / tested - reported) < 0.15


@pytest.mark.parametrize("checked", "10")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_emits_nan_is_named(temperature, checked, monkeypatch):
    monkeypatch.setenv("SPECDEC_CHECK", checked)
    draft = native()
    draft.model.head.weight.data[3] = float("nan")
    cascade = CascadeDrafter(draft, PromptLookupDrafter(2, 2), 3)
    for drafter, message in (
        (ModelDrafter(draft, 2), "(?i)\\bnan"),
        (cascade, "the cascade's middle model's logits"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(native(), PROMPT, drafter, 8, temperature, seed=0)
