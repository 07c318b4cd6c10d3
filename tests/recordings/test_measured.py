"""Measured pairs: their forecasts come from other rows, and the explorer can show them."""

import pytest
from javascript import evaluate, formula

from specdec_book.recordings import forecasts, measured
from specdec_book.viz import Explorer
from specdec_lite import theory

PUBLISHED, RECORDED = measured.published_pairs(), measured.recorded_pairs()


def predicted(pair: dict) -> float:
    return theory.corrected_improvement(
        theory.expected_tokens(pair["alpha"], pair["gamma"]),
        pair["gamma"],
        pair["c"],
        1 + pair["gamma"] * pair["step_cost"],
        pair["overhead"],
        pair["plain_overhead"],
    )


def test_every_pair_states_who_measured_it_and_no_label_is_used_twice():
    every = PUBLISHED + RECORDED
    assert len({(each["group"], each["label"]) for each in every}) == len(every) > 30
    assert all(each["source"].startswith("https://") for each in PUBLISHED)
    assert all(each["by"].startswith("Measured by others") for each in PUBLISHED)
    assert all("ecorded" in each["by"] for each in RECORDED)
    assert any("H100 80GB HBM3 (measured here)" in each["group"] for each in RECORDED[:1])


def test_the_predictions_are_near_the_measurements():
    errors = [abs(predicted(each) / each["measured"] - 1) for each in PUBLISHED + RECORDED]
    assert max(errors) < 0.15 and sorted(errors)[len(errors) // 2] < 0.04
    assert max(errors) > 0.01, "a point that lies on its curve by construction proves nothing"


@pytest.mark.parametrize("name, text, gammas", measured.PUBLISHED)
def test_a_published_cost_does_not_read_its_own_row(name, text, gammas, monkeypatch):
    before = measured.source_pairs(name, text, gammas)
    rows = forecasts.records(name)
    complete = [measured.complete(row, forecasts.entry(name)) for row in rows]
    row = next(r for r in complete if r["gamma"] in gammas and r["workload"] in ("", text))
    changed = [dict(r) for r in rows]
    changed[complete.index(row)]["speedup"] = 9.0
    monkeypatch.setattr(forecasts, "records", lambda _: changed)
    after = measured.source_pairs(name, text, gammas)
    assert after[0]["measured"] == 9.0 and before[0]["measured"] != 9.0
    assert [after[0][key] for key in ("c", "overhead")] == [
        before[0][key] for key in ("c", "overhead")
    ]


def test_no_measured_pair_is_above_its_ceiling():
    """A speedup is at most (1 + o₀) τ ÷ v; intervals of ours may reach beyond it."""
    for pair in PUBLISHED + RECORDED:
        tau = theory.expected_tokens(pair["alpha"], pair["gamma"])
        verify = 1 + pair["gamma"] * pair["step_cost"]
        assert pair["measured"] < 1.05 * (1 + pair["plain_overhead"]) * tau / verify, pair["label"]


def test_the_explorer_takes_every_pair():
    for pair in PUBLISHED + RECORDED:
        explorer = Explorer.of_pairs([pair])
        assert explorer.levers and explorer.alpha == pair["alpha"]


def test_the_levers_are_the_formula_with_one_change():
    pair = next(each for each in RECORDED if "T = 1, whole draft" in each["label"])
    names = ("alpha", "gamma", "c", "step_cost", "overhead", "plain_overhead")
    state = {name: pair[name] for name in names} | {"c_hat": 0.1}
    moved = state | {"c": state["c"] / 4}
    changed = (state, moved, moved | {"alpha": 1})
    start, one, two = evaluate("explorer", "leverState", [[each, state] for each in changed])
    gains = dict(formula("explorer", "levers", state))
    assert gains["c halved"] == pytest.approx(predicted(pair | {"c": pair["c"] / 2}))
    assert gains["1 − α halved"] == pytest.approx(
        predicted(pair | {"alpha": (1 + pair["alpha"]) / 2})
    )
    assert gains["o₀ removed"] < predicted(pair), "a better plain loop makes speculation look worse"
    assert "reach" in start and one.startswith("Solved with c") and "one slider only" in two
