"""Draft with the target minus some of its sublayers, and search for a good set of sublayers.

Source: Zhang et al. 2024 (Draft & Verify). `training.skip_acceptance` measures the acceptance of a set.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import product

from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.self_drafts.self_draft import SelfDrafter
from specdec_lite.engine.cache import SUBLAYERS, Cache, sublayers
from specdec_lite.engine.models import CausalLM
from specdec_lite.speculation import Context

Sublayer = tuple[int, str]


class LayerSkipDrafter(SelfDrafter):
    """Draft γ tokens with the target, without some attention and MLP sublayers.

    The draft reads the target's keys and values of the text and writes its own after them. The
    target's pass overwrites all of these.

    Args:
        target: a native model; the one that decodes.
        skip: sublayers to leave out, as (block from 0, "attention" or "mlp").
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`; the paper stops after an
            uncertain token, as `Confidence` does.
    """

    def __init__(self, target: CausalLM, skip: Collection[Sublayer], gamma: int | Length = 4):
        super().__init__(target, gamma)
        self.skip = sublayers(skip, target.num_layers)

    def draft_cache(self, context: Context) -> Cache:
        return context.cache.view(skip=self.skip)  # pyright: ignore[reportOptionalMemberAccess]


def every_sublayer(layers: int) -> list[Sublayer]:
    """Return all sublayers of a model, from the first block on."""
    return list(product(range(layers), SUBLAYERS))


def greedy_search(
    acceptance: Callable[[frozenset[Sublayer]], float], offered: Iterable[Sublayer], most: int
) -> list[tuple[frozenset[Sublayer], float]]:
    """Leave out sublayers one by one, each time the one that keeps acceptance highest.

    With n candidates this takes n + (n − 1) + … evaluations.
    """
    rest = set(offered)
    path: list[tuple[frozenset[Sublayer], float]] = [(frozenset(), acceptance(frozenset()))]
    for _ in range(min(most, len(rest))):
        rates = {one: acceptance(path[-1][0] | {one}) for one in sorted(rest)}
        best = max(rates, key=rates.__getitem__)
        rest.remove(best)
        path.append((path[-1][0] | {best}, rates[best]))
    return path
