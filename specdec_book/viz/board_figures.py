"""Figures of the scoreboard: which method for which text, and predicted against measured speed."""

from collections.abc import Sequence

import plotly.graph_objects as go
from IPython.display import Markdown

from specdec_book.recordings import spread
from specdec_book.recordings.board import Board, load
from specdec_book.viz.cells import cells
from specdec_book.viz.figure import figure
from specdec_book.viz.scoreboard import TARGETS
from specdec_book.viz.tables import table
from specdec_book.viz.theme import PALETTE

SHOWN = 14
"""Rows of the figure of methods; the table has all of them."""


def chapter_of(chapter: str) -> str:
    """Return the name of a chapter for a hover card, such as "chapter 13" or "appendix A2"."""
    number = chapter.rpartition("/")[2].partition("_")[0]
    if not number:
        return "not in the book"
    return f"appendix {number.upper()}" if number[0] == "a" else f"chapter {number.lstrip('0')}"


def best_by_kind(board: Board, temperature: float) -> dict[str, tuple[str, dict]]:
    """Return {kind: (fastest lossless row, its entry)}."""
    best = {}
    for kind in board.kinds(temperature):
        entries = {name: board.entry(name, kind, temperature) for name in board.methods}
        lossless = {n: e for n, e in entries.items() if board.data["about"][n]["lossless"]}
        timed = {n: e for n, e in lossless.items() if e and e["over_best"]}
        best[kind] = max(timed.items(), key=lambda item: item[1]["over_best"]["value"])
    return best


def advice() -> tuple[tuple[str, ...], list[list[str]], str]:
    """Return the best lossless row for each kind of text, of every target that was counted.

    SmolLM2 decodes greedily, because it answers requests; the pair decodes at the largest
    temperature, because its greedy texts repeat themselves.
    """
    boards = [load(model) for model in ("smollm2", "pair")]
    at = [boards[0].temperatures[0], boards[1].temperatures[-1]]
    best = [best_by_kind(board, temperature) for board, temperature in zip(boards, at)]

    def cell(name: str, entry: dict) -> str:
        return f"{name}: {entry['over_best']['value']:.2f}×, {entry['verdict']}"

    heads = [
        f"{TARGETS[board.model]}, T = {temperature:g}" for board, temperature in zip(boards, at)
    ]
    rows = [[kind, *(cell(*each[kind]) for each in best)] for kind in best[0]]
    unit = "Speedup over the fastest plain decoding, and whether its 95 % interval excludes 1"
    plain = "; ".join(
        f"{TARGETS[board.model]}: {board.costs.baseline(temperature)}"
        for board, temperature in zip(boards, at)
    )
    sizes = " and ".join(board.size for board in boards)
    return ("text", *heads), rows, f"{unit} ({plain}). Prompts per kind: {sizes}."


def speeds_of(methods: Sequence[str], model: str = "smollm2") -> Markdown:
    """Return the folded table of some rows of the board, below the fastest plain decoder."""
    board = load(model)
    heads = ("decoder", "τ", "tokens per second", "× fastest plain", "best text", "worst text")
    rows = []
    for temperature in board.temperatures:
        plain, kinds = board.costs.best_plain(temperature), board.kinds(temperature)
        pace = board.plain_pace(plain, temperature)[0]
        rows.append((f"fastest plain: {plain}, T = {temperature:g}", "1", f"{1 / pace:.0f}", 1))
        for name in methods:
            entry = board.entry(name, None, temperature)
            if entry is None or entry["over_best"] is None:
                continue
            of = {kind: board.speeds(name, kind, temperature)["over_best"][0] for kind in kinds}
            ends = [f"{kind} {of[kind]:.2f}" for kind in (max(of, key=of.get), min(of, key=of.get))]
            number = f"{entry['tokens_per_second']:.0f}"
            tau, speed = f"{entry['tau']['value']:.2f}", spread(entry["over_best"])
            rows.append(
                (f"{name}, {entry['dtype']}, T = {temperature:g}", tau, number, speed, *ends)
            )
    caption = (
        f"Measured on {TARGETS.get(model, model)}, {board.size} prompts of each of six kinds; threads:"
        f" {board.costs.data['threads']}; 95 % intervals over prompts and turns; plain decoding was"
        " timed anew at each temperature, so compare rows of one temperature"
    )
    rows = [(*row, *[""] * (len(heads) - len(row))) for row in rows]
    fold = "Measured: speed on the scoreboard"
    return table(heads, rows, caption, fold, source=board.source())


def methods_by_text(board: Board, temperature: float = 0.0, most: int = SHOWN) -> go.Figure:
    """Return the speedup over the best plain decoding by method and text, the best method first."""
    kinds = board.kinds(temperature)
    best = best_by_kind(board, temperature)
    winners = {name for name, _ in best.values()}
    ranked = board.ranked(temperature)
    shown = ranked[:most] + [name for name in ranked[most:] if name in winners]
    entries = [[board.entry(name, kind, temperature) for kind in kinds] for name in shown]
    grid = [[entry["over_best"]["value"] for entry in row] for row in entries]
    bold = lambda name, kind: "<b>{}</b>" if best[kind][0] == name else "{}"
    words = [
        [bold(name, kind).format(f"{value:.2f}") for value, kind in zip(row, kinds)]
        for name, row in zip(shown, grid)
    ]
    fig = cells(grid, kinds, shown, words=words, middle=1)
    cards = [
        card(board, name, entry, temperature) for name, row in zip(shown, entries) for entry in row
    ]
    fig.update_traces(hovertext=cards, hovertemplate="%{hovertext}<extra></extra>")
    title = f"{'no method' if len(winners) > 1 else ranked[0]} has the largest mean on every text"
    fig.update_layout(title=title[0].upper() + title[1:])
    target = TARGETS.get(board.model, board.model)
    decoding = "greedy" if temperature == 0 else f"T = {temperature:g}"
    more = f" The other {len(ranked) - len(shown)} rows are in the table." * (
        len(ranked) > len(shown)
    )
    return figure(
        fig,
        f"Speedup over the best plain decoding ({board.costs.baseline(temperature)}), by method and"
        f" kind of text, {target}, {decoding}; lossless rows, the best mean first, bold the best of a"
        f" kind. Prompts per kind: {board.size}.{more}",
        name=f"which-method-{board.model}",
        source=board.source(),
    )


def card(board: Board, name: str, entry: dict, temperature: float) -> str:
    """Return the text of a hover card: the numbers of a cell and the path to its chapter."""
    best = board.costs.best_plain(temperature)
    lines = [
        f"<b>{name}</b>",
        f"τ {spread(entry['tau'])}",
        f"{entry['tokens_per_second']:.0f} tokens/s",
        f"{spread(entry['over_best'])} × best plain ({best}): {entry['verdict']}",
        f"{spread(entry['over_same'])} × plain in {entry['dtype']}",
        chapter_of(board.data["about"][name]["chapter"]),
    ]
    return "<br>".join(lines)


def predicted_and_measured(board: Board) -> go.Figure:
    """Return a point per text that was timed in full: predicted against measured speedup."""
    rows = board.checks()
    errors = sorted(abs(row["predicted"] / row["measured"] - 1) for row in rows)
    middle = errors[len(errors) // 2]
    fig = go.Figure()
    ends = [f(row[e] for row in rows for e in ("measured", "predicted")) for f in (min, max)]
    line = dict(color=PALETTE["neutral"], dash="dot")
    fig.add_scatter(x=ends, y=ends, mode="lines", line=line, name="equal")
    fig.add_scatter(
        x=[row["measured"] for row in rows],
        y=[row["predicted"] for row in rows],
        mode="markers",
        marker_color=PALETTE["target"],
        name="one text",
        text=[
            f"{row['method']}, {row['kind']}, T = {row['temperature']:g}, {row['dtype']}"
            for row in rows
        ],
        hovertemplate="%{text}: measured %{x:.2f}, predicted %{y:.2f}<extra></extra>",
    )
    fig.update_layout(
        title=f"Half of the forecasts are within {100 * middle:.0f} % of the measured speedup",
        xaxis_title="measured speedup over plain decoding in the same precision",
        yaxis_title="predicted speedup",
        height=420,
    )
    target = TARGETS.get(board.model, board.model)
    return figure(
        fig,
        f"Predicted against measured speedup of {len(rows)} texts of {target}, each decoded in full"
        f" beside plain decoding. The median error is {100 * middle:.0f} %, the largest"
        f" {100 * errors[-1]:.0f} %.",
        name=f"check-{board.model}",
    )
