"""The directive ```{busy-machine}```: the recorded speed of decoding beside other busy programs."""

import statistics

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book import recordings

from . import deferred
from .docutils_tables import table

EXPERIMENT = "busy-machine"
MODELS = {
    "pair": "shipped pair with its draft, float32",
    "smollm2": "SmolLM2 without a draft, bfloat16",
}


def speed(rows: list[dict]) -> str:
    """Return the median tokens per second over all repetitions, and their range if there are more."""
    values = sorted(row["tokens"] / seconds for row in rows for seconds in row["seconds"])
    median = f"{statistics.median(values):.1f}"
    return f"{median} ({values[0]:.1f} to {values[-1]:.1f})" if len(values) > 1 else median


def rows(data: dict) -> list[tuple[str, ...]]:
    """Return one row per model and setting."""
    keys = dict.fromkeys((row["model"], row["setting"]) for row in data["rows"])
    order = sorted(
        keys, key=lambda key: ([*MODELS].index(key[0]), [*data["settings"]].index(key[1]))
    )
    lines = []
    for key in order:
        own = [row for row in data["rows"] if (row["model"], row["setting"]) == key]
        loads = ([row for row in own if row["load"] == load] for load in ("quiet", "busy"))
        threads = str(own[0]["threads"])
        lines.append((MODELS[key[0]], key[1], threads, *map(speed, loads)))
    return lines


def fill(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of the directive: a table and the source of the recording."""
    if not recordings.names(EXPERIMENT):
        return [nodes.paragraph(text="No machine is recorded yet.")]
    recording = recordings.load(EXPERIMENT)
    data = recording.data
    busy = f"{data['programs']} busy programs"
    heads = ("model", "OpenMP", "threads", "quiet, tokens/s", f"{busy}, tokens/s")
    load = max(each[0] for part, each in data["load_averages"].items() if part.startswith("quiet"))
    is_single = all(len(row["seconds"]) == 1 for row in data["rows"])
    measured = "One run of each" if is_single else "Medians and ranges"
    source = (
        f"{measured}, {data['cores']} cores; load average before the quiet turns at most"
        f" {load:.1f}; {recording.source.replace('`', '')}."
    )
    return [table(heads, rows(data)), nodes.paragraph("", "", nodes.emphasis(text=source))]


def register(app: Sphinx) -> None:
    """Add the directive to a Sphinx application."""
    deferred.add_directive(app, "busy-machine", fill)
