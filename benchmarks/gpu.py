"""Measure a GPU for nine minutes: `python -m specdec_lite gpu` with a larger budget.

python -m benchmarks.gpu             # writes results/gpu/<machine>.json
python -m benchmarks.gpu --help      # its options, those of `python -m specdec_lite gpu`
"""

import sys

from specdec_lite.__main__ import main

SECONDS = 540

if __name__ == "__main__":
    main(["gpu", "--seconds", str(SECONDS), *sys.argv[1:]])
