"""A draft model that scores a tree level by level, over nodes that stay in its cache.

What lives here: the session that tree drafters with a model of their own share. What does not: how
the tree grows (`grow`, and each drafter).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import fit
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Verdict
from specdec_lite.speculation import Context, Drafter, Session
from specdec_lite.tree import TokenTree


class GrowingDrafter(Drafter):
    """A drafter of trees with a model of the target's vocabulary. draft: a `CausalLM`."""

    def __init__(self, draft: CausalLM):
        self.model = checks.model("draft", draft)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.positions(self.model, positions)

    def draft_model(self) -> CausalLM:
        return self.model


class GrowingSession(Session):
    """The cache holds every committed token but the last, or but the last two after a path that was
    accepted to its end. fed: a node of the proposal → its place among the nodes that were fed.
    """

    def __init__(self, model: CausalLM, room: int, context: Context):
        self.model = model
        self.root = len(context.tokens)
        self.fed: dict[int, int] = {}
        self.cache = model.new_cache(capacity=self.root + context.wanted + room)
        if self.root > 1:
            self._score(context.tokens[:-1])

    def _score(
        self, tokens: Tensor, *tree: TokenTree, last: bool = True, cached: int = 0
    ) -> Tensor:
        self.passes += 1
        tokens = tokens.clamp(max=self.model.vocab_size - 1)
        return self.model.score(tokens, self.cache, *tree, last=last, cached=cached).logits[0]

    def begin(self, context: Context) -> Tensor:
        """Feed what was committed since the last round; logits [V] after it."""
        logits = self._score(context.tokens[self.cache.length :])
        return fit(logits[-1], context.vocab_size)

    def rows(self, context: Context, tree: TokenTree, nodes: Sequence[int]) -> list[Tensor]:
        """Feed `nodes`, the last ones of a tree whose others were fed before; logits [V] after each.

        Models that verify a tree path by path cannot go on with one: they are fed all of it again.
        """
        stored = len(tree) - len(nodes)
        if stored and getattr(self.model.backend, "by_path", False):
            self.cache.crop(self.root - 1)
            fed = torch.cat((context.tokens[-1:], tree.tokens.to(context.tokens.device)))
            logits = self._score(fed, tree, last=False)[1 + stored :]
        else:
            logits = self._score(tree.tokens[stored:], tree, last=False, cached=stored)
        return [fit(row, context.vocab_size) for row in logits]

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        if self.cache.length > self.root:
            path = [self.fed[node] + 1 for node in verdict.path if node in self.fed]
            self.cache.keep((0, *path))
        self.cut(self.root + len(verdict.path))

    def cut(self, length: int) -> None:
        self.cache.crop(min(self.cache.length, length))
