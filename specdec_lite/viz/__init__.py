"""Figures and interactives: one look, one helper, one ES module per interactive."""

from specdec_lite.viz.arcs import arcs
from specdec_lite.viz.bench import Bench
from specdec_lite.viz.cells import cells
from specdec_lite.viz.drawing import Drawing
from specdec_lite.viz.explorer import Explorer
from specdec_lite.viz.figure import figure
from specdec_lite.viz.growth import TreeGrowth
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.lookup import Lookup
from specdec_lite.viz.next_word import NextWord
from specdec_lite.viz.payoff import Payoff
from specdec_lite.viz.roofline import Roofline
from specdec_lite.viz.round import Round
from specdec_lite.viz.scoreboard import Scoreboard
from specdec_lite.viz.second_word import SecondWord
from specdec_lite.viz.serving import Serving
from specdec_lite.viz.sketch import Sketch
from specdec_lite.viz.skip_switches import SkipSwitches
from specdec_lite.viz.tables import table
from specdec_lite.viz.theme import COLORWAY, PALETTE
from specdec_lite.viz.timelines import Timelines
from specdec_lite.viz.tree_budget import TreeBudget
from specdec_lite.viz.tree_explorer import TreeExplorer

__all__ = [
    "COLORWAY",
    "PALETTE",
    "Bench",
    "Drawing",
    "Explorer",
    "Interactive",
    "Lookup",
    "NextWord",
    "Payoff",
    "Roofline",
    "Round",
    "Scoreboard",
    "SecondWord",
    "Serving",
    "Sketch",
    "SkipSwitches",
    "Timelines",
    "TreeBudget",
    "TreeExplorer",
    "TreeGrowth",
    "arcs",
    "cells",
    "figure",
    "table",
]
