"""A GPU's recording gives the estimator the card that made it."""

import itertools
from dataclasses import replace

import pytest

from specdec_book.recordings import cards
from specdec_lite.simulation.estimate import FITTED, Hardware, estimate, from_times
from specdec_lite.simulation.sizes import EAGLE3, MODELS

TRUE = replace(FITTED, reading=0.93, arithmetic=0.8, overlap=3.0, per_layer=12e-6)
CARD = Hardware(3.0e12, 700e12)
BATCHES, TOKENS = (1, 4, 16, 64), (1, 2, 4, 8)
LLAMA = {
    "parameters": 8_029_995_008,
    "shape": {
        "vocab_size": 128_256, "hidden_size": 4096, "num_layers": 32, "num_kv_heads": 8,
        "head_size": 128, "tied": False,
    },
}  # fmt: skip


def recording(engine=TRUE) -> dict:
    """Return what the plan would record on a card whose passes obey this engine."""
    target, head = MODELS["Llama-3.1-8B"], EAGLE3["Llama-3.1-8B"]
    passes = [
        {"batch": b, "k": k, "context": s, "seconds": engine.seconds(target, CARD, b, k, s)}
        for b, k, s in itertools.product(BATCHES, TOKENS, (512, 8192))
    ]
    drafts = [
        {"draft": "head, 32k rows", "mode": mode, "batch": b, "drafted": 4,
         "seconds": 4 * engine.seconds(head, CARD, b, 1, 512) * (1 + (mode == "eager"))}
        for b, mode in itertools.product(BATCHES, ("captured", "eager"))
    ]  # fmt: skip
    card = {"read_bandwidth": CARD.bandwidth, "copy_bandwidth": 2.4e12,
            "peak": {"size": 8192, "flops": CARD.throughput}}  # fmt: skip
    steps = {
        "card": card,
        "passes": LLAMA | {"rows": passes},
        "drafts": {"context": 512, "rows": drafts},
    }
    return {"steps": steps}


def test_the_fit_finds_the_engine_that_made_the_times():
    data = recording()
    assert cards.hardware(data) == CARD
    found = cards.engine(data)
    for name in cards.PASSES:
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name
    assert found.per_round == FITTED.per_round and found.batch == 0


def test_slices_of_a_model_are_charged_for_their_layers():
    data = recording()
    target = MODELS["Llama-3.1-8B"]
    head = 128_256 * 4096
    half = replace(target, parameters=(target.parameters + head) / 2, cache_bytes=65_536, layers=16)
    rows = [
        {"batch": 1, "k": 1, "context": 512, "layers": 16,
         "seconds": TRUE.seconds(half, CARD, 1, 1, 512)}
    ] * 8  # fmt: skip
    data["steps"]["slices"] = LLAMA | {"rows": rows}
    assert cards.engine(data).per_layer == pytest.approx(TRUE.per_layer, rel=0.05)


def test_the_measured_table_predicts_a_round():
    times = cards.pass_times(recording())
    assert times.batches == BATCHES and times.tokens == TOKENS
    target, head = MODELS["Llama-3.1-8B"], EAGLE3["Llama-3.1-8B"]
    bare = replace(TRUE, per_step=0, per_round=0, per_draft=0, per_row=0)
    for batch in BATCHES:
        expected = estimate(target, head, CARD, 0.7, 3, batch, 512, engine=bare)
        assert from_times(times, 0.7, 3, batch).speedup == pytest.approx(expected.speedup, rel=1e-3)


def test_a_recording_without_passes_or_the_draft_has_no_table():
    data = recording()
    assert cards.pass_times(data, draft="none") is None
    data["steps"]["drafts"] = {"error": "out of memory"}
    assert cards.pass_times(data) is None
