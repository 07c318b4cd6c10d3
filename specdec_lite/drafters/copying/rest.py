"""REST: look up the end of the text in a datastore, and verify what followed it there as a tree.

Source: He et al. 2023, arXiv 2311.08252.
"""

import numpy as np

from specdec_lite import checks
from specdec_lite.drafters.copying.indexes import SuffixArray
from specdec_lite.drafters.copying.matches import frequency_tree, token_ids
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session


class RestDrafter(Drafter):
    """Propose the most frequent continuations of the text's end in a datastore.

    The tokens are chosen. At every node one draw from the target decides for all paths through it.

    Args:
        index: suffix array of the datastore, in the target's vocabulary.
        nodes: largest number of nodes (REST's `num_draft`).
        levels: tokens per continuation.
        max_ngram: longest end of the text that is looked up.
        min_ngram: shortest end of the text that is looked up.
        most: largest number of continuations read; if there are more, evenly spaced ones.
        width: largest number of children per node; None: no limit, 1: a chain.
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
        """Index a text and return a drafter on it.

        Args:
            ids: token ids [m].
            nodes: as for the class.
            options: other arguments of the class.
        """
        return cls(SuffixArray(ids), nodes, **options)

    def start(self, context: Context) -> "RestSession":
        return RestSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        token_ids("ids", self.index.text, target.vocab_size)

    def limits(self) -> Limits:
        levels = min(self.levels, self.nodes)
        nodes = levels if self.width == 1 else self.nodes
        return Limits(levels, nodes, branches=self.width != 1)


class RestSession(Session):
    """The drafting of one generation. It needs only the end of the text."""

    def __init__(self, drafter: RestDrafter):
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        if context.wanted < 2:
            return NOTHING
        drafter = self.drafter
        text = context.tokens[-drafter.max_ngram :].tolist()
        rows: list[list[int]] = []
        for n in range(len(text), drafter.min_ngram - 1, -1):
            starts = drafter.index.find(text[-n:]) + n
            if len(starts):
                count = min(len(starts), drafter.most)
                spread = starts[np.linspace(0, len(starts) - 1, count).astype(int)]
                rows = [drafter.index.text[s : s + drafter.levels].tolist() for s in spread]
                break
        return Proposal(frequency_tree(rows, drafter.nodes, drafter.width)[0])
