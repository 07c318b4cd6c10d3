"""Drafts of a model with another tokenizer, and the warning about a draft that lacks one."""

import pytest
import torch
from models_zoo import native
from registry import Letters

from specdec_lite import drafters as d, generate, load_pair
from specdec_lite.drafters.text_match import continuation

SINGLE = Letters([*"abc"])
PAIRS = Letters([*"abc", "ab", "ca", "bb"])


def test_with_one_tokenizer_it_drafts_as_the_model_does():
    pair = load_pair(device="cpu", dtype="float32")
    prompt = pair.tokenizer.encode("The old man walked to the harbour and said")
    match = d.TextMatchDrafter(pair.draft, pair.tokenizer, pair.tokenizer, 4)
    outputs = [
        generate(pair.target, prompt, drafter, 48)
        for drafter in (match, d.ModelDrafter(pair.draft, 4))
    ]
    assert torch.equal(outputs[0].tokens, outputs[1].tokens)
    # Tokens at a seam may be split in another way, so a few drafts differ.
    rates = [output.stats.mean_acceptance_length for output in outputs]
    assert rates[0] > 0.85 * rates[1] > 1.5


def test_the_drafts_are_those_of_the_drafts_own_text():
    """Written out: the text in the draft's tokens, its argmax, and their text in the target's."""
    target, draft = native(vocab_size=6), native(seed=3, vocab_size=3)
    prompt, steps = [0, 3, 1], generate(target, [0, 3, 1], None, 1)
    ids = SINGLE.encode(PAIRS.decode(prompt))
    for _ in range(4):
        ids.append(int(draft.model(torch.tensor([ids]))[0, -1].argmax()))
    expected = PAIRS.encode(SINGLE.decode(ids))[len(prompt) :]
    step = generate(target, prompt, d.TextMatchDrafter(draft, SINGLE, PAIRS, 4), 9).steps[0]
    assert steps and step.tree.tokens.tolist() == expected and step.draft_passes == 4


def test_committed_tokens_stay_where_a_text_would_be_split_in_another_way():
    assert continuation(PAIRS, [2], "ab") == [3]  # "c" + "ab": whole would begin with "ca"
    assert continuation(PAIRS, [1, 0], "cab") == [4, 1]
    assert continuation(PAIRS, [1], "") == []


def test_a_draft_of_another_vocabulary_warns_by_the_second_round():
    target, draft = native(vocab_size=48), native(seed=8, vocab_size=32)
    own = generate(target, [5, 7], None, 12).tokens
    with pytest.warns(UserWarning, match="32 tokens, the target 48") as warned:
        assert torch.equal(generate(target, [5, 7], d.ModelDrafter(draft, 2), 12).tokens, own)
    assert len(warned) == 1


@pytest.mark.filterwarnings("error")
def test_a_draft_of_the_same_vocabulary_does_not_warn():
    target, draft = native(vocab_size=48), native(seed=9, vocab_size=48)
    generate(target, [5, 7], d.ModelDrafter(draft, 2), 12)
