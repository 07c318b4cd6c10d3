"""The recorded tables of rules, drafters and refusals equal fresh runs, so the book is up to date.

Every drafter is enumerated under every rule on two tokens. The full rows of the table are checked for
about three pairs, which change with the commit; in `make test-long` for every drafter under speculative
sampling and for a quarter of the other rules; every week for all.
"""

import pytest
from chosen import draw, one_in
from matrix import (
    EXACT,
    JUDGES,
    PARTS,
    REFUSALS,
    command,
    distance_of_drafter,
    judges,
    law_of_drafter,
    law_of_rule,
    refusal,
    rows,
)
from registry import DRAFTERS, RULES

from specdec_lite import acceptance, drafters

PAIRS = [(name, judge) for name in DRAFTERS for judge in judges(name)]


def recorded_row(part, *key):
    """Return a recorded row; a test that finds none says how to record it."""
    if key not in rows(part):
        pytest.fail(f"{part} has no row for {key}, run: {command(key[0])}", pytrace=False)
    return rows(part)[key]


@pytest.mark.parametrize("part", ("rules", "drafters", "refused"))
def test_the_tables_have_a_row_for_everything_there_is(part):
    missing = PARTS[part].keys() - rows(part).keys()
    assert not missing, "run: " + "; ".join(sorted({command(name) for name, *_ in missing}))
    assert rows(part).keys() == PARTS[part].keys(), "run: python tests/matrix.py"


def test_every_public_rule_and_drafter_is_registered():
    """A factory of rules is registered by a rule that it makes: their names begin alike."""
    public = {name for name in acceptance.__all__ if hasattr(getattr(acceptance, name), "lossless")}
    made = {
        "k_seq",
        "lenient",
        "lenient_scaled",
        "lenient_argmax",
        "typical",
        "top_k_match",
        "distance_match",
    }
    assert {name.split("(")[0] for name in RULES} == public | made
    from models_zoo import native

    used = {type(make(native())).__name__ for make in DRAFTERS.values()}
    named = {name for name in drafters.__all__ if name.endswith("Drafter")}
    missing = named - {"Drafter"} - used
    assert len(named) > 3 and not missing, (
        f"set tiny=True in the row of METHODS in benchmarks/methods.py, or add an entry to DRAFTERS"
        f" of tests/registry.py, for {sorted(missing)}"
    )


@pytest.mark.parametrize(
    "name, way", one_in(6, PARTS["rules"], [f"{name} chain, drawn" for name in RULES])
)
def test_a_rule_does_what_the_table_says(name, way):
    fresh, written = law_of_rule(name, way), recorded_row("rules", name, way)
    assert fresh["tag"] == written["tag"]
    assert fresh["distance"] == pytest.approx(written["distance"], abs=2e-6)
    found = [d for d in fresh["distance"].values() if d is not None]
    assert not RULES[name][0].lossless or max(found) == 0


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_tagged_lossy_is_seen_to_be(name):
    rule, ways = RULES[name]
    lossy = [
        d
        for way in ways
        for label, d in recorded_row("rules", name, way)["distance"].items()
        if label != "T = 0" and d
    ]
    assert rule.lossless or max(lossy) > 0.1


def test_drafters_run_under_every_rule_that_is_lossless_everywhere():
    left_out = {name for name, (rule, _) in RULES.items() if rule.lossless} - set(JUDGES)
    assert left_out == {
        "exact_match",
        "lenient(1.0)",
        "lenient_scaled(1.0)",
    }  # temperature 0 alone; speculative sampling by another road


@pytest.mark.parametrize("name, judge", PAIRS)
def test_two_tokens_of_a_drafter_have_the_targets_distribution(name, judge):
    assert distance_of_drafter(name, judge, "T = 1", 2) < EXACT


def mark_of_row(name: str, judge: str) -> pytest.MarkDecorator | tuple:
    """Return who checks a full row: `make test`, `make test-long` or the weekly workflow.

    A drafter's rows differ by the rule alone, and every rule is enumerated on drawn distributions.
    """
    number = draw(f"{name} {judge}", 128)
    if number == 0:
        return ()
    often = judge == "speculative_sampling" or number % 4 == 0
    return pytest.mark.matrix if often else pytest.mark.weekly


@pytest.mark.parametrize(
    "name, judge", [pytest.param(*pair, marks=mark_of_row(*pair)) for pair in PAIRS]
)
def test_a_drafter_does_what_the_table_says(name, judge):
    written = recorded_row("drafters", name, judge)
    fresh = law_of_drafter(name, judge)
    assert fresh == written and fresh["greedy text"] and not any(fresh["distance"].values())


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_reads_as_the_table_says(name):
    assert refusal(name) == recorded_row("refused", name)
