"""Trees whose shape is computed: from how often each sibling is accepted, and from a clock.

Source: Chen et al. 2024 (Sequoia).
"""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.drafters.shaped import ShapedDrafter
from specdec_lite.drafters.shapes import best_shape, fastest_shape
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure.timing import Costs

RATES = (0.76, 0.064, 0.044, 0.034)
"""Of the shipped pair, at temperature 1 on held-out prompts, over 298 tests of four siblings
(`benchmarks.trees.rates`)."""


class SequoiaDrafter(ShapedDrafter):
    """Draft the tree from which the most tokens are expected, siblings drawn without replacement.

    Args:
        draft: a `CausalLM` with the target's vocabulary.
        nodes: the most drafted nodes, ≥ 1.
        depth: the most levels, ≥ 1; None: 16.
        rates: how often the first, second, … sibling is the accepted one, measured with
            `drafters.shapes.sibling_rates`; the default is the shipped pair's.
        costs: measured by `timing.measure_costs`; given, the tree of at most `nodes` nodes with the
            most tokens a *second* is drafted, which may be no tree at all.
    """

    def __init__(
        self,
        draft: CausalLM,
        nodes: int = 16,
        depth: int | None = None,
        rates: Sequence[float] = RATES,
        costs: Costs | None = None,
    ):
        nodes = checks.whole("nodes", nodes, 1)
        if costs is None:
            tree = best_shape(rates, nodes, depth)
        else:
            drafting = costs.draft_in_loop or costs.draft or 0.0
            overhead = costs.overhead or 0.0
            tree = fastest_shape(rates, costs.target, drafting, overhead, nodes, depth)
        super().__init__(draft, tree)
