"""Lookahead beyond the invariants: its window as a legal tree, its n-grams, its distribution where n-grams
are tried, and broken variants.
"""

import pytest
from models_zoo import PROMPT, native
from text_laws import TINY, distance

from specdec_lite import generate, stream
from specdec_lite.acceptance import sample_and_match, speculative_sampling, typical
from specdec_lite.drafters import JacobiDrafter, LookaheadDrafter
from specdec_lite.drafters.fixed_point import LookaheadSession, window_tree
from specdec_lite.sampling import Sampling, outcomes

TARGET = native()


def test_the_window_has_the_papers_mask_and_positions():
    """W = 3, N = 4: entry i of row r attends to the chain up to i, then to its column above it."""
    tree, ends = window_tree([[10, 11], [20, 21, 22], [30, 31, 32]])
    spelt = [tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))]
    assert spelt[:2] == [(10,), (10, 11)] and spelt[2:5] == [(20,), (10, 21), (10, 11, 22)]
    assert [spelt[end] for end in ends] == [(20, 30), (10, 21, 31), (10, 11, 22, 32)]
    assert tree.depth.tolist() == [0, 1, 0, 1, 2, 1, 2, 3]
    assert (LookaheadDrafter().limits().nodes, LookaheadDrafter(3, 3, 3).limits().nodes) == (29, 11)
    assert window_tree([[]])[1] == [-1]


class Heard(LookaheadDrafter):
    """Keep the session; `shift` reads the row next to the right one."""

    def __init__(self, *sizes, shift=0, **options):
        super().__init__(*sizes, **options)
        self.shift = shift

    def start(self, context):
        self.session = HeardSession(self, context.tokens.tolist())
        return self.session


class HeardSession(LookaheadSession):
    def propose(self, context):
        proposal = super().propose(context)
        self.ends = [max(0, end - self.drafter.shift) for end in self.ends]
        return proposal


def kept_that_are_said(drafter, wanted=40):
    """The share of kept n-grams whose last token the target says after some text ending with the
    others, among those of column 0: their text is known, it is the committed one.
    """
    text, right, seen = list(PROMPT), 0, 0
    for step in stream(TARGET, PROMPT, drafter, wanted):
        session = drafter.session
        if len(step.tree) == session.fed - 1 and len(session.rows) == drafter.ngram - 1:
            for gram in session.pool.get(text[-1], ()):
                said = TARGET.score([*text, *gram[:-1]], TARGET.new_cache(), last=True).logits
                right += int(said[0, -1].argmax()) == gram[-1]
                seen += 1
        text += step.tokens
    return right / seen


def test_the_newest_ngram_of_the_root_is_the_targets_prediction():
    assert kept_that_are_said(Heard(1, 3, 1)) == 1.0
    assert kept_that_are_said(Heard(1, 3, 1, shift=1)) < 0.5


def test_counts_and_kinds_follow_from_candidates():
    out = generate(TARGET, PROMPT, LookaheadDrafter(4, 3, 2), 60)
    first = out.steps[0]
    assert len(first.tree) == 3 and first.drafted == 0 and first.kind == "sampled"
    for step in out.steps:
        assert step.drafted <= 4 and step.tested <= step.drafted <= len(step.tree)
        assert step.kind == "sampled" or step.drafted
    assert out.stats.accepted > 0 and out.stats.mean_acceptance_length > 1


def law(drafter, rule, sampling):
    """Of three tokens behind a text whose n-grams are tried from the first round on."""
    tiny = native(seed=5, vocab_size=3, **TINY)
    text = [1, 2, 0, 1, 2, 1, 1, 2]
    run = lambda rng: tuple(
        token
        for step in stream(tiny, text, drafter, 3, sampling.temperature, rule=rule, rng=rng)
        for token in step.tokens
    )
    found = {}
    for emitted, weight in outcomes(run):
        found[emitted] = found.get(emitted, 0.0) + weight
    plain = {}
    for emitted, weight in outcomes(
        lambda rng: tuple(
            step.tokens[0] for step in stream(tiny, text, None, 3, sampling.temperature, rng=rng)
        )
    ):
        plain[emitted] = plain.get(emitted, 0.0) + weight
    return distance(found, plain)


@pytest.mark.parametrize(
    "drafter",
    [LookaheadDrafter(2, 3, 2, from_prompt=True), JacobiDrafter(3)],
    ids=["lookahead", "jacobi"],
)
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_above_temperature_zero_the_rule_decides_losslessness(drafter, temperature):
    sampling = Sampling(temperature)
    for rule in (speculative_sampling, sample_and_match):
        assert law(drafter, rule, sampling) < 1e-12
    assert law(drafter, typical(), sampling) > 0.05
