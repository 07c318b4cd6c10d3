"""What a shared address of the live page may say."""

from urllib.parse import quote

import pytest
from node import live_module

RUN = {
    "speedup": 1.8,
    "speedups": [1.8, 2, 1.5],
    "perSecond": {"plain": 10, "speculative": 18},
    "costs": {"target": [10, 11, 12, 13]},
}


def claims(*runs: str) -> list:
    """Return what the page reads from addresses, and from an address that it made itself."""
    hashes = [f"#ask-run={quote(run)}" for run in runs]
    return live_module("shared", hashes=hashes, run=RUN, device="a phone (Linux), 8 threads")


@pytest.mark.parametrize(
    "run",
    [
        "9999~1~2~10~18~1.3~a phone",  # outside its own range
        "1.8~2~1~10~18~1.3~a phone",
        "1.8~1~2~10~-1~1.3~a phone",
        "1.8~1~2~10~1e9~1.3~a phone",
        "1.8~1~2~nan~18~1.3~a phone",
        "1.8~1~2~10~18~a phone",  # without T(4)/T(1)
        "1.8",
        "",
    ],
)
def test_a_claim_that_no_run_can_have_is_not_shown(run):
    assert claims(run)[0] == [None]


def test_a_claim_is_cut_and_a_runs_own_address_is_read():
    (claim,), own, room = claims("1.8~1.5~2~10~18~1.3~" + "x" * 1000)
    assert claim["speedup"] == 1.8 and len(claim["device"]) == 80
    device = "a phone Linux, 8 threads"
    run = {"speedup": 1.8, "range": [1.5, 2], "perSecond": [10, 18], "four": 1.3, "device": device}
    assert own == run and room == {"runs": [run], "unreadable": 2}
