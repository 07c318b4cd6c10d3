"""Every page that calls a method lossless has a row in the table of book/lossless.md.

The enumeration contains what the row names: its distribution equals the target's up to rounding, or
clearly differs if the row says so.
"""

import re

from conftest import ROOT

from specdec_book import recordings

PAGE = (ROOT / "book" / "lossless.md").read_text("utf-8")
MATRIX = recordings.load("losslessness").data
TABLE = re.compile(r"^\| (\[.+?) \| (.+?) \| (.+?) \|$", flags=re.M)


def rows(page: str) -> list[tuple[str, str]]:
    """Return (pages, enumerated) of each row of the table."""
    part = page.split('## Where the book says "lossless"')[1].split("\n## ")[0]
    return [(pages, enumerated) for pages, _, enumerated in TABLE.findall(part)]


def distances(name: str) -> list[float]:
    """Return the distances of a rule or drafter from the target's distribution.

    The list is empty if the enumeration does not contain that name.
    """
    entries = [row for row in MATRIX["drafters"] if row["drafter"] == name]
    entries += [row for row in MATRIX["rules"] if row["rule"] == name]
    return [d for row in entries for d in row["distance"].values() if d is not None]


def broken(page: str) -> list[str]:
    """Return the names for which the table and the enumeration disagree."""
    wrong = []
    for _, enumerated in rows(page):
        exact, _, lossy = enumerated.partition("not lossless:")
        for name in re.findall(r"`([^`]+)`", exact):
            if not (measured := distances(name)) or max(measured) >= 1e-12:
                wrong.append(name)
        for name in re.findall(r"`([^`]+)`", lossy):
            if not (measured := distances(name)) or max(measured) < 1e-3:
                wrong.append(name)
    return wrong


def missing_rows(page: str, chapters: dict[str, str]) -> list[str]:
    """Return the chapters that contain the word "lossless" and have no row."""
    listed = set(re.findall(r"notebooks/(\w+)\.ipynb", "".join(pages for pages, _ in rows(page))))
    says = lambda text: re.search(r"(?<![\w/])lossless", text.replace("Why it is lossless", ""))
    return sorted(name for name, text in chapters.items() if says(text) and name not in listed)


def test_the_table_agrees_with_the_enumeration():
    assert len(rows(PAGE)) > 10 and broken(PAGE) == []
    assert broken(PAGE.replace("`SpecExec's tree`", "`unknown tree`")) == ["unknown tree"]
    assert broken(PAGE.replace("rule `speculative_sampling`", "rule `typical(0.09, 0.3)`"))
    assert broken(PAGE.replace("not lossless: `lenient(0.6)`", "not lossless: `lenient(1.0)`"))


def test_no_chapter_says_lossless_without_a_row():
    chapters = {path.stem: path.read_text("utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert missing_rows(PAGE, chapters) == []
    assert missing_rows(PAGE, chapters | {"99_new": "This is lossless."}) == ["99_new"]
    assert missing_rows(PAGE.replace("10_medusa", "14_gone"), chapters) == ["10_medusa"]
