"""Links that leave the notebooks' folder are public addresses, which the build turns into files."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from conftest import ROOT
from specdec_site.addresses import inward, outward, prefixes

BOOK, FILES = prefixes()
TEXT = (
    "[a](../book/06_proofs.md#theorem), [b](07_how_fast.ipynb#part), [c](#here),"
    " [d](../specdec_lite/theory.py) and [e](https://arxiv.org/abs/2211.17192)"
)


def test_links_that_leave_the_folder_become_public_addresses_and_back():
    public = outward(TEXT)
    assert f"[a]({BOOK}book/06_proofs.html#theorem)" in public
    assert f"[d]({FILES}specdec_lite/theory.py)" in public
    assert "[b](07_how_fast.ipynb#part), [c](#here)" in public and "../" not in public
    assert inward(public) == TEXT and outward(public) == public


def test_the_addresses_of_colab_and_of_the_repository_itself_stay():
    for text in (
        f"[Colab](https://colab.research.google.com/github/x/blob/main/notebooks/1.ipynb), [s]({BOOK})",
        f"[the guide]({FILES}CONTRIBUTING.md)",
        f"[issues]({FILES.partition('/blob/')[0]}/issues)",
    ):
        assert inward(text) == text == outward(text)


@pytest.mark.slow
def test_a_built_page_links_to_the_pages_beside_it(tmp_path: Path):
    """The executed chapter takes the place of its file first; the links are turned after that."""
    (tmp_path / "conf.py").write_text(
        'extensions = ["myst_nb", "toy"]\nnb_execution_mode = "off"\nnb_execution_timeout = 60\n'
        "myst_heading_anchors = 3\n"
    )
    (tmp_path / "toy.py").write_text(
        "from specdec_site import execution, fold_titles\n"
        "def setup(app):\n    execution.register(app)\n    fold_titles.register(app)\n"
    )
    (tmp_path / "index.md").write_text("# Toy\n\n```{toctree}\nnotebooks/a\nbook/b\n```\n")
    for name in ("notebooks", "book"):
        (tmp_path / name).mkdir()
    (tmp_path / "book" / "b.md").write_text("# B\n\n## Part\n")
    cells = [
        nbformat.v4.new_markdown_cell(f"# A\n\nSee [b]({BOOK}book/b.html#part), [s]({BOOK})."),
        nbformat.v4.new_code_cell("print(20 + 3)"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "a.ipynb")
    process = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", ".", "_build/html"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT / "site", ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    html = (tmp_path / "_build" / "html" / "notebooks" / "a.html").read_text("utf-8")
    page = BeautifulSoup(html, "html.parser").select_one("[role=main]")
    assert [a["href"] for a in page.select("p a")] == ["../book/b.html#part", BOOK]
    assert "23" in page.text
