"""An n-gram model with the interface of a `CausalLM`, for the middle of a cascade."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite.drafters.copying.indexes import Counts
from specdec_lite.engine.cache import Scores
from specdec_lite.tree import TokenTree


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
