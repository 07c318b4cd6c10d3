"""Write the marked numbers of README, pages and chapters anew from the recordings.

A mark follows the number: `1.88×<!-- recorded: speed/amd-epyc: max(values(rows, "speedup")) -->`.
Its first part is a recording, or a JSON file of the repository. Its second part is an expression of
`data` (the content), `rows` (its field of that name) and FUNCTIONS. The mark of a computed number,
`<!-- computed: theory.expected_tokens(0.8, 4) -->`, has no recording. A number keeps its digits and
its unit. An expression may also give a word, such as the name of a format, or an estimate with its
interval: `1.88× [1.61, 2.23]<!-- ... -->`. The tests compare every mark with its recording.
"""

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec_book import recordings
from specdec_book.recordings import board
from specdec_lite import roofline, theory
from specdec_lite.simulation import sizes
from specdec_lite.simulation.estimate import Network, estimate

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(
    r"(?:(?P<spread>\d+\.\d+× \[[^\]\n]*\])"
    r"|(?P<number>[-−]?(?:\d[\d,]*)?\.?\d+)(?P<unit> ?[%×]?)|(?P<word>[\w.-]+))"
    r"(?P<mark><!-- (?:recorded: (?P<name>[\w./-]+)|computed): (?P<expression>.+?) -->)",
    re.DOTALL,
)


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


def decoded(data: dict, dtype: str, temperature: int, drafter: str = "automatic") -> dict:
    """Return a decoder's entry of a recording of `formats-smollm2`."""
    return data["decoded"][f"{dtype}, T = {temperature}"][drafter]


def lowest_kind(entry: dict) -> str:
    """Return the kind of text with the smallest speedup of such an entry."""
    return min(entry["kinds"], key=lambda kind: entry["kinds"][kind]["speedup"]["value"])


def fastest_format(data: dict) -> str:
    """Return the format of `formats-smollm2` whose plain pass takes the least time."""
    return min(data["passes"], key=lambda dtype: data["passes"][dtype]["seconds"]["1"][1])


def cell(
    model: str, method: str, kind: str, temperature: float, machine: str | None = None
) -> dict:
    """Return a cell of the scoreboard of a model, in the column of a machine."""
    return board.load(model, machine).entry(method, kind, temperature)


def speedups(model: str, method: str, temperature: float) -> list[float]:
    """Return a method's speedups over the fastest plain decoder on the kinds of text of a board."""
    kinds = board.load(model).kinds(temperature)
    return [cell(model, method, kind, temperature)["over_best"]["value"] for kind in kinds]


def plain(model: str, temperature: float, machine: str | None = None) -> dict:
    """Return the fastest plain decoder of a scoreboard: its name, threads and tokens per second."""
    costs = board.load(model, machine).costs
    name = costs.best_plain(temperature)
    rate = 1 / costs.plain(temperature)[name].mean()
    return {"name": name, "threads": costs.data["threads"], "rate": rate}


def threads(name: str) -> int:
    """Return the threads of a recording."""
    return recordings.load(name).threads


def same_texts(name: str) -> float:
    """Return the share of a recording's drafted greedy texts that equal plain decoding's."""
    rows = [
        board.numbers(row["same"])
        for cell in where(recordings.load(name).data["cells"], temperature=0.0)
        for method, row in cell["methods"].items()
        if method != "plain" and row.get("same")
    ]
    return sum(map(sum, rows)) / sum(map(len, rows))


FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        *(where, one, sound, values, least_alpha, gammas_within, statistics.median),
        *(decoded, lowest_kind, fastest_format, estimate, Network, recordings.plain_cost),
        *(cell, speedups, plain, threads, same_texts),
    )
} | {"theory": theory, "roofline": roofline, "sizes": sizes}


def content(name: str) -> dict:
    """Return a recording's data, or the content of a JSON file."""
    if name.endswith(".json"):
        return json.loads((ROOT / name).read_text(encoding="utf-8"))
    return recordings.load(name).data


def expected(match: re.Match) -> str:
    """Return a marked number or word as its recording or formula has it."""
    data = content(match["name"]) if match["name"] else {}
    names = FUNCTIONS | {"data": data, "rows": data.get("rows")}
    value = eval(match["expression"], names)
    if isinstance(value, str):
        return value
    if match["spread"]:
        return "{:.2f}× [{:.2f}, {:.2f}]".format(value["value"], *value["interval"])
    number, unit = match["number"] or match["word"], match["unit"] or ""
    digits = len(number.partition(".")[2])
    text = f"{value * (100 if '%' in unit else 1):,.{digits}f}"
    if "," not in number:
        text = text.replace(",", "")
    if number.lstrip("-−").startswith("."):
        text = text.replace("0.", ".", 1)
    return text.replace("-", "−" if "−" in number else "-") + unit


def renew(text: str) -> str:
    """Return a text with every marked number as its recording or formula has it."""
    return MARKED.sub(lambda match: expected(match) + match["mark"], text)


def renew_file(path: Path) -> bool:
    """Write the marked numbers of a page or chapter anew, and return whether any changed."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        changed = renew(text)
    else:
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = renew("".join(cell["source"])).splitlines(keepends=True)
        changed = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    path.write_text(changed, encoding="utf-8")
    return changed != text


def write(report: Callable[[str], None] = print) -> None:
    """Write the marked numbers of all pages anew, and report the pages that changed."""
    for path in [*ROOT.glob("*.md"), *ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.ipynb")]:
        if renew_file(path):
            report(path.relative_to(ROOT).as_posix())
