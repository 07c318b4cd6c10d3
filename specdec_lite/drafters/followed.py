"""State of a session that follows the committed text, so that no session repairs what it stored."""

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache
from specdec_lite.proposal import Verdict
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

    Args:
        cache: the draft's.

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
