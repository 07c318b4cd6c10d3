"""Fixed points: Jacobi iteration and Lookahead, beyond the invariants, and broken variants.

Drawn guesses that are verified with the wrong row show in the exact distribution alone.
"""

import pytest
import torch
from drafted_rows import altered
from models_zoo import PROMPT, native
from text_laws import bias, random_law

from specdec_lite import generate, stream
from specdec_lite.acceptance import block_verification, speculative_sampling
from specdec_lite.drafters import JacobiDrafter, LookaheadDrafter
from specdec_lite.drafters.fixed_point import window_tree
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree

TARGET = native()
PLAIN = generate(TARGET, PROMPT, max_new_tokens=40).tokens


@pytest.mark.parametrize("gamma, guess", [(1, None), (5, [0]), (16, [7, 3, 7]), (60, None)])
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


# Lookahead ----------------------------------------------------------------------------------------


def test_the_window_has_the_papers_mask_and_positions():
    """W = 3, N = 4: entry i of row r attends to the chain up to i, then to its column above it."""
    tree, ends = window_tree([[10, 11], [20, 21, 22], [30, 31, 32]])
    spelt = [tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))]
    assert spelt[:2] == [(10,), (10, 11)] and spelt[2:5] == [(20,), (10, 21), (10, 11, 22)]
    assert [spelt[end] for end in ends] == [(20, 30), (10, 21, 31), (10, 11, 22, 32)]
    assert tree.depth.tolist() == [0, 1, 0, 1, 2, 1, 2, 3]
    assert (LookaheadDrafter().limits().nodes, LookaheadDrafter(3, 3, 3).limits().nodes) == (29, 11)
    assert window_tree([[]])[1] == [-1]


def kept_that_are_said(shift):
    """The share of kept n-grams whose last token the target says after some text ending with the
    others, among those of column 0: their text is known, it is the committed one. `shift` reads the
    row next to the right one.
    """
    sessions, text, said = [], list(PROMPT), []

    def shifted(session, proposal, context):
        sessions.append(session)
        session.ends = [max(0, end - shift) for end in session.ends]
        return proposal

    for step in stream(TARGET, PROMPT, altered(LookaheadDrafter(1, 3, 1), shifted), 40):
        session = sessions[-1]
        if len(step.tree) == session.fed - 1 and len(session.rows) == 2:
            for gram in session.pool.get(text[-1], ()):
                row = TARGET.score([*text, *gram[:-1]], TARGET.new_cache(), last=True).logits
                said.append(int(row[0, -1].argmax()) == gram[-1])
        text += step.tokens
    return sum(said) / len(said)


def test_the_newest_ngram_of_the_root_is_the_targets_prediction():
    assert kept_that_are_said(0) == 1.0 and kept_that_are_said(1) < 0.5


def test_counts_and_kinds_follow_from_candidates():
    out = generate(TARGET, PROMPT, LookaheadDrafter(4, 3, 2), 60)
    first = out.steps[0]
    assert len(first.tree) == 3 and first.drafted == 0 and first.kind == "sampled"
    for step in out.steps:
        assert step.drafted <= 4 and step.tested <= step.drafted <= len(step.tree)
        assert step.kind == "sampled" or step.drafted
    assert out.stats.accepted > 0 and out.stats.mean_acceptance_length > 1
