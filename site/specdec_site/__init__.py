"""The Sphinx extension of the published book: what Jupyter Book does not do itself.

One module for each concern. Before pages are read, `execution` runs the chapters whose
`chapter_inputs` changed. While pages are read, `outputs` renders figures and interactives, `tables`
turns a figure's data into a table, `boxes` turns block quotes into boxes, `numbering` puts chapter
numbers before titles, `addresses` turns public addresses of the book's own files into links to
them, `bibliography_style` labels the bibliography, `execution_times` records when
chapters ran. `deferred` adds directives whose content is known only after all pages are read: `maps`
draws the maps of the start page, `lossless_tables` shows what the tests found lossless,
`board_table` the best method for each kind of text, `busy_machine` the effect of other programs on
a measurement, `library` lists the files to read, `live_speed`
shows the recorded races of the live page.
On finished pages: `assets` and `live` write scripts beside them, `licenses` the licences of others'
parts, `repair_html` repairs the theme's
HTML with `phone_tables`, `line_breaks`, `terms`, `citations`, `captions`, `formulas`, `icons`,
`policy` and `bundle`, and `archive` packs the book into one file. Nothing here runs in a notebook.
"""

from sphinx.application import Sphinx

from . import (
    addresses,
    archive,
    assets,
    bibliography_style,
    board_table,
    boxes,
    busy_machine,
    deferred,
    execution,
    execution_times,
    icons,
    launch,
    library,
    live_speed,
    lossless_tables,
    maps,
    numbering,
    outputs,
    repair_html,
)


def setup(app: Sphinx) -> dict:
    """Register every module of the extension, as Sphinx expects."""
    for module in (
        numbering,
        outputs,
        boxes,
        bibliography_style,
        execution,
        addresses,
        deferred,
        execution_times,
        maps,
        lossless_tables,
        board_table,
        busy_machine,
        library,
        live_speed,
        launch,
        assets,
        repair_html,
        icons,
        archive,
    ):
        module.register(app)
    return {"version": "0.1.0", "parallel_read_safe": True, "parallel_write_safe": True}
