"""The estimator beside published measurements: its misses, and why it names no switch-off batch."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
from IPython.display import Markdown

from specdec_book import recordings
from specdec_book.recordings import forecasts
from specdec_book.viz.figure import figure
from specdec_book.viz.tables import table
from specdec_book.viz.theme import PALETTE
from specdec_lite.simulation.estimate import FITTED, Estimate, estimate
from specdec_lite.simulation.sizes import CARDS, EAGLE, MODELS

KINDS = {
    "datasheet": ("datasheet alone", "neutral", "circle-open"),
    "held_out": ("fitted to other sources", "one", "circle"),
    "calibrated": ("after one measured round", "other", "diamond"),
}
"""Field of a recorded row → name, color and symbol of its points."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def rows() -> list[dict]:
    """Return every tested measurement with its three predictions."""
    return recordings.load("estimator").data["rows"]


def errors(kind: str, source: str = "") -> np.ndarray:
    """Return predicted ÷ measured − 1 of all rows, or of one source's, that have this prediction."""
    found = [r for r in rows() if r[kind] is not None and source in ("", r["source"])]
    return np.array([r[kind] / r["measured"] - 1 for r in found])


def median_error(kind: str, source: str = "") -> float:
    """Return the median of the errors without their signs; NaN if there are none."""
    found = errors(kind, source)
    return float(np.median(abs(found))) if len(found) else float("nan")


def fit_figure() -> go.Figure:
    """Return the figure of predicted against measured speedups, by what the prediction knew."""
    fig = go.Figure()
    for kind, (name, color, symbol) in KINDS.items():
        known = [row for row in rows() if row[kind] is not None]
        fig.add_scatter(
            name=name,
            x=[row["measured"] for row in known],
            y=[row[kind] for row in known],
            mode="markers",
            marker={"color": PALETTE[color], "size": 7, "symbol": symbol},
            text=[f"{r['setting']}, batch {r['batch']}, γ = {r['gamma']}" for r in known],
            hovertemplate="%{text}: measured %{x:.2f}×, predicted %{y:.2f}×<extra></extra>",
        )
    ends = [min(row["measured"] for row in rows()), max(row["measured"] for row in rows())]
    fig.add_scatter(
        name="equal",
        x=ends,
        y=ends,
        mode="lines",
        line={"color": PALETTE["neutral"], "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
    )
    sheet, held, own = (f"{100 * median_error(kind):.0f} %" for kind in KINDS)
    fig.update_layout(
        title=f"One measured round cuts the median error from {held} to {own}",
        xaxis_title="measured speedup",
        yaxis_title="predicted speedup, τ given",
        height=440,
    )
    alt = (
        f"Predictions of {len(rows())} published speedups of dense models. Those of the datasheet"
        f" alone miss by {sheet} at the median and are never too low. Those of the fit come from a fit that"
        " has not seen the row's source. The third kind knows one round of the same engine."
    )
    return figure(fig, alt, "estimator-fit")


def fit_table(fold: str = "") -> Markdown:
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
    heads = ("engine", "card", "rows", *(name for name, *_ in KINDS.values()), "factor")
    return table(heads, lines, caption, fold)


def loses_from(factor: float, speedup: float = 1.0) -> int:
    """Return the first batch at which an engine with this factor is likely below this speedup."""
    batches = range(1, 1025)
    return next(batch for batch in batches if at(batch, factor).speedup < speedup)


def at(batch: int, factor: float = 1.0) -> Estimate:
    """Return the estimate of EAGLE with Llama-3.1-8B on one H100, γ = 3, on MT-bench, for an engine
    with this factor. τ is that of vLLM's issue 20780, since SGLang's rows print none.
    """
    sizes = MODELS["Llama-3.1-8B"], EAGLE["Llama-3.1-8B"], CARDS["H100"]
    engine = replace(FITTED, factor=factor)
    return estimate(*sizes, None, 3, batch, context=400, tau=2.29, engine=engine)


def switch_off_figure() -> go.Figure:
    """Return the figure of the speedup by batch for three engines, beside measurements of one."""
    fig = go.Figure()
    ends = [[e.low for e in map(at, BATCHES)], [e.high for e in map(at, BATCHES)]]
    fig.add_scatter(
        name="80 % band",
        x=[*BATCHES, *BATCHES[::-1]],
        y=[*ends[1], *ends[0][::-1]],
        fill="toself",
        mode="none",
        fillcolor="rgba(59, 71, 84, 0.14)",
        hoverinfo="skip",
        showlegend=False,
    )
    names = {0.5: "half the overheads", 1.0: "usual overheads", 2.0: "twice the overheads"}
    for factor, name in names.items():
        fig.add_scatter(
            name=name,
            x=BATCHES,
            y=[at(batch, factor).speedup for batch in BATCHES],
            line_color=PALETTE["one" if factor == 1 else "neutral"],
        )
    measured = [
        (row["batch"], row["speedup"])
        for row in forecasts.records("sglang_eagle3_batches")
        if row["setting"] == "EAGLE"
    ]
    fig.add_scatter(
        name="measured, SGLang 0.4.4",
        x=[batch for batch, _ in measured],
        y=[speedup for _, speedup in measured],
        mode="markers",
        marker={"color": PALETTE["other"], "symbol": "diamond", "size": 9},
        showlegend=False,
    )
    fig.add_annotation(
        x=np.log10(measured[3][0]), y=measured[3][1], text="measured, SGLang 0.4.4", ax=-70, ay=60
    )
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    half, one, twice = map(loses_from, names)
    fig.update_layout(
        title=f"Half or twice the overheads move the switch-off batch from {one} to {half} or {twice}",
        xaxis={"title": "batch, requests at a time", "type": "log", "tickvals": BATCHES},
        yaxis_title="speedup over plain decoding",
        height=420,
    )
    first, last = loses_from(1.0, 1.05), loses_from(1.0, 0.95)
    below = next(batch for batch, speedup in measured if speedup < 1)
    alt = (
        "Estimated speedup of EAGLE with Llama-3.1-8B on one H100, γ = 3 and τ = 2.29, by batch. The"
        f" likely speedup falls from 1.05 to 0.95 between a batch of {first} and {last}; the one"
        f" engine that was measured loses from {below} on. The band should contain four of five"
        " engines."
    )
    return figure(fig, alt, "switch-off-band")
