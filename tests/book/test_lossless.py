"""Every page that calls something lossless has its row in the promise's table, and what that row
names was enumerated: at most rounding from the target's law, or visibly off where it says so.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "lossless.md").read_text("utf-8")
MATRIX = json.loads((ROOT / "results" / "matrix.json").read_text("utf-8"))
TABLE = re.compile(r"^\| (\[.+?) \| (.+?) \| (.+?) \|$", flags=re.M)


def rows(page: str) -> list[tuple[str, str]]:
    """(pages, enumerated) of the table of what the book says."""
    part = page.split('## Where the book says "lossless"')[1].split("\n## ")[0]
    return [(pages, held) for pages, _, held in TABLE.findall(part)]


def distances(name: str) -> list[float]:
    """Of a rule or a drafter, from the target's law; empty where no such one was enumerated."""
    found = [row for row in MATRIX["drafters"] if row["drafter"] == name]
    found += [row for row in MATRIX["rules"] if row["rule"] == name]
    return [d for row in found for d in row["distance"].values() if d is not None]


def broken(page: str) -> list[str]:
    """What the table says that the enumeration does not."""
    wrong = []
    for _, held in rows(page):
        exact, _, lossy = held.partition("not lossless:")
        for name in re.findall(r"`([^`]+)`", exact):
            if not (found := distances(name)) or max(found) >= 1e-12:
                wrong.append(name)
        for name in re.findall(r"`([^`]+)`", lossy):
            if not (found := distances(name)) or max(found) < 1e-3:
                wrong.append(name)
    return wrong


def unheld(page: str, chapters: dict[str, str]) -> list[str]:
    """Chapters that say "lossless" in their own words and have no row."""
    listed = set(re.findall(r"notebooks/(\w+)\.ipynb", "".join(pages for pages, _ in rows(page))))
    says = lambda text: re.search(r"(?<![\w/])lossless", text.replace("Why it is lossless", ""))
    return sorted(name for name, text in chapters.items() if says(text) and name not in listed)


def test_what_is_called_lossless_was_enumerated():
    assert len(rows(PAGE)) > 10 and broken(PAGE) == []
    assert broken(PAGE.replace("`SpecExec's tree`", "`nobody's tree`")) == ["nobody's tree"]
    assert broken(PAGE.replace("rule `speculative_sampling`", "rule `typical(0.09, 0.3)`"))
    assert broken(PAGE.replace("not lossless: `lenient(0.6)`", "not lossless: `lenient(1.0)`"))


def test_no_chapter_says_lossless_without_its_row():
    chapters = {path.stem: path.read_text("utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert unheld(PAGE, chapters) == []
    assert unheld(PAGE, chapters | {"99_new": "This is lossless."}) == ["99_new"]
    assert unheld(PAGE.replace("14_medusa", "14_gone"), chapters) == ["14_medusa"]
