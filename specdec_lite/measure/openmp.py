"""Settings of OpenMP, whose threads run torch on a CPU: how long an idle thread spins.

torch computes each matrix product on several threads, which meet at a barrier and spin there. If
another program holds a core, the spinning thread takes the time that its partner needs, and decoding
becomes 10 to 25 times slower; `python -m benchmarks run busy-machine` measures this. A bounded spin
is as fast on a quiet machine. OpenMP reads its settings when it is loaded, so they must be set
before torch is imported: importing `specdec_lite` does it.
"""

import os

SPIN = {
    "GOMP_SPINCOUNT": "5000",  # GNU (wheels for Linux): iterations of the waiting loop
    "KMP_BLOCKTIME": "1",  # LLVM and Intel (wheels for macOS and Windows): milliseconds
}
"""The bound of each runtime; a runtime ignores the variables of the others."""
USERS = ("OMP_WAIT_POLICY", *SPIN)
"""Variables by which a user decides how threads wait; if one of them is set, nothing is changed."""
NAMES = ("OMP_NUM_THREADS", *USERS)


def bound_spin() -> None:
    """Bound the spin of OpenMP's threads unless the user has set how they wait."""
    if not any(name in os.environ for name in USERS):
        os.environ.update(SPIN)


def settings() -> dict[str, str]:
    """Return the variables of OpenMP that are set in this process, for a recording."""
    return {name: os.environ[name] for name in NAMES if name in os.environ}
