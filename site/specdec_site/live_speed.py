"""The directive of the live page: the recorded races of SmolLM2 in a browser, by kind of text."""

import statistics

from docutils import nodes
from sphinx.application import Sphinx

from specdec_book import recordings
from specdec_book.viz.source import source_note

from . import deferred
from .docutils_tables import table

EXPERIMENT = "live-smollm2"


def median(races: list[dict], lane: str) -> str:
    """Return the median tokens per second of a lane, as text."""
    return f"{statistics.median(race['per_second'][lane] for race in races):.0f}"


def speedup(races: list[dict]) -> tuple[str, str]:
    """Return the median speedup over all turns of some races and its range, as texts."""
    turns = [value for race in races for value in race["speedups"]]
    return f"{statistics.median(turns):.2f}×", f"{min(turns):.2f} to {max(turns):.2f}"


def rows(races: list[dict]) -> list[tuple[str, ...]]:
    """Return one row per number of threads and kind of text."""
    groups: dict[tuple, list[dict]] = {}
    for race in races:
        groups.setdefault((race["threads"], race["kind"]), []).append(race)
    return [
        (
            kind,
            str(threads),
            *speedup(group),
            median(group, "plain"),
            median(group, "speculative"),
            f"{statistics.median(race['tau'] for race in group):.2f}",
            str(len(group)),
        )
        for (threads, kind), group in groups.items()
    ]


def costs(races: list[dict]) -> list[tuple[str, ...]]:
    """Return T(1) in milliseconds, T(k)/T(1) and c for each number of threads."""
    lines = []
    for threads in dict.fromkeys(race["threads"] for race in races):
        group = [race for race in races if race["threads"] == threads]
        ratio = lambda get: statistics.median(get(race) / race["target_ms"][0] for race in group)
        one = statistics.median(race["target_ms"][0] for race in group)
        passes = (f"{ratio(lambda race, k=k: race['target_ms'][k]):.2f}" for k in range(1, 8))
        lines.append(
            (str(threads), f"{one:.1f}", *passes, f"{ratio(lambda race: race['draft_ms']):.2f}")
        )
    return lines


def fill(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of the directive: two tables and the source of the recording."""
    if not recordings.names(EXPERIMENT):
        return [nodes.paragraph(text="No machine is recorded yet; run it on yours above.")]
    recording = recordings.load(EXPERIMENT)
    races = recording.data["races"]
    speeds = ("kind", "threads", "speedup", "range of the turns")
    speeds += ("plain, tokens/s", "speculative, tokens/s", "τ", "requests")
    times = ("threads", "T(1), ms", *(f"T({k})" for k in range(2, 9)), "c")
    source = source_note(f"{recording.data['browser']}; {recording.source}")
    return [
        table(speeds, rows(races)),
        table(times, costs(races)),
        nodes.raw("", f'<div class="sdl-caption">{source}</div>', format="html"),
    ]


def register(app: Sphinx) -> None:
    """Add the directive to a Sphinx application."""
    deferred.add_directive(app, "live-speed", fill)
