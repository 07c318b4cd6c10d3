"""Which chapters must run again: Sphinx sees a changed notebook by itself, but not a changed
library, new weights or a new measurement.

A chapter runs again where one of the library's modules that its code imports, or that those import
in turn, is newer than its page; where a name cannot be followed to a module, any will do. Weights
and recordings are read by file, so any new one makes all chapters run again.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

LIBRARY = "specdec_lite"
DATA = (f"{LIBRARY}/weights/**/*", "results/*.json")
COMMAND = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)  # a notebook's own, such as %pip


class Unknown(Exception):
    """A name that leads to no module of the library."""


class Library:
    """The modules of the library under a folder, and which of them a piece of code needs."""

    def __init__(self, root: Path):
        files = sorted((root / LIBRARY).rglob("*.py"))
        dotted = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
        self.files = {name.removesuffix(".__init__"): file for name, file in zip(dotted, files)}
        self.tree = cache(lambda name: ast.parse(self.files[name].read_text(encoding="utf-8")))

    def home(self, module: str, name: str) -> str:
        """The module that `from module import name` leads to, through the names that packages hand
        on.
        """
        if f"{module}.{name}" in self.files:
            return f"{module}.{name}"
        if module not in self.files:
            raise Unknown(f"{module}.{name}")
        if self.files[module].name != "__init__.py":
            return module
        for node in self.tree(module).body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if name == (alias.asname or alias.name):
                    ours = (node.module or "").startswith(LIBRARY)
                    return self.home(node.module, alias.name) if ours else module
            targets = getattr(node, "targets", [getattr(node, "target", node)])
            if name in {getattr(part, "id", getattr(part, "name", None)) for part in targets}:
                return module
        raise Unknown(f"{module}.{name}")

    def named(self, tree: ast.AST) -> Iterator[str]:
        """The modules that a piece of code names itself."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(LIBRARY):
                yield from (self.home(node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (a.name for a in node.names if a.name.split(".")[0] == LIBRARY)
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == LIBRARY:
                yield self.home(LIBRARY, node.attr)

    def needed(self, sources: Iterable[str]) -> set[Path]:
        """The files of the modules that code needs; all, where a name or a line is not
        understood.
        """
        try:
            reached: set[str] = set()
            new = {name for source in sources for name in self.named(ast.parse(source))}
            while new:
                reached |= new
                packages = {LIBRARY}  # its names are followed one by one: it imports everything
                new = {n for m in new - packages for n in self.named(self.tree(m))} - reached
            return {self.files[name] for name in reached}
        except (Unknown, SyntaxError, KeyError):
            return set(self.files.values())


def code(notebook: Path) -> list[str]:
    """The code cells, with `pass` where a notebook's own commands stand."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        COMMAND.sub(r"\1pass", "".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def stale(root: Path, chapters: dict[str, Path]) -> list[str]:
    """Of the chapters, named without their ending, those that are older than what they read.

    chapters: where each one's page was last built; what was not built yet is Sphinx's to see.
    """
    library = Library(root)
    data = {path for pattern in DATA for path in root.glob(pattern) if path.is_file()}

    def newest(chapter: str) -> float:
        files = library.needed(code(root / f"{chapter}.ipynb")) | data
        return max((file.stat().st_mtime for file in files), default=0.0)

    return [
        chapter
        for chapter, built in chapters.items()
        if built.exists() and built.stat().st_mtime < newest(chapter)
    ]


def outdated(
    app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set
) -> list[str]:
    chapters = {
        name: Path(app.doctreedir) / f"{name}.doctree"
        for name in env.found_docs
        if name.startswith("notebooks/")
    }
    return stale(Path(app.srcdir), chapters)


def links_only(app: Sphinx) -> None:
    """A build that only checks links executes nothing."""
    if app.builder.name == "linkcheck":
        app.config.nb_execution_mode = "off"


def register(app: Sphinx) -> None:
    app.connect("builder-inited", links_only, priority=100)
    app.connect("env-get-outdated", outdated)
