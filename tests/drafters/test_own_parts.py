"""Drafters that use a part of the target (early exit, sparse cache), cascades and γ policies: what
each promises beyond the invariants, and broken variants that the invariants see.
"""

from random import Random

import pytest
import torch
from broken_drafts import ShiftedStatesDrafter
from caches import contents
from models_zoo import PROMPT, hugging_face, native, perturbed

from specdec_lite import generate, stream
from specdec_lite.drafters import CascadeDrafter, EarlyExitDrafter, ModelDrafter, SparseCacheDrafter
from specdec_lite.drafters.chain import Followed
from specdec_lite.drafters.lengths import Confidence, Heuristic, Length
from specdec_lite.proposal import Verdict

TARGET = native(num_layers=4)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=60).tokens


def test_a_window_over_the_whole_text_is_the_target_itself():
    wide = generate(TARGET, PROMPT, SparseCacheDrafter(TARGET, 0, 500, 3), 60, 1.0, seed=0)
    assert wide.stats.acceptance_rate == 1.0
    narrow = generate(TARGET, PROMPT, SparseCacheDrafter(TARGET, 1, 1, 3), 60)
    assert narrow.stats.acceptance_rate < 1.0 and torch.equal(narrow.tokens, PLAIN)


def test_a_cascade_of_the_target_itself_is_always_accepted():
    same = CascadeDrafter(TARGET, ModelDrafter(perturbed(TARGET), 2), 5)
    out = generate(TARGET, PROMPT, same, 60, 1.0, seed=0)
    assert out.stats.acceptance_rate == 1.0
    whole = CascadeDrafter(TARGET, ModelDrafter(TARGET, 2), 6)
    steps = list(stream(TARGET, PROMPT, whole, 60))
    assert all(step.draft_passes <= 4 for step in steps), "inner rounds emit three tokens each"


def test_reuse_runs_the_first_layers_once(monkeypatch):
    """With reuse the target's pass begins behind the exit: as many rows pass its first block as
    tokens are fed, and the drafts and texts are those without."""
    rows = {True: 0, False: 0}
    texts = {}
    attention = type(TARGET.model.blocks[0]).attention
    for reuse in rows:

        def counted(block, x, *arguments, reuse=reuse):
            rows[reuse] += x.shape[1] * (block is TARGET.model.blocks[0])
            return attention(block, x, *arguments)

        monkeypatch.setattr(type(TARGET.model.blocks[0]), "attention", counted)
        drafter = EarlyExitDrafter(TARGET, 2, 3, reuse=reuse)
        texts[reuse] = [
            (step.tree.tokens.tolist(), step.tokens)
            for step in stream(TARGET, PROMPT, drafter, 40, 1.0, seed=1)
        ]
    assert texts[True] == texts[False] and rows[True] < 0.7 * rows[False]


def test_states_that_are_one_row_late_change_the_greedy_text():
    assert not torch.equal(
        generate(TARGET, PROMPT, ShiftedStatesDrafter(TARGET, 1, 3), 60).tokens, PLAIN
    )


def difference_to_fresh_caches(seed: int) -> float:
    """Feed a cache texts that differ at any place, and drafts; compare it with new caches."""
    random, draft, text = Random(seed), native(seed=3), torch.tensor(PROMPT)
    followed, apart = Followed(draft.new_cache()), 0.0
    for _ in range(30):
        draft.score(followed.behind(text), followed.cache)
        fresh = draft.new_cache()
        draft.score(text, fresh)
        pairs = zip(contents(followed.cache), contents(fresh), strict=True)
        apart = max(apart, *(float((ours - theirs).abs().max()) for ours, theirs in pairs))
        tokens = torch.tensor(random.choices((1, 2), k=random.randint(1, 3)))
        draft.score(tokens, followed.cache)
        if random.random() < 0.5:  # the session hears what it drafted
            followed.observe(Verdict((), 0, "recovered", (), tokens=tuple(tokens.tolist())))
        kept = torch.cat((text, tokens))[: random.randint(2, len(text) + len(tokens))]
        text = torch.cat((kept, torch.tensor(random.choices((1, 2), k=random.randint(1, 3)))))
    return apart


def test_a_cache_follows_any_text_and_one_that_compares_lengths_alone_does_not(monkeypatch):
    assert max(difference_to_fresh_caches(seed) for seed in range(3)) < 1e-9
    module = "specdec_lite.drafters.chain.common_prefix"
    monkeypatch.setattr(module, lambda old, new: min(len(old), len(new) - 1))
    assert max(difference_to_fresh_caches(seed) for seed in range(3)) > 1e-3


@pytest.mark.parametrize(
    "policy, lengths", [(Heuristic(6, first=2), [2, 4, 6, 6]), (Confidence(6, 0.0), [6, 6, 6, 6])]
)
def test_policies_with_a_perfect_draft(policy, lengths):
    steps = list(stream(TARGET, PROMPT, ModelDrafter(TARGET, policy), 60))
    assert [len(step.tree) for step in steps][:4] == lengths
    again = list(stream(TARGET, PROMPT, ModelDrafter(TARGET, policy), 60))
    assert [s.tokens for s in again] == [s.tokens for s in steps], "nothing is left of a generation"


def test_policies_stop_after_a_token_and_shrink_after_a_rejection():
    sure = ModelDrafter(TARGET, Confidence(6, 1.0))
    assert {len(step.tree) for step in stream(TARGET, PROMPT, sure, 20)} <= {1, 0}
    bad = native(seed=99, num_layers=1)
    steps = list(stream(TARGET, PROMPT, ModelDrafter(bad, Heuristic(6, first=5)), 30))
    drafted = [len(step.tree) for step in steps]
    assert drafted[:5] == [5, 4, 3, 2, 1] or any(step.path for step in steps[:5])
    assert Length.of(3).gamma == 3


LLAMA = hugging_face("Llama")
