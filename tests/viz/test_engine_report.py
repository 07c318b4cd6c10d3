"""The tables of a recording of engines contain exactly what was recorded."""

import copy

import pytest

from specdec_book import recordings
from specdec_book.recordings import Recording
from specdec_book.viz.engine_report import cell, report

PLAIN = {
    "tokens_per_second": {"seconds": {"1": 9.0}, "processor": {"1": 90.0, "4": 200.0}},
    "texts": 16,
    "differences": [],
    "refused": {},
}
DRAFTED = PLAIN | {
    "speedup": {"1": {"value": 1.5, "interval": [1.4, 1.7]}},
    "tokens_per_second": {"seconds": {"1": 9.0}, "processor": {"1": 135.0}},
    "refused": {"4": "ValueError: one at\n a time"},
    "differences": [{"prompt": 2, "place": 5, "gap": 0.0}],
    "tau": 2.5,
    "alpha": 0.75,
    "drafted_acceptance": 0.5,
}
HEAD = {"rates": [0.5, 0.25, 0.125], "tau": 1.875}
DATA = {
    "batches": [1, 4],
    "turns": 3,
    "new_tokens": 24,
    "prompts": 8,
    "state": {"ours pair": {"start": {"load_average": [7.6, 1, 1], "pins": [0, 1]}}},
    "refused": {"vllm pair suffix": "ImportError: no"},
    "switches": {"vllm": {"draft_model": "LLM(…)"}},
    "engines": {"pair": {"vllm": {"plain": PLAIN, "draft_model": DRAFTED}}},
}


def recording(data):
    return Recording("engines", "what", "2026-01-31", "a command", "a machine", {"vllm": "0"}, data)


def test_the_tables_contain_the_recorded_numbers():
    speeds, settings, refused = (table.data for table in report(recording(DATA)))
    assert (
        "| vLLM | draft model | 1.50× [1.40, 1.70], 135 tokens/s | refused | 2.50 | 0.75 |"
        in speeds
    )
    assert "The fastest row at batch 1 is draft model in vLLM" in speeds
    assert "| vLLM | plain | 90 tokens/s | 200 tokens/s |" in speeds
    assert "load average was at most 7.6 on 2 cores" in speeds and "a command" in speeds
    assert "| vLLM | draft model | `LLM(…)` |" in settings
    assert "``ImportError: no``" in refused and "batch 4 | ``ValueError: one at a time``" in refused


def test_heads_and_loads_are_shown_if_measured():
    data = copy.deepcopy(DATA)
    data["engines"]["smollm2"] = {
        "ours": {"plain": PLAIN, "eagle": DRAFTED | HEAD},
        "vllm": {"eagle": PLAIN | HEAD, "suffix": PLAIN | {"rates": [0.2] * 5, "tau": 1.3}},
    }
    row = {"load": 0.3, "gamma": 4, "measured": 0.01, "simulated": 0.011, "error": 0.1}
    row["error_apart"] = 0.25
    data["load"] = {
        "requests": 24,
        "turns": 5,
        "alphas": [0.7, 0.8],
        "rows": [row],
        "batches": [1, 4],
        "rounds": {"plain": {"seconds": [1.0, 2.0]}, "draft_model": {"seconds": [1.5, 4.0]}},
    }
    smollm2, heads, load = (table.data for table in report(recording(data))[3:])
    assert "SmolLM2, greedy" in smollm2
    assert "| this library | EAGLE-1 | 1.50× [1.40, 1.70], 135 tokens/s |" in smollm2
    assert "| this library | EAGLE-1 | 0.50 | 0.25 | 0.12 | 1.88 |" in heads
    assert "plain" not in heads
    assert "suffix decoding" not in heads  # it is no head, and has other positions
    assert "a round costs 1.50, 2.00 plain steps" in load
    assert "| 30 % | 4 | 10.0 | 11.0 | +10 % | +25 % |" in load.replace("\u00a0", " ")


def test_an_interval_around_1_is_a_tie():
    row = DRAFTED | {"speedup": {"1": {"value": 1.1, "interval": [0.9, 1.2]}}}
    assert cell(row, "1") == "1.10× [0.90, 1.20] tie, 135 tokens/s"


def test_a_fastest_row_that_is_a_plain_one_is_called_that():
    data = copy.deepcopy(DATA)
    data["engines"]["pair"]["llama.cpp"] = {
        "plain": PLAIN | {"tokens_per_second": {"processor": {"1": 400.0}}}
    }
    sentence = "The fastest row at batch 1 is a plain one (node-llama-cpp, 400 tokens/s)"
    assert sentence in report(recording(data))[0].data


@pytest.mark.parametrize("name", recordings.names("engines"))
def test_the_shipped_recordings_make_tables(name):
    assert all("|" in table.data for table in report(recordings.load(name)))
