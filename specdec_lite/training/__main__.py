"""The command line: `python -m specdec_lite.training PRODUCT …`, one subcommand per thing that is
shipped trained.
"""

import argparse

from specdec_lite.training import (
    blockwise,
    draft,
    eagle,
    early_exit,
    heads,
    medusa,
    pair,
    pass_rows,
)

PRODUCTS = {
    "pair": pair,
    "draft": draft,
    "blockwise": blockwise,
    "medusa": medusa,
    "eagle": eagle,
    "early_exit": early_exit,
    "heads": heads,
    "pass_rows": pass_rows,
}


def main(arguments: list[str] | None = None) -> None:
    """Parse the options of one product and train it."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_lite.training",
        description="Train what is shipped trained, on text that every machine has.",
    )
    commands = parser.add_subparsers(dest="product", required=True, metavar=" | ".join(PRODUCTS))
    for name, module in PRODUCTS.items():
        module.add_arguments(
            commands.add_parser(
                name,
                help=module.__doc__.splitlines()[0],
                description=module.__doc__.splitlines()[0],
            )
        )
    chosen = parser.parse_args(arguments)
    PRODUCTS[chosen.product].run(chosen)


if __name__ == "__main__":
    main()
