"""Every marked number in prose equals the recording or the formula that it names.

A mark follows the number: `1.88×<!-- recorded: speed/amd-epyc: max(values(rows, "speedup")) -->`.
Its first part is a recording, or a JSON file of the repository. Its second part is an expression of
`data` (the content), `rows` (its field of that name), `one`, `where`, `values` and `sound` below. The
mark of a computed number, `<!-- computed: theory.expected_tokens(0.8, 4) -->`, has no recording.
"""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from specdec_book import recordings
from specdec_lite import roofline, theory
from specdec_lite.simulation import sizes
from specdec_lite.simulation.estimate import Network, estimate

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(
    r"<!-- (?:recorded: (?P<name>[\w./-]+)|computed): (?P<expression>.+?) -->", re.DOTALL
)
NUMBER = re.compile(r"(?P<number>[-−]?(?:\d[\d,]*)?\.?\d+)(?P<unit> ?[%×]?)$")


def where(rows: list[dict], **fields) -> list[dict]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def one(rows: list[dict], **fields) -> dict:
    """Return the only row with these values."""
    (row,) = where(rows, **fields)
    return row


def sound(rows: list[dict], **fields) -> list[dict]:
    """Return the rows with these values that the recording does not flag."""
    return [row for row in where(rows, **fields) if not row.get("flags")]


def values(rows: list[dict], name: str, **fields) -> list[float]:
    """Return an estimate's value in every sound row with these values of other fields."""
    return [row[name]["value"] for row in sound(rows, **fields)]


def least_alpha(speedup: float, c: float) -> float:
    """Return the smallest α, to two digits, whose best γ reaches a speedup."""
    alphas = (number / 100 for number in range(101))
    return next(alpha for alpha in alphas if theory.optimal_gamma(alpha, c)[1] >= speedup)


def gammas_within(share: float, alpha: float, c: float) -> list[int]:
    """Return the γ whose speedup is below the best by less than a share of it."""
    most = (1 - share) * theory.optimal_gamma(alpha, c)[1]
    return [g for g in range(1, 25) if theory.walltime_improvement(alpha, g, c) > most]


FUNCTIONS = dict(
    one=one,
    where=where,
    sound=sound,
    values=values,
    median=statistics.median,
    least_alpha=least_alpha,
    gammas_within=gammas_within,
    theory=theory,
    roofline=roofline,
    estimate=estimate,
    Network=Network,
    sizes=sizes,
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield (path, prose) of the pages, the chapters and the files for readers of the repository."""
    for file in [*ROOT.glob("*.md"), *ROOT.glob("book/*.md")]:
        yield file.name, file.read_text(encoding="utf-8")
    for file in ROOT.glob("notebooks/*.ipynb"):
        cells = nbformat.read(file, 4).cells
        yield file.name, "\n".join(c.source for c in cells if c.cell_type == "markdown")


def content(name: str) -> dict:
    """Return a recording's data, or the content of a JSON file."""
    if name.endswith(".json"):
        return json.loads((ROOT / name).read_text(encoding="utf-8"))
    return recordings.load(name).data


def fault(before: str, mark: re.Match) -> str | None:
    """Return what is wrong with a marked number, or None."""
    number = NUMBER.search(before)
    if number is None:
        return f"no number before {mark[0]}"
    data = content(mark["name"]) if mark["name"] else {}
    names = FUNCTIONS | {"data": data, "rows": data.get("rows")}
    value = eval(mark["expression"], names) * (100 if "%" in number["unit"] else 1)
    written = number["number"].replace(",", "").replace("−", "-")
    digits = len(written.partition(".")[2])
    recorded = f"{value:.{digits}f}"
    same = written == recorded or written == recorded.replace("0.", ".", 1)
    return None if same else f"{number[0]} must be {recorded}: {mark[0]}"


def faults(text: str) -> list[str]:
    """Return what is wrong with the marked numbers of a text."""
    found = (fault(text[: mark.start()], mark) for mark in MARK.finditer(text))
    return [each for each in found if each]


@pytest.mark.parametrize("name, text", [pytest.param(*each, id=each[0]) for each in texts()])
def test_marked_numbers_equal_their_recordings(name, text):
    assert faults(text) == []
    assert len(re.findall("<!-- (?:recorded|computed)", text)) == len(MARK.findall(text)), (
        "a mark is malformed"
    )


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "book/limits.md"])
def test_every_measured_ratio_is_marked(name):
    """On these pages nothing with a decimal and × or % is cited or defined."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r"\d\.\d+ ?[×%](?!\s*<!-- (?:recorded|computed))", text) == []


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("about 0.64", False),
        ("about .64", False),
        ("64 %", False),
        ("−0.64", True),
        ("0.65", True),
        ("no number", True),
    ],
)
def test_a_wrong_number_is_found(text, wrong):
    mark = '<!-- recorded: longer-training: data["before"]["held_out"]["all"]["alpha"] -->'
    assert bool(faults(text + mark)) == wrong
