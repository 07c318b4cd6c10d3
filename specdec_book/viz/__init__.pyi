"""The public names and where each is defined; `viz.__init__` loads them on first use."""

from specdec_book.viz.advice import Advice
from specdec_book.viz.arcs import arcs
from specdec_book.viz.bench import Bench
from specdec_book.viz.cells import cells
from specdec_book.viz.drawing import Drawing
from specdec_book.viz.explorer import Explorer
from specdec_book.viz.figure import figure
from specdec_book.viz.growth import TreeGrowth
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.log_line import LogLine
from specdec_book.viz.lookup import Lookup
from specdec_book.viz.next_word import NextWord
from specdec_book.viz.payoff import Payoff
from specdec_book.viz.race import Race
from specdec_book.viz.roofline import Roofline
from specdec_book.viz.round import Round
from specdec_book.viz.scoreboard import Scoreboard
from specdec_book.viz.second_word import SecondWord
from specdec_book.viz.serving import Serving
from specdec_book.viz.sketch import Sketch
from specdec_book.viz.skip_switches import SkipSwitches
from specdec_book.viz.tables import table
from specdec_book.viz.theme import COLORWAY, PALETTE
from specdec_book.viz.timelines import Timelines
from specdec_book.viz.tree_budget import TreeBudget
from specdec_book.viz.tree_explorer import TreeExplorer

__all__ = [
    "Advice",
    "COLORWAY",
    "PALETTE",
    "Bench",
    "Drawing",
    "Explorer",
    "Interactive",
    "LogLine",
    "Lookup",
    "NextWord",
    "Payoff",
    "Race",
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
