"""Figures and interactives: one look, one helper, one ES module per interactive.

`__init__.pyi` lists the public names. Each is imported when it is first used, so that a chapter
loads what it shows. Functions that are named like their module are imported immediately.
"""

from specdec_book.viz.arcs import arcs as arcs
from specdec_book.viz.cells import cells as cells
from specdec_book.viz.figure import figure as figure
from specdec_book.viz.progress import watch
from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)

watch()  # in a notebook, long cells show their progress
