"""In every figure a role's color means this role: the target, a draft, an accepted token …"""

import json
from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go
import pytest
from figure_roles import ROLE, role_faults

from specdec_book.viz import COLORWAY, PALETTE, figure, gpu_figures, published
from specdec_lite.measure.profiler import Operation

TYPE = "application/vnd.plotly.v1+json"


def drawn(*traces: tuple[str, str | None], title: str = "") -> dict:
    """Return a figure with a trace for each (name, color)."""
    fig = go.Figure(layout={"title": title})
    for name, color in traces:
        fig.add_scatter(name=name, x=[1, 2], y=[1, 2], line_color=color)
    return json.loads(figure(fig, alt="lines").to_json())


@pytest.mark.parametrize(
    "traces",
    [
        [("reading", PALETTE["target"]), ("draft", PALETTE["draft"])],
        [("target", PALETTE["one"]), ("draft", PALETTE["draft"])],
        [("arithmetic", PALETTE["accepted"])],
        [("after one", PALETTE["recovered"]), ("p", PALETTE["target"])],
    ],
)
def test_a_color_with_another_meaning_is_found(traces):
    assert role_faults(drawn(*traces))


def test_a_color_with_its_own_meaning_is_not():
    both = ("the target", PALETTE["target"]), ("the draft", PALETTE["draft"])
    assert role_faults(drawn(*both)) == []
    assert role_faults(drawn(("measured", PALETTE["accepted"]), title="α by position")) == []


def test_a_trace_without_a_color_gets_no_role_by_chance():
    assert not ROLE.keys() & {color.lower() for color in COLORWAY}


PUBLISHED = published.by_batch, published.forecast_figure, published.one_cost, published.laptop


@pytest.mark.parametrize("build", PUBLISHED)
def test_figures_of_functions(build):
    assert role_faults(json.loads(build().to_json())) == []


def test_the_lanes_of_a_pass_have_no_role():
    lane = [Operation("mm", 0.0, 1e-3, "weights"), Operation("sdpa", 1e-3, 1e-3, "attention")]
    fig = gpu_figures.lanes_figure({"a pass": lane}, "One pass.")
    assert role_faults(json.loads(fig.to_json())) == []


def executed_figures(book: Path) -> Iterator[tuple[str, dict]]:
    """Yield (page and cell, figure) of every plotly figure that the book's build has drawn."""
    for path in sorted((book.parent / "jupyter_execute" / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                if TYPE in output.get("data", ()):
                    yield f"{path.stem}: {cell['id']}", output["data"][TYPE]


def test_all_figures_of_the_book(book: Path):
    figures = list(executed_figures(book))
    assert len(figures) > 40
    assert [f"{name}: {fault}" for name, fig in figures for fault in role_faults(fig)] == []
