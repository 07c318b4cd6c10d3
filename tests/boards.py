"""A small scoreboard: two kinds of text, four rows, costs of two precisions; and a small catalog."""

from benchmarks.methods import Method
from benchmarks.scoreboard_counts import PLAIN, join
from specdec_book.recordings import Recording
from specdec_book.recordings.board import Board
from specdec_lite import acceptance as a
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter

SMALL = {
    "draft model": Method(lambda pair, g: ModelDrafter(pair.draft, g), "model", "notebooks/05"),
    "prompt lookup": Method(lambda pair, g: PromptLookupDrafter(g), "text", "notebooks/08"),
    "draft model × lenient(0.6)": Method(
        lambda pair, g: ModelDrafter(pair.draft, g), "model", "notebooks/07b", a.lenient(0.6)
    ),
}
"""Rows that run on a tiny pair."""
ABOUT = {
    "draft": ("model", "notebooks/05_draft_then_verify", True, 5_000_000),
    "copy": ("text", "notebooks/08_model_free", True, 200),
    "heads": ("heads", "notebooks/10_medusa", True, 6_000_000),
    "draft × typical": ("model", "notebooks/10_medusa", False, 5_000_000),
}
ROUNDS = {
    ("code", 0.0): {"draft": 10, "copy": 20, "heads": 25},
    ("prose", 0.0): {"draft": 20, "copy": 38, "heads": 40},
    ("code", 1.0): {"draft": 10, "copy": 30, "heads": 25, "draft × typical": 8},
}
"""Target passes for 40 tokens."""
DRAFTING = {"draft": 400, "copy": 0, "heads": 300, "draft × typical": 400}
"""Microseconds of drafting two levels; a pass takes 1000 in float32 and 800 in bfloat16."""
PASS = {"float32": 1000, "bfloat16": 800}
TURNS = 4


def counts_of(rounds: int, prompts: int, levels: int, greedy: bool) -> dict:
    """Return the counts of texts of 40 tokens that all take the same number of rounds."""
    same = lambda value: join([value] * prompts)
    accepted = 40 - rounds
    return {
        **{"tokens": same(40), "rounds": same(rounds), "accepted": same(accepted)},
        **{"tested": same(accepted + rounds // 2), "drafted": same(2 * rounds * bool(levels))},
        **{"levels": same(levels * rounds), "empty": same(0 if levels else rounds)},
        "rows": {str(1 + levels): same(rounds)},
        "reached": join([prompts * accepted // 2, prompts * accepted // 4, 0]),
        "tried": join([prompts * rounds, prompts * accepted // 2, 0] if levels else [0, 0, 0]),
        **({"same": same(1)} if greedy else {}),
    }


def counts(prompts: int = 4) -> Recording:
    """Return a recording of counts."""
    cells = [
        {
            "kind": kind,
            "temperature": temperature,
            "methods": {
                name: counts_of(rounds, prompts, 0 if name == PLAIN else 2, temperature == 0)
                for name, rounds in ({PLAIN: 40} | rows).items()
            },
        }
        for (kind, temperature), rows in ROUNDS.items()
    ]
    about = {
        name: dict(
            **dict(source=source, chapter=chapter, lossless=lossless, bytes=size, rule=None),
            **dict(minutes=None if name == "copy" else 3.0, trained=name != "copy"),
        )
        for name, (source, chapter, lossless, size) in ABOUT.items()
    }
    data = {"model": "pair", "dtype": "float32", "about": about, "cells": cells}
    return recording("scoreboard-counts", data)


def clocks(other: int = 100, **more) -> Recording:
    """Return a recording of costs in which every turn takes equally long."""

    def rounds(dtype: str, name: str) -> list[str]:
        levels, width, drafting = (0, 1, 0) if name == PLAIN else (2, 3, DRAFTING[name])
        return [f"{levels},{width},{drafting},{PASS[dtype]},{other}"] * TURNS

    rows = {
        temperature: {name for (_, at), row in ROUNDS.items() if at == temperature for name in row}
        for temperature in (0.0, 1.0)
    }
    data = {
        "model": "pair",
        "column": "a machine",
        "device": "cpu",
        "turns": TURNS,
        "passes": {
            dtype: {str(k): [1e-6 * time] * TURNS for k in (1, 2, 3, 4)}
            for dtype, time in PASS.items()
        },
        "rounds": {
            dtype: {
                f"{temperature:g}": {name: rounds(dtype, name) for name in (PLAIN, *names)}
                for temperature, names in rows.items()
            }
            for dtype in PASS
        },
        "plain": {"0": {"unpacked": [2e-3] * TURNS}, "1": {"unpacked": [2e-3] * TURNS}},
        "checks": [
            {
                **{"method": "draft", "kind": "code", "temperature": 0.0, "dtype": "float32"},
                "counts": counts_of(10, 1, 2, True),
                "seconds": 0.03,
                "plain": 0.0011,
            }
        ],
    }
    return recording("scoreboard-clocks", data | more)


def recording(name: str, data: dict) -> Recording:
    """Return a recording of a machine without a name."""
    return Recording(name, "all", "2026-01-31", "python", "a machine", {"a": "1"}, data)


def board(**more) -> Board:
    """Return the board with costs."""
    return Board(counts(), clocks(**more))
