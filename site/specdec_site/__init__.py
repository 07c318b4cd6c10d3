"""Sphinx extension of the published book.

Lives here: what Jupyter Book does not do by itself, one module a concern.
`outputs` renders figures and interactives, `tables` turns a figure's data into a table, `assets` puts the
JavaScript beside the pages, `boxes` turns quotes into boxes, `fresh` decides which chapters must run again, `mend`
repairs the theme's HTML. Nothing here runs in a notebook.
"""

from sphinx.application import Sphinx

from . import assets, boxes, fresh, mend, outputs


def setup(app: Sphinx) -> dict:
    outputs.register(app)
    boxes.register(app)
    fresh.register(app)
    assets.register(app)
    mend.register(app)
    return {"version": "0.1.0", "parallel_read_safe": True, "parallel_write_safe": True}
