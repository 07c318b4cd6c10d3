"""The table of the estimator shows the recorded test; two published sources each show one thing."""

import json

import numpy as np
import pytest
from figure_roles import role_faults

from specdec_book.viz import estimates, published


def test_a_measured_round_cuts_the_error_and_a_datasheet_alone_is_never_too_low():
    """As the text above the table says."""
    sheet, held, own = map(estimates.median_error, ("datasheet", "held_out", "calibrated"))
    assert own < held < sheet and min(estimates.errors("datasheet")) >= 0


def test_the_table_of_the_fit_has_every_source():
    text = estimates.fit_table().data
    sources = {row["source"] for row in estimates.rows()}
    assert text.count("\n| ") == len(sources) + 2
    assert "nan" not in text and "| – |" in text, "one source has no other row to predict"


def test_two_heads_lie_on_one_line():
    fig = published.one_cost()
    lines = [trace for trace in fig.data if trace.mode == "lines"]
    assert [line.name.split(":")[0] for line in lines] == ["γ = 3", "γ = 5", "γ = 7"]
    costs = [float(line.name.split()[-1]) for line in lines]
    assert costs == sorted(costs), "longer drafts cost more"
    points = [trace for trace in fig.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in points) == 42
    for cost, pair in zip(costs, zip(points[::2], points[1::2])):
        own = [np.array(trace.x) / np.array(trace.y) for trace in pair]
        assert np.median(own[0]) == pytest.approx(np.median(own[1]), rel=0.02)
        assert np.median(own[0]) == pytest.approx(cost, rel=0.02)


def test_the_laptops_cost_rises_with_every_draft():
    tokens, costs, gains = published.laptop().data
    steps = np.diff(costs.y)
    assert min(steps) > 0.4 and max(steps) < 0.6, "nearly linear, as the title says"
    assert list(gains.y) == pytest.approx([t / c for t, c in zip(tokens.y, costs.y)])
    assert int(np.argmax(gains.y)) == 1 and list(tokens.y) == sorted(tokens.y)


@pytest.mark.parametrize("build", [published.one_cost, published.laptop])
def test_no_color_claims_a_role(build):
    assert role_faults(json.loads(build().to_json())) == []
