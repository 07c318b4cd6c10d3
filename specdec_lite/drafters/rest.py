"""REST: look the end of the text up in a large one, and verify what followed it there as a tree.

Source: He et al. 2023, arXiv 2311.08252.
"""

import numpy as np

from specdec_lite import checks
from specdec_lite.drafters.indexes import SuffixArray
from specdec_lite.drafters.matches import heaviest, token_ids
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Session, Shape


class RestDrafter(Drafter):
    """Propose the commonest continuations that a datastore has of the text's end.

    Args:
        index: of the datastore, whose ids are the target's.
        nodes: of the tree, at most (REST's `num_draft`).
        levels: tokens of a continuation.
        max_ngram, min_ngram: the longest end of the text that is looked up, and the shortest.
        most: continuations that are read where there are more, evenly spread.
        width: children of a node, at most; None: no limit, 1: a chain.

    The tokens are chosen. One target draw decides at every node, for all paths that share it.
    """

    def __init__(
        self,
        index: SuffixArray,
        nodes: int = 32,
        levels: int = 8,
        max_ngram: int = 8,
        min_ngram: int = 2,
        most: int = 64,
        width: int | None = None,
    ):
        self.index = index
        self.nodes = checks.whole("nodes", nodes, 1)
        self.levels = checks.whole("levels", levels, 1)
        self.max_ngram = checks.whole("max_ngram", max_ngram, 1, index.depth)
        self.min_ngram = checks.whole("min_ngram", min_ngram, 1, max_ngram)
        self.most = checks.whole("most", most, 1)
        self.width = None if width is None else checks.whole("width", width, 1)

    @classmethod
    def from_text(cls, ids, nodes: int = 32, **options) -> "RestDrafter":
        """Index a text: ids [m]. The options are those of the class."""
        return cls(SuffixArray(ids), nodes, **options)

    def start(self, context: Context) -> "RestSession":
        return RestSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        token_ids("ids", self.index.text, target.vocab_size)

    def shape(self) -> Shape:
        levels = min(self.levels, self.nodes)
        return Shape(levels, levels if self.width == 1 else self.nodes)

    def continuations(self, text: list[int]) -> list[list[int]]:
        """What followed the longest end of a text that the datastore holds."""
        for n in range(min(self.max_ngram, len(text)), self.min_ngram - 1, -1):
            places = self.index.places(text[-n:])
            if len(places):
                spread = np.linspace(0, len(places) - 1, min(len(places), self.most)).astype(int)
                starts = (places[spread] + n).tolist()
                return [self.index.text[s : s + self.levels].tolist() for s in starts]
        return []


class RestSession(Session):
    """Has no state: all it needs is the end of the text."""

    def __init__(self, drafter: RestDrafter):
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        if context.wanted < 2:
            return NOTHING
        end = context.tokens[-self.drafter.max_ngram :].tolist()
        rows = self.drafter.continuations(end)
        return Proposal(heaviest(rows, self.drafter.nodes, self.drafter.width)[0])
