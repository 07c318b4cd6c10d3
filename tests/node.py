"""Run the live page's own JavaScript modules in node, without a browser."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from specdec_site import live

SCRIPT = Path(__file__).parent / "js" / "live.mjs"


def live_module(job: str, **request) -> dict | list:
    """Return what the live page's engine answers to a job of live.mjs."""
    if shutil.which("node") is None:
        pytest.fail("node is needed: it runs the live page's own modules")
    process = subprocess.run(
        ["node", str(SCRIPT)],
        input=json.dumps({"job": job, **request}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def add_kernels(folder: Path) -> None:
    """Put the page's compiled kernels into a folder."""
    for kernel in (live.stored(ROOT) / "live").glob("kernel-*.wasm"):
        shutil.copy2(kernel, folder)


def page_logits(job: str, vocab: int, kernel: str | None = None, **request) -> np.ndarray:
    """Return the page's logits [tokens, V], computed by this kernel or by the best one."""
    answer = live_module(job, **request, kernel=kernel)
    if kernel == "relaxed" and answer["kernel"] == "scalar":
        pytest.skip("this node has no relaxed SIMD")
    assert kernel in (None, answer["kernel"])
    return np.frombuffer(base64.b64decode(answer["logits"]), np.float32).reshape(-1, vocab)
