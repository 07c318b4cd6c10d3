"""The chapters' notebooks, for tests that read their cells."""

import ast
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from IPython.core.inputtransformer2 import TransformerManager

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def cells(path: Path, kind: str | None = None) -> list:
    """Return a notebook's cells, of one kind ("code" or "markdown") if it is named."""
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if kind in (None, cell.cell_type)]


def text_of(path: Path, kind: str = "markdown") -> str:
    """Return the text of a notebook's cells of one kind."""
    return "\n\n".join(cell.source for cell in cells(path, kind))


def has_tag(cell, *tags: str) -> bool:
    """Return whether a cell carries one of the tags."""
    return not {*tags}.isdisjoint(cell.metadata.get("tags", ()))


def statements(source: str) -> list[ast.stmt]:
    """Return the statements of a code cell, with its commands such as %pip as calls."""
    return ast.parse(TransformerManager().transform_cell(source)).body
