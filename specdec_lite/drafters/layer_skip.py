"""The target with some of its sublayers left out as its own draft.

Source: Zhang et al. 2024 (Draft & Verify). What lives here: drafting with a set of sublayers, and
the greedy search for one. What does not: the acceptance of a set, which is measured on stored text
(`training.skipping`).
"""

from collections.abc import Callable, Collection, Iterable
from itertools import product

from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.own import OwnDrafter
from specdec_lite.engine.cache import SUBLAYERS, Cache, sublayers
from specdec_lite.engine.models import CausalLM
from specdec_lite.speculation import Context

Sublayer = tuple[int, str]


class LayerSkipDrafter(OwnDrafter):
    """Draft γ tokens with the whole target but some attention and MLP sublayers.

    Args:
        target: a native model; the one that decodes.
        skip: what to leave out, as (block from 0, "attention" or "mlp").
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`; the paper stops behind a token
            of which the draft was unsure, as `lengths.Confidence` does.

    The draft reads the target's keys and values of the text, and writes its own, made with fewer
    sublayers, behind them: the target's pass overwrites every one of these.
    """

    def __init__(self, target: CausalLM, skip: Collection[Sublayer], gamma: int | Length = 4):
        super().__init__(target, gamma)
        self.skip = sublayers(skip, target.num_layers)

    def part(self, context: Context) -> Cache:
        return context.cache.view(skip=self.skip)


def every_sublayer(layers: int) -> list[Sublayer]:
    """All sublayers of a model of so many layers, from below."""
    return list(product(range(layers), SUBLAYERS))


def greedy_search(
    acceptance: Callable[[frozenset[Sublayer]], float], offered: Iterable[Sublayer], most: int
) -> list[tuple[frozenset[Sublayer], float]]:
    """Leave out one sublayer more, `most` times: each time the one without which most is accepted.

    acceptance: of a set that is left out, in [0, 1]. Returns the sets, the empty one first, each
    with its acceptance. It costs n + (n−1) + … evaluations where n sublayers are offered.
    """
    left = set(offered)
    path = [(frozenset(), acceptance(frozenset()))]
    for _ in range(min(most, len(left))):
        tried = {one: acceptance(path[-1][0] | {one}) for one in sorted(left)}
        best = max(tried, key=tried.get)
        left.remove(best)
        path.append((path[-1][0] | {best}, tried[best]))
    return path
