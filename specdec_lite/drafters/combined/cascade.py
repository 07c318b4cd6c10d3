"""Cascades: a draft model that itself decodes speculatively. Source: Spector and Re 2023."""

from dataclasses import replace

import torch

from specdec_lite import checks
from specdec_lite.acceptance import exact_match, speculative_sampling
from specdec_lite.drafters.combined.composite import CompositeDrafter, inner_round
from specdec_lite.drafters.followed import Followed
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree


class CascadeDrafter(CompositeDrafter):
    """Draft γ tokens by speculative rounds of a middle model, for which another drafter drafts.

    Args:
        model: the middle model, a `CausalLM` or an `NgramModel` with the target's vocabulary size.
        inner: drafter for the middle model; may be a cascade too.
        gamma: draft length ≥ 1.
        rule: lossless rule of the inner rounds above temperature 0, so that q is the model's row.
    """

    def __init__(self, model: CausalLM, inner: Drafter, gamma: int = 8, rule=speculative_sampling):
        self.model = checks.model("model", model)
        self.inner = checks.drafter("inner", inner)
        self.gamma = checks.whole("gamma", gamma, 1)
        self.rule = checks.lossless("rule", rule)
        self.nested_rounds = True  # see CompositeDrafter

    def start(self, context: Context) -> "CascadeSession":
        return CascadeSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.same_width("cascade's model", self.model, target)
        checks.positions(self.model, positions)
        self.model.check_layers(self.inner.hidden_layers)
        self.inner.check(self.model, positions)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)

    def draft_model(self) -> CausalLM | None:
        return self.model if isinstance(self.model, CausalLM) else None


class CascadeSession(Session):
    """The drafting of one generation, with a cache of the middle model.

    If the inner session reads hidden states, the tokens whose states it has not read yet are fed
    again, in the same pass as the new ones.

    Attributes:
        read: number of tokens whose states the inner session has read.
        scored: number of tokens at which the scores end, if they begin where `read` ends; else −1.
    """

    def __init__(self, drafter: CascadeDrafter, context: Context):
        self.drafter = drafter
        self.layers = tuple(drafter.inner.hidden_layers)
        self.cache = drafter.model.new_cache(capacity=len(context.tokens) + context.wanted + 8)
        self.followed = Followed(self.cache)
        self.scores = None
        self.read = 0
        self.scored = -1
        self.inner = drafter.inner.start(self._inner_context(context, context.wanted))

    def _inner_context(self, context: Context, wanted: int) -> Context:
        """Feed the middle model the new committed tokens and return its context."""
        known = len(context.tokens) - 1
        # The inner session forgets the states of tokens that this text does not have.
        same = self.followed.trim(context.tokens)
        self.read = min(self.read, max(0, same - 1))
        if self.layers and self.scored != known:
            # Rejections may have discarded the scores of tokens that stayed.
            self.cache.crop(min(self.cache.length, self.read))
        self.scored = known
        fed = context.tokens[self.cache.length : -1]
        if len(fed):
            self.passes += 1
            self.scores = self.drafter.model.score(fed, self.cache, hidden_layers=self.layers)
        return replace(context, scores=self.scores, cache=self.cache, wanted=wanted)

    def propose(self, context: Context) -> Proposal:
        wanted = min(self.drafter.gamma, context.wanted - 1)
        if wanted < 1:
            return NOTHING
        rule = exact_match if context.sampling.greedy else self.drafter.rule
        inner = self._inner_context(context, wanted)
        tokens, rows = [], []
        while inner.wanted > 0:
            self.read, self.scored = len(inner.tokens) - 1, -1
            step, inner = inner_round(self.drafter.model, self.inner, inner, rule, self.layers)
            self.passes += 1
            tokens += step.tokens
            rows += context.sampling(inner.scores.logits[0])  # pyright: ignore[reportOptionalMemberAccess]
        self.scores, self.followed.text = inner.scores, inner.tokens
        return Proposal(TokenTree.chain(tokens), None if rule is exact_match else torch.stack(rows))
