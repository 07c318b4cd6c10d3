"""The Sphinx extension of the published book: what Jupyter Book does not do itself.

One module for each concern. Before pages are read, `execution` runs the chapters whose
`chapter_inputs` changed, in `kernels`. While pages are read, `outputs` renders figures and
interactives, `tables` turns a figure's data into a table, `boxes` turns block quotes into boxes,
`numbering` puts chapter numbers before titles, `fold_titles` removes what only a notebook shows and
turns public `addresses` of the book's own files into links to them, `bibliography_style` labels the
bibliography, `execution_times` records when chapters ran. `deferred` adds directives whose content
is known only after all pages are read: `maps` draws the maps of the start page, `recorded_tables`
shows recordings as tables. On finished pages: `assets` and `live` write scripts beside them,
`licenses` the licences of others' parts, `repair_html` repairs the theme's HTML with
`phone_tables`, `line_breaks`, `terms`, `citations`, `formulas`, `icons`, `policy` and `bundle`, and
`archive` packs the book into one file. Nothing here runs in a notebook.
"""

import hashlib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from . import (
    archive,
    assets,
    bibliography_style,
    boxes,
    execution,
    execution_times,
    fold_titles,
    icons,
    launch,
    maps,
    numbering,
    outputs,
    recorded_tables,
    repair_html,
)

FOLDER = Path(__file__).parent
SCRIPT_IN_PAGES = FOLDER.parent / "static" / "interactives.js"


def write_in_parallel(app: Sphinx, env: BuildEnvironment) -> None:
    """Let Sphinx write pages beside the next ones' cross-references, once all pages are read."""
    app.parallel = execution.PROCESSES


def setup(app: Sphinx) -> dict:
    """Register every module of the extension, as Sphinx expects."""
    reading = (
        numbering,
        outputs,
        boxes,
        bibliography_style,
        execution,
        fold_titles,
        execution_times,
    )
    finishing = (maps, recorded_tables, launch, assets, repair_html, icons, archive)
    for module in (*reading, *finishing):
        module.register(app)
    app.connect("env-updated", write_in_parallel)
    # Sphinx writes every page again if what finishes a page has changed
    files = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*.js"), SCRIPT_IN_PAGES])
    parts = b"".join(file.read_bytes() for file in files)
    app.add_config_value("sdl_site", hashlib.sha256(parts).hexdigest(), "html")
    return {"version": "0.1.0", "parallel_read_safe": True, "parallel_write_safe": True}
