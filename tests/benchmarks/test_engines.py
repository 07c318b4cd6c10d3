"""What becomes of an engine's answer; the engine itself is no part of the tests."""

import json
from types import SimpleNamespace

import pytest

from benchmarks import engine_vllm, engines
from specdec_lite.serving.metrics import explain


def test_counters_of_the_engine_and_of_ours_are_read_alike():
    theirs = engine_vllm.counters(
        [
            SimpleNamespace(name="vllm:spec_decode_num_drafts", value=10),
            SimpleNamespace(name="vllm:spec_decode_num_draft_tokens", value=20),
            SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens", value=12),
            SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=[8, 4]),
            SimpleNamespace(name="vllm:num_requests_running", value=1),
        ]
    )
    mine = engines.as_counters(10, 20, [8, 4])
    assert sorted(theirs.splitlines()) == sorted(mine.splitlines())
    reading = explain(theirs)
    assert reading.tau == pytest.approx(2.2) and reading.rates == (0.8, 0.4)
    assert reading.alpha == pytest.approx(12 / 18)


def test_a_recording_holds_both_side_by_side(tmp_path):
    jobs = []

    def run(job):
        jobs.append(job)
        tokens = [[1, 2, 3] for _ in job["prompts"]]
        counted = engines.as_counters(2, 8, [2, 1, 0, 0]) if job["speculative"] else ""
        return {"version": "0", "tokens": tokens, "seconds": {"1": [1.0]}, "counters": counted}

    out = tmp_path / "engines.json"
    ask = ["--prompts", "2", "--new-tokens", "6", "--batches", "1", "2", "--out", str(out)]
    engines.main(ask, run)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [job["speculative"] and job["speculative"]["method"] for job in jobs] == [
        None,
        "ngram",
        "draft_model",
    ]
    assert found["ours"]["draft_model"]["same_text"] == 1.0
    assert found["vllm"]["plain"]["same_text"] == 0.0
    assert found["vllm"]["draft_model"]["tau"] == pytest.approx(2.5)
    assert set(found["ours"]["plain"]["tokens_per_second"]) == {"1", "2"}
    assert engines.first_difference([1, 2], [1, 3]) == 1
    with pytest.raises(SystemExit):
        engines.main([*ask, "--gamma", "0"], run)
