"""Packages that only some functions need, installed by the extras `book` and `grammar`."""

import importlib
from types import ModuleType


def load(module: str, package: str = "") -> ModuleType:
    """Import a module of an optional package, which pip may know by another name."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = package or module.partition(".")[0]
        raise ImportError(f"{package} is needed here: pip install {package}") from error
