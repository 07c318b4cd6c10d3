"""The scoreboard: counts and costs of every method as a table that sorts and filters."""

from traitlets import Bool, Dict, Enum, Int, List, Unicode

from specdec_book.recordings.board import Board
from specdec_book.viz.interactive import Interactive

TARGETS = {"pair": "the shipped pair", "smollm2": "SmolLM2"}
VALUES = ("tau", "over_best", "over_same")
"""Columns with an interval, of which the table shows the value."""


def settings_of(board: Board) -> list[dict]:
    """Return the settings of a board as [{"name", "temperature", "domain"}].

    For each temperature the first setting averages all kinds of text (domain None).
    """
    settings = []
    for temperature in board.temperatures:
        decoding = "greedy" if temperature == 0 else f"temperature {temperature:g}"
        counted = [kind for kind, at in board.cells if at == temperature]
        kinds = board.kinds(temperature)
        for kind in (None, *kinds, *(kind for kind in counted if kind not in kinds)):
            name = f"{kind or 'all kinds of text'}, {decoding}"
            settings.append({"name": name, "temperature": temperature, "domain": kind})
    return settings


def table_of(board: Board, drift: dict) -> list[dict]:
    """Return one row per method: its properties, and "cells", one for each of `settings_of`.

    A cell is None if the method was not counted in that setting.
    """

    def cell(name: str, setting: dict) -> dict | None:
        entry = board.entry(name, setting["domain"], setting["temperature"])
        if entry is None:
            return None
        ranked = entry["over_best"] or entry["tau"]
        values = {field: entry[field] and entry[field]["value"] for field in VALUES}
        return shortened(entry | values | {"interval": ranked["interval"]})

    rows = []
    for name in board.methods:
        about = board.data["about"][name]
        distance = 0.0 if about["lossless"] else drift.get(name)
        properties = {
            key: about[key]
            for key in ("source", "chapter", "lossless", "bytes", "minutes", "trained")
        }
        cells = [cell(name, setting) for setting in settings_of(board)]
        rows.append({"name": name, **properties, "drift": distance, "cells": cells})
    return rows


def shortened(cell: dict) -> dict:
    """Return a cell with four digits per number, which is more than the table shows."""

    def short(value):
        if isinstance(value, list):
            return [short(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {field: short(value) for field, value in cell.items()}


class Scoreboard(Interactive):
    """Every method of a board, sorted by any column, filtered, and drawn against its cost."""

    module = "scoreboard"
    label = "Scoreboard: every method beside plain decoding, as a table that sorts and filters"

    target = Unicode("")
    machine = Unicode("")  # whose costs are used
    rows = List(Dict())  # one per method, as `table_of` returns them
    settings = List(Dict())  # as `settings_of` returns them
    setting = Int(0, min=0)  # number of the setting on display
    source = Unicode("all")  # or the source of drafts to which the table is limited
    fidelity = Enum(("all", "lossless", "lossy"), "all")
    cost = Enum(("bytes", "drift"), "bytes")  # axis: memory, or distance from the target's row
    sort = Unicode("over_best")  # the column that sorts the table
    down = Bool(True)  # whether the largest value comes first
    chosen = Unicode("")  # name of the selected row

    @classmethod
    def of(cls, board: Board, drift: dict | None = None, **state) -> "Scoreboard":
        """Return the scoreboard of a model."""
        if not isinstance(board, Board):
            raise TypeError(f"board is a {type(board).__name__}: must be a Board")
        names = {"target": TARGETS.get(board.model, ""), "machine": board.costs.column}
        data = {"rows": table_of(board, drift or {}), "settings": settings_of(board)}
        return cls(**data | names | state)
