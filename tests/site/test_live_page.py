"""The live page's interface and its talk with the worker, in node on stubs of a browser. In a real
browser: test_live.py.
"""

import json
import shutil
import subprocess

import pytest
from conftest import ROOT


def page(job: str) -> dict | list:
    """What was seen while tests/js/page.mjs did this job."""
    if shutil.which("node") is None:
        pytest.fail("node is needed: it runs the live page's own modules")
    run = subprocess.run(
        ["node", str(ROOT / "tests" / "js" / "page.mjs")],
        input=json.dumps({"job": job}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_replay_of_a_new_run_starts_empty_and_plays_with_one_timer():
    seen = page("replay")
    assert [
        seen[name]["shown"]
        for name in ("first", "played", "begun", "second", "played again", "scrubbed")
    ] == ["1 of 3", "3 of 3", "0 of 0", "1 of 4", "4 of 4", "1 of 4"]
    assert {name for name, now in seen.items() if now["timers"]} == {"first", "second"} and seen[
        "second"
    ]["timers"] == 1
    assert {name for name, now in seen.items() if now["disabled"]} == {"begun", "pressed early"}
    assert (
        seen["pressed early"] == seen["begun"]
        and seen["begun"]["says"] == "Play"
        and seen["begun"]["width"] == "0%"
    )


@pytest.fixture(scope="module")
def runs() -> dict:
    return page("live")


def test_numbers_look_old_and_are_said_to_be_until_a_run_brings_new_ones(runs):
    assert (
        runs["empty"]["says"].startswith("The prompt is empty")
        and runs["full"]["says"] == "out of memory"
    )
    assert [runs[name]["old"] for name in ("first", "empty", "full", "last")] == [
        False,
        True,
        True,
        False,
    ]
    assert all(
        runs[name]["told"] == runs[name]["old"] for name in ("first", "empty", "full", "last")
    )
    assert runs["empty"]["shown"] == runs["full"]["shown"] == "0 of 0"


def test_after_an_engine_that_could_not_be_built_another_run_builds_it(runs):
    assert runs["first"]["says"].startswith("Done: ") and runs["last"]["says"].startswith("Done: ")


def test_one_status_line_speaks_and_no_sliders_number(runs):
    assert set(runs["outputs"]) == {"off"} and runs["statuses"] == 1


def test_the_worker_keeps_no_piece_of_weights_that_it_has_joined():
    assert page("pieces") == ["ready", "ready"]


def test_copies_of_the_page_load_weights_one_after_another():
    """From a folder: every script calls one global name, which is gone afterwards, whether or not
    all of them came.
    """
    seen = page("scripts")
    assert seen["got"] == {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0"], "again": ["a0", "a1"]}
    assert "could not be loaded" in seen["failed"] and not seen["left"]


def test_the_address_of_the_workers_source_is_given_back_once_it_has_loaded():
    assert page("source") == {"made": ["blob:0"], "before": [], "after": ["blob:0"]}
