"""Packages whose public names are imported on first use.

A package lists its names as ordinary imports in an `__init__.pyi`, which editors and type checkers
also read. Importing the package then loads no other module.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return (__getattr__, __dir__, __all__) for a package with an `__init__.pyi` beside it.

    Args:
        package: the package's `__name__`.
    """
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
        _moved = importlib.import_module("specdec_lite._moved")

        if name in (renamed := _moved.RENAMED.get(package, {})):
            _moved.warn(f"{package}.{name}", f"{package}.{renamed[name]}")
            return load(renamed[name])
        if new := _moved.new_name(f"{package}.{name}"):
            _moved.warn(f"{package}.{name}", new)
            return importlib.import_module(new)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted({*vars(module), *origins}), sorted(origins)


def attribute(package: str, home: str, name: str) -> object:
    """Return an attribute or a submodule of a module.

    Args:
        package: the package that asks, whose own `__getattr__` is not called.
        home: full name of the module.
        name: of the attribute or submodule.
    """
    source = sys.modules[package] if home == package else importlib.import_module(home)
    if name in vars(source):
        return vars(source)[name]
    if is_module(f"{home}.{name}"):
        return importlib.import_module(f"{home}.{name}")
    return getattr(source, name)


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module or package that can be imported.

    Args:
        name: full name.
    """
    return importlib.util.find_spec(name) is not None


class OldNames(MetaPathFinder):
    """Looks up modules that no other finder knows in `_moved`, which is imported only then."""

    def find_spec(self, fullname, path=None, target=None):
        """Return the spec of a moved module, or None.

        Args:
            fullname: of the module.
            path: not used.
            target: not used.
        """
        if not fullname.startswith("specdec_lite.") or fullname == "specdec_lite._moved":
            return None
        _moved = importlib.import_module("specdec_lite._moved")

        return _moved.find_spec(fullname)


def install_old_names() -> None:
    """Let modules be imported by their old names."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.append(OldNames())
