"""The estimator's figures show the recorded test, and their titles follow from it."""

import json

import numpy as np
import pytest
from figure_roles import role_faults

from specdec_book.viz import estimates, published
from specdec_lite.simulation.estimate import FITTED


def test_the_figure_of_the_fit_has_every_recorded_row():
    fig = estimates.fit_figure()
    rows = estimates.rows()
    sheet, held, own = fig.data[:3]
    assert len(sheet.x) == len(held.x) == len(rows) and len(own.x) < len(rows)
    assert list(held.y) == [row["held_out"] for row in rows]
    both = (100 * estimates.median_error(kind) for kind in ("held_out", "calibrated"))
    assert "from {:.0f} % to {:.0f} %".format(*both) in fig.layout.title.text
    assert min(estimates.errors("datasheet")) >= 0, "never too low, as the alternative text says"


def test_the_table_of_the_fit_has_every_source():
    text = estimates.fit_table().data
    sources = {row["source"] for row in estimates.rows()}
    assert text.count("\n| ") == len(sources) + 2
    assert "nan" not in text and "| – |" in text, "one source has no other row to predict"


def test_the_switch_off_batch_moves_with_the_engine():
    half, one, twice = (estimates.loses_from(factor) for factor in (0.5, 1.0, 2.0))
    assert half > 1.5 * one > 1.5 * 1.5 * twice
    assert f"{one} to {half} or {twice}" in estimates.switch_off_figure().layout.title.text
    assert estimates.at(one).speedup < 1 <= estimates.at(one - 1).speedup
    assert estimates.at(8, 2.0).speedup < estimates.at(8).speedup
    assert estimates.loses_from(1.0, 0.95) > 1.5 * estimates.loses_from(1.0, 1.05)


def test_the_band_of_the_figure_is_the_estimates():
    fig = estimates.switch_off_figure()
    band = fig.data[0]
    expected = [estimates.at(batch, FITTED.factor) for batch in estimates.BATCHES]
    assert list(band.y[: len(expected)]) == pytest.approx([e.high for e in expected])
    assert list(band.y[len(expected) :]) == pytest.approx([e.low for e in expected[::-1]])


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


def test_the_kernel_decides_the_sign():
    text = published.kernels().data
    assert "0.26×" in text and "1.33×" in text, "one card and backend, two targets"


@pytest.mark.parametrize(
    "build",
    [estimates.fit_figure, estimates.switch_off_figure, published.one_cost, published.laptop],
)
def test_no_color_claims_a_role(build):
    assert role_faults(json.loads(build().to_json())) == []
