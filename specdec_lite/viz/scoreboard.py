"""The scoreboard: a recorded table of every method that sorts and filters, and its two pictures.

What lives here: a recording of `benchmarks.scoreboard` as the table's rows. What does not: the
measuring, and the drawing (`static/scoreboard.js`).
"""

from collections.abc import Sequence
from statistics import fmean, geometric_mean

import traitlets

from specdec_lite.measure.results import Recording
from specdec_lite.viz.interactive import Interactive

TARGETS = {"pair": "the shipped pair", "smollm2": "SmolLM2"}
AVERAGED = ("tau", "alpha", "used", "c", "verify", "overhead", "same", "empty")
SPEEDS = ("speedup", "over_best", "formula", "ceiling", "tokens_per_second")


def cell(entry: dict, plain: float, greedy: bool) -> dict:
    """What the table shows of a method in one setting.

    plain: what a round of plain decoding costs, in units of T(1). ceiling: the speedup that τ would
    allow if nothing but the pass took time. `same` says something of greedy text only.
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
            "interval": entry["speedup"]["interval"],
            "held": held(entry["speedup"]["value"], entry["formula"]),
            "ceiling": entry["tau"]["value"] * plain / entry["verify"],
            "same": entry["same"] if greedy else None,
        }
    )


def held(speedup: float, formula: float | None) -> float | None:
    """Measured ÷ predicted, where the formula predicts."""
    return speedup / formula if formula else None


def average(cells: Sequence[dict]) -> dict:
    """Of several kinds of text: the geometric mean of speeds and speedups, the mean of the rest."""
    known = lambda name: [each[name] for each in cells if each[name] is not None]
    means = {name: fmean(known(name)) if known(name) else None for name in AVERAGED}
    speeds = {name: known(name) for name in SPEEDS}
    speed = {name: geometric_mean(found) if found else None for name, found in speeds.items()}
    ratio = held(speed["speedup"], speed["formula"])
    return means | speed | {"held": ratio, "interval": None, "positions": [], "conditional": []}


def settings_of(recording: Recording) -> list[dict]:
    """[{"name", "temperature", "domain"}]: for each temperature every kind of text together (domain
    None), then one by one.
    """
    rows = recording.data["rows"]
    kinds = list(dict.fromkeys(row["domain"] for row in rows))
    found = []
    for temperature in sorted({row["temperature"] for row in rows}):
        said = "greedy" if temperature == 0 else f"temperature {temperature:g}"
        for kind in (None, *kinds):
            name = f"{kind or 'every kind of text'}, {said}"
            found.append({"name": name, "temperature": temperature, "domain": kind})
    return found


def table_of(recording: Recording) -> list[dict]:
    """One row a method: what is known of it beforehand, and "cells", one for each of
    `settings_of`, None where it was not measured.
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
        moved = 0.0 if about["lossless"] else drift.get(name, {}).get("mean")
        known = {
            key: about[key]
            for key in ("source", "chapter", "lossless", "bytes", "minutes", "trained")
        }
        cells = [cell_of(name, setting) for setting in settings_of(recording)]
        rows.append({"name": name, **known, "drift": moved, "cells": cells})
    return rows


class Scoreboard(Interactive):
    """Every method of a recording, sorted by any column, filtered, and drawn: what it holds, or how
    far it moves the law, against its speed.

    rows, settings: as `of` makes them. setting: which of them is shown, from 0. source: "all" or
    where drafts come from; law: "all", "lossless" or "lossy". cost: "bytes" or "drift", the
    picture's axis. sort, down: the table's order. chosen: the name of a row, or "".
    """

    module = "scoreboard"
    label = "Scoreboard: every method beside plain decoding, as a table that sorts and filters"

    target = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    settings = traitlets.List(traitlets.Dict()).tag(sync=True)
    setting = traitlets.Int(0, min=0).tag(sync=True)
    source = traitlets.Unicode("all").tag(sync=True)
    law = traitlets.Enum(("all", "lossless", "lossy"), "all").tag(sync=True)
    cost = traitlets.Enum(("bytes", "drift"), "bytes").tag(sync=True)
    sort = traitlets.Unicode("speedup").tag(sync=True)
    down = traitlets.Bool(True).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(cls, recording: Recording, **state) -> "Scoreboard":
        """Show a recording of `benchmarks.scoreboard`. state: of the traits. TypeError for another
        object.
        """
        if not isinstance(recording, Recording):
            raise TypeError(f"recording is a {type(recording).__name__}: must be a Recording")
        target = TARGETS.get(recording.data.get("model"), "")
        found = {"rows": table_of(recording), "settings": settings_of(recording)}
        return cls(target=target, **found, **state)
