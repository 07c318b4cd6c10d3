"""The scoreboard: its rows from a recording, its order, filters and frontier, its use in a browser."""

import pytest
import traitlets
from browsing import accessibility_faults
from javascript import evaluate
from mounting import outside_the_frame, says

from specdec_book.recordings import Recording
from specdec_book.viz import Scoreboard


def call(name, *arguments):
    return evaluate("scoreboard", [{"name": name, "args": list(arguments)}])[0]


def spread(value, half=0.1):
    return {"value": value, "interval": [value - half, value + half]}


def entry(name, speedup, tau=2.0):
    return {
        "name": name,
        "tau": spread(tau),
        "alpha": {"value": None, "interval": None} if name == "copy" else spread(0.7),
        "speedup": spread(speedup),
        "over_best": spread(speedup / 1.25),
        "tokens_per_second": 100 * speedup,
        "overhead": 0.1,
        "empty": 0.25,
        "used": 0.5,
        "c": 0.1,
        "verify": 1.0,
        "formula": None if name == "copy" else 1.5,
        "positions": [0.8, 0.5],
        "conditional": [0.8, None],
        "same": 1.0,
    }


ABOUT = {
    "draft": ("model", "notebooks/05_draft_then_verify", True, 5_000_000),
    "copy": ("text", "notebooks/08_model_free", True, 200),
    "heads": ("heads", "notebooks/10_medusa", True, 6_000_000),
    "draft × typical": ("model", "notebooks/10_medusa", False, 5_000_000),
}
SPEEDS = {
    ("code", 0.0): {"draft": 2.0, "copy": 1.2, "heads": 0.9},
    ("prose", 0.0): {"draft": 1.0, "copy": 0.8, "heads": 0.8},
    ("code", 1.0): {"draft": 1.8, "copy": 0.9, "heads": 0.8, "draft × typical": 2.4},
}
DATA = {
    "methods": {
        name: dict(
            **dict(source=source, chapter=chapter, lossless=lossless, bytes=size, rule=None),
            **dict(minutes=None if name == "copy" else 3.0, trained=name != "copy"),
        )
        for name, (source, chapter, lossless, size) in ABOUT.items()
    },
    "rows": [
        {
            "domain": domain,
            "temperature": temperature,
            "plain": {"seconds": 0.01, "round": 1.1},
            "methods": {name: entry(name, speed) for name, speed in speeds.items()},
        }
        for (domain, temperature), speeds in SPEEDS.items()
    ],
    "drift": {"draft × typical": {"mean": 0.2, "most": 0.4, "places": 6}},
}
RECORDING = Recording("scoreboard", "all", "2026-01-31", "python", "a machine", {"a": "1"}, DATA)


def test_a_recording_becomes_rows_and_settings():
    board = Scoreboard.of(RECORDING)
    assert [setting["name"] for setting in board.settings] == [
        "all kinds of text, greedy",
        "code, greedy",
        "prose, greedy",
        "all kinds of text, temperature 1",
        "code, temperature 1",
        "prose, temperature 1",
    ]
    rows = {row["name"]: row for row in board.rows}
    together, code, prose, *at_1 = rows["draft"]["cells"]
    assert together["speedup"] == pytest.approx(2**0.5) and together["interval"] is None
    assert (code["speedup"], prose["speedup"]) == (2.0, 1.0)
    assert code["ceiling"] == pytest.approx(2.2)  # τ of a round over a pass, in plain rounds
    assert code["same"] == 1.0 and at_1[1]["same"] is None and at_1[2] is None
    assert code["over_best"] == pytest.approx(1.6) and code["held"] == pytest.approx(2 / 1.5)
    assert together["held"] == pytest.approx(2**0.5 / 1.5)
    assert rows["copy"]["cells"][0]["alpha"] is rows["copy"]["cells"][0]["held"] is None
    assert rows["draft × typical"]["cells"][:3] == [None] * 3
    assert [row["drift"] for row in board.rows] == [0.0, 0.0, 0.0, 0.2]


def test_another_object_than_a_recording_is_rejected():
    with pytest.raises(TypeError, match="recording is a dict"):
        Scoreboard.of(DATA)
    with pytest.raises(traitlets.TraitError):
        Scoreboard.of(RECORDING, fidelity="all of them")


def test_rows_without_a_value_are_last():
    rows = [{"name": "a", "x": None}, {"name": "b", "x": 1}, {"name": "c", "x": 3}]
    names = lambda key, down: "".join(row["name"] for row in call("sort", rows, key, down))
    assert names("x", False) == "bca" and names("x", True) == "cba"
    assert names("name", True) == "cba" and names("missing", True) == "abc"


def test_filters():
    rows = [{"source": "text", "lossless": True}, {"source": "model", "lossless": False}]
    assert call("filter", rows, "all", "all") == rows
    assert call("filter", rows, "text", "all") == rows[:1]
    assert call("filter", rows, "all", "lossy") == rows[1:]
    assert call("filter", rows, "model", "lossless") == []


def test_the_frontier_holds_the_rows_that_no_other_beats():
    rows = [
        {"name": name, "bytes": size, "over_best": speed}
        for name, size, speed in [
            ("cheap", 1, 1.1),
            ("as cheap, slower", 1, 1.0),
            ("middle", 5, 1.5),
            ("large and slow", 9, 1.4),
            ("large, no faster", 9, 1.5),
            ("fastest", 9, 2.0),
            ("unknown", None, 3.0),
        ]
    ]
    assert call("frontier", rows, "bytes") == ["cheap", "middle", "fastest"]


def test_bytes_are_formatted_with_units():
    sizes = (0, 215, 4321, 262_392, 5_124_178, 25_196_593)
    texts = [call("formatBytes", value) for value in sizes]
    assert texts == ["0 B", "215 B", "4.3 kB", "262 kB", "5.1 MB", "25 MB"]


def test_training_times_are_formatted():
    rows = ((3.4, {}), (None, {"trained": True}), (None, {}))
    assert [call("formatMinutes", *row) for row in rows] == ["3 min", "not recorded", "none"]


def test_a_chapter_link_shows_its_number():
    pages = "05_draft_then_verify", "07b_better_rule", "11_token_trees", "a2_blockwise_heads"
    assert [call("page", page) for page in pages] == ["5", "7b", "11", "blockwise heads"]


@pytest.mark.browser
@pytest.mark.parametrize("width, theme", [(1280, "light"), (390, "dark")])
def test_sorting_filtering_and_choosing(mounted, width, theme):
    page = mounted(Scoreboard.of(RECORDING, setting=4), width, theme)
    names = lambda: page.locator("tbody th").all_text_contents()
    assert names() == ["draft × typical", "draft", "copy", "heads"]
    page.get_by_role("button", name="memory").click()
    assert names() == ["copy", "draft", "draft × typical", "heads"]
    page.get_by_role("button", name="memory").press("Enter")
    assert names()[0] == "heads"
    assert page.locator("thead th[aria-sort]").get_attribute("aria-sort") == "descending"
    says(page, ".sdl-task-state", "Choose a row")
    starred = page.locator("tbody tr", has_text="*").locator("th").all_text_contents()
    assert starred == ["draft × typical"]  # 2.4 is above 2.2
    page.get_by_label("rules").select_option("lossless")
    assert "draft × typical" not in names()
    page.get_by_role("button", name="heads", exact=True).click()
    says(page, ".sdl-task-state", "Another row")
    says(page, ".sdl-summary", "heads, code, temperature 1: 0.64× (0.54 to 0.74)")
    says(page, ".sdl-summary", "measured ÷ predicted is 0.53")  # .8 against 1.5
    says(page, ".sdl-summary", "plain decoding in float32 it is 0.80×, at 80.0 tokens")
    says(page, ".sdl-summary", "drafted nothing in 25 % of the rounds")
    says(page, ".sdl-summary", "at position 1 to 2 was accepted in 80 %, 50 % of the rounds")
    says(page, ".sdl-summary", "earlier drafts were accepted, the rates are 80 %, –.")
    says(page, ".sdl-summary", "It needs 6.0 MB of memory after 3 minutes of training.")
    page.get_by_role("button", name="copy", exact=True).click()
    says(page, ".sdl-task-state", "Solved")
    page.get_by_label("rules").select_option("all")
    page.get_by_label("plot speedup against").select_option("drift")
    assert page.locator("svg .sdl-pick").count() == 4
    page.locator("svg .sdl-pick[data-name='draft × typical']").click(force=True)
    says(page, ".sdl-summary", "distribution of a token by 0.200")
    page.get_by_label("text", exact=True).select_option("0")
    assert names() == ["heads", "draft", "copy"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert outside_the_frame(page, {"cost": "bytes"}) == []
    assert accessibility_faults(page) == []
