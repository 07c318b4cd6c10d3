"""Drafting with a block on the target's features: the session that EAGLE and MTP share."""

import torch
from torch import Tensor

from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.feature_head import FeatureHead
from specdec_lite.drafters.grow import Growth, confident, ranked
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree


class FeatureSession(ChainSession):
    """Between rounds the cache holds one entry for every pair of committed tokens, each made with
    the target's own state: what drafting put there is cut off before the round is verified.

    Args:
        target: whose embeddings are read.
        head: what drafts; body: the same, as a model of one layer.
        draft: γ or its policy, a tree of ranks, or a `Growth`.
        context: of the generation's start.
    """

    def __init__(
        self,
        target: CausalLM,
        head: FeatureHead,
        body: CausalLM,
        draft: Length | TokenTree | Growth,
        context: Context,
    ):
        super().__init__(draft if isinstance(draft, Length) else 1)
        self.target = target
        self.head = head
        self.body = body
        self.draft = draft
        self.cache = body.new_cache(capacity=len(context.tokens) + context.wanted + 64)
        self.states: dict[int, Tensor] = {}
        self.fed: list[int] = []

    def _score(
        self, tokens: Tensor, states: Tensor, tree: TokenTree | None = None, cached: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Feed pairs of a state [n, d] and a token [n]: logits [n, V] (without a tree only the last
        row), and the states [n, d] that came out.
        """
        rows = self.head.enter(self.target.embed(tokens), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, tree, (1,), tree is None, cached=cached, states=(0, rows)
        )
        logits = self.head.spread(scores.logits[0], self.target.vocab_size)
        return logits, self.head.leave(scores.hidden[1][0])

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        """Nothing after a prompt of one token: no token has been scored then."""
        if context.scores is None:
            return NOTHING
        fresh = len(context.tokens) - 1 - self.cache.length
        true = [context.scores.hidden[layer][0, -fresh:] for layer in self.head.layers]
        first, states = self._score(context.tokens[-fresh:], self.head.begin(true))
        pairs = self.cache.length
        self.states = {-1: states[-1]}
        self.fed = []
        proposal = self._drafted(context, first)
        self.cache.crop(pairs)
        return proposal

    def _drafted(self, context: Context, first: Tensor) -> Proposal:
        """A draft in whose root the logits `first` [1, V] were read."""

        def follow(token: int | None) -> Tensor:
            if token is None:
                return first[0]
            logits, states = self._score(context.tokens.new_tensor([token]), self.states[-1][None])
            self.states[-1] = states[0]
            return logits[0]

        def expand(tree: TokenTree, nodes: list[int]) -> Tensor:
            return first if nodes == [-1] else self._expand(tree, nodes)

        if isinstance(self.draft, Growth):
            return confident(context, expand, self.draft)
        if isinstance(self.draft, TokenTree):
            return ranked(context, expand, self.draft)
        return draft_chain(context, follow, self.length)

    def _expand(self, tree: TokenTree, nodes: list[int]) -> Tensor:
        """logits [len(nodes), V] after these nodes; only those that were expanded are fed."""
        before = len(self.fed)
        self.fed += nodes
        place = {node: number for number, node in enumerate(self.fed)}
        part = TokenTree(tree.tokens[self.fed], [place.get(tree.parents[n], -1) for n in self.fed])
        above = torch.stack([self.states[tree.parents[node]] for node in nodes])
        tokens = tree.tokens[nodes].to(above.device)
        logits, states = self._score(tokens, above, part, before)
        self.states.update(zip(nodes, states))
        return logits

    def cut(self, length: int) -> None:
        self.cache.crop(min(self.cache.length, length - 1))
