"""When each chapter was executed, how long that took and with which versions: a line under it, and
a table of all.

The versions are those that the chapter's own first cell printed; the seconds are myst-nb's.
"""

import posixpath
import re
from datetime import UTC, datetime

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from specdec_lite.measure.timing import machine_name

from . import late

KEY = "sdl_run"
VERSIONS = re.compile(r"specdec_lite \S+ · torch \S+ · transformers \S+ · \w+")
READING = re.compile(r"^(\d+) minutes ·")


def reading_minutes(doctree: nodes.document) -> int | None:
    """What the line under a chapter's title says: *35 minutes · CPU is enough · …*."""
    for line in doctree.findall(nodes.emphasis):
        if said := READING.match(line.astext()):
            return int(said[1])
    return None


def record(app: Sphinx, doctree: nodes.document) -> None:
    """Notes the chapter's minutes and its run, and ends an executed chapter with a line that says
    so.
    """
    page, kept = app.env.docname, app.env.metadata[app.env.docname]
    kept["sdl_minutes"] = reading_minutes(doctree)
    run = NbMetadataCollector.get_doc_data(app.env)[page].get("exec_data")
    printed = VERSIONS.search(
        "\n".join(block.astext() for block in doctree.findall(nodes.literal_block))
    )
    if not run or run["runtime"] is None or not printed:
        return
    python = kept.get("language_info", {}).get("version")
    versions = ([f"Python {python}"] if python else []) + printed[0].split(" · ")
    when = datetime.fromtimestamp(run["mtime"], UTC)
    kept[KEY] = {
        "date": when.date().isoformat(),
        "seconds": run["runtime"],
        "versions": versions,
        "machine": machine_name(),
    }
    line = nodes.paragraph(classes=["sdl-executed"])
    line += nodes.Text(
        f"Last executed on {when.date().isoformat()} in {run['runtime']:.0f} s:"
        f" {', '.join(versions)}."
    )
    list(doctree.findall(nodes.section))[0].append(line)


def row(*cells: nodes.Node | str) -> nodes.row:
    made = nodes.row()
    for cell in cells:
        made += nodes.entry(
            "", nodes.paragraph("", "", cell if isinstance(cell, nodes.Node) else nodes.Text(cell))
        )
    return made


def times_table(env: BuildEnvironment, page: str, runs: dict[str, dict]) -> nodes.table:
    heads = ("chapter", "minutes to read", "seconds to run")
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in heads), cols=len(heads))
    body = nodes.tbody()
    for name, run in runs.items():
        address = posixpath.relpath(f"{name}.html", posixpath.dirname(page))
        link = nodes.reference("", env.titles[name].astext(), refuri=address, internal=True)
        body += row(
            link, str(env.metadata[name].get("sdl_minutes") or "–"), f"{run['seconds']:.1f}"
        )
    body += row("all", "", f"{sum(run['seconds'] for run in runs.values()):.1f}")
    group += [nodes.thead("", row(*heads)), body]
    return nodes.table("", group, classes=["colwidths-auto"])


def times(app: Sphinx, page: str) -> list[nodes.Node]:
    """The content of ```{execution-times}```."""
    runs = {
        name: app.env.metadata[name][KEY]
        for name in sorted(app.env.found_docs)
        if KEY in app.env.metadata[name]
    }
    if not runs:
        return [nodes.paragraph(text="In this copy of the book no chapter was executed.")]
    machines = sorted({run["machine"] for run in runs.values()})
    versions = dict.fromkeys(version for run in runs.values() for version in run["versions"])
    days = " and ".join(sorted({run["date"] for run in runs.values()}))
    words = nodes.paragraph(
        text=f"Executed on {days} on {', '.join(machines)}, with {', '.join(versions)}."
    )
    return [words, times_table(app.env, page, runs)]


def register(app: Sphinx) -> None:
    app.connect("doctree-read", record, priority=700)
    late.directive(app, "execution-times", times)
