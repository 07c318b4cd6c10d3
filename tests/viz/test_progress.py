"""A long cell shows its seconds and its line, and nothing is left of that when it ends."""

import os

import pytest
from conftest import ROOT
from jupyter_client.manager import start_new_kernel

SET_UP = """
from specdec_book.viz import progress
progress.AFTER, progress.EVERY = 0.5, 0.2
progress.watch()
import time
"""
LONG = """
first = 1
time.sleep(2)  # the long line
last = 2
"""


def displayed(client, code: str) -> list[tuple[str, str]]:
    """Return the kind and the HTML of each display that a cell sends."""
    sent = []

    def keep(message: dict) -> None:
        assert message["msg_type"] != "error", message["content"]
        if "data" in message["content"]:
            sent.append((message["msg_type"], message["content"]["data"].get("text/html", "")))

    client.execute_interactive(code.strip(), output_hook=keep, timeout=120)
    return sent


@pytest.fixture
def kernel():
    """The client of a kernel that finds the packages; its environment is given."""
    running = []

    def start(**environment: str):
        manager, client = start_new_kernel(env=os.environ | {"PYTHONPATH": str(ROOT)} | environment)
        running.append((manager, client))
        return client

    yield start
    for manager, client in running:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_a_long_cell_shows_its_line_and_a_short_cell_shows_nothing(kernel):
    client = kernel()
    assert displayed(client, SET_UP) == []
    assert displayed(client, "time.sleep(0.1)") == []
    (kind, first), *rest = displayed(client, LONG)
    assert kind == "display_data" and "<progress>" in first
    assert "line 2: <code>time.sleep(2)  # the long line</code>" in first
    assert {kind for kind, _ in rest} == {"update_display_data"} and len(rest) > 2
    assert rest[-1][1] == "", "nothing is left"


@pytest.mark.slow
def test_the_books_build_switches_it_off(kernel):
    client = kernel(SPECDEC_PROGRESS="0")
    displayed(client, SET_UP)
    assert displayed(client, LONG) == []
