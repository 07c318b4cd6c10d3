"""What a recorded round costs, and what each cost does to the predicted speedup."""

import plotly.graph_objects as go
from IPython.display import Markdown

from specdec_book.recordings import Recording, believed, plain_cost
from specdec_book.viz.figure import figure
from specdec_book.viz.tables import table
from specdec_book.viz.theme import PALETTE
from specdec_lite import theory

TERMS = ("plain formula", "c in the loop", "v", "o", "τ counted", "o₀")


def sound_rows(recording: Recording) -> dict[str, dict]:
    """Return the rows of a recording of speed that no flag excludes, by format, text and T."""
    return {
        f"{row['dtype']}, {row['domain']}, T = {row['temperature']:g}": row
        for row in recording.data["rows"]
        if not row["flags"]
    }


def costs_figure(recording: Recording) -> go.Figure:
    """Return a figure of the parts of each round, in plain passes."""
    rows = sound_rows(recording)
    costs = {
        "verification": [row["prediction"]["verify"] for row in rows.values()],
        "drafting": [row["gamma"] * row["prediction"]["c_in_loop"] for row in rows.values()],
        "rest": [row["prediction"]["overhead"] for row in rows.values()],
    }
    fig = go.Figure()
    for (part, values), color in zip(costs.items(), ("target", "draft", "neutral"), strict=True):
        fig.add_bar(
            name=part,
            orientation="h",
            y=list(rows),
            x=[round(value, 3) for value in values],
            marker_color=PALETTE[color],
        )
    most = sum(
        draft > max(verify - 1, rest) for verify, draft, rest in zip(*costs.values(), strict=True)
    )
    fig.update_layout(
        barmode="stack",
        title=f"Drafting adds most to the cost of a round in {most} of {len(rows)} rows",
        xaxis_title="cost of a round, in plain passes",
    )
    gammas = {row["gamma"] for row in rows.values()}
    alt = (
        f"Cost of a round of the shipped pair at γ = {', '.join(map(str, sorted(gammas)))}, in plain"
        f" passes: the verifying pass, the drafts and the rest. {recording.source}"
    )
    return figure(fig, alt)


def terms_table(recording: Recording) -> Markdown:
    """Return a folded table that goes from the plain formula to the measured speedup."""
    lines = []
    for text, row in sound_rows(recording).items():
        cost, gamma = row["prediction"], row["gamma"]
        loop, v, o = cost["c_in_loop"], cost["verify"], cost["overhead"]
        expected = theory.expected_tokens(row["alpha"]["value"], gamma)
        tau, plain = row["tau"]["value"], plain_cost(row) - 1
        settings = (
            (expected, gamma, cost["c"]),
            (expected, gamma, loop),
            (expected, gamma, loop, v),
            (expected, gamma, loop, v, o),
            (tau, gamma, loop, v, o),
            (tau, gamma, loop, v, o, plain),
        )
        speeds = [f"{theory.corrected_improvement(*each):.2f}" for each in settings]
        lines.append((text, believed(row), *speeds))
    return table(
        ("format, text", "measured ×", *TERMS),
        lines,
        recording.source,
        fold="From the plain formula to the measured speedup, number by number",
    )
