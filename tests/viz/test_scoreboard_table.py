"""The scoreboard: its rows from a board."""

import boards
import pytest

from specdec_book.viz import Scoreboard


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
    # the interactive states these in "More about this row"
    assert len(code["positions"]) == len(code["conditional"]) == 2 and code["empty"] == 0
    assert code["same"] == 1.0 and at_1[1]["same"] is None
    assert rows["draft × typical"]["cells"][:3] == [None] * 3
    assert [row["drift"] for row in table.rows] == [0.0, 0.0, 0.0, 0.2]
    assert table.sort == "over_best" and table.machine == "a machine"


def test_another_object_than_a_board_is_rejected():
    with pytest.raises(TypeError, match="board is a Recording"):
        Scoreboard.of(boards.counts())
