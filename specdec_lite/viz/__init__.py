"""Figures and interactives: one look, one helper, one ES module per interactive."""

from specdec_lite.viz.bench import Bench
from specdec_lite.viz.explorer import Explorer
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.roofline import Roofline
from specdec_lite.viz.theme import COLORWAY, PALETTE, figure
from specdec_lite.viz.tree_explorer import TreeExplorer

__all__ = [
    "COLORWAY",
    "PALETTE",
    "Bench",
    "Explorer",
    "Interactive",
    "Roofline",
    "TreeExplorer",
    "figure",
]
