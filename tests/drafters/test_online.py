"""Test a draft that learns between generations: its examples, its steps, and that it does not
change inside a generation.
"""

import copy

import pytest
import torch
from drafted_rows import changed
from models_zoo import PROMPT, logits_of, native, perturbed

from specdec_lite import CausalLM, generate, stream
from specdec_lite.drafters import ModelDrafter, OnlineDrafter
from specdec_lite.drafters.online import TrainingExamples
from specdec_lite.engine.linear import pack

TARGET = native()
DRAFT = perturbed(TARGET, 0.4)


def request(drafter, seed=0, new=24):
    """Return prompt and output of one generation at temperature 1."""
    out = generate(TARGET, PROMPT, drafter, new, temperature=1.0, seed=seed)
    return [*PROMPT, *out.tokens.tolist()], out


def law(model, text):
    return logits_of(model, text)[-1].log_softmax(-1)


def hasty(session):
    """Broken: take a step after every round, inside the generation."""
    hear = session.observe

    def observe(verdict, scores):
        hear(verdict, scores)
        known = len(session.examples.text)
        laws = {place: row for place, row in session.examples.rows.items() if place <= known}
        session.drafter.add(TrainingExamples(session.examples.text, laws))
        session.steps = session.drafter.steps

    session.observe = observe


@pytest.mark.parametrize("of_16_bits", [False, True])
def test_learning_from_a_rejection_moves_the_draft_towards_the_target(of_16_bits):
    draft = CausalLM(pack(copy.deepcopy(DRAFT.model).bfloat16())) if of_16_bits else DRAFT
    unchanged = law(draft, PROMPT)
    drafter = OnlineDrafter(draft, 3, every=1, learning_rate=1e-3)
    assert drafter.model.dtype == (torch.float32 if of_16_bits else DRAFT.dtype)
    text, _ = request(drafter)
    place, noted = next(iter(drafter.examples[0].rows.items()))
    assert (noted.log() - law(TARGET, text[:place])).abs().max() < 1e-9
    drafter.examples[0].rows = {place: noted}
    before = law(drafter.model, text[:place])
    drafter.learn(text)
    after = law(drafter.model, text[:place])
    closer = [(noted * (noted.log() - each)).sum() for each in (before, after)]
    assert closer[1] < closer[0] and torch.equal(unchanged, law(draft, PROMPT))


def test_examples_are_recorded_exactly_where_drafts_were_rejected():
    drafter = OnlineDrafter(DRAFT, 3)
    _, out = request(drafter)
    places, length = [], len(PROMPT)
    for step in out.steps:
        length += len(step.tokens)
        places += [length - 1] if step.kind == "recovered" else []
    assert list(drafter.examples[0].rows) == places and 1 < len(places) < len(out.steps) + 1


def test_drafts_are_reproducible_before_and_after_learning():
    plain = request(ModelDrafter(DRAFT, 3), 5)[1]
    runs = []
    for _ in range(2):
        drafter = OnlineDrafter(DRAFT, 3, every=2, learning_rate=1e-2)
        assert request(drafter, 5)[1].tokens.equal(plain.tokens)
        drafter.examples.clear()
        for seed in (1, 2):
            drafter.learn(request(drafter, seed)[0])
        assert drafter.steps == 1
        runs.append([step.tree.tokens.tolist() for step in request(drafter, 3)[1].steps])
    unlearnt = [step.tree.tokens.tolist() for step in request(ModelDrafter(DRAFT, 3), 3)[1].steps]
    assert runs[0] == runs[1] != unlearnt


def same_again(drafter):
    """Return whether two equal generations draft the same tokens."""
    runs = [request(drafter, 7)[1] for _ in range(2)]
    trees = [[step.tree.tokens.tolist() for step in run.steps] for run in runs]
    return trees[0] == trees[1]


def test_a_generation_does_not_change_the_draft():
    assert same_again(OnlineDrafter(DRAFT, 3, every=1, learning_rate=1e-2))
    assert not same_again(changed(OnlineDrafter(DRAFT, 3, every=1, learning_rate=1e-2), hasty))


def test_learning_inside_a_generation_raises():
    drafter = OnlineDrafter(DRAFT, 3, every=1)
    text, _ = request(drafter)
    running = stream(TARGET, PROMPT, drafter, 24)
    next(running)
    drafter.learn(text)
    with pytest.raises(ValueError, match="inside a generation"):
        list(running)


def test_texts_that_cannot_be_learned_are_rejected():
    drafter = OnlineDrafter(DRAFT, 3)
    text, _ = request(drafter)
    with pytest.raises(ValueError, match="prompt and output together"):
        drafter.learn(text[1:])
    drafter.learn(text)
    with pytest.raises(ValueError, match="no unused generation"):
        drafter.learn(text)
