"""What is made once of a large text, to look things up in: counts of its n-grams, and its suffix
array.

What lives here: two indexes in sorted arrays, built by sorting. What does not: the index of a text
that grows (`matches`), and drafting (`ngram`, `rest`).
"""

from bisect import bisect_left, bisect_right

import numpy as np
import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.matches import token_ids


class Counts:
    """How often every run of up to n tokens occurs, as a trie in sorted arrays.

    keys[k]: the runs of k + 1 tokens, each as (number of the run without its last token) · V + last
    token; a run's number is its place there. counts[k]: how often each occurs.
    """

    def __init__(self, ids, vocab_size: int, n: int):
        ids = token_ids("ids", ids, checks.whole("vocab_size", vocab_size, 1))
        checks.whole("n", n, 1, len(ids), " (and ids at least n long)")
        self.vocab_size = vocab_size
        self.keys: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        runs = np.zeros(len(ids), dtype=np.int64)
        for level in range(n):
            keys = runs * vocab_size + ids[level:]
            unique, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
            self.keys.append(unique)
            self.counts.append(counts.astype(np.int32))
            runs = numbers[:-1]
        self.base = np.full(vocab_size, 1 / vocab_size)
        self._mix(self.base, [])

    def after(self, text: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that followed this text of at most n − 1 tokens, and how often each did."""
        run = 0
        for keys, token in zip(self.keys, text):
            key = run * self.vocab_size + token
            run = int(np.searchsorted(keys, key))
            if run == len(keys) or keys[run] != key:
                return keys[:0], self.counts[0][:0]
        keys = self.keys[len(text)]
        first = run * self.vocab_size
        low, high = np.searchsorted(keys, (first, first + self.vocab_size))
        return keys[low:high] - first, self.counts[len(text)][low:high]

    def row(self, text: list[int]) -> Tensor:
        """q(x | text) [V] in float64, everywhere above 0: each order has the weight of its counts,
        and the order below it, down to the uniform law, that of its number of different tokens
        (Witten and Bell 1991).
        """
        row = self.base.copy()
        for order in range(1, min(len(self.keys), len(text) + 1)):
            self._mix(row, text[-order:])
        return torch.from_numpy(row)

    def _mix(self, row: np.ndarray, text: list[int]) -> None:
        tokens, counts = self.after(text)
        whole = counts.sum() + len(tokens)
        if whole:
            row *= len(tokens) / whole
            row[tokens] += counts / whole


class SuffixArray:
    """All places of a text in the order of what stands there, 8 bytes a token.

    Args:
        ids: the text [m].
        depth: so many tokens of each place count in the order, rounded up to a power of 2; runs
            that are looked up may be no longer.

    Sorting by 1, 2, 4, … tokens: a run of 2w tokens is the number of its first half, then that of
    its second (Manber and Myers 1993).
    """

    def __init__(self, ids, depth: int = 16):
        self.text = token_ids("ids", ids).astype(np.int32)
        self.depth = checks.whole("depth", depth, 1)
        numbers = self.text.astype(np.int64)
        width = 1
        while width < depth:
            behind = np.zeros_like(numbers)
            behind[:-width] = numbers[width:] + 1
            numbers = numbers * (numbers.max(initial=0) + 2) + behind
            numbers = np.unique(numbers, return_inverse=True)[1]
            width *= 2
        self.order = np.argsort(numbers, kind="stable").astype(np.int32)

    def places(self, run: list[int]) -> np.ndarray:
        """Where a run of at most `depth` tokens begins, in the order of what follows it."""

        def read(place: int) -> list[int]:
            start = self.order[place]
            return self.text[start : start + len(run)].tolist()

        everything = range(len(self.order))
        low = bisect_left(everything, run, key=read)
        return self.order[low : bisect_right(everything, run, lo=low, key=read)]
