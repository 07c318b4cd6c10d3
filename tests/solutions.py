"""The exercises of the chapters: each with its check, the reader's stub, and the
solution behind the fold.
"""

import ast
import functools
import linecache
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import chapters
from chapters import cells, statements

CHAPTERS = [path for path in chapters.CHAPTERS if path.name[0].isdigit()]  # not the appendices
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


def names_of(path: Path) -> dict:
    """What a chapter imports, and the functions that it writes but for those with computed
    defaults; nothing else of it is run.
    """
    scope: dict = {}
    for node in (node for cell in cells(path, "code") for node in statements(cell.source)):
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
        scope = names_of(path)
        code = [cell.source for cell in cells(path, "code")]
        stubs = [(source, asked) for source in code if (asked := ASKED.search(source))]
        solutions = [text for cell in cells(path) for text in SOLUTION.findall(cell.source)]
        for (source, asked), solution in zip(stubs, solutions, strict=True):
            stub = source[: asked.start()]
            written = (defined(text, asked[2], scope) for text in (stub, filled(stub, solution)))
            check = getattr(scope["exercises"], asked[1])
            found.append(Exercise(path.stem, asked[2], asked[1], check, *written))
    return tuple(found)
