"""The cheat sheet's tables equal the library's, and every rule links to its derivation."""

import re

import pytest
from conftest import ROOT

from specdec_lite import theory

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


@pytest.mark.parametrize("number", range(1, 13))
def test_every_rule_links_to_its_derivation(number):
    rule = re.search(rf" {number}\. (.*?)(?= {number + 1}\. |$)", TEXT)[1]
    links = re.findall(r"\]\(([^)#]+)", rule)
    assert links and all((ROOT / "book" / link).exists() for link in links)
