"""Drafts from another text: an n-gram model, and REST's lookups in a suffix array."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Limits
from specdec_lite.drafters.chain import ChainDrafter, ChainSession, RoundDrafter, draft_chain
from specdec_lite.drafters.copying import frequency_tree, token_ids
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.tree import TokenTree

# Indexes that are built once from a text --------------------------------------------------------


class Counts:
    """Counts of every n-gram of up to n tokens, as a trie in sorted arrays.

    Args:
        ids: token ids [m], m ≥ n.
        vocab_size: size V of the vocabulary.
        n: length of the longest n-gram, ≥ 1.

    Attributes:
        keys: keys[k] are the n-grams of k + 1 tokens, each as (number of the n-gram without its
            last token) · V + last token. The number of an n-gram is its index in this array.
        counts: counts[k] are the counts of these n-grams.
    """

    def __init__(self, ids, vocab_size: int, n: int):
        ids = token_ids("ids", ids, checks.whole("vocab_size", vocab_size, 1))
        checks.whole("n", n, 1, len(ids), " (and ids at least n long)")
        self.vocab_size = vocab_size
        self.keys: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        numbers = np.zeros(len(ids), dtype=np.int64)
        for level in range(n):
            keys = numbers * vocab_size + ids[level:]
            unique, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
            self.keys.append(unique)
            self.counts.append(counts.astype(np.int32))
            numbers = inverse[:-1]
        self.base = np.full(vocab_size, 1 / vocab_size)
        self._mix(self.base, [])

    def followers(self, text: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that followed a text, and how often each did."""
        number = 0
        for keys, token in zip(self.keys, text):
            key = number * self.vocab_size + token
            number = int(np.searchsorted(keys, key))
            if number == len(keys) or keys[number] != key:
                return keys[:0], self.counts[0][:0]
        keys = self.keys[len(text)]
        first = number * self.vocab_size
        low, high = np.searchsorted(keys, (first, first + self.vocab_size))
        return keys[low:high] - first, self.counts[len(text)][low:high]

    def row(self, text: list[int]) -> Tensor:
        """Return q(x | text) [V] in float64, which is positive everywhere.

        Each order is weighted by its counts, and the next lower order, down to the uniform
        distribution, by the number of different followers (Witten and Bell 1991).
        """
        row = self.base.copy()
        for order in range(1, min(len(self.keys), len(text) + 1)):
            self._mix(row, text[-order:])
        return torch.from_numpy(row)

    def _mix(self, row: np.ndarray, text: list[int]) -> None:
        """Mix the counts after `text` into the row of the next lower order."""
        tokens, counts = self.followers(text)
        total = counts.sum() + len(tokens)
        if total:
            row *= len(tokens) / total
            row[tokens] += counts / total


class SuffixArray:
    """All positions of a text, sorted by the tokens that begin there; 8 bytes per token.

    The text is sorted by its first 1, 2, 4, … tokens: a run of 2w tokens is represented by the
    rank of its first half and that of its second half (Manber and Myers 1993).

    Args:
        ids: token ids [m].
        depth: number of tokens that count in the order, ≥ 1, rounded up to a power of 2. Longer
            n-grams cannot be looked up.
    """

    def __init__(self, ids, depth: int = 16):
        self.text = token_ids("ids", ids).astype(np.int32)
        self.depth = checks.whole("depth", depth, 1)
        ranks = self.text.astype(np.int64)
        width = 1
        while width < depth:
            second = np.zeros_like(ranks)
            second[:-width] = ranks[width:] + 1
            ranks = ranks * (ranks.max(initial=0) + 2) + second
            ranks = np.unique(ranks, return_inverse=True)[1]
            width *= 2
        self.order = np.argsort(ranks, kind="stable").astype(np.int32)

    def find(self, ngram: list[int]) -> np.ndarray:
        """Return where an n-gram begins, sorted by what follows it."""

        def read(entry: int) -> list[int]:
            start = self.order[entry]
            return self.text[start : start + len(ngram)].tolist()

        entries = range(len(self.order))
        low = bisect_left(entries, ngram, key=read)
        return self.order[low : bisect_right(entries, ngram, lo=low, key=read)]


# The model, for the middle of a cascade ---------------------------------------------------------


class NgramModel:
    """Score tokens with n-gram counts.

    A pass looks up one row for every token fed. The rows share no work, so verifying k tokens
    costs k times as much as one. The model runs on the host, for a target on any device.

    Args:
        counts: n-gram counts of a text in the target's vocabulary.
    """

    native = False
    runs_on_host = True
    max_positions = math.inf
    device = torch.device("cpu")

    def __init__(self, counts: Counts):
        self.counts = counts
        self.vocab_size = counts.vocab_size

    def new_cache(self, batch: int = 1, capacity: int = 0) -> "TextCache":
        """Return an empty cache.

        Args:
            batch: not used.
            capacity: not used.
        """
        return TextCache()

    def check_layers(self, hidden_layers: Sequence) -> None:
        """Raise ValueError if any hidden layer is requested: there are none.

        Args:
            hidden_layers: names of layers.
        """
        if hidden_layers:
            raise ValueError(f"hidden_layers={list(hidden_layers)}: an n-gram model has no states")

    def score(
        self,
        tokens: Tensor | Sequence[int],
        cache: "TextCache",
        tree: TokenTree | None = None,
        hidden_layers: Sequence = (),
        last: bool = False,
        *,
        states=None,
    ) -> Scores:
        """Return logits [1, k, V], the logarithms of the counted distributions.

        Args:
            tokens: token ids [k]: a chain, then the nodes of `tree`.
            cache: the tokens fed earlier; the new ones are added.
            tree: token tree whose nodes are the last tokens; None for a chain.
            hidden_layers: must be empty.
            last: return only the last row.
            states: not used.
        """
        fed = torch.as_tensor(tokens).flatten().tolist()
        parents = () if tree is None else tree.parents
        chain = len(fed) - len(parents)
        cache.root = len(cache.tokens) + (chain - 1 if parents else 0)
        before = len(self.counts.keys) - 1
        text = [*cache.tokens, *fed[:chain]]
        ends = range(len(cache.tokens) + 1, len(text) + 1)
        prefixes = [text[max(0, end - before) : end] for end in ends]
        for token, parent in zip(fed[chain:], parents):
            prefixes.append([*prefixes[chain + parent], token][-before:] if before else [])
        cache.tokens += fed
        rows = [self.counts.row(prefix) for prefix in (prefixes[-1:] if last else prefixes)]
        return Scores(torch.stack(rows).log()[None])


class TextCache:
    """The tokens fed so far, with the interface of a `Cache`."""

    def __init__(self):
        self.tokens: list[int] = []
        self.root = 0

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def keep(self, indices: Sequence[int]) -> None:
        """Keep only some of the tokens fed since the root."""
        self.tokens = self.tokens[: self.root] + [self.tokens[self.root + i] for i in indices]

    def crop(self, length: int) -> None:
        """Remove everything after the first `length` tokens."""
        self.tokens = self.tokens[:length]


# The drafter: the least expensive model that still has a real q ---------------------------------
# Source: Leviathan et al. 2023, section 4 (bigrams). What engines call "ngram" is another method,
# prompt lookup (`copying`).


class NgramDrafter(RoundDrafter, ChainDrafter):
    """Draft γ tokens with an n-gram model, from the last n − 1 tokens.

    Args:
        counts: n-gram counts of a text in the target's vocabulary.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, counts: Counts, gamma: int | Length = 4):
        super().__init__(gamma)
        self.counts = checks.instance("counts", counts, Counts)

    def check(self, target: CausalLM, positions: int) -> None:
        if self.counts.vocab_size != target.vocab_size:
            raise ValueError(
                f"drafter counts a vocabulary of {self.counts.vocab_size} tokens, target has"
                f" {target.vocab_size}: both must be equal"
            )

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        counts = self.counts
        before = len(counts.keys) - 1
        text = context.tokens[-before:].tolist() if before else []

        def follow(token: Tensor | None) -> Tensor:
            if token is not None:
                text.append(int(token))
            row = counts.row(text[max(0, len(text) - before) :])
            # The argmax needs no logarithm, which costs more than everything else here.
            return row if context.sampling.greedy and not session.length.looks else row.log()

        return draft_chain(context, follow, session.length)


# REST: what followed the end of the text in a datastore, as a tree ------------------------------
# Source: He et al. 2023, arXiv 2311.08252.

SHORTEST, LONGEST = 2, 8
"""Lengths of the text's ends that are looked up: the longest one first."""
READ = 64
"""Largest number of continuations to read; if there are more, evenly spaced ones are read."""


class RestDrafter(RoundDrafter):
    """Propose the most frequent continuations of the text's end in a datastore.

    The tokens are chosen. At every node one draw from the target decides for all paths through it.

    Args:
        index: suffix array of the datastore, in the target's vocabulary.
        nodes: largest number of nodes (REST's `num_draft`).
        levels: tokens per continuation.
    """

    def __init__(self, index: SuffixArray, nodes: int = 32, levels: int = 8):
        self.index = checks.instance("index", index, SuffixArray)
        self.nodes = checks.whole("nodes", nodes, 1)
        self.levels = checks.whole("levels", levels, 1)

    def check(self, target: CausalLM, positions: int) -> None:
        token_ids("ids", self.index.text, target.vocab_size)

    def limits(self) -> Limits:
        return Limits(min(self.levels, self.nodes), self.nodes, branches=True)

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        if context.wanted < 2:
            return NOTHING
        text = context.tokens[-min(LONGEST, self.index.depth) :].tolist()
        rows: list[list[int]] = []
        for n in range(len(text), SHORTEST - 1, -1):
            starts = self.index.find(text[-n:]) + n
            if len(starts):
                count = min(len(starts), READ)
                spread = starts[np.linspace(0, len(starts) - 1, count).astype(int)]
                rows = [self.index.text[s : s + self.levels].tolist() for s in spread]
                break
        return Proposal(frequency_tree(rows, self.nodes)[0])
