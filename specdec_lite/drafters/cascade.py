"""A draft that is drafted for itself: speculation inside a drafter.

Source: Spector and Re 2023 (staged speculative decoding); Chen et al. 2024 (cascade speculative
drafting, its vertical part).
"""

from dataclasses import replace

import torch

from specdec_lite import checks
from specdec_lite.acceptance import exact_match, speculative_sampling
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Session, Shape, speculate
from specdec_lite.tree import TokenTree


class CascadeDrafter(Drafter):
    """Draft γ tokens by speculative rounds of a middle model, for which another drafter drafts.

    Args:
        model: the middle model, with the target's vocabulary size.
        inner: drafts for it.
        gamma: draft length ≥ 1.

    The inner rounds are lossless, so the tokens have the middle model's law, and its rows are what
    they were really drawn from.
    """

    def __init__(self, model: CausalLM, inner: Drafter, gamma: int = 8):
        self.model = checks.model("model", model)
        if not isinstance(inner, Drafter):
            raise TypeError(f"inner is a {type(inner).__name__}: must be a drafter")
        self.inner = inner
        self.gamma = checks.whole("gamma", gamma, 1)

    def start(self, context: Context) -> "CascadeSession":
        return CascadeSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        if self.model.vocab_size != target.vocab_size:
            raise ValueError(
                f"the cascade's model has {self.model.vocab_size} tokens, target has"
                f" {target.vocab_size}: both must have one vocabulary"
            )
        checks.positions(self.model, positions)
        self.model.check_layers(self.inner.hidden_layers)
        self.inner.check(self.model, positions)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class CascadeSession(Session):
    """The inner session hears `cut` when the target has rejected what it had seen accepted."""

    def __init__(self, drafter: CascadeDrafter, context: Context):
        self.drafter = drafter
        self.layers = tuple(drafter.inner.hidden_layers)
        self.root = len(context.tokens)
        self.cache = drafter.model.new_cache(capacity=self.root + context.wanted + drafter.gamma)
        self.scores = None
        if self.root > 1:
            self.scores = self._catch_up(context)
        self.inner = drafter.inner.start(self._inside(context, context.wanted))

    def _catch_up(self, context: Context) -> Scores:
        """Feed the middle model what the target has added."""
        self.passes += 1
        fed = context.tokens[self.cache.length : -1]
        return self.drafter.model.score(fed, self.cache, hidden_layers=self.layers)

    def _inside(self, context: Context, wanted: int) -> Context:
        return replace(context, scores=self.scores, cache=self.cache, wanted=wanted)

    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        self.root = len(context.tokens)
        wanted = min(drafter.gamma, context.wanted - 1)
        if wanted < 1:
            return NOTHING
        if self.cache.length < self.root - 1:
            self.scores = self._catch_up(context)
        greedy = context.sampling.greedy
        rule = exact_match if greedy else speculative_sampling
        inside = self._inside(context, wanted)
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        while inside.wanted > 0:
            step, inside = speculate(drafter.model, self.inner, inside, rule, self.layers)
            self.passes += 1
            tokens += step.tokens
            rows += context.sampling(inside.scores.logits[0])
        self.scores = inside.scores
        return Proposal(TokenTree.chain(tokens), None if greedy else torch.stack(rows))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.cut(self.root + len(verdict.path))

    def cut(self, length: int) -> None:
        # An inner drafter that reads hidden states needs those of the last token that stands.
        length_kept = length - 1 if self.layers else length
        self.cache.crop(min(self.cache.length, length_kept))
        self.inner.cut(length)
