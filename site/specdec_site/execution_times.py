"""When each chapter ran, for how long and with which versions: a line below it, and one table.

The chapters run in the environment that builds the book, so the versions are this environment's.
myst-nb measures the seconds.
"""

import posixpath
import re
from datetime import UTC, datetime
from importlib.metadata import version

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from specdec_lite.loading.memory import resolve_device
from specdec_lite.measure.stamps import machine_name

from . import deferred
from .deferred import table

KEY = "sdl_run"
PACKAGES = {"specdec_lite": "specdec-lite", "torch": "torch", "transformers": "transformers"}
"""Packages whose versions are shown: import name → distribution."""
READING = re.compile(r"^(\d+) minutes ·")


def reading_minutes(doctree: nodes.document) -> int | None:
    """Return the minutes that a chapter's small line states; None if it has no such line.

    Such a line reads *35 minutes · CPU is enough · …*. Its paragraph gets the class sdl-about.
    """
    for line in doctree.findall(nodes.emphasis):
        if match := READING.match(line.astext()):
            line.parent["classes"].append("sdl-about")
            return int(match[1])
    return None


def record_run(app: Sphinx, doctree: nodes.document) -> None:
    """Store a chapter's reading time and run, and add a line about the run at its end."""
    page, metadata = app.env.docname, app.env.metadata[app.env.docname]
    metadata["sdl_minutes"] = reading_minutes(doctree)
    run = NbMetadataCollector.get_doc_data(app.env)[page].get("exec_data")
    if not run or run["runtime"] is None:
        return
    python = metadata.get("language_info", {}).get("version")
    versions = [f"Python {python}"] if python else []
    versions += [f"{name} {version(package)}" for name, package in PACKAGES.items()]
    versions.append(str(resolve_device("auto")))
    day = datetime.fromtimestamp(run["mtime"], UTC).date().isoformat()
    metadata[KEY] = {
        "date": day,
        "seconds": run["runtime"],
        "versions": versions,
        "machine": machine_name(),
    }
    line = nodes.paragraph(classes=["sdl-executed"])
    line += nodes.Text(f"Last executed on {day} in {run['runtime']:.0f} s: {', '.join(versions)}.")
    list(doctree.findall(nodes.section))[0].append(line)


def times_table(env: BuildEnvironment, page: str, runs: dict[str, dict]) -> nodes.table:
    """Return a table with one row for each chapter and a last row with the total."""
    rows: list[tuple] = []
    for name, run in runs.items():
        address = posixpath.relpath(f"{name}.html", posixpath.dirname(page))
        link = nodes.reference("", env.titles[name].astext(), refuri=address, internal=True)
        minutes = env.metadata[name].get("sdl_minutes")
        rows.append((link, str(minutes or "–"), f"{run['seconds']:.1f}"))
    minutes = sum(env.metadata[name].get("sdl_minutes") or 0 for name in runs)
    total = sum(run["seconds"] for run in runs.values())
    heads = ("chapter", "minutes to read", "seconds to run")
    return table(heads, [*rows, ("all", str(minutes), f"{total:.1f}")])


def times(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of ```{execution-times}```."""
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
    summary = nodes.paragraph(
        text=f"Executed on {days} on {', '.join(machines)}, with {', '.join(versions)}."
    )
    return [summary, times_table(app.env, page, runs)]


def register(app: Sphinx) -> None:
    """Connect the record and the directive to a Sphinx application."""
    app.connect("doctree-read", record_run, priority=700)
    deferred.add_directive(app, "execution-times", times)
