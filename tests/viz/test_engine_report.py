"""The tables of a recording of engines contain exactly what was recorded."""

import copy

import pytest

from specdec_book import recordings
from specdec_book.recordings import Recording
from specdec_book.viz.engine_report import cell, load, speeds, switches

PLAIN = {
    "tokens_per_second": {"seconds": {"1": 9.0}, "processor": {"1": 90.0, "4": 200.0}},
    "texts": 16,
    "differences": [],
}
DRAFTED = PLAIN | {
    "speedup": {"1": {"value": 1.5, "interval": [1.4, 1.7]}},
    "tokens_per_second": {"seconds": {"1": 9.0}, "processor": {"1": 135.0}},
    "differences": [{"prompt": 2, "place": 5, "gap": 0.0}],
    "tau": 2.5,
    "alpha": 0.75,
    "drafted_acceptance": 0.5,
}
DATA = {
    "batches": [1, 4],
    "turns": 3,
    "new_tokens": 24,
    "prompts": 8,
    "state": {"ours pair": {"start": {"load_average": [7.6, 1, 1], "pins": [0, 1]}}},
    "switches": {"vllm": {"draft_model": "LLM(…)"}},
    "engines": {"pair": {"vllm": {"plain": PLAIN, "draft_model": DRAFTED}}},
}


def recording(data):
    return Recording("engines", "what", "2026-01-31", "a command", "a machine", {"vllm": "0"}, data)


def test_the_tables_contain_the_recorded_numbers():
    text = speeds(recording(DATA)).data
    assert (
        "| vLLM | draft model | 1.50× [1.40, 1.70], 135 tokens/s | refused | 2.50 | 0.75 |" in text
    )
    assert "The fastest row at batch 1 is draft model in vLLM" in text
    assert "| vLLM | plain | 90 tokens/s | 200 tokens/s |" in text
    assert "load average was at most 7.6 on 2 cores" in text and "a command" in text
    assert "| vLLM | draft model | `LLM(…)` |" in switches(DATA).data


def test_speeds_of_another_target_and_under_load():
    data = copy.deepcopy(DATA)
    data["engines"]["smollm2"] = {"ours": {"plain": PLAIN, "eagle": DRAFTED}}
    row = {"load": 0.3, "gamma": 4, "measured": 0.01, "simulated": 0.011, "error": 0.1}
    row["error_apart"] = 0.25
    served = {
        "requests": 24,
        "turns": 5,
        "alphas": [0.7, 0.8],
        "rows": [row],
        "batches": [1, 4],
        "rounds": {"plain": {"seconds": [1.0, 2.0]}, "draft_model": {"seconds": [1.5, 4.0]}},
    }
    smollm2, latency = speeds(recording(data), "smollm2").data, load(served).data
    assert "SmolLM2, greedy" in smollm2
    assert "| this library | EAGLE-1 | 1.50× [1.40, 1.70], 135 tokens/s |" in smollm2
    assert "a round costs 1.50, 2.00 plain steps" in latency
    assert "| 30 % | 4 | 10.0 | 11.0 | +10 % | +25 % |" in latency.replace("\u00a0", " ")


def test_an_interval_around_1_is_a_tie():
    row = DRAFTED | {"speedup": {"1": {"value": 1.1, "interval": [0.9, 1.2]}}}
    assert cell(row, "1") == "1.10× [0.90, 1.20] tie, 135 tokens/s"


def test_a_fastest_row_that_is_a_plain_one_is_called_that():
    data = copy.deepcopy(DATA)
    data["engines"]["pair"]["llama.cpp"] = {
        "plain": PLAIN | {"tokens_per_second": {"processor": {"1": 400.0}}}
    }
    sentence = "The fastest row at batch 1 is a plain one (node-llama-cpp, 400 tokens/s)"
    assert sentence in speeds(recording(data)).data


@pytest.mark.parametrize("name", recordings.names("engines"))
def test_the_shipped_recordings_make_tables(name):
    engines = recordings.load(name)
    assert all("|" in speeds(engines, model).data for model in engines.data["engines"])
    assert "|" in switches(engines.data).data and "|" in load(engines.data["load"]).data
