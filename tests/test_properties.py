"""What the engine promises, over random prompts, trees, draft lengths, seeds, temperatures and
vocabularies.
"""

from functools import cache

import pytest
import torch
from caches import Watched, watched_caches
from chance import RecordingRng
from drafted_rows import Scripted
from hypothesis import given, settings, strategies as st
from models_zoo import PROMPT, VOCABULARY, WINDOW, native, perturbed
from strategies import trees

from specdec_lite import TokenTree, generate, stream
from specdec_lite.acceptance import (
    Verdict,
    block_verification,
    exact_match,
    sample_and_match,
    speculative_sampling,
)
from specdec_lite.decoding import Stats
from specdec_lite.drafters import ModelDrafter
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import SeededRng

PROMPTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
VOCABULARIES = st.sampled_from([3, 17, VOCABULARY])
TEMPERATURES = st.sampled_from([0.0, 0.3, 1.0, 2.0])
SEEDS = st.integers(0, 2**32)
DRAFTS = st.sampled_from(["close", "unrelated"])
RULES = st.sampled_from([speculative_sampling, block_verification, sample_and_match])
model = cache(native)


@cache
def draft(kind, vocabulary):
    """Return a draft that often agrees, or one that seldom does and has a padded vocabulary."""
    return (
        perturbed(model(vocab_size=vocabulary))
        if kind == "close"
        else native(seed=99, vocab_size=vocabulary + 5, num_layers=1)
    )


class Replay(SeededRng):
    """An rng that replays recorded uniforms."""

    def __init__(self, uniforms):
        self.left = list(uniforms)

    def uniform(self):
        return self.left.pop(0)


# A pass over a tree -------------------------------------------------------------------------------


def apart(target, prompt, tree, fed_as):
    """Return the largest difference between one tree pass and every path fed token by token."""
    store, worst = target.new_cache(), 0.0
    if len(prompt) > 1:
        target.score(prompt[:-1], store)
    logits = target.score([prompt[-1], *tree.tokens.tolist()], store, fed_as).logits[0]
    for path in tree.paths() or [()]:
        alone = target.new_cache()
        rows = torch.cat(
            [
                target.score([token], alone).logits[0]
                for token in (*prompt, *tree.tokens[list(path)].tolist())
            ]
        )
        worst = max(
            worst,
            (logits[[0, *(node + 1 for node in path)]] - rows[-len(path) - 1 :]).abs().max().item(),
        )
    return worst


@given(PROMPTS, trees(8), st.sampled_from([None, WINDOW]))
@settings(max_examples=40)
def test_claim_one_pass_over_a_tree_equals_a_pass_per_path(prompt, tree, window):
    assert apart(model(window=window), prompt, tree, tree) < 1e-10


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("prompt", [[7], PROMPT])
def test_a_causal_mask_on_a_tree_fails_the_same_test(prompt, window):
    assert apart(model(window=window), prompt, TokenTree([1, 2, 3], [-1, -1, 0]), None) > 0.01


# Greedy text --------------------------------------------------------------------------------------


def greedy_text(prompt, vocabulary, drafter, rule=None):
    prompt = [token % vocabulary for token in prompt]
    return generate(model(vocab_size=vocabulary), prompt, drafter, 12, rule=rule).tokens.tolist()


def drafter_of(kind, vocabulary, gamma):
    """Return a drafter with a draft model of a kind, or of a tree, and whether it drafts chains."""
    if isinstance(kind, str):
        return Watched(draft(kind, vocabulary), gamma), True
    return Scripted(Proposal(TokenTree(kind.tokens % vocabulary, kind.parents))), False


@given(PROMPTS, VOCABULARIES, DRAFTS | trees(8), st.integers(1, 8), RULES | st.just(exact_match))
@settings(max_examples=60)
def test_greedy_text_is_the_targets_own_for_any_draft_length(prompt, vocabulary, kind, gamma, rule):
    drafter, is_chain = drafter_of(kind, vocabulary, gamma)
    rule = rule if is_chain or rule is not block_verification else None
    own = greedy_text(prompt, vocabulary, None)
    assert greedy_text(prompt, vocabulary, drafter, rule) == own


def accepts_the_first_path(proposal, target_probs, rng):
    path = (proposal.tree.paths() or [()])[0]
    return Verdict(
        path, int(target_probs[path[-1] + 1 if path else 0].argmax()), "bonus", (1,) * len(path)
    )


@pytest.mark.parametrize(
    "drafter",
    [
        ModelDrafter(draft("unrelated", VOCABULARY), 3),
        Scripted(Proposal(TokenTree([0, 1, 2], [-1, 0, -1]))),
    ],
    ids=["chain", "tree"],
)
def test_a_rule_that_accepts_everything_fails_the_same_test(drafter):
    assert greedy_text([5, 17], VOCABULARY, drafter, accepts_the_first_path) != greedy_text(
        [5, 17], VOCABULARY, None
    )


# Counts, caches and chance ------------------------------------------------------------------------


@given(PROMPTS, VOCABULARIES, DRAFTS | trees(8), st.integers(1, 8), TEMPERATURES, SEEDS, RULES)
@settings(max_examples=60)
def test_counts_add_up_and_caches_hold_the_committed_text(
    prompt, vocabulary, kind, gamma, temperature, seed, rule
):
    """The recorded uniforms replay the text, and all are used. A draft's cache is only cropped: after
    the prompt a draft pass reads one token, or two after a fully accepted block.
    """
    prompt = [token % vocabulary for token in prompt]
    target = model(vocab_size=vocabulary)
    drafter, is_chain = drafter_of(kind, vocabulary, gamma)
    rule = rule if is_chain or rule is not block_verification else None
    recording, steps = RecordingRng(seed), []
    fed, expected, behind = [], [len(prompt) - 1] * (len(prompt) > 1), 1
    with pytest.MonkeyPatch.context() as patch:
        made, text = watched_caches(target, patch), list(prompt)
        if is_chain:
            score = drafter.model.score
            counted = lambda ids, *rest, **options: (
                fed.append(len(ids)) or score(ids, *rest, **options)
            )
            patch.setattr(drafter.model, "score", counted)
        for step in stream(target, prompt, drafter, 12, temperature, rule=rule, rng=recording):
            steps.append(step)
            text += step.tokens
            assert made[0].length == len(text) - 1
            assert step.path == step.tree.path(step.path[-1] if step.path else -1)
            assert step.tokens == (*step.tree.tokens[list(step.path)].tolist(), step.token)
            assert len(step.path) == step.accepted <= step.tested <= step.drafted == len(step.tree)
            if not is_chain:
                continue
            assert step.drafted == step.draft_passes <= gamma
            assert temperature or step.p[: step.accepted + 1] == (1,) * step.accepted + (0,) * (
                step.accepted < step.drafted
            ), "kept iff the argmax"
            if step.drafted:
                kept = drafter.session.followed.trim(torch.tensor(text))
                assert kept == len(text) - (2 if step.accepted == step.drafted else 1)
            expected += [behind, *[1] * step.drafted][: step.drafted]
            behind = 2 if step.accepted == step.drafted else 1
    assert fed == (expected if is_chain else [])
    stats, replay = Stats.of(steps), Replay(recording.uniforms)
    assert stats.tokens == 12 == stats.accepted + stats.target_passes
    assert stats.mean_acceptance_length == 12 / len(steps)
    again = stream(target, prompt, drafter, 12, temperature, rule=rule, rng=replay)
    assert [step.tokens for step in again] == [step.tokens for step in steps] and not replay.left
