"""Sphinx extension of the published book.

Lives here: what Jupyter Book does not do by itself, one module a concern. `outputs` renders figures
and interactives, `tables` turns a figure's data into a table, `assets` puts the JavaScript beside
the pages, `boxes` turns quotes into boxes, `cite` labels the bibliography, `fresh` decides which
chapters must run again, `executed` says when they ran, `promise` shows what the suite found
lossless, `atlas` draws the maps of the start page, `launch` adds JupyterLab to the launch buttons,
`numbering` puts the chapters' numbers before their titles, `mend` repairs the theme's
HTML, `terms` links the glossary, `icons` draws its icons and `formulas` the formulas into the page,
`bundle` joins its sheets and scripts, `archive` packs the finished book. Nothing here runs in a notebook.
"""

from sphinx.application import Sphinx

from . import (
    archive,
    assets,
    atlas,
    boxes,
    cite,
    executed,
    fresh,
    icons,
    late,
    launch,
    mend,
    numbering,
    outputs,
    promise,
)


def setup(app: Sphinx) -> dict:
    for module in (
        numbering,
        outputs,
        boxes,
        cite,
        fresh,
        late,
        executed,
        atlas,
        promise,
        launch,
        assets,
        mend,
        icons,
        archive,
    ):
        module.register(app)
    return {"version": "0.1.0", "parallel_read_safe": True, "parallel_write_safe": True}
