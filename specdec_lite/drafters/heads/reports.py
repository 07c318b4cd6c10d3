"""Read Medusa heads and the measurements stored beside them."""

import json
from pathlib import Path

from specdec_lite.drafters.eagle.published import is_published, read_medusa
from specdec_lite.drafters.heads.heads import Heads, stored_heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, load
from specdec_lite.tree import TokenTree

SHIPPED = WEIGHTS / "medusa" / "pair"
"""Folder of the Medusa heads of the shipped pair."""


def load_report(folder: str | Path = SHIPPED) -> dict:
    """Return the measurements of the heads in a folder."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(
            f"folder={str(folder)!r}: must be a folder that holds report.json beside the heads"
        )
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if not isinstance(report, dict):
        raise ValueError(f"{path}: must hold a JSON object, and holds a {type(report).__name__}")
    return report


def load_medusa(folder: str | Path, target: CausalLM) -> tuple[Heads, TokenTree]:
    """Return the Medusa heads in a folder, and the tree of ranks chosen for them, else a chain."""
    if is_published(folder):
        heads, stored = read_medusa(folder, target), None
    else:
        heads, stored = load(folder, target, stored_heads), load_report(folder).get("tree")
    return heads, TokenTree(**stored) if stored else TokenTree.chain([0] * heads.count)
