"""Test the recorder of the picture's rounds: its shortened model and its summary of a run."""

import torch
from letters import Letters, tiny

from benchmarks.round import round_summaries, without_blocks
from specdec_book.viz import Round
from specdec_lite.drafters import ModelDrafter


def test_the_shortened_model_equals_the_model_without_its_blocks():
    whole = tiny(0)
    tokens = torch.tensor([[1, 2, 3, 4]])
    left_out = whole.num_layers - 1
    skip = {(left_out, "attention"), (left_out, "mlp")}
    small = without_blocks(whole, (left_out,))
    assert small.num_layers == whole.num_layers - 1
    with torch.inference_mode():
        assert torch.equal(small.model(tokens), whole.model(tokens, skip=skip))
        assert not torch.equal(small.model(tokens), whole.model(tokens))


def test_the_summaries_give_the_text():
    target = tiny(0)
    drafter = ModelDrafter(without_blocks(target, (0,)), 3)
    rounds = Round.record(target, drafter, Letters(), "hello", 20, seed=1).rounds
    emitted = [
        each["drafts"][: each["accepted"]] + [each["token"]] for each in round_summaries(rounds)
    ]
    start = Letters().decode(Letters().encode("hello"))
    text = start + "".join(word for words in emitted for word in words)
    assert text.startswith(rounds[-1]["before"]) and len(text) == len(start) + 20
