"""What a chapter reads: its modules of the library, weights, recordings, drawings and versions.

A chapter runs again if its fingerprint has changed. It covers the modules that the chapter's code
imports, directly or through other modules. If a name cannot be resolved to a module, it covers all
modules. Chapters read weights, recordings and drawings as files, so it covers all of them.
"""

import ast
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("specdec_lite", "specdec_book")
DATA = (
    "specdec_lite/weights/**/*",
    "specdec_lite/**/*.json",
    "specdec_lite/**/*.c",
    "results/**/*.json",
    "specdec_book/viz/static/**/*.css",
    "specdec_book/viz/static/*.json",
    "specdec_book/viz/static/drawings/*",
)
"""Files that chapters read. The modules of interactives are served, and not part of an output."""
SOFTWARE = ("torch", "transformers", "numpy", "plotly", "ipykernel")
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
        self.imports = cache(lambda name: {*self.direct_imports(self.tree(name))})

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
                new = {n for m in new - self.lazy - {*PACKAGES} for n in self.imports(m)} - reached
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


class Inputs:
    """What the chapters of a repository read, as it is now."""

    def __init__(self, root: Path):
        """Find the files.

        Args:
            root: folder of the repository.
        """
        self.root = root
        self.library = Library(root)
        self.digest = cache(lambda file: hashlib.sha256(file.read_bytes()).hexdigest())

    @cached_property
    def common(self) -> list[str]:
        """Versions, and the digests of the files that every chapter may read."""
        files = {path for pattern in DATA for path in self.root.glob(pattern) if path.is_file()}
        versions = [f"{name} {version(name)}" for name in SOFTWARE]
        return [f"python {platform.python_version()}", *versions, *self.lines(files)]

    def lines(self, files: Iterable[Path]) -> list[str]:
        """Return one line per file: its path and its digest."""
        return [f"{file.relative_to(self.root)} {self.digest(file)}" for file in sorted(files)]

    def fingerprint(self, chapter: Path) -> str:
        """Return a digest of everything that a chapter reads; its own code is not included.

        Args:
            chapter: file of the notebook.
        """
        return self.of_code(code_cells(chapter))

    def of_code(self, sources: Iterable[str]) -> str:
        """Return a digest of everything that some Python sources read, without the sources."""
        modules = self.library.needed(sources)
        return hashlib.sha256("\n".join([*self.common, *self.lines(modules)]).encode()).hexdigest()
