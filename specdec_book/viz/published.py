"""Speedups that others measured on GPUs, beside the formula's forecast, and by batch."""

import statistics

import numpy as np
import plotly.graph_objects as go
from IPython.display import Markdown

from specdec_book.recordings import forecasts, published
from specdec_book.viz.figure import figure
from specdec_book.viz.tables import table
from specdec_book.viz.theme import PALETTE
from specdec_lite.simulation.estimate import Estimate, estimate
from specdec_lite.simulation.sizes import CARDS, EAGLE3, MODELS

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
    ("sglang_eagle3_batches", "EAGLE", "dense 8B, EAGLE", "subject"),
    ("sglang_eagle3_batches", "EAGLE-3", "dense 8B, EAGLE-3", "subject"),
    ("angelspec_hy3", "MTP-3", "mixture 295B-A21B, MTP", "second"),
    ("angelspec_hy3", "DFlash-8", "mixture 295B-A21B, DFlash", "second"),
)
"""(source, setting, name, role) of the figure's lines."""
HEADS = (("SpecForge", "circle", "subject"), ("lmsys", "diamond-open", "second"))


def forecast_figure() -> go.Figure:
    """Return the figure of every measured speedup against its forecast, with τ and without it."""
    every = forecasts.all_forecasts()
    known, blind = forecasts.without_tau(every)
    every_speed = [value for each in every for value in (each.measured, each.predicted)]
    ends = [min(every_speed), max(every_speed)]
    fig = go.Figure()
    for name, points, symbol in (
        ("with τ", every, "circle"),
        ("without τ: the first text's speedup", blind, "circle-open"),
    ):
        fig.add_scatter(
            name=name,
            x=[each.predicted for each in points],
            y=[each.measured for each in points],
            mode="markers",
            marker={"symbol": symbol, "size": 8},
            text=[model(each) for each in points],
            hovertemplate="%{text}: forecast %{x:.2f}×, measured %{y:.2f}×<extra></extra>",
        )
    line = {"color": PALETTE["neutral"], "dash": "dash"}
    hidden = {"hoverinfo": "skip", "showlegend": False}
    fig.add_scatter(name="equal", x=ends, y=ends, mode="lines", line=line, **hidden)
    fig.update_layout(
        title=f"{forecasts.within(every, 0.1)} of {len(every)} forecasts, τ ÷ cost of a round, are"
        " within 10 % of the measured speedup",
        xaxis_title="forecast speedup, τ ÷ cost of a round",
        yaxis_title="measured speedup over plain decoding",
        height=370,
    )
    alt = (
        "Speedups that others measured on GPUs. The cost is mostly from another text of the same source"
        f" ({len(known)} of {len(every)}); on the dashed line both are equal. The median error is"
        f" {forecasts.median_error(every):.1%}; on those {len(known)} it is"
        f" {forecasts.median_error(known):.1%}, and {forecasts.median_error(blind):.1%} if the first"
        " text's speedup is repeated."
    )
    return figure(fig, alt, "published-forecasts", subject="with τ")


def forecast_table() -> Markdown:
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
        where = about.get("card", "not stated"), about.get("engine", "the authors' own loop")
        speeds = f"{each.measured:.2f}×", f"{each.predicted:.2f}×", f"{each.error:+.0%}"
        rows.append((f"{model(each)}{mark}", *where, each.batch, *speeds))
    every = forecasts.all_forecasts()
    caption = (
        "Measured by others, not by us. The forecast is τ ÷ cost of a round, from each source's own"
        f" numbers. All {len(every)} forecasts miss by {forecasts.median_error(every):.1%} at the"
        f" median; {forecasts.within(every, 0.1)} are within 10 %. The menu's"
        " α is the rate at which the expected tokens equal the printed τ. Sources print one cost, so c"
        " contains drafting and verification, and o does not grow with γ. ° read in a copy or a quotation"
    )
    heads = ("measurement", "card", "engine", "requests", "measured", "forecast", "error")
    return table(heads, rows, caption)


def model(each: forecasts.Forecast) -> str:
    """Return the model, the method and the text of a forecast in a few words."""
    named = {"medusa2024_table1": "Medusa-2", "angelslim_qwen3": "EAGLE-3"}
    if each.source in named:
        return f"{named[each.source]}, {each.setting}, {each.workload}"
    return f"{each.setting}, {forecasts.entry(each.source)['model']}, {each.workload}"


def by_batch() -> go.Figure:
    """Return the figure of published speedups by the number of requests at a time."""
    fig = go.Figure()
    for source, setting, name, _ in LINES:
        gains: dict[int, list[float]] = {}
        for row in forecasts.records(source):
            if row["setting"] == setting:
                gains.setdefault(row["batch"], []).append(row["speedup"])
        fig.add_scatter(name=name, x=[*gains], y=[*map(statistics.median, gains.values())])
    batches = (2, 4, 8, 16, 32, 64)
    estimates = [eagle3_estimate(batch).speedup for batch in batches]
    fig.add_scatter(name="estimate, 8B, EAGLE-3", x=batches, y=estimates)
    fig.add_hline(y=1, line_dash="dot", line_color=PALETTE["neutral"])
    fig.update_layout(
        title="Under load a dense model gains less, a mixture of experts at first more",
        xaxis={"title": "requests at a time", "type": "log", "tickvals": batches},
        yaxis_title="speedup over plain decoding",
    )
    alt = (
        "Measured by others: EAGLE and EAGLE-3 with Llama-3.1-8B on one H100 in SGLang 0.4.4"
        " (arXiv 2503.01840, table 3, read in a copy; MT-bench, chains of 3), and MTP and DFlash with"
        " Hy3-295B-A21B (AngelSlim's README; median of its texts, cards not stated). The estimate for"
        " EAGLE-3 takes τ = 2.79 from another engine; its band contains four of five engines, and is"
        f" {eagle3_estimate(32).low:.2f} to {eagle3_estimate(32).high:.2f} at 32 requests."
    )
    return figure(fig, alt, "published-batches", subject={name: role for *_, name, role in LINES})


def eagle3_estimate(batch: int) -> Estimate:
    """Return the estimate of EAGLE-3 with Llama-3.1-8B on one H100, γ = 3, on MT-bench."""
    target = "Llama-3.1-8B"
    sizes = MODELS[target], EAGLE3[target], CARDS["H100"]
    return estimate(*sizes, None, 3, batch, context=400, tau=2.79)


# Two sources that each show one thing -----------------------------------------------------------------


def one_cost() -> go.Figure:
    """Return the figure of two heads of one size, whose rounds cost the same for every text."""
    rows = [r for r in forecasts.records("specbundle") if r["setting"].startswith("Llama-3.1-8B")]
    fig, costs = go.Figure(), {}
    farthest = max(row["tau"] for row in rows)  # all lines end there, so that none crosses a name
    for gamma in (3, 5, 7):
        own = [row for row in rows if row["gamma"] == gamma]
        costs[gamma] = cost = statistics.median(row["tau"] / row["speedup"] for row in own)
        ends = [min(row["tau"] for row in own), farthest]
        fig.add_scatter(
            name=f"γ = {gamma}: cost {cost:.2f}",
            x=ends,
            y=[tau / cost for tau in ends],
            mode="lines",
            line_color=PALETTE["other"],
        )
        for head, symbol, color in HEADS:
            points = [row for row in own if head in row["setting"]]
            fig.add_scatter(
                name=f"{head}, γ = {gamma}",
                x=[row["tau"] for row in points],
                y=[row["speedup"] for row in points],
                mode="markers",
                marker={"color": PALETTE[color], "symbol": symbol, "size": 9},
                text=[row["workload"] for row in points],
                hovertemplate="%{text}: τ %{x:.2f}, %{y:.2f}×<extra></extra>",
                showlegend=False,
            )
    away = max(
        abs(row["tau"] / row["speedup"] / costs[row["gamma"]] - 1)
        for row in rows
        if row["workload"] != "gsm8k" or "SpecForge" not in row["setting"]
    )
    fig.update_layout(
        title="Two heads of one size cost the same, so τ alone decides between them",
        xaxis_title="τ, tokens per round",
        yaxis_title="speedup over plain decoding",
        height=420,
    )
    alt = (
        "SpecBundle's measurements of two EAGLE-3 heads (filled: SpecForge's; open: an earlier one) for"
        " Llama-3.1-8B on an H200, batch 1, seven texts, three draft lengths. All points of a draft"
        f" length lie within {away:.0%} of one line through the origin, except SpecForge's on"
        " GSM8K: its rounds were slower, by more than the plain steps of this text."
    )
    return figure(fig, alt, "two-heads-one-cost")


def laptop() -> go.Figure:
    """Return the figure of a mixture of experts on a laptop, whose cost rises with every draft."""
    rows = forecasts.records("llama_cpp_laptop_mtp")
    gammas, shares, gains = (
        [row[name] for row in rows] for name in ("gamma", "accepted / drafted", "speedup")
    )
    tokens = [1 + gamma * share for gamma, share in zip(gammas, shares)]
    costs = [tau / gain for tau, gain in zip(tokens, gains)]
    slope, start = np.polyfit(gammas, costs, 1)
    fig = go.Figure()
    for name, values in (
        ("τ, tokens of a round", tokens),
        ("cost of a round in plain steps", costs),
        ("speedup = τ ÷ cost", gains),
    ):
        fig.add_scatter(name=name, x=gammas, y=values)
    best = gammas[int(np.argmax(gains))]
    fig.update_layout(
        title=f"With experts in host memory every draft costs {slope:.2f} plain steps, so γ = {best} is best",
        xaxis={"title": "γ, drafted tokens per round", "tickvals": gammas},
        yaxis={"title": "tokens, plain steps, times", "rangemode": "tozero"},
    )
    alt = (
        "MTP with Qwen3.6-35B-A3B in 4 bits on a laptop with an RTX 3060 and its experts in host"
        f" memory (llama.cpp pull request 22673). The cost is about {start:.2f} + {slope:.2f} γ; from"
        f" γ = {best} on τ, if every round drafts γ, grows more slowly, although"
        f" {shares[-1]:.0%} of the drafts are still accepted at γ = {gammas[-1]}."
    )
    return figure(fig, alt, "laptop-experts", subject=[fig.data[1].name, fig.data[2].name])
