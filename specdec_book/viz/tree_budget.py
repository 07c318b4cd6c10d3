"""The tree-budget explorer: the best tree of a given size, and the size with the best speedup."""

import traitlets

from specdec_book.viz.interactive import Interactive

MAX_NODES = 64


class TreeBudget(Interactive):
    """The best tree of a number of nodes, its expected tokens, and its speedup at a measured T(k).

    Attributes:
        rates: Probability that the first, second, … sibling is the accepted one. The rates do not
            increase and sum to at most 1.
        ks: Numbers of tokens in a pass, ascending from 1.
        times: T(k)/T(1) for each of `ks`.
        draft: Cost of drafting one level, in units of T(1), 0 … 2.
        overhead: Cost of everything else in a round, in units of T(1), 0 … 2.
        nodes: Number of drafted nodes, 0 … 64.
        stretch: Factor on the growth of T(k) beyond T(1), 0 … 4: 1 as measured, 0 if a pass costs
            the same for every tree.
    """

    module = "tree_budget"
    label = "Tree-budget explorer: the best tree of a budget, and the budget that pays"

    rates = traitlets.List(
        traitlets.Float(min=0, max=1), [0.6, 0.15, 0.06, 0.03], minlen=1, maxlen=8
    )
    ks = traitlets.List(traitlets.Int(min=1), [1, 65])
    times = traitlets.List(traitlets.Float(min=0), [1.0, 3.0])
    draft = traitlets.Float(0.06, min=0, max=2)
    overhead = traitlets.Float(0.05, min=0, max=2)
    nodes = traitlets.Int(8, min=0, max=MAX_NODES)
    stretch = traitlets.Float(1.0, min=0, max=4)

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.ks) != len(self.times):
            raise traitlets.TraitError(
                f"times has {len(self.times)} entries: must have one for each of {len(self.ks)} ks"
            )

    @traitlets.validate("rates")
    def _fall(self, proposal):
        rates = proposal.value
        if rates != sorted(rates, reverse=True) or sum(rates) > 1 + 1e-9:
            raise traitlets.TraitError(f"rates={rates}: must not increase and sum to at most 1")
        return rates

    @traitlets.validate("ks")
    def _ascend(self, proposal):
        ks = proposal.value
        if not ks or ks[0] != 1 or ks != sorted(set(ks)):
            raise traitlets.TraitError(f"ks={ks}: must begin with 1 and ascend")
        return ks
