"""The bench's JavaScript held against the rules it draws, which are run under the enumerating rng,
and its state.
"""

import itertools
import json
import math
from functools import cache

import pytest
import torch
import traitlets
from browsing import accessibility_faults
from javascript import evaluate
from mounting import says

from specdec_lite import theory
from specdec_lite.acceptance import (
    Proposal,
    Verdict,
    block_law,
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
from specdec_lite.viz.bench import RULES, Bench
from specdec_lite.viz.interactive import MIME

CORNERS = [[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]]
WIDE = [
    [0.3, 0.2, 0.15, 0.1, 0.1, 0.06, 0.05, 0.04],
    [0.1, 0.35, 0.05, 0.2, 0.1, 0.1, 0.02, 0.08],
    [0.5, 0, 0, 0.26, 0.24, 0, 0, 0],
]
PAIRS = [*itertools.product(CORNERS, repeat=2), (WIDE[0], WIDE[1]), (WIDE[2], WIDE[0])]


def top_two(q):
    """q cut to its two likeliest tokens, the first of equals."""
    ids = q.sort(descending=True, stable=True).indices[:2]
    kept = torch.zeros_like(q).scatter(0, ids, q[ids])
    return kept / kept.sum()


def propose(token_from, row_of):
    """One drafted token, drawn from token_from(q) and handed over with the row row_of(q)."""

    def draft(law, gamma, rng):
        q = torch.as_tensor(law(()), dtype=torch.float64)
        return Proposal(TokenTree.chain([rng.draw(token_from(q))]), row_of(q)[None])

    return draft


def argmax_bonus(proposal, target_probs, rng):
    verdict = speculative_sampling(proposal, target_probs, rng)
    return (
        verdict
        if verdict.kind == "recovered"
        else Verdict(
            verdict.path, int(target_probs[len(verdict.path)].argmax()), "bonus", verdict.tests
        )
    )


def dropping(law, gamma, rng):
    q = torch.as_tensor(law(()), dtype=torch.float64)
    token = rng.draw(q)
    kept = [token] if q[token] >= 0.25 else []
    return Proposal(TokenTree.chain(kept), q[None][: len(kept)])


same = lambda q: q
forgiving = lambda p, q, x: 1.0 if q[x] == 0 else ratio(p, q, x)
DEFINED = {
    "exact": (speculative_sampling, propose(same, same)),
    "match": (sample_and_match, propose(same, same)),
    "once": (rejection_sampling, propose(same, same)),
    "lenient": (lenient(0.5), propose(same, same)),
    "from_q": (walk(ratio, lambda p, q: q), propose(same, same)),
    "from_p": (walk(ratio, lambda p, q: p), propose(same, same)),
    "bonus_argmax": (argmax_bonus, propose(same, same)),
    "soft_argmax": (speculative_sampling, propose(lambda q: one_hot(int(q.argmax()), q), same)),
    "before_temperature": (speculative_sampling, propose(lambda q: q**2 / (q**2).sum(), same)),
    "accept_zero": (walk(forgiving, residual), propose(same, top_two)),
    "dropped": (speculative_sampling, dropping),
}


@cache
def defined_law(name, pair):
    """The law of the emitted token, from the rule itself; of all emitted tokens for the rule that
    spoils the bonus.
    """
    rule, draft = DEFINED[name]
    p, q = (torch.tensor(law, dtype=torch.float64) for law in PAIRS[pair])
    round_law = block_law(lambda _: p, lambda _: q, rule, 1, draft)
    law = torch.zeros_like(p)
    for block, weight in round_law.blocks.items():
        for token in block if name == "bonus_argmax" else block[:1]:
            law[token] += weight
    return (law / law.sum()).tolist()


@pytest.mark.parametrize("name", RULES)
def test_emitted_law_equals_the_rule_itself(name):
    given = evaluate("bench", [{"name": "emitted", "args": [name, p, q]} for p, q in PAIRS])
    for pair, law in enumerate(given):
        assert law == pytest.approx(defined_law(name, pair), abs=1e-12), PAIRS[pair]


def test_exact_rules_emit_p_and_the_others_do_not():
    covering = [i for i, (p, q) in enumerate(PAIRS) if all(b > 0 for a, b in zip(p, q) if a > 0)]
    for name in RULES:
        pairs = covering if name == "once" else range(len(PAIRS))
        worst = max(theory.total_variation(PAIRS[i][0], defined_law(name, i)) for i in pairs)
        assert (worst < 1e-12) == (name in ("exact", "match", "once")), name


def test_published_law_of_the_soft_argmax():
    (law,) = evaluate(
        "bench", [{"name": "emitted", "args": ["soft_argmax", [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]]}]
    )
    assert law == pytest.approx([0.4, 0.6, 0.0], abs=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_draws_settle_on_the_emitted_law(name):
    """A seeded run: 40 000 draws, all frequencies within Hoeffding's bound at 1 − 1e-9."""
    p, q = [0.3, 0.2, 0.15, 0.35], [0.1, 0.35, 0.4, 0.15]
    law, counts, again, other = evaluate(
        "bench",
        [{"name": "emitted", "args": [name, p, q]}]
        + [{"name": "simulate", "args": [name, p, q, 40_000, seed]} for seed in (3, 3, 4)],
    )
    assert sum(counts) == 40_000 and counts == again != other
    within = math.sqrt(math.log(2 * len(p) / 1e-9) / (2 * 40_000))
    assert max(abs(n / 40_000 - v) for n, v in zip(counts, law)) < within
    if theory.total_variation(p, law) > 2 * len(p) * within:
        assert max(abs(n / 40_000 - v) for n, v in zip(counts, p)) > within


def test_band_is_hoeffdings():
    given = evaluate(
        "bench", [{"name": "band", "args": [v, n]} for v in (3, 8) for n in (1, 100, 10_000)]
    )
    assert given == pytest.approx(
        [math.sqrt(math.log(2 * v / 0.01) / (2 * n)) for v in (3, 8) for n in (1, 100, 10_000)]
    )


def test_dragging_a_bar_keeps_the_sum_and_the_others_ratio():
    law, emptied, from_one = evaluate(
        "bench",
        [
            {"name": "setShare", "args": args}
            for args in (
                [[0.5, 0.3, 0.2], 0, 0.2],
                [[0.5, 0.3, 0.2], 2, 0.0],
                [[1.0, 0.0, 0.0], 0, 0.4],
            )
        ],
    )
    assert law == pytest.approx([0.2, 0.48, 0.32])
    assert emptied == pytest.approx([0.625, 0.375, 0])
    assert from_one == pytest.approx([0.4, 0.3, 0.3])


def test_what_is_owed_shrinks_from_sibling_to_sibling_as_the_walk_has_it():
    """The share owed is the chance that so many independent draws are all refused."""
    given = evaluate(
        "bench", [{"name": "owed", "args": [p, q, k]} for p, q in PAIRS[:6] for k in range(4)]
    )
    for place, (p, q) in enumerate(PAIRS[:6]):
        p, q = (torch.tensor(law, dtype=torch.float64) for law in (p, q))
        for k, found in enumerate(given[4 * place : 4 * place + 4]):
            expected, refused = p, 1.0
            for _ in range(k):
                refused *= 1 - float(theory.acceptance_rate(expected, q))
                expected = residual(expected, q)
            assert found["share"] == pytest.approx(refused, abs=1e-9)
            if refused > 1e-9:
                assert found["law"] == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("rule", ["from_p", "lenient"])
def test_the_tasks_solution_hides_what_the_rule_does_wrong(rule):
    p, q = [0.625, 0.375, 0.0], [0.5, 0.3, 0.2]
    (law,) = evaluate("bench", [{"name": "emitted", "args": [rule, p, q]}])
    assert law == pytest.approx(p, abs=1e-12) and theory.total_variation(p, q) > 0.1


def test_state_rules_and_presets_fit_python():
    rules, presets = evaluate(
        "bench", [{"name": "rules", "args": []}, {"name": "presets", "args": []}]
    )
    assert tuple(rules) == RULES
    for preset in presets:
        bench = Bench(p=preset["p"], q=preset["q"])
        data, _ = bench._repr_mimebundle_()
        assert data[MIME]["state"] == {
            "p": preset["p"],
            "q": preset["q"],
            "rule": "exact",
            "seed": 0,
            "siblings": False,
            "refused": 0,
        } and json.dumps(data[MIME])


@pytest.mark.parametrize(
    "bad, named",
    [
        ({"p": [0.5, 0.5]}, "p"),
        ({"q": [0.5, 0.4, 0.2]}, "q"),
        ({"rule": "none"}, "rule"),
        ({"seed": -1}, "seed"),
        ({"refused": 4}, "refused"),
        ({"p": [1.2, -0.2, 0]}, "p"),
        ({"p": [0.25] * 4}, "vocabulary"),
        ({"q": [0.1] * 10}, "q"),
    ],
)
def test_bench_refuses(bad, named):
    with pytest.raises(traitlets.TraitError, match=named):
        Bench(**bad)


PAGE = """<!doctype html><html data-theme="dark"><style>body {{ margin: 8px }} {css}</style>
<body><div id="place"></div><script>
{module}
const state = {state}, calls = {{}};
window.model = {{ get: (name) => state[name], save_changes() {{}}, off() {{}},
  set(name, value) {{ state[name] = value; (calls["change:" + name] ?? []).forEach((call) => call()); }},
  on(event, call) {{ calls[event] = [...(calls[event] ?? []), call]; }} }};
window.heard = 0;
document.body.addEventListener("keydown", () => {{ window.heard += 1; }});
bench.render({{ model, el: document.getElementById("place") }});
</script></body></html>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_bench_in_a_browser(chromium, width):
    """The task is solved by keyboard, a bar is dragged by mouse, and the table shows the rule's own
    law.
    """
    state = {"p": [0.5, 0.3, 0.2], "q": [0.5, 0.3, 0.2], "rule": "exact", "seed": 0}
    page = chromium.new_page(viewport={"width": width, "height": 900})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_content(
        PAGE.format(
            css=Bench._css,
            module=Bench._esm.replace("export default", "const bench ="),
            state=json.dumps(state),
        )
    )
    page.get_by_label("Rule", exact=True).select_option("from_p")
    page.get_by_label("p(C)").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Draw 10,000").press("Enter")
    page.wait_for_function(
        "document.querySelector('.sdl-task-state').textContent.startsWith('Solved')"
    )
    page.wait_for_function(
        "document.querySelector('[aria-live=polite]').textContent.includes('inside the band')"
    )
    assert page.evaluate("window.heard") == 1  # Enter alone
    bar = page.get_by_label("q(A)").bounding_box()
    page.mouse.move(
        bar["x"] + bar["width"] * float(page.get_by_label("q(A)").input_value()),
        bar["y"] + bar["height"] / 2,
    )
    page.mouse.down()
    page.mouse.move(bar["x"] + bar["width"] * 0.2, bar["y"] + bar["height"] / 2, steps=4)
    page.mouse.up()
    p, q = page.evaluate("[model.get('p'), model.get('q')]")
    assert q[0] == pytest.approx(0.2, abs=0.05) and sum(q) == pytest.approx(1)
    page.locator("summary").click()
    shown = [float(row.locator("td").nth(4).inner_text()) for row in page.locator("tbody tr").all()]
    beta = theory.acceptance_rate(p, q)
    assert shown == pytest.approx([min(a, b) + (1 - beta) * a for a, b in zip(p, q)], abs=6e-4)
    assert page.evaluate("document.documentElement.scrollWidth") <= width and problems == []
    page.close()


@pytest.mark.browser
def test_the_bench_shows_what_the_second_sibling_is_tested_against(mounted):
    page = mounted(Bench(siblings=True))
    page.get_by_label("Sibling tested now").select_option("1")
    says(page, ".sdl-bench [aria-live=polite]", "One sibling was refused")
    says(page, ".sdl-bench [aria-live=polite]", "20.0 % of it")
    assert page.get_by_label("p(A)").input_value() == "0.5", "the bars stay those of the first"
    page.locator("summary").click()
    shown = [row.locator("td").first.inner_text() for row in page.locator("tbody tr").all()]
    assert shown == ["1.000", "0.000", "0.000"]
    assert accessibility_faults(page) == []
    page = mounted(Bench())
    assert page.get_by_label("Sibling tested now").count() == 0
