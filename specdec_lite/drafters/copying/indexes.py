"""Two indexes that are built once from a large text: n-gram counts and a suffix array."""

from bisect import bisect_left, bisect_right

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.copying.matches import token_ids


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
