"""Drafting a chain: the loop that every drafter of one token after another shares, and one of rows
that are there already.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Context, Session
from specdec_lite.tree import TokenTree


class ChainSession(Session):
    """A session with a γ policy of its own, which hears every verdict."""

    def __init__(self, gamma: int | Length):
        self.length = Length.of(gamma).start()

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.length.observe(verdict)


def draft_chain(
    context: Context, follow: Callable[[int | None], Tensor], length: int | Length
) -> Proposal:
    """Draft tokens one after another: chosen (argmax) when greedy, else drawn from q adjusted as
    the target's p is.

    Args:
        context: of this round.
        follow: follow(token) → logits [V'] after that drafted token; follow(None) after the
            committed text. Padded vocabularies are fitted to the target's.
        length: how many tokens, or the session's γ policy.
    """
    length = Length.of(length)
    most = min(length.most(context), context.wanted - 1)
    token = None
    tokens: list[int] = []
    rows: list[Tensor] = []
    while len(tokens) < most:
        logits = fit(follow(token), context.vocab_size)
        if context.sampling.greedy:
            token = int(logits.argmax())
        else:
            rows.append(context.sampling(logits))
            token = context.rng.draw(rows[-1])
        tokens.append(token)
        if length.looks and not length.go_on(rows[-1] if rows else logits.softmax(-1), token):
            break
    if not tokens:
        return NOTHING
    return Proposal(TokenTree.chain(tokens), torch.stack(rows) if rows else None)


def draft_rows(context: Context, logits: Tensor, sampling: Sampling) -> Proposal:
    """A chain of tokens that do not see one another, one of each row of logits [d, V]: chosen
    (argmax) when greedy, else drawn.
    """
    if sampling.greedy:
        return Proposal(TokenTree.chain(logits.argmax(-1).tolist()))
    probs = sampling(logits)
    return Proposal(TokenTree.chain([context.rng.draw(row) for row in probs]), probs)


def fit(logits: Tensor, vocab_size: int) -> Tensor:
    """logits [..., V'] over the target's vocabulary: padded entries are cut off, or filled with −∞,
    before any temperature.

    Some model families pad their embedding to different sizes (151 936 and 152 064) for one and the
    same tokenizer.
    """
    missing = vocab_size - logits.shape[-1]
    if missing <= 0:
        return logits[..., :vocab_size]
    return F.pad(logits, (0, missing), value=float("-inf"))
