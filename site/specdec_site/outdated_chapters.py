"""Find the chapters that must run again after a change of the library, weights or recordings.

Sphinx itself notices only a changed notebook. A chapter runs again if a module that its code
imports, directly or through other modules, is newer than its built page. If a name cannot be
resolved to a module, a change of any module counts. Chapters read weights and recordings as files,
so any newer file makes all chapters run again.
"""

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

PACKAGES = ("specdec_lite", "specdec_book")
DATA = ("specdec_lite/weights/**/*", "results/**/*.json")
COMMAND = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)  # such as %pip


class UnknownName(Exception):
    """A name that cannot be resolved to a module of the two packages."""


class Library:
    """The modules of the two packages under a folder, and which of them some code needs."""

    def __init__(self, root: Path):
        """List the modules."""
        files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
        dotted = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
        self.files = {name.removesuffix(".__init__"): file for name, file in zip(dotted, files)}
        self.lazy = {name for name, file in self.files.items() if file.with_suffix(".pyi").exists()}
        self.tree = cache(self.parse)

    def parse(self, name: str) -> ast.Module:
        """Return the syntax tree of a module; for a lazy package, that of its stub."""
        file = self.files[name]
        source = file.with_suffix(".pyi") if name in self.lazy else file
        return ast.parse(source.read_text(encoding="utf-8"))

    def resolve(self, module: str, name: str) -> str:
        """Return the module that defines what `from module import name` imports."""
        if f"{module}.{name}" in self.files:
            return f"{module}.{name}"
        if module not in self.files:
            raise UnknownName(f"{module}.{name}")
        if self.files[module].name != "__init__.py":
            return module
        for node in self.tree(module).body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if name == (alias.asname or alias.name):
                    ours = (node.module or "").startswith(PACKAGES)
                    return self.resolve(node.module, alias.name) if ours else module
            targets = getattr(node, "targets", [getattr(node, "target", node)])
            if name in {getattr(part, "id", getattr(part, "name", None)) for part in targets}:
                return module
        raise UnknownName(f"{module}.{name}")

    def direct_imports(self, tree: ast.AST) -> Iterator[str]:
        """Yield the modules that a syntax tree names itself."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
                yield from (self.resolve(node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (a.name for a in node.names if a.name.split(".")[0] in PACKAGES)
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in PACKAGES:
                yield self.resolve(node.value.id, node.attr)

    def needed(self, sources: Iterable[str]) -> set[Path]:
        """Return the files of the modules that some code needs, directly or indirectly."""
        try:
            reached: set[str] = set()
            new = {name for source in sources for name in self.direct_imports(ast.parse(source))}
            while new:
                reached |= new
                # each name of a lazy package was resolved by itself, so skip the package
                new = {
                    n
                    for m in new - self.lazy - {*PACKAGES}
                    for n in self.direct_imports(self.tree(m))
                } - reached
            return {self.files[name] for name in reached}
        except (UnknownName, SyntaxError, KeyError):
            return set(self.files.values())


def code_cells(notebook: Path) -> list[str]:
    """Return a notebook's code cells, with `pass` in place of commands such as %pip."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        COMMAND.sub(r"\1pass", "".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def outdated(root: Path, chapters: dict[str, Path]) -> list[str]:
    """Return the chapters whose built page is older than something that they read."""
    library = Library(root)
    data = {path for pattern in DATA for path in root.glob(pattern) if path.is_file()}

    def newest(chapter: str) -> float:
        files = library.needed(code_cells(root / f"{chapter}.ipynb")) | data
        return max((file.stat().st_mtime for file in files), default=0.0)

    return [
        chapter
        for chapter, built in chapters.items()
        if built.exists() and built.stat().st_mtime < newest(chapter)
    ]


def outdated_pages(
    app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set
) -> list[str]:
    """Return the chapters that Sphinx must read again, beside those that it found itself."""
    chapters = {
        name: Path(app.doctreedir) / f"{name}.doctree"
        for name in env.found_docs
        if name.startswith("notebooks/")
    }
    return outdated(Path(app.srcdir), chapters)


def skip_execution_for_links(app: Sphinx) -> None:
    """Execute no chapter in a build that only checks links."""
    if app.builder.name == "linkcheck":
        app.config.nb_execution_mode = "off"


def execute_only_some(app: Sphinx) -> None:
    """Execute no chapter but those in SPECDEC_CHAPTERS, as `make test` does; all if it is unset."""
    if names := os.environ.get("SPECDEC_CHAPTERS", "").split():
        chapters = Path(app.srcdir).glob("notebooks/*.ipynb")
        excluded = [f"notebooks/{path.name}" for path in chapters if path.stem not in names]
        app.config.nb_execution_excludepatterns = excluded


def register(app: Sphinx) -> None:
    """Connect the hooks to a Sphinx application."""
    app.connect("builder-inited", skip_execution_for_links, priority=100)
    app.connect("builder-inited", execute_only_some, priority=100)
    app.connect("env-get-outdated", outdated_pages)
