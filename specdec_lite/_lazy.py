"""Packages whose public names are imported on first use.

A package lists its names as ordinary imports in an `__init__.pyi`, which editors and type checkers
also read. Importing the package then loads no other module.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return (__getattr__, __dir__, __all__) for a package with an `__init__.pyi` beside it."""
    module = sys.modules[package]
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    origins = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def load(name: str) -> object:
        if name in origins:
            value = attribute(package, *origins[name])
            setattr(module, name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted({*vars(module), *origins}), sorted(origins)


def attribute(package: str, home: str, name: str) -> object:
    """Return an attribute or a submodule of a module."""
    source = sys.modules[package] if home == package else importlib.import_module(home)
    if name in vars(source):
        return vars(source)[name]
    if importlib.util.find_spec(f"{home}.{name}"):
        return importlib.import_module(f"{home}.{name}")
    return getattr(source, name)
