"""Record how often each method makes the host wait for a GPU: `python tests/virtual_waits.py`.

The waits are counted on the virtual GPU and written to results/waits/amd-epyc.json, which
chapter 16 and `test_virtual_gpu` read.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
RECORDING = ROOT / "results" / "waits" / "amd-epyc.json"


def run_suite(suite: str, capability: str, file: Path) -> None:
    """Run a suite of `virtual_checks` on a virtual GPU, in a process of its own."""
    command = [sys.executable, str(TESTS / "virtual_gpu.py"), "--capability", capability]
    # the checks of every proposal read the device, and are no part of a round
    environment = {name: value for name, value in os.environ.items() if name != "SPECDEC_CHECK"}
    ended = subprocess.run(
        [*command, "virtual_checks", suite, str(file)],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


def waits_by_method(checks: Mapping[str, Mapping]) -> dict[str, dict[str, dict[str, float]]]:
    """Return {method: {"T = 0" or "T = 1": {"reads", "uploads"}}} per round."""
    methods: dict[str, dict] = {}
    for check, numbers in checks.items():
        assert numbers["error"] is None, f"{check}: {numbers['error']}"
        method, temperature = check.rsplit(", ", 1)
        row = {kind: round(numbers[kind], 2) for kind in ("reads", "uploads")}
        methods.setdefault(method, {})[temperature] = row
    return methods


def main() -> None:
    """Count the waits, and write the recording."""
    import json

    from virtual_checks import GAMMA, NEW_TOKENS

    from specdec_lite.measure import stamps

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "methods.json") if len(sys.argv) < 2 else Path(sys.argv[1])
        if not file.exists():
            run_suite("methods", "9.0", file)
        checks = json.loads(file.read_text(encoding="utf-8"))
    stamp = stamps.stamp("waits of the host for a virtual GPU", "python tests/virtual_waits.py")
    sizes = {"gamma": GAMMA, "new_tokens": NEW_TOKENS}
    print(stamps.save(RECORDING, stamp, sizes | {"methods": waits_by_method(checks)}))


if __name__ == "__main__":
    main()
