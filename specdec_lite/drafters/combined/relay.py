"""Several drafters one after another within a draft: the best first, less costly ones later.

Later tokens are reached less often. Source: Chen et al. 2024 (cascade drafting, horizontal part).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.combined.composite import CompositeDrafter, members
from specdec_lite.drafters.self_drafts.pass_rows import PassDrafter
from specdec_lite.drafters.self_drafts.self_draft import SelfDrafter
from specdec_lite.drafters.trees.expansion import stack_rows
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree


class RelayDrafter(CompositeDrafter):
    """Draft one chain whose parts, the legs, come from different drafters.

    Each leg continues the tokens of the legs before it. Its session hears no verdict, since none is
    about its tokens alone: it sees in the next text what was accepted.

    Args:
        legs: pairs (drafter, tokens) in order: a chain drafter and the largest number of tokens, ≥
            1, that it drafts. Only the first drafter may read the target's hidden states, or draft
            with a part of the target.
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
            if (limits := drafter.limits()) is not None and not limits.is_chain:
                raise ValueError(f"legs holds a {type(drafter).__name__}, which drafts a tree")
        if any(drafter.hidden_layers for drafter, _ in self.legs[1:]):
            raise ValueError("legs: only the first may read the target's hidden states")
        later = [part for drafter, _ in self.legs[1:] for part in members(drafter)]
        if any(isinstance(part, (SelfDrafter, PassDrafter)) for part in later):
            # The target's cache lacks the tokens of the legs before.
            raise ValueError("legs: only the first may draft with a part of the target")

    def start(self, context: Context) -> "RelaySession":
        sessions = [(drafter.start(context), tokens) for drafter, tokens in self.legs]
        return RelaySession(sessions)

    def check(self, target: CausalLM, positions: int) -> None:
        for drafter, _ in self.legs:
            drafter.check(target, positions)

    def limits(self) -> Limits:
        return Limits.chain(sum(tokens for _, tokens in self.legs))


class RelaySession(Session):
    """The drafting of one generation."""

    def __init__(self, legs: list[tuple[Session, int]]):
        self.legs = legs

    def propose(self, context: Context) -> Proposal:
        root, text = len(context.tokens), context.tokens
        rows: list[Tensor | None] = []
        for leg, (session, tokens) in enumerate(self.legs):
            wanted = min(tokens + 1, root + context.wanted - len(text))
            inner = replace(context, tokens=text, wanted=wanted)
            part = session.propose(inner).trimmed(wanted - 1)
            if not part.is_plain_chain:  # of a drafter that does not tell its limits
                raise ValueError(f"legs[{leg}] proposed a tree: the legs of a relay draft chains")
            drafted = part.tree.tokens.cpu()
            rows += [None] * len(drafted) if part.probs is None else part.probs
            text = torch.cat((text, drafted))
        self.passes = sum(session.passes for session, _ in self.legs)
        tokens = text[root:]
        return Proposal(TokenTree.chain(tokens), stack_rows(tokens.tolist(), rows))
