"""A chapter after *Run all*: its cells run once more, because no later cell reuses their names."""

import ast
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import nbformat
import pytest
from chapters import CHAPTERS, cells, every_chapter, has_tag, statements
from chosen import draw
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient


def inner_names(code: CodeType) -> set[str]:
    """Return the names that the functions and comprehensions of a cell look up when they run."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    own = (line for each in inner for line in dis.get_instructions(each))
    names = {line.argval for line in own if line.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*map(inner_names, inner))


def names(source: str) -> tuple[set[str], set[str], set[str]]:
    """Return the names that a cell needs from earlier cells, those it sets, and `inner_names`."""
    code = compile(TransformerManager().transform_cell(source), "cell", "exec")
    needed, stored = set(), set()
    for line in dis.get_instructions(code):
        if line.opname == "STORE_NAME":
            stored.add(line.argval)
        elif line.opname == "LOAD_NAME" and line.argval not in stored:
            needed.add(line.argval)
    return needed | (inner_names(code) - stored), stored, inner_names(code)


def reused(code: list) -> Iterator[str]:
    """Yield each name that a cell needs, an earlier cell sets, and a later cell sets anew.

    A function's own names count as the needs of a cell that calls it.
    """
    parts = [names(cell.source) for cell in code]
    for at, cell in enumerate(code):
        needed, asked = set(), set(parts[at][0])
        while asked - needed:
            name = (asked - needed).pop()
            needed.add(name)
            earlier = [part for part in parts[:at] if name in part[1]]
            asked |= earlier[-1][2] if earlier else set()
            later = [each.id for each, part in zip(code, parts) if name in part[1]][1:]
            later = [each for each in later if each in {c.id for c in code[at + 1 :]}]
            if earlier and later:
                yield f"{cell.id} needs {name}, and {later[0]} sets it anew"


def code_cells(*sources: str) -> list:
    return [nbformat.v4.new_code_cell(text, id=f"c{i}") for i, text in enumerate(sources)]


def test_a_reused_name_is_seen_in_a_cell_and_in_a_function_that_it_calls():
    assert [*reused(code_cells("a = 1", "print(a)", "a = 2"))] == [
        "c1 needs a, and c2 sets it anew"
    ]
    function = code_cells("a = 1", "def f():\n    return a", "f()", "for a in b: pass")
    assert "c2 needs a, and c3 sets it anew" in [*reused(function)]
    assert [*reused(code_cells("a = 1; a", "a = 2; a", "f = lambda a: a"))] == []


@every_chapter
def test_no_later_cell_reuses_a_name(path: Path):
    """Then a reader may go back after *Run all*, change a line, and run that cell again."""
    assert [*reused(cells(path, "code"))] == []


def again(cell) -> bool:
    """Whether a reader runs this cell a second time: the change cell, a check or an exercise."""
    marks = ("assert ", "exercises.check_")
    return has_tag(cell, "change-and-run") or any(mark in cell.source for mark in marks)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if quick else pytest.mark.weekly)
        for number, path in enumerate(CHAPTERS)
        for quick in [number == draw("run again", len(CHAPTERS))]
    ],
)
def test_after_the_last_cell_the_change_cell_and_every_check_run_again(path: Path):
    notebook = nbformat.read(path, as_version=4)
    second = [cell for cell in notebook.cells if cell.cell_type == "code" and again(cell)]
    second.sort(key=lambda cell: not has_tag(cell, "change-and-run"))
    notebook.cells += [nbformat.v4.new_code_cell(cell.source) for cell in second]
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": path.parent}}).execute()


def is_silent(cell) -> bool:
    """Whether a visible check shows nothing when it passes."""
    body = statements(cell.source)
    plain = [part for part in body if not isinstance(part, ast.FunctionDef | ast.ClassDef)]
    checks = any(isinstance(node, ast.Assert) for part in plain for node in ast.walk(part))
    return checks and "print(" not in cell.source and not isinstance(plain[-1], ast.Expr)


@every_chapter
def test_a_visible_check_prints_a_line(path: Path):
    visible = [cell for cell in cells(path, "code") if not has_tag(cell, "hide-input")]
    assert [cell.id for cell in visible if is_silent(cell)] == []
