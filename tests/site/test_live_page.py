"""The live page's interface and its messages to the worker, run in node on stubs of a browser."""

import pytest
from node import run_script


def page(job: str) -> dict | list:
    """Return what page.mjs observes during a job."""
    return run_script("page.mjs", {"job": job})


def test_the_replay_of_a_new_run_starts_empty_with_one_timer():
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


def test_numbers_are_marked_as_old_until_a_run_has_new_ones(runs):
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
        runs[name]["labeled"] == runs[name]["old"] for name in ("first", "empty", "full", "last")
    )
    assert runs["empty"]["shown"] == runs["full"]["shown"] == "0 of 0"


def test_a_run_builds_the_engine_if_the_run_before_failed(runs):
    assert runs["first"]["says"].startswith("Done: ") and runs["last"]["says"].startswith("Done: ")


def test_screen_readers_announce_the_status_but_no_slider_value(runs):
    assert set(runs["outputs"]) == {"off"} and runs["statuses"] == 1


def test_the_worker_frees_the_pieces_of_joined_weights():
    assert page("pieces") == ["ready", "ready"]


def test_copies_of_the_page_load_weights_one_after_another():
    """From a folder, every script calls one global function, which is deleted afterwards even if a
    script fails.
    """
    seen = page("scripts")
    assert seen["got"] == {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0"], "again": ["a0", "a1"]}
    assert "could not be loaded" in seen["failed"] and not seen["left"]


def test_the_address_of_the_worker_source_is_revoked_after_loading():
    assert page("source") == {"made": ["blob:0"], "before": [], "after": ["blob:0"]}
