"""Figures of drafts from the target itself, from their recordings."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec_book import recordings
from specdec_book.viz.figure import figure
from specdec_book.viz.theme import PALETTE

NAMES = {"pair": "the pair", "smollm2": "SmolLM2"}
COLORS = {"pair": PALETTE["subject"], "smollm2": PALETTE["second"]}
colors = lambda speeds: [PALETTE["subject" if s["interval"][0] > 1 else "other"] for s in speeds]
"""Colors of estimates: titles count what clearly pays."""


def error_bars(speeds: list[dict]) -> dict:
    """Return the error bars of estimates with intervals."""
    return dict(
        array=[speed["interval"][1] - speed["value"] for speed in speeds],
        arrayminus=[speed["value"] - speed["interval"][0] for speed in speeds],
    )


def bytes_read() -> dict[str, tuple[float, dict[str, float]]]:
    """Return the bytes that a pass of each target reads, and each self-draft per drafted token.

    SmolLM2 reads a cache of the shortest recorded long text too, the pair its weights alone.
    """
    searched, rounded, timed = (
        recordings.load(name).data["targets"]
        for name in ("layer-skip-search", "quantized-draft-acceptance", "self-draft-speed")
    )
    sparse = recordings.load("sparse-cache-speed").data["rows"][0]
    read = {}
    for name, settings in timed.items():
        layers, sizes = searched[name]["layers"], dict(searched[name]["bytes"])
        cache = sparse["cache_bytes"] if name == "smollm2" else 0
        sizes["attention"] += cache / layers
        per_layer = sizes["attention"] + sizes["mlp"]
        whole = layers * per_layer + sizes["head"]
        rows = next(row["levels"] for row in settings["rows"] if "rows" in row["method"])
        drafts = {
            "early exit": settings["layers"] * per_layer + sizes["head"],
            "skipped sublayers": whole - sum(sizes[part] for _, part in settings["skip"]),
            "look-ahead rows": whole / rows,
        }
        drafts |= {f"{row['bits']} bits": row["bytes"] + cache for row in rounded[name]["rows"]}
        for each in sparse["drafts"] if cache else ():
            entries = int(each["draft"].split()[1])
            drafts[each["draft"]] = whole - cache * (1 - entries / sparse["context"])
        read[name] = whole, drafts
    return read


def exit_acceptance() -> go.Figure:
    """Return the acceptance rate by the share of the layers that draft, with and without training."""
    recording = recordings.load("early-exit-acceptance")
    targets = recording.data["targets"]
    fig = go.Figure()
    for name, of in targets.items():
        share = [(block + 1) / of["layers"] for block in range(of["layers"])]
        fig.add_scatter(name=NAMES[name], x=share, y=of["rates"], line_color=COLORS[name])
        trained = {int(block): each["rate"] for block, each in of["adapters"].items()}
        fig.add_scatter(
            name=f"{NAMES[name]}, adapter",
            x=[block / of["layers"] for block in trained],
            y=list(trained.values()),
            mode="markers",
            showlegend=False,
            marker=dict(size=13, color=COLORS[name], symbol="star"),
        )
    fig.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line=dict(dash="dash", color=PALETTE["neutral"]),
        showlegend=False,
    )
    fig.add_annotation(x=0.7, y=0.7, text="α = c", showarrow=False, xshift=-14, yshift=14)
    fig.add_vline(x=0.5, line_dash="dot", line_color=PALETTE["neutral"])
    few = {name: of["layers"] // 2 for name, of in targets.items()}
    alone = max(rate for name, of in targets.items() for rate in of["rates"][: few[name]])
    trained = max(
        each["rate"]
        for name, of in targets.items()
        for block, each in of["adapters"].items()
        if int(block) <= few[name]
    )
    fig.update_layout(
        title=f"Up to half of the layers: at most {alone:.0%} of drafts are accepted, with an"
        f" adapter {trained:.0%}"
    )
    fig.update_xaxes(title="fraction of the layers that draft")
    fig.update_yaxes(title="acceptance rate α at temperature 1", range=[0, 1])
    return figure(
        fig,
        "Acceptance rate of a drafter that stops early, by the fraction of layers that it runs. Stars:"
        " with a trained adapter. Below the line α = c a draft cannot pay.",
        source=recording.source,
    )


def sparse_speed() -> go.Figure:
    """Return the speedup of drafts on a part of the cache, by the entries that they read."""
    recording = recordings.load("sparse-cache-speed")
    rows = recording.data["rows"]
    titles = [f"{row['context']:,} tokens" for row in rows]
    fig = make_subplots(1, len(rows), shared_yaxes=True, subplot_titles=titles)
    for column, row in enumerate(rows, 1):
        for kind, dash, symbol in (("window", "solid", "circle"), ("chunks", "dash", "square")):
            drafts = [each for each in row["drafts"] if each["draft"].startswith(kind)]
            speeds = [each["speedup"] for each in drafts]
            fig.add_scatter(
                name=kind,
                x=[f"{int(each['draft'].split()[1]):,}" for each in drafts],
                y=[speed["value"] for speed in speeds],
                error_y=error_bars(speeds),
                line=dict(color=PALETTE["other"], dash=dash),
                marker=dict(symbol=symbol, size=10, color=colors(speeds)),
                showlegend=column == 1,
                row=1,
                col=column,
            )
    fig.add_hline(y=1, line_dash="dash", line_color=PALETTE["neutral"])
    pays = [
        f"{sum(each['speedup']['interval'][0] > 1 for each in row['drafts'])} of"
        f" {len(row['drafts'])} after {title}"
        for row, title in zip(rows, titles)
    ]
    fig.update_layout(title=f"Drafts that clearly pay: {', '.join(pays)}")
    fig.update_xaxes(title="cache entries that the drafter reads", type="category")
    fig.update_yaxes(title="speedup × plain", col=1)
    return figure(
        fig,
        "Speedup of SmolLM2 with a draft on part of its own cache, with 95 % intervals; one"
        " sequence, γ = 3, temperature 1.",
        source=recording.source,
    )


def self_draft_speed() -> go.Figure:
    """Return the speedup of every self-draft of two targets, with its c and its α.

    The first look-ahead row is always accepted, so an α that counts it says little and is left out.
    """
    recording = recordings.load("self-draft-speed")
    targets = recording.data["targets"]
    titles = [NAMES[name] for name in targets]
    fig = make_subplots(
        len(targets), shared_xaxes=True, vertical_spacing=0.12, subplot_titles=titles
    )
    paying = set()
    for panel, of in enumerate(targets.values(), 1):
        rows = sorted(of["rows"], key=lambda row: row["speedup"]["value"])
        levels = [1 if "rows" in row["method"] else row["levels"] for row in rows]
        costs = [row["draft"] / count for row, count in zip(rows, levels)]
        speeds = [row["speedup"] for row in rows]
        paying |= {row["method"] for row in rows if row["speedup"]["interval"][0] > 1}
        fig.add_scatter(
            x=[speed["value"] for speed in speeds],
            y=[
                f"{row['method']} (c {c:.2f})"
                if "rows" in row["method"]
                else f"{row['method']} (α {row['alpha']['value']:.2f}, c {c:.2f})"
                for row, c in zip(rows, costs)
            ],
            mode="markers",
            orientation="h",
            showlegend=False,
            marker=dict(color=colors(speeds), size=10),
            error_x=error_bars(speeds),
            row=panel,
            col=1,
        )
    fig.add_vline(x=1, line_dash="dash", line_color=PALETTE["neutral"])
    fig.update_xaxes(title="speedup × plain decoding", row=len(targets))
    methods = " and ".join(sorted(paying))
    title = (
        f"Of these drafts only {methods} clearly beat plain decoding"
        if methods
        else "Here no draft gains clearly"
    )
    fig.update_layout(title=title, height=540)
    return figure(
        fig,
        f"Speedup of self-drafts of two targets with 95 % intervals, γ = {of['gamma']}, greedy, 8"
        f" texts of {of['new']} tokens.",
        source=recording.source,
    )
