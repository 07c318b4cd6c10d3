"""Sequoia: compute the best tree shape from sibling acceptance rates and measured times.

Source: Chen et al. 2024 (Sequoia).
"""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.drafters.trees.fixed_tree import FixedTreeDrafter
from specdec_lite.drafters.trees.tree_shapes import best_shape, fastest_shape
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure.timing import Costs

RATES = (0.792, 0.076, 0.036, 0.025)
"""Rates of the shipped pair at temperature 1 on held-out prompts (the recording `token-trees`)."""


class SequoiaDrafter(FixedTreeDrafter):
    """Draft the tree with the most expected tokens, with siblings drawn without replacement.

    Args:
        draft: a `CausalLM` with the target's vocabulary.
        nodes: largest number of nodes, ≥ 1.
        depth: largest number of levels, ≥ 1; None: 16.
        rates: how often the first, second, … sibling is accepted, measured with
            `trees.tree_shapes.sibling_rates`; the default is that of the shipped pair.
        costs: costs from `timing.measure_costs`. If given, the tree has the most expected tokens
            per *second*, and may be empty.
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
            # Timed during decoding, with the choice of the token: closer to what a round pays.
            drafting = costs.draft_in_loop or costs.draft or 0.0
            overhead = costs.overhead or 0.0
            tree = fastest_shape(rates, costs.target, drafting, overhead, nodes, depth)
        super().__init__(draft, tree)
