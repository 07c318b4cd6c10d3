"""Parse the command lines of all benchmarks and write them into recordings."""

import argparse
import shlex
import sys


def parser_for(name: str, doc: str) -> argparse.ArgumentParser:
    """Return the parser of `python -m {name}`."""
    return argparse.ArgumentParser(prog=f"python -m {name}", description=doc.splitlines()[0])


def typed(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> str:
    """Return the command with its options, as one types it."""
    parts = sys.argv[1:] if arguments is None else arguments
    return " ".join([parser.prog, *map(shlex.quote, parts)])
