"""A token tree with one mark around a node for each draft that reached it, as a figure."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specdec_book.viz.figure import SYMBOLS
from specdec_book.viz.theme import PALETTE
from specdec_lite.tree import TokenTree


def coordinates(tree: TokenTree) -> dict[int, tuple[int, float]]:
    """Return (level, height) of every node and of the root, −1: leaves are one apart."""
    places: dict[int, tuple[int, float]] = {}
    leaves = 0.0

    def place(node: int, level: int) -> float:
        nonlocal leaves
        below = [place(child, level + 1) for child in tree.children(node)]
        height = sum(below) / len(below) if below else leaves
        leaves += not below
        places[node] = (level, height)
        return height

    place(-1, 0)
    return places


def merged_tree(
    tree: TokenTree, words: Sequence[str], root: str, landed: Mapping[str, Sequence[int]]
) -> go.Figure:
    """Draw a merged tree.

    Args:
        tree: The tree.
        words: The text of every node.
        root: The text before the tree.
        landed: For each draft, the nodes of its draws.
    """
    places = coordinates(tree)
    fig = go.Figure(layout=dict(height=330))
    for node, parent in enumerate(tree.parents):
        (x, y), (right, below) = places[parent], places[node]
        fig.add_scatter(
            x=[x, right],
            y=[y, below],
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line=dict(color=PALETTE["neutral"], width=1),
        )
    for node, text in enumerate([*words, root]):
        x, y = places[node if node < len(words) else -1]
        fig.add_annotation(x=x, y=y, text=text, showarrow=False, yshift=-24)
    for number, (shape, (name, nodes)) in enumerate(zip(SYMBOLS, landed.items())):
        size, shape = 12 + 9 * number, f"{shape}-open"
        fig.add_scatter(
            x=[places[node][0] for node in nodes],
            y=[places[node][1] for node in nodes],
            name=name,
            mode="markers",
            marker=dict(size=size, symbol=shape, line_width=3, color=PALETTE["draft"]),
        )
    leaves = max(height for _, height in places.values())
    axis = dict(title="level", dtick=1, showgrid=False, zeroline=False)
    fig.update_xaxes(**axis, range=[-0.4, tree.levels + 0.4])
    fig.update_yaxes(visible=False, range=[leaves + 0.6, -0.6])
    return fig
