"""Speedups that others measured on GPUs, beside the formula's forecast, and by batch."""

import statistics

import plotly.graph_objects as go
from IPython.display import Markdown

from specdec_book.recordings import forecasts, published
from specdec_book.viz.figure import figure
from specdec_book.viz.tables import table
from specdec_book.viz.theme import PALETTE

ROWS = (
    ("medusa2024_table1", "Vicuna-7B", "MT-bench", 1),
    ("medusa2024_table1", "Vicuna-33B", "MT-bench", 1),
    ("eagle3_table2", "EAGLE-3", "GSM8K", 1),
    ("angelslim_qwen3", "Qwen3-8B", "HumanEval", 1),
    ("angelslim_qwen3", "Qwen3-32B", "MT-bench", 1),
    ("angelslim_qwen3", "Qwen3-30B-A3B", "MT-bench", 1),
    ("angelspec_hy3", "MTP-3", "MT-bench", 4),
    ("angelspec_hy3", "MTP-3", "LiveCodeBench", 64),
)
"""(source, setting, text, batch) of the forecasts that the table shows."""
LINES = (
    ("sglang_eagle3_batches", "EAGLE", "dense 8B, EAGLE", "one"),
    ("sglang_eagle3_batches", "EAGLE-3", "dense 8B, EAGLE-3", "one"),
    ("angelspec_hy3", "MTP-3", "mixture 295B-A21B, MTP", "other"),
    ("angelspec_hy3", "DFlash-8", "mixture 295B-A21B, DFlash", "other"),
)
"""(source, setting, name, color) of the figure's lines."""


def forecast_figure() -> go.Figure:
    """Return the figure of every measured speedup against its forecast."""
    every = forecasts.all_forecasts()
    least, most = (
        end(value for each in every for value in (each.measured, each.predicted))
        for end in (min, max)
    )
    fig = go.Figure()
    fig.add_scatter(
        name="measured",
        x=[each.predicted for each in every],
        y=[each.measured for each in every],
        mode="markers",
        marker={"color": PALETTE["one"], "size": 8},
        text=[model(each) for each in every],
        hovertemplate="%{text}: forecast %{x:.2f}×, measured %{y:.2f}×<extra></extra>",
        showlegend=False,
    )
    fig.add_scatter(
        name="equal",
        x=[least, most],
        y=[least, most],
        mode="lines",
        line={"color": PALETTE["neutral"], "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
    )
    fig.update_layout(
        title=f"{forecasts.within(every, 0.1)} of {len(every)} forecasts are within 10 %",
        xaxis_title="forecast speedup, τ ÷ cost of a round",
        yaxis_title="measured speedup",
    )
    alt = (
        "Speedups that others measured on GPUs against the forecast from each source's own numbers;"
        f" on the dashed line both are equal. The median error is {forecasts.median_error(every):.1%}."
    )
    return figure(fig, alt, "published-forecasts")


def forecast_table(fold: str = "") -> Markdown:
    """Return measured speedups beside their forecasts, with card, engine and source."""
    by_key = {
        (each.source, each.setting, each.workload, each.batch): each
        for each in forecasts.all_forecasts()
    }
    rows = []
    for key in ROWS:
        each = by_key[key]
        about = published(each.source) if each.source.startswith("medusa") else None
        about = about or forecasts.entry(each.source)
        mark = " °" if about["status"] == "secondary" else ""
        card = about.get("card", "not stated")
        rows.append(
            (
                f"{model(each)}{mark}",
                card,
                about.get("engine", "the authors' own loop"),
                each.batch,
                f"{each.measured:.2f}×",
                f"{each.predicted:.2f}×",
                f"{each.error:+.0%}",
            )
        )
    every = forecasts.all_forecasts()
    caption = (
        "Measured by others, not by us. The forecast is τ ÷ cost of a round, from each source's own"
        f" numbers. All {len(every)} forecasts miss by {forecasts.median_error(every):.1%} at the"
        f" median; {forecasts.within(every, 0.1)} are within 10 %. ° read in a copy or a quotation"
    )
    return table(
        ("measurement", "card", "engine", "requests", "measured", "forecast", "error"),
        rows,
        caption,
        fold,
    )


def model(each: forecasts.Forecast) -> str:
    """Return the model, the method and the text of a forecast in a few words."""
    if each.source.startswith("medusa"):
        return f"Medusa-2, {each.setting}, {each.workload}"
    if each.source == "angelslim_qwen3":
        return f"EAGLE-3, {each.setting}, {each.workload}"
    name = forecasts.entry(each.source)["model"]
    return f"{each.setting}, {name}, {each.workload}"


def by_batch() -> go.Figure:
    """Return the figure of published speedups by the number of requests at a time."""
    fig = go.Figure()
    for source, setting, name, color in LINES:
        gains: dict[int, list[float]] = {}
        for row in forecasts.records(source):
            if row["setting"] == setting:
                gains.setdefault(row["batch"], []).append(row["speedup"])
        fig.add_scatter(
            x=list(gains),
            y=[statistics.median(values) for values in gains.values()],
            name=name,
            line_color=PALETTE[color],
        )
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    fig.update_layout(
        title="Under load a dense model gains less, a mixture of experts at first more",
        xaxis={"title": "requests at a time", "type": "log", "tickvals": [2, 4, 8, 16, 32, 64]},
        yaxis_title="speedup over plain decoding",
    )
    alt = (
        "Measured by others: EAGLE and EAGLE-3 with Llama-3.1-8B on one H100 in SGLang 0.4.4"
        " (arXiv 2503.01840, table 3, read in a copy; MT-bench, chains of 3), and MTP and DFlash with"
        " Hy3-295B-A21B (AngelSlim's README; median of its texts, cards not stated)."
    )
    return figure(fig, alt, "published-batches")
