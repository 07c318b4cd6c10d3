"""Chapter 20: its cells decide every claim of the table, and the evidence exists."""

import re
import sys

import pytest
from chapters import text_of
from conftest import ROOT
from specdec_site.addresses import prefixes

from specdec_book.viz.claims import CLAIMS, STYLES, claims_overview, claims_table

CHAPTER = ROOT / "notebooks" / "20_claims.ipynb"
DECISION = re.compile(r'^decide\((\d+), .*, "([^"]+)"\)$', flags=re.M)
LINK = re.compile(r"\]\((?!https?:)([^)]+)\)")


def test_the_cells_decide_each_claim_once_as_the_table_states():
    decisions = DECISION.findall(text_of(CHAPTER, "code"))
    assert len(decisions) == text_of(CHAPTER, "code").count("\ndecide(") == len(CLAIMS)
    assert {int(n): verdict for n, verdict in decisions} == {
        n: claim.verdict for n, claim in CLAIMS.items()
    }


def test_the_evidence_of_each_claim_exists_and_each_has_a_source():
    for number, claim in CLAIMS.items():
        assert claim.source and claim.verdict in STYLES, number
        links = LINK.findall(claim.evidence)
        assert links, number
        for link in links:
            assert (CHAPTER.parent / link).resolve().is_file(), (number, link)


def test_every_claim_has_an_address_and_a_box():
    table, overview = claims_table().data, claims_overview().data
    for number, claim in CLAIMS.items():
        assert table.count(f'id="claim-{number}"') == overview.count(f'"#claim-{number}"') == 1
        row = re.search(rf'^.*id="claim-{number}".*$', table, flags=re.M)[0]
        assert STYLES[claim.verdict] in row


def test_the_table_opens_with_the_claims_that_do_not_hold():
    checked = re.findall(r'id="([\w-]+)" checked', claims_overview().data)
    assert checked == [f"show-{STYLES['does not hold']}"]
    assert "tr:has(:target) { display: table-row !important" in claims_overview().data


@pytest.mark.parametrize("verdict", STYLES)
def test_the_first_sentence_counts_the_verdicts(verdict):
    words = {3: "three", 6: "six", 11: "eleven", 12: "twelve"}
    sentence = re.search(r"\*\*Thirty-two claims .*", text_of(CHAPTER))[0]
    count = sum(claim.verdict == verdict for claim in CLAIMS.values())
    verb = {"does not hold": "do not hold", "not decided here": "cannot be decided here"}.get(
        verdict, verdict.replace("holds", "hold")
    )
    assert len(CLAIMS) == 32 and f"{words[count]} {verb}" in sentence


def test_its_links_lead_somewhere_in_colab_too(monkeypatch):
    links = lambda: set(re.findall(r"\]\(([^)]+)\)", claims_table().data))
    assert not all("://" in link for link in links())
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    blob = prefixes()[1].removeprefix("https://github.com/")
    assert all("://" in link for link in links())
    assert f"https://colab.research.google.com/github/{blob}notebooks/07_how_fast.ipynb" in links()
    assert f"https://github.com/{blob}tests/test_theory.py" in links()
