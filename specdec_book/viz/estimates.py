"""The estimator beside published measurements: its errors, source by source."""

import numpy as np
from IPython.display import Markdown

from specdec_book import recordings
from specdec_book.recordings import forecasts
from specdec_book.viz.tables import table

KINDS = {
    "datasheet": "datasheet alone",
    "held_out": "fitted to other sources",
    "calibrated": "after one measured round",
}
"""Field of a recorded row → name of its prediction."""


def rows() -> list[dict]:
    """Return every tested measurement with its three predictions."""
    return recordings.load("estimator").data["rows"]


def errors(kind: str, source: str = "") -> np.ndarray:
    """Return predicted ÷ measured − 1 of all rows, or of one source's, that have this prediction."""
    found = [r for r in rows() if r[kind] is not None and source in ("", r["source"])]
    return np.array([r[kind] / r["measured"] - 1 for r in found])


def median_error(kind: str, source: str = "") -> float:
    """Return the median of the errors without their signs; NaN if there are none."""
    return float(np.median(abs(found))) if len(found := errors(kind, source)) else float("nan")


def fit_table() -> Markdown:
    """Return the sources of the fit, with engine, median errors and the engine's own factor."""
    data, lines = recordings.load("estimator").data, []
    percent = lambda value: "–" if np.isnan(value) else f"{value:.0%}"
    for source in dict.fromkeys(row["source"] for row in rows()):
        if source == "trained_draft_pitfall":
            engine, card = "vLLM, a draft model of 24 layers", "H100"
        else:
            about = forecasts.entry(source)
            engine, card = about["engine"], about["card"].partition(";")[0]
        kinds = (percent(median_error(kind, source)) for kind in KINDS)
        count = sum(row["source"] == source for row in rows())
        factor = f"{data['factors'][source]:.2f}"
        lines.append((engine, card, count, *kinds, factor))
    caption = (
        "Median error without sign, τ given; each source is tested by a fit without it. The factor is"
        " what the engine's overheads are, relative to the usual ones, if its source is fitted too"
    )
    heads = ("engine", "card", "rows", *KINDS.values(), "factor")
    return table(heads, lines, caption)
