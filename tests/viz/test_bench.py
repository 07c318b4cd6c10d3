"""The bench's JavaScript against the library's rules, which run under the enumerating rng."""

import itertools
import math
from functools import cache

import pytest
import torch
from javascript import evaluate, formula
from mounting import says

from specdec_book.viz.interactives import RULES, Bench
from specdec_lite import theory
from specdec_lite.acceptance import (
    Proposal,
    Verdict,
    block_distribution,
    lenient,
    one_hot,
    ratio,
    rejection_sampling,
    residual,
    sample_and_match,
    speculative_sampling,
    walk,
)
from specdec_lite.tree import TokenTree

CORNERS = [[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]]
WIDE = [
    [0.3, 0.2, 0.15, 0.1, 0.1, 0.06, 0.05, 0.04],
    [0.1, 0.35, 0.05, 0.2, 0.1, 0.1, 0.02, 0.08],
    [0.5, 0, 0, 0.26, 0.24, 0, 0, 0],
]
PAIRS = [*itertools.product(CORNERS, repeat=2), (WIDE[0], WIDE[1]), (WIDE[2], WIDE[0])]


def top_two(q):
    """Return q restricted to its two likeliest tokens; among equal tokens the first counts."""
    ids = q.sort(descending=True, stable=True).indices[:2]
    masses = torch.zeros_like(q).scatter(0, ids, q[ids])
    return masses / masses.sum()


def same(q):
    return q


def propose(token_from=same, row_of=same):
    """Return a drafter of one token, drawn from token_from(q) and proposed with row_of(q)."""

    def draft(draft_distribution, gamma, rng):
        q = torch.as_tensor(draft_distribution(()), dtype=torch.float64)
        return Proposal(TokenTree.chain([rng.draw(token_from(q))]), row_of(q)[None])

    return draft


def argmax_bonus(proposal, target_probs, rng):
    verdict = speculative_sampling(proposal, target_probs, rng)
    if verdict.kind == "recovered":
        return verdict
    best = int(target_probs[len(verdict.path)].argmax())
    return Verdict(verdict.path, best, "bonus", verdict.tests)


def drop_unlikely(draft_distribution, gamma, rng):
    q = torch.as_tensor(draft_distribution(()), dtype=torch.float64)
    token = rng.draw(q)
    tokens = [token] if q[token] >= 0.25 else []
    return Proposal(TokenTree.chain(tokens), q[None][: len(tokens)])


keep_p = lambda p, q: p
accept_zero = lambda p, q, x: 1.0 if q[x] == 0 else ratio(p, q, x)
REFERENCES = {
    "exact": (speculative_sampling, propose()),
    "match": (sample_and_match, propose()),
    "once": (rejection_sampling, propose()),
    "likeliest": (walk(lambda p, q, x: float(x == int(p.argmax())), keep_p), propose()),
    "confidence": (walk(lambda p, q, x: float(p[x]), keep_p), propose()),
    "at_least": (walk(lambda p, q, x: float(p[x] >= q[x]), keep_p), propose()),
    "lenient": (lenient(0.5), propose()),
    "from_q": (walk(ratio, lambda p, q: q), propose()),
    "from_p": (walk(ratio, keep_p), propose()),
    "bonus_argmax": (argmax_bonus, propose()),
    "soft_argmax": (speculative_sampling, propose(lambda q: one_hot(int(q.argmax()), q))),
    "before_temperature": (speculative_sampling, propose(lambda q: q**2 / (q**2).sum())),
    "accept_zero": (walk(accept_zero, residual), propose(row_of=top_two)),
    "dropped": (speculative_sampling, drop_unlikely),
}


@cache
def emitted_distribution(name, pair):
    """Return the distribution of the first emitted token under the library's own rule.

    For the rule with the wrong bonus token it is the distribution of all emitted tokens.
    """
    rule, draft = REFERENCES[name]
    p, q = (torch.tensor(row, dtype=torch.float64) for row in PAIRS[pair])
    outcome = block_distribution(lambda _: p, lambda _: q, rule, 1, draft)
    masses = torch.zeros_like(p)
    for block, weight in outcome.blocks.items():
        for token in block if name == "bonus_argmax" else block[:1]:
            masses[token] += weight
    return (masses / masses.sum()).tolist()


@pytest.mark.parametrize("name", RULES)
def test_the_emitted_distribution_equals_the_librarys(name):
    rows = evaluate("bench", "emitted", [[name, p, q] for p, q in PAIRS])
    for pair, row in enumerate(rows):
        assert row == pytest.approx(emitted_distribution(name, pair), abs=1e-12), PAIRS[pair]


def test_only_lossless_rules_emit_p():
    covering = [i for i, (p, q) in enumerate(PAIRS) if all(b > 0 for a, b in zip(p, q) if a > 0)]
    for name in RULES:
        pairs = covering if name == "once" else range(len(PAIRS))
        emitted = {i: emitted_distribution(name, i) for i in pairs}
        distances = [theory.total_variation(PAIRS[i][0], row) for i, row in emitted.items()]
        assert (max(distances) < 1e-12) == (name in ("exact", "match", "once")), name


@pytest.mark.parametrize("name", RULES)
def test_frequencies_approach_the_emitted_distribution(name):
    """A seeded run of 40 000 draws: all frequencies are within Hoeffding's bound at 1 − 1e-9."""
    p, q = [0.3, 0.2, 0.15, 0.35], [0.1, 0.35, 0.4, 0.15]
    row, seeds = formula("bench", "emitted", name, p, q), (3, 3, 4)
    runs = evaluate("bench", "simulate", [[name, p, q, 40_000, seed] for seed in seeds])
    counts, again, other = runs
    assert sum(counts) == 40_000 and counts == again != other
    bound = math.sqrt(math.log(2 * len(p) / 1e-9) / (2 * 40_000))
    assert max(abs(n / 40_000 - v) for n, v in zip(counts, row)) < bound
    if theory.total_variation(p, row) > 2 * len(p) * bound:
        assert max(abs(n / 40_000 - v) for n, v in zip(counts, p)) > bound


def test_rules_and_presets_fit_python():
    assert tuple(formula("bench", "rules")) == RULES
    for preset in formula("bench", "presets"):
        bench = Bench(p=preset["p"], q=preset["q"])
        assert (bench.p, bench.q, bench.task) == (preset["p"], preset["q"], "from_p")


@pytest.mark.browser
def test_bench_in_a_browser(used):
    """Solve the task by keyboard, drag a bar by mouse, and compare the table with the rule."""
    page = used(Bench(q=[0.5, 0.3, 0.2]))
    page.get_by_label("Rule", exact=True).select_option("from_p")
    page.get_by_label("p(C)").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Draw 10,000").press("Enter")
    says(page, ".sdl-task-state", "Solved")
    says(page, "[aria-live=polite]", "is inside the band")
    bar, share = page.get_by_label("q(A)"), float(page.get_by_label("q(A)").input_value())
    left, top, width, height = bar.bounding_box().values()
    page.mouse.move(left + share * width, top + height / 2)
    page.mouse.down()
    page.mouse.move(left + 0.2 * width, top + height / 2, steps=4)
    page.mouse.up()
    p, q = page.evaluate("[model.get('p'), model.get('q')]")
    assert q[0] == pytest.approx(0.2, abs=0.05) and sum(q) == pytest.approx(1)
    page.locator("summary").last.click()
    shown = [float(row.locator("td").nth(4).inner_text()) for row in page.locator("tbody tr").all()]
    beta = theory.acceptance_rate(p, q)
    assert shown == pytest.approx([min(a, b) + (1 - beta) * a for a, b in zip(p, q)], abs=6e-4)
