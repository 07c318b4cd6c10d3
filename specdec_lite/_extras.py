"""Packages that only some functions need, installed by the extra `book`."""

import importlib
from types import ModuleType


def load(module: str) -> ModuleType:
    """Import a module of an optional package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{package} is needed here: pip install {package}") from error
