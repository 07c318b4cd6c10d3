"""The costs of the recorded rounds, and the terms of the formula."""

import json

import pytest
from figure_roles import role_faults

from specdec_book import recordings
from specdec_book.viz import round_costs


@pytest.fixture
def recording():
    (found,) = recordings.speeds()
    return found


def test_the_bars_are_the_recorded_costs(recording):
    rows = round_costs.sound_rows(recording)
    fig = round_costs.costs_figure(recording)
    bars = {trace.name: dict(zip(trace.y, trace.x)) for trace in fig.data}
    assert set(bars) == {"verification", "drafting", "rest"}
    for text, row in rows.items():
        cost = row["prediction"]
        total = cost["verify"] + row["gamma"] * cost["c_in_loop"] + cost["overhead"]
        assert sum(bar[text] for bar in bars.values()) == pytest.approx(total, abs=2e-3)
    assert role_faults(json.loads(fig.to_json())) == []


def test_the_last_term_is_the_recorded_prediction(recording):
    rows = round_costs.sound_rows(recording)
    lines = round_costs.terms_table(recording).data.splitlines()
    for text, row in rows.items():
        (line,) = (line for line in lines if line.startswith(f"| {text} |"))
        with_plain = row["prediction"]["corrected"] * recordings.plain_cost(row)
        assert float(line.split("|")[-2]) == pytest.approx(with_plain, abs=0.02)
