"""What the commands of all benchmarks share: how they are called, and how a recording says so."""

import argparse
import shlex
import sys


def parser_for(name: str, doc: str) -> argparse.ArgumentParser:
    """Of `python -m {name}`, described by the first line of its docstring."""
    return argparse.ArgumentParser(prog=f"python -m {name}", description=doc.splitlines()[0])


def typed(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> str:
    """The command with its options, as it is typed again; None: those of this process."""
    words = sys.argv[1:] if arguments is None else arguments
    return " ".join([parser.prog, *map(shlex.quote, words)])
