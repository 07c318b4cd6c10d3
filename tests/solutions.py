"""The exercises of the chapters: each with its check, the reader's stub, and the
solution behind the fold.
"""

import ast
import functools
import json
import linecache
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conftest import ROOT
from IPython.core.inputtransformer2 import TransformerManager

CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))  # not the appendices
ASKED = re.compile(r"\n+exercises\.(check_\w+)\((\w+)\)\s*$")
SOLUTION = re.compile(
    r"<details><summary>(?:Solution|One solution)</summary>(.*?)</details>", flags=re.S
)
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.S)
GAP = re.compile(r"^( *).*\.\.\..*$", flags=re.M)


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise. name: what the reader's function is called; asked: its check's name."""

    chapter: str
    name: str
    asked: str
    check: Callable
    stub: Callable
    solution: Callable

    def __str__(self) -> str:
        return f"{self.chapter}-{self.name}"


def filled(stub: str, solution: str) -> str:
    """The stub as the solution has it: a whole function, a body, or the lines that fill the gap."""
    block = BLOCK.search(solution)
    if block and re.search(r"^def ", block[1], flags=re.M):
        return block[1]
    lines = (
        block[1]
        if block
        else "\n".join(
            re.findall(r"`([^`]+)`", re.match(r"\s*`[^`]+`(?:, then `[^`]+`)*", solution)[0])
        )
    )
    if GAP.search(stub):
        return GAP.sub(lambda gap: textwrap.indent(lines, gap[1]), stub)
    return stub.splitlines()[0] + "\n" + textwrap.indent(lines, "    ")


def code_of(path: Path) -> list[ast.stmt]:
    """The statements of a chapter's code cells, line magics translated."""
    cells = [
        cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    return [
        node
        for cell in cells
        for node in ast.parse(TransformerManager().transform_cell("".join(cell["source"]))).body
    ]


def names_of(statements: list[ast.stmt]) -> dict:
    """What a chapter imports, and the functions that it writes but for those with computed
    defaults; nothing else of it is run.
    """
    scope: dict = {}
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.FunctionDef) and not node.args.defaults
        ):
            exec(compile(ast.Module([node], []), "chapter", "exec"), scope)
    return scope


def defined(source: str, name: str, scope: dict) -> Callable:
    """The function that a cell defines, with its source to be found, as a kernel does it."""
    scope, file = dict(scope), f"<{name}-{hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    return scope[name]


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """Every exercise of every chapter; the solutions are in the order of the exercises."""
    found = []
    for path in CHAPTERS:
        cells, scope = json.loads(path.read_text("utf-8"))["cells"], names_of(code_of(path))
        sources = ["".join(cell["source"]) for cell in cells]
        stubs = [
            (source, ASKED.search(source))
            for cell, source in zip(cells, sources, strict=True)
            if cell["cell_type"] == "code" and ASKED.search(source)
        ]
        solutions = [text for source in sources for text in SOLUTION.findall(source)]
        for (source, asked), solution in zip(stubs, solutions, strict=True):
            stub = source[: asked.start()]
            found.append(
                Exercise(
                    path.stem,
                    asked[2],
                    asked[1],
                    getattr(scope["exercises"], asked[1]),
                    defined(stub, asked[2], scope),
                    defined(filled(stub, solution), asked[2], scope),
                )
            )
    return tuple(found)
