"""Train a selector of pairs on the candidates of finished parallel heads.

The heads do not change, so their candidates are collected once, and a step reads k logits per
position instead of V. Shapes: N positions, k candidates, d hidden size, K depths.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lite.drafters.block_head import Selector
from specdec_lite.drafters.heads import Heads, output_head
from specdec_lite.engine.models import CausalLM
from specdec_lite.training.anchors import previous_tokens, target_probs


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest tokens of a head at many positions of a target's texts.

    Attributes:
        values: logits [N, k].
        tokens: [N, k], as numbers of the draft's vocabulary.
        index: [N], the selector's input row of the token before.
        states: [N, d], what the logits were made from.
        p: [N, k], the target's probabilities.
    """

    values: Tensor
    tokens: Tensor
    index: Tensor
    states: Tensor
    p: Tensor

    def loss(self, selector: Selector, rows: Tensor) -> Tensor:
        """Return the mean cross-entropy to the target at some positions, in nats.

        Tokens that are no candidates cannot be selected, so they have no term.

        Args:
            selector: the selector.
            rows: [n], numbers of positions.
        """
        values, tokens, index = self.values[rows], self.tokens[rows], self.index[rows]
        scores = selector.scores(values, tokens, index, self.states[rows])
        return -(self.p[rows] * scores.log_softmax(-1)).sum(-1).mean()


@torch.no_grad()
def collect(
    heads: Heads,
    target: CausalLM,
    texts: Sequence[tuple[Tensor, int]],
    selector: Selector,
    depths: int,
) -> Candidates:
    """Return what heads would let a selector choose from, at every position that a text allows.

    Args:
        heads: the parallel heads.
        target: their target, which wrote the texts.
        texts: each with the length of its prompt.
        selector: an untrained selector for these heads.
        depths: number K of tokens drafted after each anchor.
    """
    output, parts = output_head(target, heads.words), []
    for text, start in texts:
        anchors = torch.arange(start, len(text) - depths)
        cache = target.new_cache(capacity=len(text))
        hidden = target.score(text[None], cache, hidden_layers=("final",)).hidden["final"].clone()
        states = heads(hidden[:, anchors - 1], slice(depths))
        values, tokens = output.head(states).topk(selector.candidates, -1)
        index = selector.index(previous_tokens(text[None], anchors, depths), heads.words)
        p = target_probs(output, {"final": hidden}, anchors, depths).gather(-1, tokens)
        parts.append([part.flatten(0, 2) for part in (values, tokens, index, states, p)])
    return Candidates(*(torch.cat(part) for part in zip(*parts)))


def train(
    selector: Selector,
    examples: Candidates,
    steps: int = 600,
    batch: int = 1024,
    rate: float = 0.01,
) -> float:
    """Train a selector with Adam, its rate falling to 0, and return the last loss.

    Args:
        selector: changed in place.
        examples: what `collect` returned.
        steps: number of steps.
        batch: positions per step, drawn with the step's own seed.
        rate: first learning rate.
    """
    optimizer = torch.optim.Adam(selector.parameters(), rate)
    loss = torch.zeros(())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(len(examples.index), (batch,), generator=generator)
        loss = examples.loss(selector, rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())
