"""Training EAGLE-like heads: what a row attends to, and what it is scored on.

That training computes what drafting computes is tested in tests/drafters/test_heads.py.
"""

import pytest
import torch
from features_zoo import KINDS, random_head
from models_zoo import native

from specdec_lite.training.unroll import Recipe, unroll, unrolled_loss

TARGET = native(vocab_size=40, dtype=torch.float32)
TEXT = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))
COUNTED = torch.ones_like(TEXT, dtype=torch.bool)


def features(tokens, layers=(0, 1, 2, "final")):
    hidden = TARGET.score(tokens, TARGET.new_cache(*tokens.shape), hidden_layers=layers).hidden
    return {layer: rows.clone() for layer, rows in hidden.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_attends_to_a_state_that_its_session_lacks(kind):
    """Row i of any pass reads states 0 … i: a mask off by one would look excellent in training."""
    head = random_head(TARGET, kind)
    embedded = TARGET.embed(TEXT)
    right = list(unroll(head, features(TEXT), embedded, 3))
    for moved in (4, 9):
        other = features(TEXT)
        for rows in other.values():
            rows[:, moved] += 1
        for before, after in zip(right, unroll(head, other, embedded, 3)):
            same = (before - after).abs().amax((0, 2)) < 1e-6
            assert same[:moved].all() and not same[moved:].any()
    for moved in (6, 11):
        other = embedded.clone()
        other[:, moved] += 1
        for step, (before, after) in enumerate(zip(right, unroll(head, features(TEXT), other, 3))):
            same = (before - after).abs().amax((0, 2)) < 1e-6
            assert same[: moved - step - 1].all() and not same[moved - step - 1 :].any()


def test_each_pass_is_scored_on_the_token_it_predicts():
    head = random_head(TARGET, ids=torch.arange(2, 38))
    states = features(TEXT)
    for name in ("feature", "distillation", "data"):
        recipe = Recipe(**{name: 1.0}, decay=0.5)
        expected = 0.0
        for step, output in enumerate(unroll(head, states, TARGET.embed(TEXT), 3)):
            predicted = slice(step + 1, step + 1 + output.shape[1])
            feature = states["final"][:, predicted]
            q = head.logits(output, head.rows(TARGET)).log_softmax(-1)
            if name == "feature":
                value = torch.nn.functional.smooth_l1_loss(output, feature)
            elif name == "distillation":
                p = TARGET.head(feature)[..., 2:38].softmax(-1)
                value = -(p * q).sum(-1).mean()
            else:
                following = TEXT[:, step + 2 : step + 2 + output.shape[1]]
                known = (following >= 2) & (following < 38)
                value = -q[known].gather(-1, following[known][:, None] - 2).mean()
            expected = expected + 0.5**step * value
        loss = unrolled_loss(head, TARGET, TEXT, states, COUNTED, recipe, 3)
        assert loss.item() == pytest.approx(float(expected), rel=1e-4)
