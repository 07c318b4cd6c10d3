"""List the measurements of this repository, run one, or show what is recorded.

    python -m benchmarks list                  # all experiments, with their duration
    python -m benchmarks run NAME --quick      # try one in less than a minute; results/ is unchanged
    python -m benchmarks run NAME              # measure it; an interrupted run resumes
    python -m benchmarks run NAME --help       # its options
    python -m benchmarks speeds                # rank the drafters on this machine, if it was measured
    python -m benchmarks index                 # write results/README.md
    python -m benchmarks quote                 # write the marked numbers of the pages anew

A GPU has a command of its own, `python -m specdec_lite gpu`.
"""

import difflib
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from specdec_book.recordings import board, spread
from specdec_lite.measure import stamps

from . import index, quote
from .experiment import MODULES, execute, find


def list_experiments() -> None:
    """Print every experiment with its duration and what it measures."""
    table = Table("experiment", "time", "what it measures", box=None)
    for name in MODULES:
        kind = find(name)
        table.add_row(name, kind.time, kind.what)
    Console().print(table)


def show_speeds() -> None:
    """Print each drafter's speed over the fastest plain decoder, by `scoreboard-clocks`."""
    here = stamps.machine_name()
    shown = board.load("pair", here if here in map(column, board.columns("pair")) else None)
    for temperature in shown.temperatures:
        title = f"T={temperature:g}, {column(shown.costs)}: times the fastest plain decoder"
        table = Table("drafter", "speed", "", "tokens a pass", title=title, box=None)
        for name in shown.ranked(temperature):
            row = shown.entry(name, None, temperature)
            table.add_row(name, spread(row["over_best"]), row["verdict"], spread(row["tau"]))
        Console().print(table)


def column(recording) -> str:
    """Return the machine of a recording of costs."""
    return recording.data["column"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command, *rest = words or ["--help"]
    if command == "run" and rest and not rest[0].startswith("-"):
        name, *options = rest
        if name not in MODULES:
            near = difflib.get_close_matches(name, MODULES, 1)
            hint = f"did you mean {near[0]}?" if near else "`python -m benchmarks list` shows all"
            sys.exit(f"python -m benchmarks run: {name!r} is not an experiment; {hint}")
        execute(name, options)
    elif words == ["list"]:
        list_experiments()
    elif words == ["speeds"]:
        show_speeds()
    elif words == ["index"]:
        print(f"written to {index.write()}")
    elif words == ["quote"]:
        quote.write()
    elif command in ("-h", "--help"):
        print(__doc__.strip())
    else:
        sys.exit(f"python -m benchmarks: {' '.join(words)!r} is not a command; try --help")


if __name__ == "__main__":
    main()
