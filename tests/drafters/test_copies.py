"""What is public can be deep-copied and pickled, and a copy decodes the same text."""

import copy
import pickle
from itertools import product

import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, TreeDrafter, hugging_face, native
from registry import COMPOSITES, DRAFTERS

from specdec_lite import generate, processors as p
from specdec_lite.sampling import Sampling
from specdec_lite.tree import TokenTree

TARGET = native()
UNNAMED = (TreeDrafter,)
"""Drafters of the tests that hold a function without a name, which pickle does not take."""
MAKERS = DRAFTERS | {
    outer: lambda target, outer=outer: COMPOSITES[outer](DRAFTERS["draft model"], target)
    for outer in COMPOSITES
}
COPIES = {"copied": copy.deepcopy, "pickled": lambda x: pickle.loads(pickle.dumps(x))}


@pytest.mark.parametrize("name, way", one_in(4, product(MAKERS, COPIES)))
def test_a_copy_of_a_drafter_decodes_the_same_text(name, way):
    drafter = MAKERS[name](TARGET)
    if way == "pickled" and (
        isinstance(drafter, UNNAMED) or type(drafter).__module__ == "builtins"
    ):
        pytest.skip("a class of the tests or of a page")
    first = generate(TARGET, PROMPT, drafter, 16, 1.0, seed=2)
    target, again = COPIES[way]((TARGET, MAKERS[name](TARGET)))  # some hold their target
    second = generate(target, PROMPT, again, 16, 1.0, seed=2)
    assert first.tokens.tolist() == second.tokens.tolist()
    assert [s.path for s in first.steps] == [s.path for s in second.steps]


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("family", [None, "Llama"])
def test_a_copy_of_a_model_and_of_an_output_is_equal(family, way):
    # A model of its own: reading hidden states leaves hooks of transformers that cannot be pickled.
    target = TARGET if family is None else hugging_face.__wrapped__(family)
    output = generate(target, PROMPT, None, 8, logprobs=True)
    again = COPIES[way](output)
    assert torch.equal(again.tokens, output.tokens) and again.stats == output.stats
    assert torch.equal(again.logprobs, output.logprobs)
    assert torch.equal(generate(COPIES[way](target), PROMPT, None, 8).tokens, output.tokens)


VALUES = [
    p.RepetitionPenalty(1.5),
    p.PresencePenalty(0.5, 2),
    p.MinP(0.2),
    p.ForbiddenWords([[1, 2]]),
    Sampling(0.7, 3, 0.9),
    TokenTree([1, 2], [-1, 0]),
]


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("value", VALUES, ids=lambda x: type(x).__name__)
def test_processors_and_settings_can_be_copied(value, way):
    """Rules in acceptance/test_rules.py."""
    again = COPIES[way](value)
    assert type(again) is type(value)
    if isinstance(value, TokenTree):
        assert again.parents == value.parents and torch.equal(again.tokens, value.tokens)
    elif isinstance(value, Sampling):
        assert again == value
    else:
        ids, logits = torch.tensor([3, 1, 1]), torch.randn(6)
        assert torch.equal(again(ids, logits), value(ids, logits))
