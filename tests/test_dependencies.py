"""pyproject.toml declares exactly what the two packages import, no more and no less."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def declared(requirements: list[str]) -> set[str]:
    """Return the names of the distributions in a list such as ["torch>=2.6"]."""
    return {normalized(re.split(r"[^\w.-]", each)[0]) for each in requirements}


def packages(node: ast.AST) -> set[str]:
    """Return the third-party packages that an import or a call of `_extras.load("…")` names."""
    match node:
        case ast.Import(names=aliases):
            names = [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(name), level=0):
            names = [name]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="_extras"), attr="load"),
            args=[ast.Constant(value=name), *_],
        ):
            names = [name]
        case _:
            names = []
    ours = {"specdec_lite", "specdec_book"}
    return {name.split(".")[0] for name in names} - ours - sys.stdlib_module_names


def imports(folder: str) -> tuple[set[str], set[str]]:
    """Return the distributions that a package needs, and those that it can do without.

    An import is optional inside a `try` statement or if it is a call of `_extras.load`.
    """
    required: set[str] = set()
    optional: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
        guards = [part for node in nodes if isinstance(node, ast.Try) for part in node.body]
        guarded = {part for guard in guards for part in ast.walk(guard)}
        for node in nodes:
            is_optional = node in guarded or isinstance(node, ast.Call)
            (optional if is_optional else required).update(packages(node))
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
