"""Test the hash pool: constant memory, and collisions that only waste drafts."""

import torch
from models_zoo import PROMPT, native

from specdec_lite import generate
from specdec_lite.drafters import HashPoolDrafter
from specdec_lite.measure.replay import replay

TARGET = native()


def first_draft(drafter, text):
    return replay(drafter, text, [0] * 20, 48)[0].tree.tokens.tolist()


def test_a_draft_continues_until_a_slot_is_empty():
    text = [1, 2, 3, 4, 5, 6, 9, 1, 2]
    assert first_draft(HashPoolDrafter(6, 2), text) == [3, 4, 5, 6, 9, 1]
    assert first_draft(HashPoolDrafter(6, 3), text) == []
    assert first_draft(HashPoolDrafter(6, 2), [1, 2, 3, 1, 2, 4, 1, 2])[0] == 4, "the newest"
    warm = HashPoolDrafter(6, 2)
    warm.learn([7, 8, 9])
    assert first_draft(warm, [7, 8]) == [9] and first_draft(HashPoolDrafter(6, 2), [7, 8]) == []


def test_memory_is_constant_and_collisions_only_waste_drafts():
    plain = generate(TARGET, PROMPT, max_new_tokens=80).tokens
    wide, narrow = HashPoolDrafter(4, 1, 4096), HashPoolDrafter(4, 1, 2)
    outs = [generate(TARGET, PROMPT, drafter, 80) for drafter in (wide, narrow)]
    assert all(torch.equal(out.tokens, plain) for out in outs)
    assert outs[0].stats.acceptance_rate > outs[1].stats.acceptance_rate
    size = narrow.pool.nbytes
    narrow.learn(range(48))
    assert narrow.pool.nbytes == size == 8
