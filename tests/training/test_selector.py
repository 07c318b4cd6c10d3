"""Training a selector of pairs: on the rows that drafting draws from, towards the target."""

import pytest
import torch
from heads_zoo import random_heads
from models_zoo import PROMPT, native

from specdec_lite import generate
from specdec_lite.drafters import MarkovDrafter
from specdec_lite.drafters.block_head import Selector
from specdec_lite.training.selector import collect, train

TARGET = native(num_layers=2, dtype=torch.float32)
HEADS = random_heads(TARGET, 3)
GENERATED = [generate(TARGET, PROMPT, None, 60, 1.0, seed=seed).tokens for seed in range(4)]
TEXTS = [(torch.cat((torch.tensor(PROMPT), tokens)), len(PROMPT)) for tokens in GENERATED]


def selector(**sizes):
    torch.manual_seed(0)
    return Selector(TARGET.vocab_size, 4, candidates=8, width=TARGET.hidden_size, **sizes)


def test_training_scores_the_rows_that_drafting_draws_from():
    choice = selector()
    torch.nn.init.normal_(choice.after.weight)
    out = generate(TARGET, PROMPT, MarkovDrafter(TARGET, HEADS, choice), 60, 1.0, seed=0)
    text, first = torch.cat((torch.tensor(PROMPT), out.tokens)), len(PROMPT) - 1
    examples = collect(HEADS, TARGET, [(text, first)], choice, 3)
    scores = choice.scores(examples.values, examples.tokens, examples.index, examples.states)
    shape = (len(text) - 3 - first, 3)
    q, tokens, p = (
        part.detach().unflatten(0, shape)
        for part in (scores.softmax(-1), examples.tokens, examples.p)
    )
    anchor, compared = 0, [0, 0]
    for step in out.steps:
        # A row after the first rejected draft follows another token than the text's.
        for depth in range(min(len(step.tree), len(step.path) + 1) if anchor < len(q) else 0):
            own = dict(zip(tokens[anchor, depth].tolist(), q[anchor, depth].tolist()))
            drafted = int(step.tree.tokens[depth])
            assert step.q[depth] == pytest.approx(own[drafted], abs=1e-5)
            compared[min(depth, 1)] += 1
        anchor += len(step.tokens)
    assert compared[0] > 20 and compared[1] > 2
    right = TARGET.score(text, TARGET.new_cache()).logits[0].softmax(-1)
    for depth in range(3):
        rows = right[first + depth : first + depth + len(p)]
        assert torch.allclose(p[:, depth], rows.gather(-1, tokens[:, depth]), atol=1e-5)


def test_training_lowers_the_loss_and_a_new_selector_only_cuts():
    choice = selector()
    examples = collect(HEADS, TARGET, TEXTS, choice, 3)
    rows = torch.arange(len(examples.index))
    q = examples.values.log_softmax(-1)
    plain = -(examples.p * q).sum(-1).mean()
    assert torch.allclose(examples.loss(choice, rows), plain, atol=1e-6)
    train(choice, examples, steps=60, batch=256, rate=0.05)
    assert float(examples.loss(choice, rows).detach()) < 0.9 * float(plain)
    again = selector()
    train(again, examples, steps=60, batch=256, rate=0.05)
    assert all(map(torch.equal, choice.state_dict().values(), again.state_dict().values()))
