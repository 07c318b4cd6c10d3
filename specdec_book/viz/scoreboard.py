"""The scoreboard: a recording of `benchmarks.scoreboard` as a table that sorts and filters."""

from collections.abc import Sequence
from statistics import fmean, geometric_mean

import traitlets

from specdec_book.recordings import Recording
from specdec_book.viz.interactive import Interactive

TARGETS = {"pair": "the shipped pair", "smollm2": "SmolLM2"}
AVERAGED = ("tau", "alpha", "used", "c", "verify", "overhead", "same", "empty")
SPEEDS = ("speedup", "over_best", "formula", "ceiling", "tokens_per_second")


def cell(entry: dict, plain: float, greedy: bool) -> dict:
    """Return the numbers of one method in one setting.

    "ceiling" is the speedup that τ would allow if only the target pass took time; "same" is None
    for sampled text.

    Args:
        entry: The method's part of the recording.
        plain: Cost of a round of plain decoding, in units of T(1).
        greedy: Whether the text was decoded at temperature 0.
    """
    figures = {name: entry[name]["value"] for name in ("tau", "alpha", "speedup", "over_best")}
    others = {
        name: entry[name]
        for name in (
            *("used", "c", "verify", "overhead", "empty", "formula", "tokens_per_second"),
            *("positions", "conditional"),
        )
    }
    return (
        figures
        | others
        | {
            "interval": entry["over_best"]["interval"],
            "held": ratio_of(entry["speedup"]["value"], entry["formula"]),
            "ceiling": entry["tau"]["value"] * plain / entry["verify"],
            "same": entry["same"] if greedy else None,
        }
    )


def ratio_of(speedup: float | None, formula: float | None) -> float | None:
    """Return measured ÷ predicted speedup; None if one of them is missing."""
    return speedup / formula if formula and speedup is not None else None


def average(cells: Sequence[dict]) -> dict:
    """Return the averages over several kinds of text, in the form of one cell.

    Speeds and speedups get their geometric mean, all other numbers their arithmetic mean.

    Args:
        cells: Results of `cell`, one for each kind of text.
    """
    known = lambda name: [each[name] for each in cells if each[name] is not None]
    means = {name: fmean(known(name)) if known(name) else None for name in AVERAGED}
    speeds = {name: geometric_mean(known(name)) if known(name) else None for name in SPEEDS}
    ratio = ratio_of(speeds["speedup"], speeds["formula"])
    return means | speeds | {"held": ratio, "interval": None, "positions": [], "conditional": []}


def settings_of(recording: Recording) -> list[dict]:
    """Return the settings of a recording as [{"name", "temperature", "domain"}].

    For each temperature the first setting averages all kinds of text (domain None).
    """
    rows = recording.data["rows"]
    kinds = list(dict.fromkeys(row["domain"] for row in rows))
    settings = []
    for temperature in sorted({row["temperature"] for row in rows}):
        decoding = "greedy" if temperature == 0 else f"temperature {temperature:g}"
        for kind in (None, *kinds):
            name = f"{kind or 'all kinds of text'}, {decoding}"
            settings.append({"name": name, "temperature": temperature, "domain": kind})
    return settings


def table_of(recording: Recording) -> list[dict]:
    """Return one row per method: its properties, and "cells", one for each of `settings_of`.

    A cell is None if the method was not measured in that setting.
    """
    drift = recording.data.get("drift", {})
    measured = recording.data["rows"]

    def cell_of(name: str, setting: dict) -> dict | None:
        greedy = setting["temperature"] == 0
        cells = [
            cell(row["methods"][name], row["plain"]["round"], greedy)
            for row in measured
            if row["temperature"] == setting["temperature"]
            and setting["domain"] in (None, row["domain"])
            and name in row["methods"]
        ]
        return (cells[0] if setting["domain"] else average(cells)) if cells else None

    rows = []
    for name, about in recording.data["methods"].items():
        distance = 0.0 if about["lossless"] else drift.get(name, {}).get("mean")
        properties = {
            key: about[key]
            for key in ("source", "chapter", "lossless", "bytes", "minutes", "trained")
        }
        cells = [cell_of(name, setting) for setting in settings_of(recording)]
        rows.append({"name": name, **properties, "drift": distance, "cells": cells})
    return rows


class Scoreboard(Interactive):
    """Every method of a recording, sorted by any column, filtered, and drawn against its cost.

    Attributes:
        target: Name of the target.
        rows: One dict per method, as `table_of` returns them.
        settings: As `settings_of` returns them.
        setting: Number of the setting on display, from 0.
        source: "all", or the source of drafts to which the table is limited.
        fidelity: "all", or limit the table to "lossless" or "lossy" methods.
        cost: Axis of the picture: "bytes" of memory, or "drift" from the target's distribution.
        sort: Name of the column that sorts the table.
        down: Whether the largest value comes first.
        chosen: Name of the selected row, or "".
    """

    module = "scoreboard"
    label = "Scoreboard: every method beside plain decoding, as a table that sorts and filters"

    target = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    settings = traitlets.List(traitlets.Dict()).tag(sync=True)
    setting = traitlets.Int(0, min=0).tag(sync=True)
    source = traitlets.Unicode("all").tag(sync=True)
    fidelity = traitlets.Enum(("all", "lossless", "lossy"), "all").tag(sync=True)
    cost = traitlets.Enum(("bytes", "drift"), "bytes").tag(sync=True)
    sort = traitlets.Unicode("over_best").tag(sync=True)
    down = traitlets.Bool(True).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(cls, recording: Recording, **state) -> "Scoreboard":
        """Return the scoreboard of a recording.

        Args:
            recording: A recording of `benchmarks.scoreboard`.
            state: Other traits.

        Raises:
            TypeError: `recording` is not a `Recording`.
        """
        if not isinstance(recording, Recording):
            raise TypeError(f"recording is a {type(recording).__name__}: must be a Recording")
        target = TARGETS.get(recording.data.get("model", ""), "")
        rows, settings = table_of(recording), settings_of(recording)
        return cls(target=target, rows=rows, settings=settings, **state)
