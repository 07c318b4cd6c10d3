"""Compare counts of rounds' first tokens with the decoding loop, and run the recording at toy
size."""

import json

import jsonschema
import numpy as np
import pytest
import torch
from models_zoo import native, perturbed

from benchmarks import openings
from benchmarks.experiment import execute
from benchmarks.schemas import SCHEMAS
from specdec_lite import generate
from specdec_lite.drafters import ModelDrafter

TARGET = native(max_positions=160)
DRAFT = perturbed(TARGET, 0.04)
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


def test_counts_from_a_text_equal_those_of_the_loop():
    texts = openings.acceptance_by_position(TARGET, DRAFT, PROMPTS, (), 0.0, 80)
    cases = [
        (prompt, accepted, gamma) for prompt, accepted in zip(PROMPTS, texts) for gamma in (1, 3, 8)
    ]
    counted = []
    for prompt, _, gamma in cases:
        steps = generate(TARGET, prompt, ModelDrafter(DRAFT, gamma), 80).steps
        tested = [step for step in steps if len(step.tree)]
        counted.append((sum(step.accepted > 0 for step in tested), len(tested)))
    assert [openings.openings(accepted, gamma) for _, accepted, gamma in cases] == counted
    shifted = [openings.openings(np.roll(accepted, 1), gamma) for _, accepted, gamma in cases]
    assert shifted != counted, "probabilities shifted by one position give other counts"


@pytest.mark.statistical(rate=1e-8)
def test_a_drawn_draft_is_accepted_as_often_as_predicted():
    """Over many texts, the mean acceptance probability of the text's own token is the mean of Σ min(p, q)."""
    rows = [
        openings.offline(TARGET, DRAFT, torch.tensor(prompt + tokens.tolist()))
        for prompt in PROMPTS
        for seed in range(12)
        for tokens in [generate(TARGET, prompt, None, 120, 1.0, seed=seed).tokens]
    ]
    own, drawn = (torch.cat([getattr(row, name)[4:] for row in rows]) for name in ("kept", "drawn"))
    error = (own - drawn).std() / len(own) ** 0.5
    assert abs((own - drawn).mean()) < 6 * error and error < 0.01


class Toy(openings.FirstTokenAcceptance):
    """The same measurement on tiny models."""

    make = dict.fromkeys(
        ("toy", "again"), lambda options: (TARGET, DRAFT, "another", PROMPTS[: options.texts], ())
    )


def test_a_whole_recording_at_toy_size(tmp_path):
    given = ["--texts", "2", "--new-tokens", "40", "--work", str(tmp_path)]
    out = execute(Toy, [*given, "--out", str(tmp_path / "a.json")])
    data = json.loads(out.read_text("utf-8"))
    jsonschema.validate(data, SCHEMAS["first-token-acceptance"])
    assert set(data["targets"]) == {"toy", "again"}
    with pytest.raises(SystemExit):
        execute(Toy, ["--texts", "0"])
