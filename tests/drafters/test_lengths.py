"""When drafting stops: what each policy computes, and why a token that was read must stay.

The matrix enumerates every policy. A scheduler that looks ahead is biased: tests/test_scheduling.py.
"""

import broken
import pytest
import torch
from models_zoo import PROMPT, native, perturbed
from text_laws import bias, random_law

from specdec_lite import generate, stream
from specdec_lite.acceptance import block_verification, speculative_sampling
from specdec_lite.drafters import (
    Confidence,
    Heuristic,
    ModelDrafter,
    Optimal,
    Predicted,
    TemperedDrafter,
)
from specdec_lite.proposal import Verdict
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.training import acceptance_predictor

TARGET = native()
RULES = (speculative_sampling, block_verification)


def entropy_before(law, gamma, rng):
    """Stop before the first token with an uncertain row; the row does not depend on the token."""
    kept = lambda tokens: torch.special.entr(law(tuple(tokens))).sum() <= 0.9
    tokens, rows = [], []
    while len(tokens) < gamma and kept(tokens):
        rows.append(law(tuple(tokens)))
        tokens.append(rng.draw(rows[-1]))
    return broken.Proposal(broken.TokenTree.chain(tokens), torch.stack(rows) if rows else None)


def test_stopping_before_a_token_is_lossless_only_if_it_was_not_read():
    laws = random_law(1), random_law(10)
    for rule in RULES:
        assert bias(*laws, rule, 2, entropy_before) < 1e-12
        assert bias(*laws, rule, 2, broken.stops_at_unsure(0.4, keep_it=True)) < 1e-12
        assert bias(*laws, rule, 2, broken.stops_at_unsure(0.4, keep_it=False)) > 0.02


def heard(accepted, tested):
    return Verdict(tuple(range(accepted)), 0, "recovered", (1,) * tested)


def test_the_optimal_length_follows_acceptance_and_resets_per_text():
    policy = Optimal(12, 0.1, alpha=0.5).start()
    first = policy.most(None)
    for _ in range(30):
        policy.observe(heard(6, 6))
    assert first < policy.most(None) == 12
    for _ in range(60):
        policy.observe(heard(0, 1))
    assert policy.most(None) == 1 and Optimal(12, 0.1, alpha=0.5).start().most(None) == first


def test_the_probability_of_acceptance_is_learned_from_rows():
    """The regression recovers a known dependence on log q and entropy."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(400, 6, generator=generator, dtype=torch.float64).pow(3)
    rows /= rows.sum(-1, keepdim=True)
    rng, right = SeededRng(1), torch.tensor([0.7, 0.9, -0.4, 0.0], dtype=torch.float64)
    shown = torch.tensor([acceptance_predictor.clues(row, rng.draw(row)) for row in rows]).double()
    found = acceptance_predictor.fit(shown, (shown @ right).sigmoid())
    assert torch.tensor(found).numpy() == pytest.approx(right.numpy(), abs=0.02)


def test_a_trained_policy_drafts_less_with_a_worse_draft():
    drafted = []
    for noise in (0.02, 0.4):
        draft = perturbed(TARGET, noise)
        text = generate(TARGET, PROMPT, max_new_tokens=100, temperature=1.0, seed=0).tokens
        shown, kept = acceptance_predictor.examples(TARGET, draft, [text.tolist()], Sampling())
        assert 0 <= kept.min() <= kept.max() <= 1 and shown.shape == (100, 4)
        policy = Predicted(8, acceptance_predictor.fit(shown, kept))
        out = generate(TARGET, PROMPT, ModelDrafter(draft, policy), 60, 1.0, seed=1)
        drafted.append(out.stats.drafted / out.stats.target_passes)
    assert drafted[0] > drafted[1]


@pytest.mark.parametrize(
    "policy, lengths", [(Heuristic(6, first=2), [2, 4, 6, 6]), (Confidence(6, 0.0), [6, 6, 6, 6])]
)
def test_policies_with_a_perfect_draft(policy, lengths):
    steps = list(stream(TARGET, PROMPT, ModelDrafter(TARGET, policy), 60))
    assert [len(step.tree) for step in steps][:4] == lengths
    again = list(stream(TARGET, PROMPT, TemperedDrafter(ModelDrafter(TARGET, policy)), 60))
    trees = [[step.tree for step in run] for run in (steps, again)]
    assert trees[0] == trees[1], "nothing is left of a generation, and a wrapper hands verdicts on"


def test_policies_stop_after_a_token_and_shrink_after_a_rejection():
    sure = ModelDrafter(TARGET, Confidence(6, 1.0))
    assert {len(step.tree) for step in stream(TARGET, PROMPT, sure, 20)} <= {1, 0}
    bad = native(seed=99, num_layers=1)
    steps = list(stream(TARGET, PROMPT, ModelDrafter(bad, Heuristic(6, first=5)), 30))
    drafted = [len(step.tree) for step in steps]
    assert drafted[:5] == [5, 4, 3, 2, 1] or any(step.path for step in steps[:5])
