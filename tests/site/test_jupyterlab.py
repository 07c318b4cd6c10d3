"""Chapters in JupyterLab as `make lab` starts it: every cell runs, a changed one runs again, sliders
reach the kernel, a check answers, links lead somewhere, and the start prints no error."""

import json
import linecache
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import chapters
import nbformat
import pytest
from conftest import ROOT, patience
from solutions import exercises

CHAPTERS = {  # and what a reader changes in the cell to change
    "06_why_lossless": ("row(.3, .5, .2)", "row(.1, .1, .8)"),
    "07_how_fast": ('"json", 4', '"code", 2'),
    "19_will_it_pay": ("0.7, 4, 1, 512", "0.6, 4, 64, 512"),
}
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)")
READ_BACK = """
import ipywidgets
from specdec_book.viz.interactive import Interactive
shown = [w.state() for w in ipywidgets.widgets.widget._instances.values()
         if isinstance(w, Interactive)]
print("kernel has", [{name: x for name, x in state.items() if isinstance(x, int | float)
                      or x and isinstance(x, list) and isinstance(x[0], float)}
                     for state in shown])
""".strip()
OPTIONS = [
    "--no-browser",
    "--allow-root",
    "--port-retries=0",
    "--IdentityProvider.token=",
    "--ServerApp.disable_check_xsrf=True",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
OUTPUT = ".jp-OutputArea-output"
ERROR = f"{OUTPUT}[data-mime-type='application/vnd.jupyter.error']"
SAID = f"""() => [...document.querySelectorAll('{OUTPUT}')].map((output) => output.textContent)
    .find((text) => text.includes('kernel has'))"""


class Lab(NamedTuple):
    """A running JupyterLab: where it answers, with a slash at the end, and what it printed."""

    address: str
    log: Path


def makefiles_options() -> list[str]:
    """Return the options with which `make lab` starts JupyterLab."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return shlex.split(re.search(r"^\t\$\(BIN\)/jupyter lab (.*)$", makefile, flags=re.M)[1])


def copy_of_the_repository(folder: Path) -> None:
    """Link a folder to the repository's, but for the chapters: JupyterLab saves what it runs."""
    for source in ROOT.iterdir():
        if source.is_dir() and not source.name.startswith((".", "_")):
            (folder / source.name).symlink_to(source)
    (folder / "notebooks").unlink()
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for chapter in CHAPTERS:
        path = folder / "notebooks" / f"{chapter}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(nbformat.v4.new_code_cell(READ_BACK, id="read-back"))
        nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on localhost, started as `make lab` does, in a copy of the repository."""
    folder, settings = tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("settings")
    copy_of_the_repository(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tracker = settings / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text(json.dumps({"windowingMode": "none"}))  # keeps every output in the page
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_CONFIG_DIR": str(settings),
        "PYTHONPATH": str(ROOT),
    }
    log = settings / "lab.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *makefiles_options(), *OPTIONS, f"--port={port}"],
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=file,
        )
    running = Lab(f"http://127.0.0.1:{port}/", log)
    try:
        while True:
            try:
                urllib.request.urlopen(f"{running.address}api", timeout=patience() / 1000)
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                time.sleep(0.5)
        yield running
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_every_link_of_every_chapter_leads_to_a_file_that_the_server_has(lab: Lab):
    targets = {
        os.path.normpath(f"notebooks/{target}")
        for path in chapters.CHAPTERS
        for target in LINK.findall(chapters.text_of(path))
    }
    assert targets
    for target in targets:
        question = f"{lab.address}api/contents/{target}?content=0"
        assert json.load(urllib.request.urlopen(question))["path"] == target


@pytest.mark.slow
def test_it_opens_the_chapters_and_its_start_prints_no_error(lab: Lab):
    assert urllib.request.urlopen(lab.address).url == f"{lab.address}lab/tree/notebooks"
    printed = lab.log.read_text()
    assert "Jupyter Server" in printed
    assert not re.search(r"error|not supported", printed, flags=re.I), printed[-3000:]


def run_all(page, lab: Lab, chapter: str) -> None:
    """Open a chapter, run all of its cells, and wait for the end of the last."""
    page.goto(f"{lab.address}lab/tree/notebooks/{chapter}.ipynb?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("#jp-main-statusbar :text('| Idle')")
    select = page.locator(".jp-Dialog button", has_text="Select")
    page.add_locator_handler(page.locator(".jp-Dialog"), lambda: select.click())
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_function(
        f'() => ({SAID})() || document.querySelector("{ERROR}")', timeout=patience(15)
    )
    assert page.locator(ERROR).all_inner_texts() == []


def run_again(page, number: int, source: str) -> str:
    """Write a cell anew, run it, and return what it shows."""
    cell = page.locator(".jp-Notebook .jp-Cell").nth(number)
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        "([prompt, before]) => /\\d/.test(prompt.innerText) && prompt.innerText !== before",
        arg=[prompt.element_handle(), before],
    )
    return cell.locator(".jp-Cell-outputArea").inner_text()


def outside_requests(page, lab: Lab) -> list[str]:
    """Return a list that fills with what the page asks of other hosts."""
    requests: list[str] = []
    own = (lab.address, lab.address.replace("http", "ws"), "data:", "blob:")
    page.on("request", lambda r: r.url.startswith(own) or requests.append(r.url))
    return requests


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_all_runs_then_a_changed_cell_a_slider_and_an_exercise(chromium, lab: Lab, chapter: str):
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(patience())
    requests, errors = outside_requests(page, lab), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_all(page, lab, chapter)

    selected = "document.querySelector('.jp-mod-selected')?.dataset?.windowedListIndex"
    slider = page.locator(f"{OUTPUT} input[type=range]:visible").first
    slider.scroll_into_view_if_needed()
    before, cell, said = float(slider.input_value()), page.evaluate(selected), page.evaluate(SAID)
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    step = float(slider.get_attribute("step"))
    assert float(slider.input_value()) == pytest.approx(before + 3 * step)
    assert page.evaluate(selected) == cell, "the keys reach the slider alone"

    page.locator(".jp-CodeCell", has_text="kernel has").locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.wait_for_function(f"(said) => ({SAID})() && ({SAID})() !== said", arg=said)

    cells = chapters.cells(ROOT / "notebooks" / f"{chapter}.ipynb")
    at = next(i for i, cell in enumerate(cells) if chapters.has_tag(cell, "change-and-run"))
    source = cells[at].source
    shown = run_again(page, at, source)
    changed = source.replace(*CHAPTERS[chapter])
    assert changed != source and run_again(page, at, changed) != shown
    asked = next(each for each in exercises() if each.chapter == chapter)
    solution = "".join(linecache.getlines(asked.solution.__code__.co_filename))
    at = next(i for i, c in enumerate(cells) if f"def {asked.name}" in c.source)
    call = f"\n\nexercises.{asked.asked}({asked.name})"
    endless = run_again(page, at, f"def {asked.name}(*case):\n    while True: pass{call}")
    assert "✗" in endless and "was stopped after 5 seconds in line 2, `while" in endless
    assert "✓" in run_again(page, at, solution + call)
    assert page.locator(ERROR).all_inner_texts() == []
    assert requests == [] and errors == []
    context.close()
