"""Speculation inside a drafter. Source: Spector and Re 2023 (staged speculation); Chen et al. 2024
(cascade drafting, its vertical part; its horizontal part is in `relay`).
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
        model: the middle model, a `CausalLM` or an `NgramModel`, with the target's vocabulary size.
        inner: drafts for it; may be a cascade too.
        gamma: draft length ≥ 1.
        rule: of the inner rounds above temperature 0, a lossless one: only then have the tokens
            the middle model's law, whose rows are handed on as what they were drawn from.
    """

    def __init__(self, model: CausalLM, inner: Drafter, gamma: int = 8, rule=speculative_sampling):
        self.model = checks.model("model", model)
        self.inner = checks.drafter("inner", inner)
        self.gamma = checks.whole("gamma", gamma, 1)
        self.rule = checks.lossless("rule", rule)

    def start(self, context: Context) -> "CascadeSession":
        return CascadeSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.same_width("cascade's model", self.model, target)
        checks.positions(self.model, positions)
        self.model.check_layers(self.inner.hidden_layers)
        self.inner.check(self.model, positions)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class CascadeSession(Session):
    """An inner session that reads hidden states needs those of the last token that stands."""

    def __init__(self, drafter: CascadeDrafter, context: Context):
        self.drafter = drafter
        self.layers = tuple(drafter.inner.hidden_layers)
        self.cache = drafter.model.new_cache(capacity=len(context.tokens) + context.wanted + 8)
        self.scores = None
        self.inner = drafter.inner.start(self.inside(context, context.wanted))

    def inside(self, context: Context, wanted: int) -> Context:
        """The middle model's own context, after it was fed what the target has added."""
        fed = context.tokens[self.cache.length : -1]
        if len(fed):
            self.passes += 1
            self.scores = self.drafter.model.score(fed, self.cache, hidden_layers=self.layers)
        return replace(context, scores=self.scores, cache=self.cache, wanted=wanted)

    def propose(self, context: Context) -> Proposal:
        self.root = len(context.tokens)
        wanted = min(self.drafter.gamma, context.wanted - 1)
        if wanted < 1:
            return NOTHING
        rule = exact_match if context.sampling.greedy else self.drafter.rule
        inside = self.inside(context, wanted)
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        while inside.wanted > 0:
            step, inside = speculate(self.drafter.model, self.inner, inside, rule, self.layers)
            self.passes += 1
            tokens += step.tokens
            rows += context.sampling(inside.scores.logits[0])
        self.scores = inside.scores
        return Proposal(TokenTree.chain(tokens), None if rule is exact_match else torch.stack(rows))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.cut(self.root + len(verdict.path))

    def cut(self, length: int) -> None:
        self.cache.crop(min(self.cache.length, length - bool(self.layers)))
        self.inner.cut(length)
