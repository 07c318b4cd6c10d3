"""The learning curve shows the recorded points of every head, and its title holds."""

import pytest

from specdec_book import recordings
from specdec_book.viz.pictures import HEADS, learning_curve, points


def test_every_point_of_the_recording_is_drawn():
    record = recordings.load("gpu-heads-smollm2")
    fig = learning_curve(record)
    assert [trace.name for trace in fig.data] == [*HEADS.values()]
    for key, trace in zip(HEADS, fig.data):
        head = record.data["heads"][key]
        assert len(trace.x) == len(head["curve"]) + 1 and list(trace.x) == sorted(trace.x)
        assert trace.x[-1] == pytest.approx(head["seen"] / 1e6)
        assert trace.y[-1] == head["held_out"]["all"]["agrees"]["mean"][0]


def test_every_head_improves_until_the_end():
    for head in recordings.load("gpu-heads-smollm2").data["heads"].values():
        (_, before, alpha_before), (_, last, alpha) = points(head)[-2:]
        error = head["held_out"]["all"]["agrees"]["error"][0]
        assert last - before > error and alpha > alpha_before
