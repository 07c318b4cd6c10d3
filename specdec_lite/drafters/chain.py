"""Draft a chain: one token after another, or all tokens from rows that exist already."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.checks import is_number
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Sampling, draw_unread
from specdec_lite.speculation import Context, Session
from specdec_lite.tree import TokenTree


class ChainSession(Session):
    """A session with its own γ policy, which observes every verdict.

    Args:
        gamma: draft length ≥ 1, or a policy.
    """

    def __init__(self, gamma: int | Length):
        self.length = Length.of(gamma).start()

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.length.observe(verdict)


def draft_chain(
    context: Context,
    follow: Callable[[Tensor | None], Tensor],
    length: int | Length,
    ids: Tensor | None = None,
) -> Proposal:
    """Draft tokens one after another: the argmax if greedy, else drawn from the adjusted q.

    The tokens stay on the device of the logits; only a policy that looks at them waits for it.

    Args:
        context: context of this round.
        follow: follow(token) returns the logits [V'] after a drafted token, given as a tensor [1],
            and follow(None) those after the committed text. Rows of another width are fitted to
            the target's V.
        length: number of tokens, or the session's γ policy.
        ids: the token of every logit, for greedy drafts; None: logit i is token i.

    Raises:
        ValueError: the logits contain NaN.
    """
    length = Length.of(length)
    # The target adds a token to every draft, so the last wanted token is never drafted.
    most = min(length.most(context), context.wanted - 1)
    token = number = logits = None
    tokens: list[Tensor] = []
    rows: list[Tensor] = []
    while len(tokens) < most:
        logits = follow(token)
        # Before any temperature or top-p: an id beyond the target's V must have no probability.
        if ids is None:
            logits = fit(logits, context.vocab_size)
        if context.sampling.greedy:
            number = logits.argmax(-1, keepdim=True)
            token = number if ids is None else ids[number]
        else:
            rows.append(context.sampling(logits))
            token = number = draw_unread(context.rng, rows[-1])
        tokens.append(token)
        # The token is kept, whatever the policy says: a drawn token may not be dropped after a look.
        if length.looks and not length.go_on(rows[-1] if rows else logits.softmax(-1), number[0]):
            break
    if logits is None:
        return NOTHING
    # A draw from NaN raises by itself. On a GPU this check would wait for the device.
    if not rows and logits.device.type == "cpu" and bool(logits.amax().isnan()):
        raise ValueError("the draft's logits hold NaN: check its weights and dtype")
    return Proposal(TokenTree.chain(torch.cat(tokens)), torch.stack(rows) if rows else None)


def draft_rows(context: Context, logits: Tensor, sampling: Sampling) -> Proposal:
    """Draft one token from each row, independently: the argmax if greedy, else drawn.

    Shapes: logits [d, V].
    """
    if sampling.greedy:
        return Proposal(TokenTree.chain(logits.argmax(-1)))
    probs = sampling(logits)
    tokens = torch.cat([draw_unread(context.rng, row) for row in probs])
    return Proposal(TokenTree.chain(tokens), probs)


def draft_sampling(draft_temperature: float | None) -> Sampling | None:
    """Return how a draft is sampled at its own temperature; None for the generation's sampling."""
    if draft_temperature is None:
        return None
    if not (is_number(draft_temperature) and 0 <= draft_temperature < math.inf):
        raise ValueError(
            f"draft_temperature={draft_temperature!r}: must be None or a number ≥ 0 (0 chooses the"
            " argmax)"
        )
    return Sampling(draft_temperature)


def fit(logits: Tensor, vocab_size: int) -> Tensor:
    """Fit logits to the target's vocabulary: cut padded entries off, or fill with −∞.

    Some model families pad their embedding to different sizes (151 936 and 152 064) for the same
    tokenizer. This happens before any temperature.
    """
    missing = vocab_size - logits.shape[-1]
    if missing <= 0:
        return logits[..., :vocab_size]
    return F.pad(logits, (0, missing), value=float("-inf"))
