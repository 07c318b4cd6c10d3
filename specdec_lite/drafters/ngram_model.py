"""An n-gram model that can be asked as a model is: the middle of a cascade whose law is counted.

What lives here: `NgramModel` and the cache of its texts. What does not: the counts (`indexes`), and
drafting with them directly (`ngram`).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite.drafters.indexes import Counts
from specdec_lite.engine.cache import Scores
from specdec_lite.tree import TokenTree


class NgramModel:
    """Counts behind the interface of a `CausalLM` that holds no states.

    Args:
        counts: of a text in the target's vocabulary.
        device: of the target.

    A pass looks up one row for every token fed. Nothing is shared between the rows, so verifying
    k tokens costs k times one.
    """

    native = False
    max_positions = math.inf

    def __init__(self, counts: Counts, device: str | torch.device = "cpu"):
        self.counts = counts
        self.device = torch.device(device)
        self.vocab_size = counts.vocab_size

    def new_cache(self, batch: int = 1, capacity: int = 0) -> "TextCache":
        return TextCache()

    def check_layers(self, hidden_layers: Sequence) -> None:
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
        """As `CausalLM.score`: logits [1, k, V], the logarithms of the counted laws."""
        fed = torch.as_tensor(tokens).flatten().tolist()
        parents = () if tree is None else tree.parents
        plain = len(fed) - len(parents)
        cache.root = len(cache.tokens) + (plain - 1 if parents else 0)
        before = len(self.counts.keys) - 1
        text = [*cache.tokens, *fed[:plain]]
        ends = range(len(cache.tokens) + 1, len(text) + 1)
        seen = [text[max(0, end - before) : end] for end in ends]
        for token, parent in zip(fed[plain:], parents):
            seen.append([*seen[plain + parent], token][-before:] if before else [])
        cache.tokens += fed
        rows = [self.counts.row(run) for run in (seen[-1:] if last else seen)]
        return Scores(torch.stack(rows).log()[None].to(self.device))


class TextCache:
    """The tokens themselves, cut back as a `Cache` is."""

    def __init__(self):
        self.tokens: list[int] = []
        self.root = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def keep(self, indices: Sequence[int]) -> None:
        """Of what was fed since the root keep the entries at `indices`."""
        self.tokens = self.tokens[: self.root] + [self.tokens[self.root + i] for i in indices]

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        self.tokens = self.tokens[:length]
