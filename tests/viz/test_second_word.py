"""Two words drafted in one pass: the formulas against the rule."""

import itertools
import math
from functools import partial

import pytest
import torch
from javascript import evaluate, formula
from test_bench import propose

from specdec_lite import theory
from specdec_lite.acceptance import block_distribution, speculative_sampling

FIRST = torch.tensor([0.6, 0.4], dtype=torch.float64)
SECOND = torch.tensor([[0.9, 0.1], [0.05, 0.95]], dtype=torch.float64)
STATES = [
    {"sees": sees, "bias": bias, "honest": honest}
    for sees, bias, honest in itertools.product((False, True), (0, 0.7, 2.4, 5), (True, False))
]


ask = partial(evaluate, "second_word")


def rows(state, x):
    """Return the row from which the word is drawn, and the row that the rule is given."""
    blind = FIRST @ SECOND
    if state["sees"]:
        return SECOND[x], SECOND[x]
    drawn = blind.log()
    drawn[x] += state["bias"]
    drawn = drawn.softmax(-1)
    return drawn, drawn if state["honest"] else blind


def by_the_rule(p, drawn, stated):
    """Return the distribution of the emitted word, and the probability that the draft is accepted.

    Both are computed by running the rule through all outcomes.
    """
    draft = propose(lambda _: drawn, lambda _: stated)
    blocks = block_distribution(lambda _: p, lambda _: p, speculative_sampling, 1, draft).blocks
    masses = [sum(w for block, w in blocks.items() if block[0] == word) for word in (0, 1)]
    return masses, sum(w for block, w in blocks.items() if len(block) == 2)


def test_emitted_and_accepted_equal_the_rules():
    calls = [(state, x) for state in STATES for x in (0, 1)]
    names = ("emitted", "accepted", "drawn")
    for (state, x), emitted, accepted, drawn in zip(calls, *(ask(name, calls) for name in names)):
        masses, rate = by_the_rule(SECOND[x], *rows(state, x))
        assert emitted == pytest.approx(masses, abs=1e-9)
        assert accepted == pytest.approx(rate, abs=1e-9)
        assert drawn == pytest.approx(rows(state, x)[0].tolist(), abs=1e-12)


def test_only_a_wrong_row_changes_the_text():
    for state, distance in zip(STATES, ask("distance", [[state] for state in STATES])):
        wrong = not state["honest"] and not state["sees"] and state["bias"] > 0
        assert distance > 0.02 if wrong else distance < 1e-12


def test_the_best_bias_beats_every_other_bias():
    best = formula("second_word", "best")
    grid = [i / 10 for i in range(51)]
    rates = [
        sum(
            float(FIRST[x])
            * theory.acceptance_rate(SECOND[x], rows({**STATES[0], "bias": bias}, x)[0])
            for x in (0, 1)
        )
        for bias in grid
    ]
    assert best == pytest.approx(max(rates), abs=1e-9) and max(rates) > rates[0] + 0.3
    assert not math.isclose(max(rates), 1.0, abs_tol=1e-3)
