"""pyproject.toml declares exactly what the two packages import, no more and no less."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def declared(requirements: list[str]) -> set[str]:
    """Return the names of the distributions in a list such as ["torch>=2.6"]."""
    return {normalized(re.split(r"[^\w.-]", each)[0]) for each in requirements}


def top_level(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the third-party packages that the import statements among `nodes` name."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names - {"specdec_lite", "specdec_book"} - sys.stdlib_module_names


def loaded_extras(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the packages that calls of `_extras.load("…")` name."""
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return {
        call.args[0].value.split(".")[0]
        for call in calls
        if ast.unparse(call.func) == "_extras.load" and isinstance(call.args[0], ast.Constant)
    }


def imports(folder: str) -> tuple[set[str], set[str]]:
    """Return the distributions that a package needs, and those that it can do without.

    An import is optional inside a `try` statement or if it is a call of `_extras.load`.
    """
    required: set[str] = set()
    optional: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        guards = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
        guarded = {id(part) for guard in guards for body in guard.body for part in ast.walk(body)}
        optional |= top_level(node for node in ast.walk(tree) if id(node) in guarded)
        optional |= loaded_extras(ast.walk(tree))
        required |= top_level(node for node in ast.walk(tree) if id(node) not in guarded)
    provided = packages_distributions()
    needed, extra = (
        {normalized(provided[name][0]) for name in names} for names in (required, optional)
    )
    return needed, extra


def test_the_library_imports_its_dependencies():
    required, _ = imports("specdec_lite")
    assert required == declared(PROJECT["dependencies"])


def test_the_extras_hold_what_the_book_and_optional_functions_import():
    required, optional = imports("specdec_lite")
    chapters = imports("specdec_book")[0]
    extras = PROJECT["optional-dependencies"]
    assert (
        declared(extras["book"]) | declared(extras["grammar"]) == (optional | chapters) - required
    )
    assert optional >= {"gguf", "psutil"} and chapters >= {"plotly", "scipy"}
