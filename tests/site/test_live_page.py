"""The live page's interface and its messages to the worker, run in node on stubs of a browser."""

import re

import pytest
from conftest import ROOT
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
    assert {name for name, now in seen.items() if now["timers"]} == {"first", "second"}
    assert seen["second"]["timers"] == 1
    assert {name for name, now in seen.items() if now["disabled"]} == {"begun", "pressed early"}
    assert seen["pressed early"] == seen["begun"]
    assert seen["begun"]["says"] == "Play"
    assert seen["begun"]["width"] == "0%"


@pytest.fixture(scope="module")
def runs() -> dict:
    return page("live")


def test_numbers_are_marked_as_old_until_a_run_has_new_ones(runs):
    assert runs["empty"]["says"].startswith("The prompt is empty")
    assert runs["full"]["says"].endswith("Close other tabs and try again.")
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


def test_a_worker_that_does_not_answer_is_stopped_within_seconds():
    """The next press of the button starts another one; one that shows life may compute for long."""
    seen = page("silent")
    stopped = {name for name, now in seen.items() if now["stopped"] and now["ended"]}
    assert stopped == {"run", "loading", "broken"}
    assert {now["timers"] for name, now in seen.items() if name in stopped} == {0}
    assert {seen[name]["says"] for name in ("early", "slow", "alive")} == {"waits"}
    assert "Press the button to start it again" in seen["run"]["says"]
    assert "Check the connection" in seen["loading"]["says"]
    assert "SyntaxError" not in seen["broken"]["says"]


def test_a_browsers_own_words_are_replaced_by_a_line_that_says_what_to_do():
    seen = page("lines")
    own, *raw = seen["lines"]
    assert own == "The question is empty." and seen["other"] == "It stopped."
    assert not re.search("undefined|token|WebAssembly|JSON", " ".join(raw))
    assert all(re.search("again|reload", line) for line in raw) and "memory" in raw[2]
    assert seen["signs"] == 3, "one per second, however many passes"


def test_no_module_shows_the_words_of_an_error_by_itself():
    """`lineFor` alone reads the message of an error; what is thrown for readers is a ReaderError."""
    for path in sorted((ROOT / "site" / "live").glob("*.js")):
        source = path.read_text("utf-8")
        assert path.name == "failure.js" or "error.message" not in source, path.name
        for kind, line in re.findall(r"new (\w*Error)\(\s*[\"`]([^\"`]*)", source):
            is_sentence = bool(re.match(r"[A-Z$].*[.:] ?", line))
            assert is_sentence == (kind == "ReaderError"), f"{path.name}: {line}"


def test_every_loop_of_passes_shows_life():
    """Per chunk on the graphics processor, per block where a busy machine may stop a thread."""
    for name, begin, end in (
        ("llama.js", "  runBlocks(n) {", "this.#block(block"),
        ("gpu.js", "forward(tokens", "return rows"),
    ):
        loop = (ROOT / "site" / "live" / name).read_text("utf-8").split(begin)[1]
        assert "showLife();" in loop[: loop.index(end)], name
