"""Serve the built book on localhost and rebuild it when a source changes.

Usage: python site/serve.py [--port 8000]
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from browser import Isolating, served

ROOT = Path(__file__).resolve().parent.parent

SOURCES = (
    "book/**/*",
    "notebooks/*.ipynb",
    "site/**/*",
    "specdec_lite/**/*.py",
    "specdec_book/**/*.py",
    "specdec_book/viz/static/*",
    "results/**/*.json",
    "_*.yml",
)


def newest() -> float:
    """Return the time of the latest change of a source, in seconds since 1970."""
    return max(
        path.stat().st_mtime
        for pattern in SOURCES
        for path in ROOT.glob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    )


def rebuild_on_change() -> None:
    """Build the book again after each change; look for changes once per second."""
    built = newest()
    while True:
        time.sleep(1)
        if (latest := newest()) > built:
            built = latest
            builder = Path(sys.executable).parent / "jupyter-book"
            subprocess.run([builder, "build", ".", "-n", "--keep-going"], cwd=ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    with served(ROOT / "_build" / "html", parser.parse_args().port, Isolating) as address:
        print(f"Open {address}index.html (press Ctrl+C to stop)")
        try:
            rebuild_on_change()
        except KeyboardInterrupt:
            pass
