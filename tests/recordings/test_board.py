"""The scoreboard's arithmetic: speeds from counts and costs, intervals, ranks and checks."""

import boards
import numpy as np
import pytest

from specdec_book.recordings import board
from specdec_book.recordings.board import Board, fit, verdict


def test_a_speed_is_counts_times_costs():
    entry = boards.board().entry("draft", "code", 0.0)
    # 40 tokens: 10 rounds of .4 + .8 + .1 ms in bfloat16; plain decoding takes .9 ms per token
    assert entry["over_best"]["value"] == pytest.approx(40 * 0.9 / (10 * 1.3))
    assert entry["over_best"]["interval"] == pytest.approx([40 * 0.9 / 13] * 2)
    assert entry["dtype"] == "bfloat16" and entry["over_same"] == entry["over_best"]
    assert entry["tokens_per_second"] == pytest.approx(40 / 0.013)
    assert entry["tau"]["value"] == 4 and entry["c"] == pytest.approx(0.2 / 0.8)
    assert entry["verify"] == pytest.approx(1) and entry["overhead"] == pytest.approx(0.1 / 0.8)
    assert entry["verdict"] == board.WIN


def test_all_kinds_have_the_geometric_mean_of_speeds_and_pooled_counts():
    whole = boards.board()
    one, two = (whole.entry("copy", kind, 0.0) for kind in ("code", "prose"))
    together = whole.entry("copy", None, 0.0)
    mean = (one["over_best"]["value"] * two["over_best"]["value"]) ** 0.5
    assert together["over_best"]["value"] == pytest.approx(mean)
    assert together["tau"]["value"] == pytest.approx(80 / 58)
    assert whole.entry("draft × typical", None, 0.0) is None
    assert whole.entry("draft × typical", None, 1.0)["same"] is None


def test_each_precision_is_compared_with_the_best_plain_decoder():
    slow = boards.clocks()
    for name in ("draft", "copy", "heads"):  # bfloat16 drafts slowly, and plain decoding does not
        rounds = slow.data["rounds"]["bfloat16"]["0"][name]
        slow.data["rounds"]["bfloat16"]["0"][name] = [
            row.replace(",400,", ",9000,").replace(",0,", ",9000,").replace(",300,", ",9000,")
            for row in rounds
        ]
    entry = Board(boards.counts(), slow).entry("draft", "code", 0.0)
    assert entry["dtype"] == "float32"
    assert entry["over_best"]["value"] == pytest.approx(40 * 0.9 / 15)
    assert entry["over_same"]["value"] == pytest.approx(40 * 1.1 / 15)


def test_intervals_contain_prompts_and_turns():
    counts, clocks = boards.counts(), boards.clocks()
    draft = counts.data["cells"][0]["methods"]["draft"]
    draft |= {"rounds": "5 10 10 15", "levels": "10 20 20 30", "rows": {"3": "5 10 10 15"}}
    by_prompts = Board(counts, clocks).entry("draft", "code", 0.0)
    low, high = by_prompts["over_best"]["interval"]
    assert low < by_prompts["over_best"]["value"] < high
    assert by_prompts["tau"]["interval"][0] < 4 < by_prompts["tau"]["interval"][1]
    uneven = boards.clocks()
    for dtype in uneven.data["rounds"]:  # the pass of this row takes longer in some turns
        rows = uneven.data["rounds"][dtype]["0"]["draft"]
        pass_time = boards.PASS[dtype]
        uneven.data["rounds"][dtype]["0"]["draft"] = [
            row.replace(f",{pass_time},", f",{pass_time * (1 + turn)},")
            for turn, row in enumerate(rows)
        ]
    by_turns = Board(boards.counts(), uneven).entry("draft", "code", 0.0)
    low, high = by_turns["over_best"]["interval"]
    assert low < by_turns["over_best"]["value"] < high
    assert by_turns["tau"]["interval"] == [4, 4]


def test_a_machine_slower_in_one_turn_changes_no_speedup():
    slow = boards.clocks()
    for dtype, settings in slow.data["rounds"].items():
        for rows in settings.values():
            for name, turns in rows.items():
                levels, width, *times = map(int, turns[0].split(","))
                rows[name] = [
                    ",".join(map(str, (levels, width, *(2 * t for t in times)))),
                    *turns[1:],
                ]
    entry = Board(boards.counts(), slow).entry("draft", "code", 0.0)
    value, (low, high) = entry["over_best"]["value"], entry["over_best"]["interval"]
    assert high - low < 0.02 * value and value == pytest.approx(40 * 0.9 / 13, rel=0.02)


def test_a_row_that_was_not_timed_has_counts_alone():
    clocks = boards.clocks()
    for settings in clocks.data["rounds"].values():
        del settings["0"]["draft"]
    board = Board(boards.counts(), clocks)
    assert board.ranked(0.0) == ["copy", "heads"] and board.ranked(1.0)[0] == "draft"
    entry = board.entry("draft", "code", 0.0)
    assert entry["over_best"] is entry["verdict"] is entry["c"] is None and entry["alpha"] > 0
    assert board.size == "4"


def test_verdicts_count_every_cell():
    whole = boards.board()
    verdicts = whole.verdicts()
    assert sum(verdicts.values()) == sum(map(len, boards.ROUNDS.values()))
    assert verdicts["loses"] == 1  # heads on prose: 40 rounds for 40 tokens
    for ends, result in (((1.1, 2), "wins"), ((0.9, 1.1), "ties"), ((0.5, 0.9), "loses")):
        assert verdict({"value": 1, "interval": ends}) == result
    assert whole.ranked(1.0)[0] == "draft"


def test_a_check_compares_the_prediction_for_the_same_text():
    (row,) = boards.board().checks()
    assert row["measured"] == pytest.approx(0.0011 * 40 / 0.03)
    assert row["predicted"] == pytest.approx(0.0011 * 40 / 0.015)


def test_drafting_time_grows_with_levels():
    depths = np.array([0, 1, 1, 3, 3, 5])
    assert fit(depths, 2e-3 + 1e-3 * depths) == pytest.approx((2e-3, 2e-3, 1e-3))
    assert fit(np.array([4, 4]), np.array([3.0, 3.0])) == (3.0, 3.0, 0.0)
    assert fit(np.array([0, 0]), np.array([2.0, 2.0])) == (2.0, 2.0, 0.0)
    empty, start, level = fit(np.array([1, 2, 3]), np.array([3.0, 2.0, 1.0]))
    assert level == 0 and start == empty == 2  # it does not grow: the median


def test_passes_continue_beyond_the_largest_k():
    costs = boards.board().costs
    costs.widths["float32"] = ([1, 2, 4], [1.0, 1.0, 2.0])
    assert costs.passes("float32", np.array([1, 3, 4, 6])) == pytest.approx([1, 1.5, 2, 3])
