"""The command `python -m specdec_lite.training PRODUCT …`: one subcommand per product.

A product is a module with two functions: `add_arguments(parser)` declares the options of its
command, and `run(options)` trains, measures and stores.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec_lite.training import draft, heads, pair

PRODUCTS = {"pair": pair, "draft": draft, "heads": heads}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options of one product and train it."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m specdec_lite.training",
        description="Train the shipped weights, on text that every machine has.",
    )
    parser.set_defaults(command=shlex.join(["python", "-m", "specdec_lite.training", *words]))
    commands = parser.add_subparsers(dest="product", required=True, metavar=" | ".join(PRODUCTS))
    for name, module in PRODUCTS.items():
        summary = (module.__doc__ or name).splitlines()[0]
        product = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(product)
        out_help = "folder for the weights; default: ./pair, ./draft, or a head's shipped folder"
        product.add_argument("--out", type=Path, help=out_help)
        work_help = "folder for checkpoints, texts and hidden states, which a resumed run reads"
        product.add_argument("--work", type=Path, default=Path(".work") / name, help=work_help)
        product.add_argument("--device", default="cpu", help="torch device; default: cpu")
    options = parser.parse_args(words)
    PRODUCTS[options.product].run(options)


if __name__ == "__main__":
    main()
