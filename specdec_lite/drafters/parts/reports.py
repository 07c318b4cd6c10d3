"""Read the measurements stored beside trained heads."""

import json
from pathlib import Path

from specdec_lite.loading.weights import SHIPPED as WEIGHTS

SHIPPED = WEIGHTS / "medusa" / "pair"
"""Folder of the Medusa heads of the shipped pair."""


def load_report(folder: str | Path = SHIPPED) -> dict:
    """Return the measurements of the heads in a folder.

    Args:
        folder: folder with report.json beside the heads.

    Returns:
        {"accuracies": {text: [levels][ranks]}, "tree": the tree of ranks chosen from them, …}.

    Raises:
        ValueError: if there is no report.json.
    """
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(
            f"folder={str(folder)!r}: must be a folder that holds report.json beside the heads"
        )
    return json.loads(path.read_text(encoding="utf-8"))
