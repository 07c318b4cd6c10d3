"""Measure the library. Run `make bench` or `python -m benchmarks --help`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "site"))  # for `browser`
