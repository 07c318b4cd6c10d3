"""Jacobi iteration beyond the invariants: its fixed point, its number of passes, and drawn guesses
verified with the wrong row, which the exact distribution shows.
"""

import pytest
import torch
from models_zoo import PROMPT, native
from text_laws import bias, random_law

from specdec_lite import generate
from specdec_lite.acceptance import block_verification, speculative_sampling
from specdec_lite.drafters import JacobiDrafter
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree

TARGET = native()
PLAIN = generate(TARGET, PROMPT, max_new_tokens=40).tokens


@pytest.mark.parametrize("gamma", [1, 2, 5, 16, 60])
@pytest.mark.parametrize("guess", [None, [0], [7, 3, 7]], ids=str)
def test_any_guess_gives_the_greedy_text_in_at_most_m_passes(gamma, guess):
    out = generate(TARGET, PROMPT, JacobiDrafter(gamma, guess), 40)
    assert torch.equal(out.tokens, PLAIN) and out.stats.target_passes <= 40
    assert all(len(step.tree) == min(gamma, 39 - done) for step, done in zip(out.steps, [0]))


def test_a_correct_guess_is_accepted_in_one_pass():
    out = generate(TARGET, PROMPT, JacobiDrafter(39, PLAIN[:39].tolist()), 40)
    assert out.stats.target_passes == 1 and torch.equal(out.tokens, PLAIN)


def test_the_new_guess_is_the_prediction_after_the_emitted_tokens():
    """A guess that is not shifted by them is one position late, which no text shows."""
    steps = generate(TARGET, PROMPT, JacobiDrafter(6), 30).steps
    text = list(PROMPT)
    for step, following in zip(steps, steps[1:]):
        said = TARGET.score([*text, *step.tree.tokens], TARGET.new_cache()).logits[0].argmax(-1)
        text += step.tokens
        expected = said[len(text) - 1 :][: len(following.tree)].tolist()
        assert following.tree.tokens.tolist()[: len(expected)] == expected


def drawn(fresh):
    """Guesses drawn from the rows that the pass before gave, one a place, whatever is drafted before
    them; reported with these rows, or (fresh) with the target's after the drafted tokens.
    """

    def propose(law, gamma, rng):
        rows = [law((place,) * 3) for place in range(gamma)]
        tokens = [rng.draw(row) for row in rows]
        if fresh:
            rows = [random_law(0)(tuple(tokens[:place])) for place in range(gamma)]
        return Proposal(TokenTree.chain(tokens), torch.stack(rows))

    return propose


@pytest.mark.parametrize("rule", [speculative_sampling, block_verification])
def test_drawn_guesses_are_verified_with_the_row_they_came_from(rule):
    laws = random_law(0), random_law(9)
    assert bias(*laws, rule, 2, drawn(fresh=False)) < 1e-12
    assert bias(*laws, rule, 2, drawn(fresh=True)) > 0.05
