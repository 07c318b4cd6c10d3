"""Tables that fit a phone: tables of words become cards, long ones get fixed column widths.

Runs on finished pages. Lengths are counted in letters, because no page is laid out during the build.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from bs4 import BeautifulSoup, Tag

from .line_breaks import OWN_TABLES

WORDY = 16  # letters in the longest cell of a column of words
LONG_CODE = 40  # letters: a phone would break such code everywhere beside another column
LONG_TABLE = 12  # rows
BRIEF = 11  # letters: a third of a phone's line, so three such columns fit side by side
FEW = 3  # rows that can be read one after another as well as side by side
PHONE = 52  # letters that fit a phone's line beside a table's borders
LINE = 84  # letters that fit a table's row beside the borders of its cells
BORDERS = 3  # of a cell, in letters
LONGEST = 16  # letters of a word that a cell never breaks


def stack_tables(soup: BeautifulSoup) -> None:
    """Mark tables of words and label their cells, so that a phone can show each row as a card.

    The ARIA roles remain those of a table.
    """
    for table in soup.select("article table:not(.sdl-stack):not(.dataframe)"):
        heads = table.select("thead tr > *")
        rows = [row.find_all(["td", "th"], recursive=False) for row in table.select("tbody > tr")]
        if (
            table.find_parent(class_=OWN_TABLES)
            or len(heads) < 2
            or any(len(row) != len(heads) for row in rows)
            or not _needs_cards(table, heads, rows)
        ):
            continue
        table["class"] = [*table.get("class", []), "sdl-stack"]
        _mark_brief_columns(heads, rows)
        _label_cells(table, heads, rows)


def _needs_cards(table: Tag, heads: Sequence[Tag], rows: Sequence[Sequence[Tag]]) -> bool:
    """Return whether a phone shows a table better as cards.

    Two columns of plain words fit side by side, and many rows of numbers scroll.
    """
    wordy = [
        max((sum(map(str.isalpha, row[i].get_text())) for row in rows), default=0) >= WORDY
        for i in range(len(heads))
    ]
    dense = any(len(code.get_text()) >= LONG_CODE for code in table.select("td code"))
    wide = sum(1.5 + max(map(_longest_word, column)) for column in zip(heads, *rows)) > PHONE
    worded = sum(wordy) >= 2 and (len(heads) > 2 or bool(table.find("code")))
    return dense or worded or wide and (any(wordy) or len(rows) <= FEW)


def _mark_brief_columns(heads: Sequence[Tag], rows: Sequence[Sequence[Tag]]) -> None:
    """Mark runs of at least three short columns, which a card shows side by side."""
    brief = [
        i > 0 and max(map(_letters, column)) <= BRIEF for i, column in enumerate(zip(heads, *rows))
    ]
    for is_brief, group in groupby(range(len(heads)), brief.__getitem__):
        run = list(group)
        classes = ["sdl-brief", *["sdl-fourth"][: len(run) % 3 == 1]]  # no column alone on a line
        for cell in (row[i] for row in rows for i in run if is_brief and len(run) >= 3):
            cell["class"] = [*cell.get("class", []), *classes]


def _label_cells(table: Tag, heads: Sequence[Tag], rows: Sequence[Sequence[Tag]]) -> None:
    """Give each cell its column's title and the roles of a table."""
    table["role"] = "table"
    for row in table.select("tr"):
        row["role"] = "row"
    for head in heads:
        head["role"] = "columnheader" if head.get_text(strip=True) else "cell"
    labels = [head.get_text(" ", strip=True) for head in heads]
    for cell, label in ((cell, label) for row in rows for cell, label in zip(row, labels)):
        cell["role"] = "rowheader" if cell.name == "th" else "cell"
        if cell.get_text(strip=True):
            cell["data-label"] = label


def fix_widths(soup: BeautifulSoup) -> None:
    """Fix the column widths of each long table of words.

    Otherwise a browser that shows the first rows of a page would move the columns with every longer
    word that arrives. A column gets the width of its longest word, and a share of the rest by the
    length of its text.
    """
    for table in soup.select("article table.sdl-stack:not(.sdl-steady)"):
        rows = table.select("tbody > tr")
        if len(rows) < LONG_TABLE:
            continue
        cells = [row.find_all(["td", "th"], recursive=False) for row in [*rows, table.thead.tr]]
        columns = list(zip(*cells))
        least = [BORDERS + max(map(_longest_word, column)) for column in columns]
        shares = [max(map(_text_length, column)) ** 0.5 for column in columns]
        rest = max(0, LINE - sum(least)) / sum(shares)
        widths = [minimum + rest * share for minimum, share in zip(least, shares)]
        group = soup.new_tag("colgroup")
        for width in widths:
            group.append(soup.new_tag("col", style=f"width: {100 * width / sum(widths):.1f}%"))
        for old in table.select("colgroup"):
            old.decompose()
        table.insert(0, group)
        table["class"] = [*table["class"], "sdl-steady"]


def _longest_word(cell: Tag) -> int:
    text = re.sub(r"\\[a-z]+", "x", cell.get_text(" ", strip=True))  # of a formula
    words = re.split(r"[\s\-–]+", text.replace("\u00a0", "x"))
    return min(LONGEST, max(map(len, words)))


def _letters(cell: Tag) -> int:
    return len(cell.get_text(" ", strip=True))


def _text_length(cell: Tag) -> int:
    """Return the letters of a cell, with each formula counted as its plain text."""
    formulas = cell.select(".math[data-plain]")
    extra = sum(len(formula["data-plain"]) - len(formula.get_text()) for formula in formulas)
    return max(4, _letters(cell) + extra)
