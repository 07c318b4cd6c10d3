"""Options that the products of training share, and the command that repeats a run.

A product is a module with two functions: `add_arguments(parser)` declares the options of its
command, and `run(options)` trains, measures and stores.
"""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path

SUBCOMMAND = "product"
"""Where the parsed options hold the name of the product."""
LEFT_OUT = ("out", "work", SUBCOMMAND)
"""Options that no recorded command repeats: the folders of this machine."""


def add_folders(
    parser: argparse.ArgumentParser, out: Path | None, out_help: str, work: Path, work_help: str
) -> None:
    """Add --out, --work and --device to a command."""
    parser.add_argument("--out", type=Path, default=out, help=out_help)
    parser.add_argument("--work", type=Path, default=work, help=work_help)
    parser.add_argument("--device", default="cpu", help="torch device; default: cpu")


def command_line(
    product: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    options: argparse.Namespace,
    always: Collection[str] = (),
    leave_out: Collection[str] = (),
) -> str:
    """Return the command that repeats a run: no folders of this machine, no default values."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    words = ["python -m specdec_lite.training", product]
    for name, value in vars(options).items():
        changed = value != parser.get_default(name) and name not in (*LEFT_OUT, *leave_out)
        if changed or name in always:
            option = f"--{name.replace('_', '-')}"
            words.append(option if value is True else f"{option} {value}")
    return " ".join(words)
