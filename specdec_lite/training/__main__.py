"""The command `python -m specdec_lite.training PRODUCT …`: one subcommand per product."""

import argparse
from collections.abc import Sequence

from specdec_lite.training import draft, heads, pair
from specdec_lite.training.commands import SUBCOMMAND

PRODUCTS = {"pair": pair, "draft": draft, "heads": heads}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options of one product and train it."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_lite.training",
        description="Train the shipped weights, on text that every machine has.",
    )
    commands = parser.add_subparsers(dest=SUBCOMMAND, required=True, metavar=" | ".join(PRODUCTS))
    for name, module in PRODUCTS.items():
        summary = (module.__doc__ or name).splitlines()[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    PRODUCTS[getattr(options, SUBCOMMAND)].run(options)


if __name__ == "__main__":
    main()
