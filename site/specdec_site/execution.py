"""Execute the chapters before Sphinx reads them, two at a time, and keep every result.

nbclient runs a chapter, and jupyter-cache stores what succeeded. A stored chapter runs again only
if its code changed or something that chapters read (`chapter_inputs`). A chapter that fails keeps its
outputs up to the failure and says so at its top, no other page is affected, and the build's exit
status is 1.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import specdec_lite  # noqa: F401  (bounds the spin of OpenMP's threads, also in the kernels)

from . import chapter_inputs
from .kernels import Client

LOGGER = logging.getLogger(__name__)
PROCESSES = min(2, os.cpu_count() or 1)
ONLY = "SPECDEC_CHAPTERS"
"""The variable with which `make page` names the chapters to execute; all if it is unset."""
FAILED = "This chapter did not finish when this copy of the book was built, so results are missing:"
LONGEST = ("15_when_to_stop", "17b_verify_what_survives", "14_lookahead", "09_self_drafts")
"""Chapters that begin, so that no long one runs alone at the end."""
STORED = 100
"""Results to keep; older ones, of chapters whose code changed since, are deleted."""


class Run(NamedTuple):
    """A chapter with its outputs, when its execution ended, how long it took, and what went wrong."""

    notebook: NotebookNode
    finished: float
    seconds: float
    failure: str = ""


def execute(path: Path, timeout: float, clients: list[NotebookClient]) -> Run:
    """Execute a notebook in a kernel of its own.

    Args:
        path: File of the notebook, in whose folder it runs.
        timeout: Seconds that a cell may take.
        clients: Gets the notebook's client.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
    except ValueError as error:
        title = nbformat.v4.new_markdown_cell(f"# {path.stem}")
        failure = f"{path.name} is not a notebook: {' '.join(str(error).split())[:100]}"
        return Run(nbformat.v4.new_notebook(cells=[title]), time.time(), 0.0, failure)
    cells: list[int] = []
    client = Client(
        notebook,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=lambda cell, cell_index: cells.append(cell_index),
        extra_arguments=["--log-level=ERROR"],
        record_timing=False,  # the store compares the cells' metadata
        timeout=timeout,
        startup_timeout=600,  # a busy machine is slow
        iopub_timeout=60,
    )
    clients.append(client)
    start, failure = time.monotonic(), ""
    try:
        client.execute()
    except CellExecutionError as error:
        failure = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        failure = f"a cell took longer than the {timeout:g} s that it is allowed"
    except Exception as error:  # a kernel that cannot start or dies is a failure of its chapter
        failure = f"{type(error).__name__}: {error}"
    if failure:
        reached = notebook.cells[: max(cells, default=-1) + 1]
        number = sum(cell.cell_type == "code" for cell in reached)
        failure = f"{' '.join(failure.split())} (code cell {number})"
    return Run(notebook, time.time(), time.monotonic() - start, failure)


def kill(client: NotebookClient) -> None:
    """End a client's kernel, if it runs."""
    provisioner = getattr(client.km, "provisioner", None)
    if process := getattr(provisioner, "process", None):
        process.kill()


class Execution:
    """The chapters of one build: which must run, their results, and what Sphinx reads of them."""

    def __init__(self, app: Sphinx):
        self.app = app
        self.runs: dict[str, Run] = {}
        """The newest execution of each chapter, stored or of this build."""

    def start(self, app: Sphinx) -> None:
        """Open the store; a build that only checks links executes nothing."""
        self.skip = app.builder.name == "linkcheck"
        folder = app.config.nb_execution_cache_path or Path(app.srcdir, "_build", ".jupyter_cache")
        self.cache = get_cache(str(folder))
        self.inputs = chapter_inputs.digest(Path(app.srcdir))

    def path(self, chapter: str) -> Path:
        """Return the file of a chapter."""
        return Path(self.app.env.doc2path(chapter))

    def stored(self, chapter: str) -> Run | None:
        """Return the stored result of a chapter; None if there is none for its present inputs."""
        try:
            notebook = nbformat.read(self.path(chapter), as_version=4)
            data = self.cache.match_cache_notebook(notebook).data
            if data["inputs"] != self.inputs:
                return None
            _, merged = self.cache.merge_match_into_notebook(notebook, cell_meta=())
        except (KeyError, ValueError):  # absent, cut short by an interruption, or not a notebook
            return None
        return Run(merged, data["finished"], data["seconds"])

    def store(self, chapter: str, run: Run) -> None:
        """Store a result."""
        data = {"inputs": self.inputs, "finished": run.finished, "seconds": run.seconds}
        bundle = CacheBundleIn(run.notebook, str(self.path(chapter)), data=data)
        self.cache.change_cache_limit(STORED)
        self.cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)

    def execute_outdated(
        self, app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set
    ) -> list[str]:
        """Execute the chapters that need it; return those whose result Sphinx has not read yet."""
        if self.skip:
            return []
        chapters = [name for name in sorted(env.found_docs) if self.path(name).suffix == ".ipynb"]
        stored = ((name, self.stored(name)) for name in chapters)
        self.runs = {name: run for name, run in stored if run}
        only = os.environ.get(ONLY, "").split() or [Path(name).name for name in chapters]
        missing = {name for name in chapters if Path(name).name in only} - self.runs.keys()
        self.execute_all(sorted(missing, key=lambda name: (Path(name).name not in LONGEST, name)))
        return [name for name, run in self.runs.items() if name in missing or self.newer(name, run)]

    def newer(self, chapter: str, run: Run) -> bool:
        """Return whether a result is newer than what Sphinx has read of the chapter."""
        doctree = Path(self.app.doctreedir) / f"{chapter}.doctree"
        return doctree.exists() and doctree.stat().st_mtime < run.finished

    def execute_all(self, chapters: list[str]) -> None:
        """Execute chapters, and report each start and end with the number of those left."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # in the kernels
        os.environ["SPECDEC_PROGRESS"] = "0"  # a page shows results alone
        timeout, left = float(self.app.config.nb_execution_timeout), len(chapters)
        clients: list[NotebookClient] = []
        if chapters:
            LOGGER.info("\nchapters to execute: %d, %d at a time", left, PROCESSES)

        def run(chapter: str) -> Run:
            LOGGER.info("  executing %s", chapter)
            return execute(self.path(chapter), timeout, clients)

        with ThreadPoolExecutor(PROCESSES) as pool:
            pending = {pool.submit(run, chapter): chapter for chapter in chapters}
            try:
                for future in as_completed(pending):
                    left -= 1
                    self.finish(pending[future], future.result(), left)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for client in clients:
                    kill(client)
                raise

    def finish(self, chapter: str, run: Run, left: int) -> None:
        """Report the end of an execution, and store its result."""
        self.runs[chapter] = run
        if run.failure:
            LOGGER.warning("the chapter failed: %s", run.failure, location=chapter, type="exec")
        else:
            try:
                self.store(chapter, run)
            except OSError as error:
                LOGGER.warning("cannot store its result: %s", error, location=chapter, type="exec")
        LOGGER.info("  %s took %.0f s; chapters left: %d", chapter, run.seconds, left)

    def insert_outputs(self, app: Sphinx, chapter: str, source: list[str]) -> None:
        """Give Sphinx the executed chapter in place of its file."""
        if run := self.runs.get(chapter):
            source[0] = nbformat.writes(run.notebook)
        elif self.path(chapter).suffix == ".ipynb":
            notebook = nbformat.reads(source[0], as_version=4)
            notebook.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}
            source[0] = nbformat.writes(notebook)  # as if executed: !ls is not plain Python

    def record(self, app: Sphinx, doctree: nodes.document) -> None:
        """Hand the facts of an execution to myst-nb; begin a failed chapter with what went wrong."""
        run = self.runs.get(app.env.docname)
        if run is None:
            return
        data = {
            "mtime": run.finished,
            "runtime": run.seconds,
            "method": "cache",
            "succeeded": not run.failure,
            "error": run.failure or None,
            "traceback": None,
        }
        NbMetadataCollector.set_exec_data(app.env, app.env.docname, data)
        if run.failure:
            note = nodes.error("", nodes.paragraph(text=f"{FAILED} {run.failure}."))
            next(doctree.findall(nodes.section)).insert(1, note)

    def finish_build(self, app: Sphinx, error: Exception | None) -> None:
        """Make the exit status 1 if a chapter failed, and name it again."""
        failed = {name: run for name, run in self.runs.items() if run.failure}
        for name, run in failed.items():
            LOGGER.info("%s failed: %s", name, run.failure, color="red")
        if failed:
            app.statuscode = 1


def register(app: Sphinx) -> None:
    """Connect the execution to a Sphinx application."""
    execution = Execution(app)
    app.connect("builder-inited", execution.start)
    app.connect("env-get-outdated", execution.execute_outdated)
    app.connect("source-read", execution.insert_outputs)
    app.connect("doctree-read", execution.record, priority=600)
    app.connect("build-finished", execution.finish_build)
