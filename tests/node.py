"""Run the live page's own JavaScript modules in node, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "js"


def run_script(name: str, request: dict) -> dict | list:
    """Return the answer of a script in tests/js."""
    if shutil.which("node") is None:
        pytest.fail("node is needed: it runs the live page's own modules")
    process = subprocess.run(
        ["node", str(SCRIPTS / name)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def live_module(job: str, **request) -> dict | list:
    """Return what the live page's engine answers to a job of live.mjs."""
    return run_script("live.mjs", {"job": job, **request})
