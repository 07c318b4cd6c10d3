"""Chapter 20's table states the verdicts that its cells compute, and the evidence files exist."""

import re
from pathlib import Path

import nbformat

CHAPTER = Path(__file__).resolve().parents[2] / "notebooks" / "20_claims.ipynb"
BADGES = {
    "holds": "sdl-holds",
    "holds with a condition": "sdl-condition",
    "does not hold": "sdl-not",
    "not ours to judge": "sdl-open",
}
ROW = re.compile(
    r'^\| (\d+) \| (.+?) \| <span class="sdl-badge ([\w-]+)">(.+?)</span> \| (.+?) \| (.+?) \|$',
    flags=re.M,
)
VERDICT_CALL = re.compile(r'^judge\((\d+), .*, "([^"]+)"\)$', flags=re.M)
LINK = re.compile(r"\]\(([^)]+)\)")


def read(kind: str) -> str:
    """Return the text of the chapter's cells of one kind."""
    chapter = nbformat.read(CHAPTER, as_version=4)
    return "\n".join(cell.source for cell in chapter.cells if cell.cell_type == kind)


def disagreements(table: str, code: str) -> list[str]:
    """Return the claims for which table and cells have different verdicts."""
    shown = {number: verdict for number, _, _, verdict, _, _ in ROW.findall(table)}
    computed = dict(VERDICT_CALL.findall(code))
    return [
        f"{number}: table {shown.get(number)}, cells {computed.get(number)}"
        for number in sorted(shown.keys() | computed.keys(), key=int)
        if shown.get(number) != computed.get(number)
    ]


def test_the_table_states_the_verdicts_of_the_cells():
    table, code = read("markdown"), read("code")
    assert disagreements(table, code) == []
    assert disagreements(table.replace('">holds</span>', '">does not hold</span>', 1), code)
    assert disagreements(table, code.replace("judge(20, ", "judged(20, "))


def test_claims_are_numbered_and_have_one_of_four_badges():
    rows = ROW.findall(read("markdown"))
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 20
    assert len(rows) == read("markdown").count("sdl-badge")
    for number, _, style, verdict, _, _ in rows:
        assert BADGES[verdict] == style, number


def test_each_claim_has_one_verdict():
    numbers = [number for number, _ in VERDICT_CALL.findall(read("code"))]
    assert len(set(numbers)) == len(numbers) == read("code").count("\njudge(")


def test_the_evidence_of_each_claim_exists():
    for number, _, _, _, _, evidence in ROW.findall(read("markdown")):
        links = LINK.findall(evidence)
        assert links, number
        for link in links:
            assert (CHAPTER.parent / link).resolve().is_file(), (number, link)


def test_the_answer_of_the_prediction_equals_the_counts_of_the_table():
    table = read("markdown")
    verdicts = [row[3] for row in ROW.findall(table)]
    words = {1: "one", 6: "six", 9: "Nine", 12: "twelve"}
    answer = re.search(r"Fewer than half: .*", table)[0]
    for badge in BADGES:
        assert words[verdicts.count(badge)] in answer, badge
