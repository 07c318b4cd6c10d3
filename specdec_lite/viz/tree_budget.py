"""The tree-budget explorer: drag the budget, and the best tree regrows; price it on a clock, and it
stops.
"""

import traitlets

from specdec_lite.viz.interactive import Interactive

MOST = 64


class TreeBudget(Interactive):
    """The best tree of so many nodes, the tokens it is expected to bring, and what that is worth
    over a measured T(k).

    rates: how often the first, second, … sibling is the accepted one: falling, in [0, 1], at most 1
    in all. ks, times: T(k)/T(1) at k = 1 and other k, ascending. draft, overhead: of a level and of
    a round, in units of T(1), ≥ 0. nodes: the budget, 0 … 64. stretch: how much of the growth of
    T(k) beyond T(1) is charged, 0 … 4: 1 as measured, 0 where a pass costs the same for any tree.
    Raises TraitError for anything else.
    """

    module = "tree_budget"
    label = "Tree-budget explorer: the best tree of a budget, and the budget that pays"

    rates = traitlets.List(
        traitlets.Float(min=0, max=1), [0.6, 0.15, 0.06, 0.03], minlen=1, maxlen=8
    ).tag(sync=True)
    ks = traitlets.List(traitlets.Int(min=1), [1, 65]).tag(sync=True)
    times = traitlets.List(traitlets.Float(min=0), [1.0, 3.0]).tag(sync=True)
    draft = traitlets.Float(0.06, min=0, max=2).tag(sync=True)
    overhead = traitlets.Float(0.05, min=0, max=2).tag(sync=True)
    nodes = traitlets.Int(8, min=0, max=MOST).tag(sync=True)
    stretch = traitlets.Float(1.0, min=0, max=4).tag(sync=True)

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.ks) != len(self.times):
            raise traitlets.TraitError(
                f"ks has {len(self.ks)} entries and times has {len(self.times)}: give a time for"
                " every k"
            )

    @traitlets.validate("rates")
    def _fall(self, proposal):
        rates = proposal.value
        if rates != sorted(rates, reverse=True) or sum(rates) > 1 + 1e-9:
            raise traitlets.TraitError(f"rates={rates}: must fall, and be at most 1 in all")
        return rates

    @traitlets.validate("ks")
    def _ascend(self, proposal):
        ks = proposal.value
        if not ks or ks[0] != 1 or ks != sorted(set(ks)):
            raise traitlets.TraitError(f"ks={ks}: must begin with 1 and ascend")
        return ks
