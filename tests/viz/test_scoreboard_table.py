"""The scoreboard: its rows from a board, its order, filters and frontier, its use in a browser."""

from functools import partial

import boards
import pytest
from javascript import formula
from mounting import open_phone_folds, says

from specdec_book.recordings.board import Board
from specdec_book.viz import Scoreboard

call = partial(formula, "scoreboard")


def test_a_board_becomes_rows_and_settings():
    table = Scoreboard.of(boards.board(), {"draft × typical": 0.2})
    assert [setting["name"] for setting in table.settings] == [
        "all kinds of text, greedy",
        "code, greedy",
        "prose, greedy",
        "all kinds of text, temperature 1",
        "code, temperature 1",
    ]
    rows = {row["name"]: row for row in table.rows}
    together, code, prose, *at_1 = rows["draft"]["cells"]
    assert together["over_best"] == pytest.approx((36 / 13 * 36 / 26) ** 0.5, rel=1e-3)
    assert code["over_best"] == pytest.approx(36 / 13, rel=1e-3) and code["verdict"] == "wins"
    assert code["same"] == 1.0 and at_1[1]["same"] is None
    assert rows["draft × typical"]["cells"][:3] == [None] * 3
    assert [row["drift"] for row in table.rows] == [0.0, 0.0, 0.0, 0.2]
    assert table.gain == table.sort == "over_best" and table.machine == "a machine"


def test_without_costs_the_table_has_tau_alone():
    table = Scoreboard.of(Board(boards.counts()))
    assert table.gain == table.sort == "tau" and table.machine == ""
    cell = table.rows[0]["cells"][0]
    assert cell["over_best"] is cell["verdict"] is None and cell["interval"][0] <= cell["tau"]


def test_another_object_than_a_board_is_rejected():
    with pytest.raises(TypeError, match="board is a Recording"):
        Scoreboard.of(boards.counts())


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
    assert call("frontier", rows, "bytes", "over_best") == ["cheap", "middle", "fastest"]


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
def test_sorting_filtering_and_choosing(used):
    table = Scoreboard.of(boards.board(), {"draft × typical": 0.2}, setting=4)
    page = used(table)
    open_phone_folds(page)
    page.get_by_text("The table of methods").click()
    names = lambda: page.locator("tbody th").all_text_contents()
    assert names() == ["draft × typical", "draft", "copy", "heads"]
    page.get_by_role("button", name="memory").click()
    assert names() == ["copy", "draft", "draft × typical", "heads"]
    page.get_by_role("button", name="memory").press("Enter")
    assert names()[0] == "heads"
    assert page.locator("thead th[aria-sort]").get_attribute("aria-sort") == "descending"
    says(page, ".sdl-task-state", "Choose a row")
    page.get_by_label("rules").select_option("lossless")
    assert "draft × typical" not in names()
    page.get_by_role("button", name="heads", exact=True).click()
    says(page, ".sdl-task-state", "Another row")
    says(page, ".sdl-summary", "heads, code, temperature 1: 1.20× (1.20 to 1.20)")
    says(page, ".sdl-note", "plain decoding in bfloat16, in which it is fastest, it is 1.20×")
    says(page, ".sdl-summary", "It needs 6.0 MB of memory after 3 minutes of training.")
    page.get_by_role("button", name="copy", exact=True).click()
    says(page, ".sdl-task-state", "Solved")
    page.get_by_label("rules").select_option("all")
    page.get_by_label("plot against").select_option("drift")
    assert page.locator("svg .sdl-pick").count() == 4
    page.locator("svg .sdl-pick[data-name='draft × typical']").click(force=True)
    says(page, ".sdl-summary", "distribution of a token by 0.200")
    page.get_by_label("text", exact=True).select_option("0")
    assert names() == ["heads", "draft", "copy"]
    assert page.locator("tbody tr.sdl-loses th").all_text_contents() == ["heads"]
    page.get_by_label("text", exact=True).select_option("2")
    assert page.locator("tbody tr.sdl-loses th").all_text_contents() == ["heads"]
