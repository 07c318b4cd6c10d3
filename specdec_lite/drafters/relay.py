"""Drafters that follow one another within a draft: the best first, cheaper ones where few drafts
are still alive. Source: Chen et al. 2024 (cascade speculative drafting, its horizontal part).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict, one_hot
from specdec_lite.speculation import Context, Drafter, Session, Shape, propose
from specdec_lite.tree import TokenTree


class RelayDrafter(Drafter):
    """One chain, drafted in turns.

    Args:
        legs: (drafter, tokens) in order, tokens ≥ 1: how many it drafts at most. All are chain
            drafters; only the first may read the target's hidden states.

    A leg drafts behind the tokens of the legs before it. Its session hears `cut`, not `observe`,
    since no verdict was on its tokens alone.
    """

    def __init__(self, legs: Sequence[tuple[Drafter, int]]):
        if not legs:
            raise ValueError("legs is empty: give at least one (drafter, tokens)")
        self.legs = [
            (checks.drafter("legs", drafter), checks.whole("tokens", tokens, 1))
            for drafter, tokens in legs
        ]
        self.hidden_layers = self.legs[0][0].hidden_layers
        for drafter, _ in self.legs:
            if (shape := drafter.shape()) is not None and not shape.is_chain:
                raise ValueError(f"legs holds a {type(drafter).__name__}, which drafts a tree")
        if any(drafter.hidden_layers for drafter, _ in self.legs[1:]):
            raise ValueError("legs: only the first may read the target's hidden states")

    def start(self, context: Context) -> "RelaySession":
        sessions = [(drafter.start(context), tokens) for drafter, tokens in self.legs]
        return RelaySession(sessions)

    def check(self, target: CausalLM, positions: int) -> None:
        for drafter, _ in self.legs:
            drafter.check(target, positions)

    def shape(self) -> Shape:
        return Shape.chain(sum(tokens for _, tokens in self.legs))


class RelaySession(Session):
    def __init__(self, legs: list[tuple[Session, int]]):
        self.legs = legs

    def propose(self, context: Context) -> Proposal:
        self.root = len(context.tokens)
        text = context.tokens
        rows: list[Tensor | None] = []
        for session, tokens in self.legs:
            wanted = min(tokens + 1, self.root + context.wanted - len(text))
            part = propose(session, replace(context, tokens=text, wanted=wanted))
            drafted = part.tree.tokens.to(text.device)
            rows += [None] * len(drafted) if part.probs is None else part.probs
            text = torch.cat((text, drafted))
        self.passes = sum(session.passes for session, _ in self.legs)
        drafted = text[self.root :]
        drawn = [row for row in rows if row is not None]
        if drawn:  # a chosen token is a draw from a point mass
            pairs = zip(drafted.tolist(), rows)
            drawn = [one_hot(token, drawn[0]) if row is None else row for token, row in pairs]
        return Proposal(TokenTree.chain(drafted), torch.stack(drawn) if drawn else None)

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.cut(self.root + len(verdict.path))

    def cut(self, length: int) -> None:
        for session, _ in self.legs:
            session.cut(length)
