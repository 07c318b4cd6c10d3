"""The cheat sheet's numbers equal the library's, and every rule links to its derivation."""

import re
from pathlib import Path

import pytest

from specdec_book import recordings
from specdec_lite import roofline, theory

ROOT = Path(__file__).parents[2]
TEXT = " ".join((ROOT / "book" / "cheat_sheet.md").read_text("utf-8").split())


def rows(heading: str) -> dict[float, list[str]]:
    """Return the rows of the table after a heading: α → cells."""
    body = (ROOT / "book" / "cheat_sheet.md").read_text("utf-8").split(heading)[1].split("\n\n")[1]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    return {float(first): cells for first, *cells in lines[2:]}


def test_tokens_per_pass():
    for alpha, cells in rows("**Tokens per pass").items():
        expected = [theory.expected_tokens(alpha, gamma) for gamma in (1, 2, 4, 6, 8)]
        assert cells == [f"{tokens:.2f}" for tokens in expected], alpha


def test_best_draft_lengths():
    for alpha, cells in rows("**Best γ").items():
        best = [theory.optimal_gamma(alpha, c) for c in (0.02, 0.05, 0.1, 0.2, 0.4)]
        assert cells == [f"{gamma}: {speedup:.2f}×" for gamma, speedup in best], alpha


def least(c: float) -> str:
    """Return the smallest α that reaches a speedup of 2, as text."""
    alpha = next(a / 100 for a in range(101) if theory.optimal_gamma(a / 100, c)[1] >= 2)
    return f"{alpha:.2f}".removeprefix("0")


def test_the_numbers_of_the_rules_follow_from_the_formulas():
    assert f"At c = .2 it needs α = {least(0.2)}, at c = .1 α = {least(0.1)}" in TEXT
    best = theory.optimal_gamma(0.8, 0.1)[1]
    near = [g for g in range(1, 25) if theory.walltime_improvement(0.8, g, 0.1) > 0.97 * best]
    assert (near[0], near[-1]) == (4, 8) and "γ = 4 to 8 are within 3 %" in TEXT
    assert f"γ = 20 gives {theory.walltime_improvement(0.8, 20, 0.1):.2f}×" in TEXT
    four, eight = (f"{theory.drafted_acceptance(0.82, g):.2f}".removeprefix("0") for g in (4, 8))
    assert f"prints {four} with γ = 4 and {eight} with γ = 8" in TEXT
    ridge = roofline.ridge_tokens(2, 2e12, 312e12)
    assert f"{ridge:.0f} for 312 TFLOP/s" in TEXT and f"leaves {int(ridge / 8)}" in TEXT
    assert f"{theory.operations_factor(0.8, 5, 0):.2f}× a token at α = .8, γ = 5" in TEXT
    gain = {row["gamma"]: row["gain"] for row in recordings.load("rules").data["rows"]}
    sentence = f"+{gain[2]:.1f} % tokens at γ = 2, +{gain[4]:.1f} % at 4, +{gain[8]:.1f} % at 8"
    assert sentence in TEXT


@pytest.mark.parametrize("number", range(1, 13))
def test_every_rule_links_to_its_derivation(number):
    rule = re.search(rf" {number}\. (.*?)(?= {number + 1}\. |$)", TEXT)[1]
    links = re.findall(r"\]\(([^)#]+)", rule)
    assert links and all((ROOT / "book" / link).exists() for link in links)
