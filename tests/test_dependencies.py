"""What the library imports is what pyproject.toml declares: nothing comes along by way of another
package, nothing is declared in vain.
"""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def imported() -> set[str]:
    """The top-level names of every import in the library, relative and standard ones aside."""
    names = set()
    for path in (ROOT / "specdec_lite").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            names |= {name.split(".")[0] for name in found}
    return names - {"specdec_lite"} - sys.stdlib_module_names


def test_imports_are_declared_and_declarations_imported():
    declared = {
        re.split(r"[^\w.-]", bound)[0].lower().replace("_", "-")
        for bound in PROJECT["dependencies"]
    }
    provided = packages_distributions()
    assert {provided[name][0].lower().replace("_", "-") for name in imported()} == declared
