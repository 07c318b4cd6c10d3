"""Test the recorder of the picture's rounds: its summary of a run."""

from letters import Letters, tiny

from benchmarks.round import round_summaries
from benchmarks.smollm2 import without_blocks
from specdec_book.viz import Round
from specdec_lite.drafters import ModelDrafter


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
