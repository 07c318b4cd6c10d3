"""Draft a chain: one token after another, or all tokens from rows that exist already.

`Followed` is the cache of such a draft, which follows the committed text.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Cache, Scores
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import draw_unread
from specdec_lite.tree import TokenTree


def common_prefix(old: Tensor, new: Tensor) -> int:
    """Return how many tokens two texts share from the start, not counting the last of the new one.

    Shapes: old [m], new [n ≥ 1].
    """
    count = min(len(old), len(new) - 1)
    old, new = old[:count], new[:count]
    return count if torch.equal(old, new) else int((old != new).nonzero()[0])


class Followed:
    """A draft's cache that follows the committed text.

    Whatever else was fed, such as a rejected draft or text that an outer round took back, is
    dropped when the text is next read.

    Attributes:
        text: ids [m] of a text, on the host; the cache holds at most these tokens, or `tree`.
        tree: the nodes that were fed after the text; None for a chain.
    """

    def __init__(self, cache: Cache):
        self.cache = cache
        self.text = torch.empty(0, dtype=torch.long)
        self.tree: TokenTree | None = None

    def trim(self, text: Tensor) -> int:
        """Drop what is not a text from the cache, and return how many of its tokens are left.

        Shapes: text [n ≥ 1].
        """
        known = common_prefix(self.text, text)
        if self.tree is not None:
            # The accepted path lies scattered among the nodes. Number 0 of the pass is the root.
            followed = text[known:-1].tolist() if known == len(self.text) else []
            path = self.tree.along(followed)
            self.cache.keep((0, *(node + 1 for node in path)))
            known, self.tree = known + len(path), None
        known = min(known, self.cache.length)
        self.cache.crop(known)
        self.text = text
        return known

    def behind(self, text: Tensor) -> Tensor:
        """Drop what is not a text, and return its tokens that are still to be fed, one at least.

        Shapes: text [n ≥ 1].
        """
        return text[self.trim(text) :]

    def observe(self, verdict: Verdict) -> None:
        """Learn which chain was drafted after the text; else all its tokens are fed again.

        They come from the verdict, because reading them here would wait for the device.
        """
        self.text = torch.cat((self.text, torch.tensor(verdict.tokens, dtype=torch.long)))


class ChainDrafter(Drafter):
    """A drafter of chains. Subclasses implement `start`.

    Args:
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, gamma: int | Length):
        self.length = Length.of(gamma)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class ChainSession(Session):
    """A session with its own γ policy, which observes every verdict."""

    def __init__(self, gamma: int | Length):
        self.length = Length.of(gamma).start()

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.length.observe(verdict)


class RoundDrafter(Drafter):
    """A drafter whose rounds need nothing of earlier ones. Subclasses implement `draft`."""

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        """Return the proposal of a round; the session counts passes and has a chain's γ policy."""
        raise NotImplementedError

    def start(self, context: Context) -> "RoundSession":
        return RoundSession(self)


class RoundSession(ChainSession):
    """The drafting of one generation, which keeps nothing of the text."""

    def __init__(self, drafter: RoundDrafter):
        super().__init__(getattr(drafter, "length", 1))
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        return self.drafter.draft(context, self)


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


def draft_rows(
    context: Context, rows: Tensor, length: int | Length = 0, ids: Tensor | None = None
) -> Proposal:
    """Draft one token from each row, independently of the tokens before: see `draft_chain`.

    Shapes: rows [d, V'].
    """
    following = iter(rows)
    return draft_chain(context, lambda token: next(following), length or len(rows), ids)


def fit(logits: Tensor, vocab_size: int) -> Tensor:
    """Fit logits to the target's vocabulary: cut padded entries off, or fill with −∞.

    Some model families pad their embedding to different sizes (151 936 and 152 064) for the same
    tokenizer. This happens before any temperature.
    """
    missing = vocab_size - logits.shape[-1]
    if missing <= 0:
        return logits[..., :vocab_size]
    return F.pad(logits, (0, missing), value=float("-inf"))
