"""Published GPU measurements: their forecasts are the formula's, and a wrong figure is noticed."""

import pytest

from specdec_book import recordings
from specdec_book.recordings import forecasts

ENTRIES = recordings.published("gpu_speedups")["entries"]


@pytest.mark.parametrize("name", ENTRIES)
def test_a_source_says_where_when_and_on_what_it_was_measured(name):
    source = ENTRIES[name]
    assert source["status"] in ("primary", "secondary")
    assert source["source"] and source["url"].startswith("https://")
    assert source["card"] and source["engine"]


def test_the_whole_has_the_status_of_its_weakest_source():
    weakest = max(source["status"] for source in ENTRIES.values())
    assert recordings.published("gpu_speedups")["status"] == weakest == "secondary"


def test_the_cost_comes_from_another_text_than_the_forecast():
    rows = forecasts.records("angelslim_qwen3")
    first = {row["setting"]: row for row in reversed(rows)}
    for each in forecasts.transferred_costs("angelslim_qwen3"):
        source = first[each.setting]
        assert each.workload != source["workload"]
        assert each.cost == pytest.approx(source["tau"] / source["speedup"])
    assert len(forecasts.transferred_costs("angelslim_qwen3")) == len(rows) - len(first)


def test_no_speedup_exceeds_its_tau_unless_the_page_says_so():
    """Holds for every source that prints both, but one, whose two figures are of different runs."""
    above = {
        name
        for name, source in ENTRIES.items()
        if "columns" in source and {"tau"} <= set(source["columns"])
        for row in forecasts.records(name)
        if row.get("speedup", 0) > row["tau"]
    }
    assert above == {"trtllm_ngram"}


def test_printed_lengths_and_rates_agree():
    """τ = 1 + drafted · (accepted ÷ drafted), to the digits printed."""
    for name, drafted in (("redhat_gpt_oss", "gamma"), ("specdecode_bench_tree", "nodes")):
        for row in forecasts.records(name):
            tau = 1 + row[drafted] * row["accepted / drafted"]
            assert tau == pytest.approx(row["tau"], abs=0.005 * (1 + row[drafted]))


def test_time_shares_give_the_printed_draft_cost():
    source = forecasts.entry("specdecode_bench_time")
    c = source["drafting"] / source["verifying"] / source["gamma"]
    assert c == pytest.approx(source["c"], abs=0.01)


def test_a_wrong_length_is_noticed(monkeypatch):
    """Exchange two lengths of one model: the forecasts leave the band that the page prints."""
    sound = forecasts.transferred_costs("angelslim_qwen3")
    assert forecasts.within(sound, 0.07) == len(sound)
    rows = forecasts.records("angelslim_qwen3")
    rows[0]["tau"], rows[20]["tau"] = 1.2, rows[0]["tau"]
    monkeypatch.setattr(forecasts, "records", lambda name: rows)
    assert forecasts.within(forecasts.transferred_costs("angelslim_qwen3"), 0.07) < len(sound)
