"""Drafts copied from the text or from reference texts: prompt lookup, LLMA, suffix decoding.

`NgramIndex` finds where the end of a text occurred earlier, and what followed it there.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import numpy as np
import torch

from specdec_lite import checks
from specdec_lite.checks import whole
from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.drafters.chain import ChainDrafter, ChainSession, common_prefix
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.tree import TokenTree

# Matches of the text's end ----------------------------------------------------------------------

END = -1
"""Separates two texts in a memory. No token has this id, so nothing is copied across it."""


def token_ids(name: str, ids, vocab_size: int | None = None) -> np.ndarray:
    """Return one row of token ids [n] as int64."""
    row = torch.as_tensor(ids).cpu().numpy()
    if row.ndim != 1 or row.size and row.dtype.kind not in "iu":
        raise TypeError(f"{name}: must be one row of token ids, whole numbers")
    most = np.iinfo(np.int32).max if vocab_size is None else vocab_size - 1
    if row.size and not 0 <= row.min() <= row.max() <= most:
        outside = row.min() if row.min() < 0 else row.max()
        raise ValueError(f"{name} holds {outside}: token ids must be in 0 … {most}")
    return row.astype(np.int64)


def match_lengths(max_ngram: int, min_ngram: int) -> range:
    """Return the n-gram lengths `min_ngram` … `max_ngram` after checking them."""
    whole("min_ngram", min_ngram, 1, whole("max_ngram", max_ngram, 1))
    return range(min_ngram, max_ngram + 1)


class NgramIndex:
    """A growing text with, for every n-gram in it, the positions that follow its occurrences.

    An n-gram is entered when the next token arrives, so the end of the text never finds itself.

    Args:
        orders: the lengths n of the n-grams that are entered.
    """

    def __init__(self, orders: Iterable[int]):
        self.orders = sorted(orders, reverse=True)
        self.text: list[int] = []
        self.read = torch.empty(0, dtype=torch.long)
        self.positions: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            for ngram in self._last_ngrams():
                self.positions.setdefault(ngram, []).append(len(self.text))
            self.text.append(token)

    def catch_up(self, context: Context) -> None:
        """Make the committed text the indexed one, from the first token that differs on."""
        self.cut(common_prefix(self.read, context.tokens))
        self.read = context.tokens
        self.extend(context.tokens[len(self.text) :].tolist())

    def cut(self, length: int) -> None:
        """Remove everything after the first `length` tokens."""
        while len(self.text) > length:
            self.text.pop()
            for ngram in self._last_ngrams():
                self.positions[ngram].pop()

    def _last_ngrams(self) -> list[tuple[int, ...]]:
        """Return the n-grams that end where the text ends."""
        return [tuple(self.text[-n:]) for n in self.orders if n <= len(self.text)]

    def find(self, text: Sequence[int], start: int = 0) -> tuple[int, list[int]]:
        """Find the longest n-gram at the end of a text."""
        for n in self.orders:
            if n <= len(text) and (positions := self.positions.get(tuple(text[-n:]))):
                first = bisect_left(positions, start)
                if first < len(positions):
                    return n, positions[first:] if first else positions
        return 0, []

    def match_length(self, position: int, text: Sequence[int], most: int) -> int:
        """Return how many tokens before a position equal the last tokens of another text."""
        most = min(most, position, len(text))
        for back in range(most):
            if self.text[position - 1 - back] != text[-1 - back]:
                return back
        return most

    def continuation(self, position: int, most: int) -> list[int]:
        """Return the tokens from a position on, up to the end of their text."""
        tokens = self.text[position : position + most]
        return tokens[: tokens.index(END)] if END in tokens else tokens


def frequency_tree(
    continuations: Sequence[Sequence[int]],
    budget: int,
    width: int | None = None,
    least: float = 0.0,
) -> tuple[TokenTree, float]:
    """Build the tree of the most frequent prefixes of some continuations, the best first.

    A node's share is the fraction of continuations that run through it: an estimate of the
    probability that the text does. No prefix is rarer than its extensions, so the most frequent
    prefixes form a tree. Among equals, the later continuation comes first.
    """
    tokens: list[int] = []
    parents: list[int] = []
    queue: list[tuple] = []
    total = 0

    def push_children(parent: int, depth: int, rows: Sequence[Sequence[int]]) -> None:
        families: dict[int, list] = {}
        for row in reversed(rows):
            if depth < len(row):
                families.setdefault(row[depth], []).append(row)
        ranked = sorted(families.items(), key=lambda family: -len(family[1]))
        for rank, (token, family) in enumerate(ranked[:width]):
            heappush(queue, (-len(family), parent, rank, token, depth, family[::-1]))

    push_children(-1, 0, continuations)
    while queue and len(tokens) < budget and -queue[0][0] >= least * len(continuations):
        count, parent, _, token, depth, family = heappop(queue)
        total -= count
        tokens.append(token)
        parents.append(parent)
        push_children(len(tokens) - 1, depth + 1, family)
    return TokenTree(tokens, parents), total / max(1, len(continuations))


# Prompt lookup ----------------------------------------------------------------------------------
# Source: Saxena 2023, prompt lookup decoding.


class PromptLookupDrafter(ChainDrafter):
    """Find the last n tokens earlier in prompt and output, and propose what followed them there.

    The tokens are chosen, not drawn. Without a match nothing is proposed.

    Args:
        gamma: draft length ≥ 1 (vLLM's `num_speculative_tokens`, Hugging Face's
            `prompt_lookup_num_tokens`), or a policy of `drafters.lengths`. A draft is shorter
            if the text ends earlier.
        max_ngram: largest n, tried first (vLLM's `prompt_lookup_max`).
        min_ngram: smallest n, ≥ 1, tried last (vLLM's `prompt_lookup_min`).
        latest: take the latest occurrence; False: the earliest.
    """

    def __init__(
        self, gamma: int | Length = 8, max_ngram: int = 3, min_ngram: int = 1, latest: bool = True
    ):
        super().__init__(gamma)
        self.orders = match_lengths(max_ngram, min_ngram)
        self.latest = latest

    def start(self, context: Context) -> "PromptLookupSession":
        return PromptLookupSession(self)


class PromptLookupSession(ChainSession):
    """`source` is the position that the last draft was copied from."""

    def __init__(self, drafter: PromptLookupDrafter):
        super().__init__(drafter.length)
        self.text = NgramIndex(drafter.orders)
        self.latest = drafter.latest
        self.source = 0

    def propose(self, context: Context) -> Proposal:
        self.text.catch_up(context)
        n, positions = self.text.find(self.text.text)
        if not n:
            return NOTHING
        self.source = positions[-1 if self.latest else 0]
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(self.text.continuation(self.source, most)))


# Reference lookup -------------------------------------------------------------------------------
# Source: Yang et al. 2023 (LLMA): copy from retrieved passages or an earlier version of the
# answer.


class ReferenceLookupDrafter(PromptLookupDrafter):
    """Find the last n tokens in a reference, and propose what follows them there.

    In every reference a pointer moves forward with the accepted tokens, and only positions after
    it count. (The pointer is ours; the authors' decoder always takes the first occurrence.)

    Args:
        references: texts, rows of token ids.
        gamma, max_ngram, min_ngram: as for `PromptLookupDrafter`.
    """

    def __init__(
        self,
        references: Sequence[Sequence[int]],
        gamma: int | Length = 8,
        max_ngram: int = 3,
        min_ngram: int = 1,
    ):
        super().__init__(gamma, max_ngram, min_ngram)
        self.references = [NgramIndex(self.orders) for _ in references]
        for index, reference in zip(self.references, references):
            index.extend(token_ids("references", reference).tolist())

    def start(self, context: Context) -> "ReferenceLookupSession":
        return ReferenceLookupSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        for index in self.references:
            token_ids("references", index.text, target.vocab_size)


class ReferenceLookupSession(ChainSession):
    """The drafting of one generation.

    Attributes:
        pointers: for each reference, the first position that counts.
        source: the number of the reference and the position that the last draft was copied from.
    """

    def __init__(self, drafter: ReferenceLookupDrafter):
        super().__init__(drafter.length)
        self.references = drafter.references
        self.longest = drafter.orders[-1]
        self.pointers = [0] * len(self.references)
        self.source = (0, 0)

    def propose(self, context: Context) -> Proposal:
        end = context.tokens[-self.longest :].tolist()
        pairs = zip(self.references, self.pointers)
        matches = [reference.find(end, pointer) for reference, pointer in pairs]
        lengths = [n for n, _ in matches]
        number = lengths.index(max(lengths))
        if not lengths[number]:
            return NOTHING
        self.source = number, matches[number][1][0]
        most = min(self.length.most(context), context.wanted - 1)
        return Proposal(TokenTree.chain(self.references[number].continuation(self.source[1], most)))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        if verdict.path:
            number, start = self.source
            self.pointers[number] = start + len(verdict.path) + (verdict.kind == "recovered")


# Suffix decoding --------------------------------------------------------------------------------
# Source: Oliaro et al. 2024, arXiv 2411.04975.

ORDERS = (16, 8, 4, 2, 1)
"""Lengths of the n-grams that are indexed. A match is then extended backwards token by token."""
LATEST = 64
"""Number of most recent occurrences to examine."""
DEPTH = 24
"""Longest match that is distinguished from longer ones (vLLM's `suffix_decoding_max_tree_depth`)."""
LEAST = 0.1
"""Smallest estimated probability of a drafted token (vLLM's `suffix_decoding_min_token_prob`)."""


class SuffixDrafter(Drafter):
    """Propose many tokens after a long match and few after a short one.

    A node of a suffix tree is the set of positions after one n-gram. Two lists of positions
    therefore replace the two suffix trees: one of this text, one of what `learn` was given.
    Estimates are fractions of positions and never rows of probs, so the tokens are chosen.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        factor: largest number of drafted tokens per token of the match, ≥ 0 (vLLM's
            `suffix_decoding_max_spec_factor`).
        width: children per node: 1 makes a chain, more make a tree of `gamma` nodes.
    """

    def __init__(self, gamma: int = 16, factor: float = 1.0, width: int = 1):
        self.gamma = checks.whole("gamma", gamma, 1)
        self.factor = checks.number("factor", factor)
        self.width = checks.whole("width", width, 1)
        self.memory = NgramIndex(ORDERS)

    def start(self, context: Context) -> "SuffixSession":
        return SuffixSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.learnt(max(self.memory.text, default=END), target)

    def learn(self, tokens) -> None:
        self.memory.extend([*token_ids("tokens", tokens).tolist(), END])

    def limits(self) -> Limits:
        return Limits(self.gamma, self.gamma, branches=self.width > 1)


class SuffixSession(Session):
    """The drafting of one generation, with an index of its own text."""

    def __init__(self, drafter: SuffixDrafter):
        self.drafter = drafter
        self.text = NgramIndex(ORDERS)

    def propose(self, context: Context) -> Proposal:
        self.text.catch_up(context)
        indexes = (self.text, self.drafter.memory)
        drafts = [self._draft(index, context.wanted - 1) for index in indexes]
        return Proposal(max(drafts, key=lambda draft: draft[1])[0])

    def _draft(self, index: NgramIndex, most: int) -> tuple[TokenTree, float]:
        """Return the draft from one index, and its expected number of accepted tokens."""
        drafter, text = self.drafter, self.text.text
        latest = index.find(text)[1][-LATEST:]
        lengths = [index.match_length(position, text, DEPTH) for position in latest]
        longest = max(lengths, default=0)
        budget = min(most, drafter.gamma, int(drafter.factor * longest))
        pairs = zip(lengths, latest)
        rows = [index.continuation(position, budget) for n, position in pairs if n == longest]
        return frequency_tree(rows, budget, drafter.width, LEAST)
