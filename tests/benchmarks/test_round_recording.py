"""The recorder of the picture's rounds: its shortened model, and what it keeps of a run."""

import torch
from letters import Letters, tiny

from benchmarks.round import passes, shortened
from specdec_lite.drafters import ModelDrafter
from specdec_lite.viz import Round


def test_the_shortened_model_is_the_whole_one_without_these_blocks():
    whole = tiny(0)
    tokens = torch.tensor([[1, 2, 3, 4]])
    left_out = whole.num_layers - 1
    skip = {(left_out, "attention"), (left_out, "mlp")}
    small = shortened(whole, (left_out,))
    assert small.num_layers == whole.num_layers - 1
    with torch.inference_mode():
        assert torch.equal(small.model(tokens), whole.model(tokens, skip=skip))
        assert not torch.equal(small.model(tokens), whole.model(tokens))


def test_the_passes_are_the_text():
    target = tiny(0)
    drafter = ModelDrafter(shortened(target, (0,)), 3)
    rounds = Round.record(target, drafter, Letters(), "hello", 20, seed=1).rounds
    kept = [each["drafts"][: each["accepted"]] + [each["token"]] for each in passes(rounds)]
    start = Letters().decode(Letters().encode("hello"))
    text = start + "".join(word for words in kept for word in words)
    assert text.startswith(rounds[-1]["before"]) and len(text) == len(start) + 20
