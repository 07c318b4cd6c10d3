"""Chapter 20's table says of each claim what its cells say, and what each rests on is there."""

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
JUDGED = re.compile(r'^judge\((\d+), .*, "([^"]+)"\)$', flags=re.M)
LINK = re.compile(r"\]\(([^)]+)\)")


def read(kind: str) -> str:
    chapter = nbformat.read(CHAPTER, as_version=4)
    return "\n".join(cell.source for cell in chapter.cells if cell.cell_type == kind)


def disagreements(table: str, code: str) -> list[str]:
    """What table and cells do not say alike of a claim."""
    shown = {number: said for number, _, _, said, _, _ in ROW.findall(table)}
    reached = dict(JUDGED.findall(code))
    return [
        f"{number}: table {shown.get(number)}, cells {reached.get(number)}"
        for number in sorted(shown.keys() | reached.keys(), key=int)
        if shown.get(number) != reached.get(number)
    ]


def test_the_table_says_what_the_cells_reach():
    table, code = read("markdown"), read("code")
    assert disagreements(table, code) == []
    assert disagreements(table.replace('">holds</span>', '">does not hold</span>', 1), code)
    assert disagreements(table, code.replace("judge(20, ", "judged(20, "))


def test_claims_are_numbered_and_their_badges_are_of_the_four():
    rows = ROW.findall(read("markdown"))
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 20
    assert len(rows) == read("markdown").count("sdl-badge")
    for number, _, style, said, _, _ in rows:
        assert BADGES[said] == style, number


def test_each_claim_is_judged_once():
    numbers = [number for number, _ in JUDGED.findall(read("code"))]
    assert len(set(numbers)) == len(numbers) == read("code").count("\njudge(")


def test_each_claim_rests_on_something_that_is_there():
    for number, _, _, _, _, rests in ROW.findall(read("markdown")):
        links = LINK.findall(rests)
        assert links, number
        for link in links:
            assert (CHAPTER.parent / link).resolve().is_file(), (number, link)


def test_the_prediction_counts_as_the_table_does():
    table = read("markdown")
    said = [row[3] for row in ROW.findall(table)]
    words = {1: "one", 6: "six", 9: "Nine", 12: "twelve"}
    answer = re.search(r"Fewer than half: .*", table)[0]
    for badge in BADGES:
        assert words[said.count(badge)] in answer, badge
