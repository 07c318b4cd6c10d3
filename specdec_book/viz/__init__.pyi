"""The public names and where each is defined; `viz.__init__` loads them on first use."""

from specdec_book.viz.advice import Advice
from specdec_book.viz.arcs import arcs
from specdec_book.viz.cells import cells
from specdec_book.viz.drawing import Drawing
from specdec_book.viz.figure import figure
from specdec_book.viz.growth import TreeGrowth
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.interactives import (
    Bench,
    Explorer,
    LogLine,
    Lookup,
    NextWord,
    Race,
    Roofline,
    Round,
    SecondWord,
    SkipSwitches,
    Timelines,
    TreeBudget,
    TreeExplorer,
)
from specdec_book.viz.payoff import Payoff
from specdec_book.viz.scoreboard import Scoreboard
from specdec_book.viz.serving import Serving
from specdec_book.viz.sketch import Sketch
from specdec_book.viz.tables import table
from specdec_book.viz.theme import COLORWAY, PALETTE

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
