"""Options and commands that the products of training share.

A product is a module with two functions: `add_arguments(parser)` declares the options of its
command, and `run(options)` trains, measures and stores.
"""

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

FOLDERS = ("out", "work", "record")
"""Options that name files of this machine, which no recorded command repeats."""
SUBCOMMAND = "product"
"""Where the parsed options hold the name of the product."""


def add_folders(
    parser: argparse.ArgumentParser,
    out: Path | None,
    out_help: str,
    work: Path | None,
    work_help: str,
) -> None:
    """Add --out and --work to a command."""
    parser.add_argument("--out", type=Path, default=out, help=out_help)
    parser.add_argument("--work", type=Path, default=work, help=work_help)


def add_device(parser: argparse.ArgumentParser, default: str = "cpu") -> None:
    """Add --device to a command."""
    parser.add_argument("--device", default=default, help=f"torch device; default: {default}")


def changed_options(options: argparse.Namespace, defaults: Mapping[str, object]) -> list[str]:
    """Return the options that differ from their defaults, each as one would type it."""
    changed = []
    for name, default in defaults.items():
        value = getattr(options, name.replace("-", "_"))
        if value != default:
            changed.append(f"--{name}" if value is True else f"--{name} {value}")
    return changed


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
    defaults = {name.replace("_", "-"): parser.get_default(name) for name in vars(options)}
    for name in (*always, *leave_out, *FOLDERS, SUBCOMMAND):
        defaults.pop(name, None)
    stated = [f"--{name} {getattr(options, name.replace('-', '_'))}" for name in always]
    words = ["python -m specdec_lite.training", product, *stated]
    return " ".join([*words, *changed_options(options, defaults)])


def run_product(
    program: str,
    summary: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], None],
    arguments: Sequence[str] | None = None,
) -> None:
    """Parse the options of one product and run it."""
    parser = argparse.ArgumentParser(prog=program, description=summary)
    add_arguments(parser)
    run(parser.parse_args(arguments))
