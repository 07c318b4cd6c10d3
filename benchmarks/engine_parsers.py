"""Give the lines of "You serve a model" to the engines' own argument parsers, without installing them.

    pip download --no-deps --dest DIR vllm==0.33.0 sglang==0.5.23
    pip install --no-deps --target DIR/site pydantic pydantic-core annotated-types typing-inspection \\
        msgspec orjson pybase64 setproctitle pyzmq
    python -m benchmarks.engine_parsers DIR vllm
    python -m benchmarks.engine_parsers DIR sglang

The engine's Python files are unpacked into DIR/src. Packages that they import and this environment
lacks are replaced by stubs, since a parser needs none of them. No model is loaded and nothing runs.
The accepted lines, and what happens at a server's start (`start_checks`), are stored in
`engine_options.json`, where a test compares them with the page.
"""

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import re
import shlex
import sys
import types
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

from .engine_options import ENGINES, PATH
from .start_checks import STARTS

OURS = {"torch", "transformers", "numpy", "IPython"}
"""Packages that are installed here and are never replaced."""
DRIVERS = {"libtpu", "amdsmi", "pynvml"}
"""Packages by whose presence an engine guesses its hardware: they stay missing."""


WRONG = {
    "vllm": ["vllm", "serve", "model", "--speculative-config", '{"method": "medusa"}'],
    "sglang": "python -m sglang.launch_server --model-path m --speculative-steps 1".split(),
}
"""A line of each engine that its parser must refuse, or the stubs accept everything."""


class StubClass(type):
    """Type of the classes of a stub: any attribute exists."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


def any_schema(*_):
    """Return pydantic's schema of a value of any type."""
    return importlib.import_module("pydantic_core").core_schema.any_schema()


class Stub(types.ModuleType):
    """A module of which every name exists: capitalized names are classes, others are functions."""

    __path__: list[str] = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        body = {
            "__get_pydantic_core_schema__": classmethod(any_schema),
            "__class_getitem__": classmethod(lambda cls, *_: cls),
        }
        value = StubClass(name, (dict,), body) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find a stub for each module that an engine imports and that is not installed."""

    def __init__(self, engine: str):
        self.engine = engine
        self.stubs: set[str] = set()

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.split(".")[0]
        frame = sys._getframe(1)
        while frame and re.search(r"importlib|engine_parsers", frame.f_code.co_filename):
            frame = frame.f_back
        is_asked = frame is not None and f"/{self.engine}/" in frame.f_code.co_filename
        if top in OURS | DRIVERS | {self.engine} or not (is_asked or top in self.stubs):
            return None
        self.stubs.add(top)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def vllm_parser() -> Callable[[list[str]], None]:
    """Return a function that parses a line of vLLM, and checks its speculative configuration."""
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    engine = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
    parser = engine.add_cli_args(
        importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    )
    config = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    adapter = importlib.import_module("pydantic").TypeAdapter
    hints = typing.get_type_hints(config, include_extras=True)

    def parse(words: list[str]) -> None:
        _, _, model, *rest = words
        settings = parser.parse_args(["--model", model, *rest]).speculative_config
        settings = json.loads(settings) if isinstance(settings, str) else settings
        for key, value in (settings or {}).items():
            adapter(hints[key]).validate_python(value)

    return parse


def sglang_parser() -> Callable[[list[str]], None]:
    """Return a function that parses a line of SGLang."""
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return lambda words: parser.parse_args(words[words.index("-m") + 2 :]) and None


def is_accepted(parse: Callable[[list[str]], None], words: list[str]) -> bool:
    """Return whether a parser accepts a line; what it prints about the line is discarded."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parse(words)
    except (SystemExit, ValueError):  # argparse ends the process; pydantic raises
        return False
    return True


def main(arguments: list[str] | None = None) -> None:
    """Parse the lines of one engine and store those that are accepted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_parsers")
    parser.add_argument("folder", type=Path, help="folder of the packages")
    parser.add_argument("engine", choices=("vllm", "sglang"))
    options = parser.parse_args(arguments)
    sources = options.folder / "src"
    if not (sources / options.engine).exists():
        with zipfile.ZipFile(next(options.folder.glob(f"{options.engine}-*.whl"))) as wheel:
            wheel.extractall(sources, [name for name in wheel.namelist() if name.endswith(".py")])
    sys.path[:0] = [str(sources), str(options.folder / "site")]
    sys.meta_path.append(Finder(options.engine))
    parse = {"vllm": vllm_parser, "sglang": sglang_parser}[options.engine]()
    if is_accepted(parse, WRONG[options.engine]):
        raise RuntimeError(f"{options.engine} accepts a wrong line: {WRONG[options.engine]}")
    accepted = []
    for words in ENGINES[options.engine].lines():
        parse(words)
        accepted.append(shlex.join(words))
    lists = json.loads(PATH.read_text("utf-8"))
    lists.setdefault("parsed", {})[options.engine] = {
        "version": lists["engines"][options.engine]["version"],
        "lines": accepted,
        "starts": [STARTS[options.engine](sources, shlex.split(line)) for line in accepted],
    }
    PATH.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")
    print(f"{len(accepted)} lines of {options.engine} were accepted")


if __name__ == "__main__":
    main()
