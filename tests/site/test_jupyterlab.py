"""A chapter in JupyterLab, in a browser: a moved bar of its bench changes the kernel's value."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import patience

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "notebooks" / "06_why_lossless.ipynb"
READ_BACK = """
import ipywidgets
benches = [w for w in ipywidgets.widgets.widget._instances.values() if isinstance(w, Bench)]
print("kernel has", [[round(x, 3) for x in w.p] for w in benches])
"""


def short_chapter() -> nbformat.NotebookNode:
    """Return the chapter up to its bench, and a cell that prints the bench's state in the kernel."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    last = next(
        i
        for i, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "Bench(" in cell.source
    )
    notebook.cells = [
        *notebook.cells[: last + 1],
        nbformat.v4.new_code_cell(READ_BACK.strip(), id="read-back"),
    ]
    return notebook


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of JupyterLab on localhost, in a folder with the chapter."""
    nbformat.write(short_chapter(), tmp_path / "chapter.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "settings"
    tracker = settings / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text(json.dumps({"windowingMode": "none"}))  # keeps every output in the page
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--port-retries=0",
        f"--ServerApp.root_dir={tmp_path}",
        "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_CONFIG_DIR": str(settings),
        "PYTHONPATH": str(ROOT),
    }
    log = (tmp_path / "lab.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        cwd=tmp_path,
        env=environment,
        stdout=log,
        stderr=log,
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        while True:
            try:
                urllib.request.urlopen(address + "api", timeout=patience() / 1000)
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "lab.log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.mark.browser
@pytest.mark.slow
def test_slider_reaches_the_kernel(chromium, lab: str):
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(patience())
    outside_requests = []
    page.on(
        "request",
        lambda r: (
            outside_requests.append(r.url)
            if not r.url.startswith((lab, lab.replace("http", "ws"), "data:", "blob:"))
            else None
        ),
    )
    page.goto(f"{lab}lab/tree/chapter.ipynb?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("#jp-main-statusbar :text('| Idle')")
    select = page.locator(".jp-Dialog button", has_text="Select")
    page.add_locator_handler(page.locator(".jp-Dialog"), lambda: select.click())
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_function(
        """() => [...document.querySelectorAll('.jp-OutputArea-output')].some((output) =>
        output.textContent.includes('kernel has')
        || output.dataset.mimeType === 'application/vnd.jupyter.error')""",
        timeout=patience(15),
    )
    assert (
        page.locator(
            ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"
        ).all_inner_texts()
        == []
    )
    slider = page.locator(".jp-OutputArea-output input[type=range]").first
    slider.scroll_into_view_if_needed()
    before = float(slider.input_value())
    cell_selected = page.evaluate(
        "document.querySelector('.jp-mod-selected')?.dataset?.windowedListIndex"
    )
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    after = float(slider.input_value())
    assert after == pytest.approx(before + 3 * float(slider.get_attribute("step")))
    assert (
        page.evaluate("document.querySelector('.jp-mod-selected')?.dataset?.windowedListIndex")
        == cell_selected
    )

    page.locator(".jp-CodeCell", has_text="kernel has").locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        """value => [...document.querySelectorAll('.jp-OutputArea-output')].some(
        (output) => output.textContent.includes('kernel has') && output.textContent.includes(value))""",
        arg=f"[[{round(after, 3)},",
    )
    output = page.locator(".jp-OutputArea-output", has_text="kernel has").inner_text()
    assert re.search(rf"\[\[{round(after, 3)},", output)
    assert outside_requests == []
    context.close()
