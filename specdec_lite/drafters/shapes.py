"""Shapes of drawn trees: the best one under a budget, the best one under a clock.

What lives here: trees of ranks (0: the sibling that is tested first). What does not: the shape for
a table of accuracies level by level (`TokenTree.best`), drafting (`shaped`). Source: Chen et al.
2024 (Sequoia).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from specdec_lite.checks import number, whole
from specdec_lite.speculation import Step
from specdec_lite.tree import TokenTree

DEPTH = 16


def balanced(widths: Sequence[int]) -> TokenTree:
    """Every node of level i has widths[i] children; [1, 1, 1] is a chain, [3, 1, 1] three chains
    from the root."""
    return TokenTree.cartesian([range(whole("widths", width, 1)) for width in widths])


def sibling_rates(steps: Sequence[Step], count: int) -> list[float]:
    """How often the first, second, … of `count` siblings was the accepted one, of all tests of
    siblings at a node on the accepted path: Sequoia's acceptance vector.

    steps: rounds judged by a walk, of a drafter whose nodes have `count` children down to the last
    level. ValueError where nothing was tested.
    """
    whole("count", count, 1)
    visits = 0
    kept = [0] * count
    for step in steps:
        for level, tests in enumerate(step.tests):
            visits += 1
            if level < len(step.path) and tests <= count:
                kept[tests - 1] += 1
    if not visits:
        raise ValueError("steps hold no test of a drafted token: there is nothing to measure")
    return [times / visits for times in kept]


def _check_rates(rates: Sequence[float]) -> list[float]:
    rates = [number(f"rates[{rank}]", rate) for rank, rate in enumerate(rates)]
    if not rates or sum(rates) > 1 + 1e-9:
        raise ValueError(f"rates={rates}: must be one share for each sibling, at most 1 in all")
    return rates


def _plans(rates: list[float], nodes: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """value, first [depth + 1, ranks + 1, nodes + 1]. value[d, b, n]: the most drafted tokens that
    n nodes below an accepted one bring, in d levels, when siblings 0 … b − 1 are placed already.
    first: how many of the n nodes go to sibling b and what is below it; 0: stop here.
    """
    value = np.zeros((depth + 1, len(rates) + 1, nodes + 1))
    first = np.zeros(value.shape, dtype=int)
    for d in range(1, depth + 1):
        for b in reversed(range(len(rates))):
            for n in range(1, nodes + 1):
                below = rates[b] * (1 + value[d - 1, 0, :n])  # of 1 … n nodes for sibling b
                worth = below + value[d, b + 1, n - 1 :: -1]
                if worth.max() > 0:
                    first[d, b, n] = 1 + int(worth.argmax())
                    value[d, b, n] = worth.max()
    return value, first


def _read(first: np.ndarray, nodes: int, depth: int) -> TokenTree:
    """The tree of a plan, numbered level by level."""
    ranks: list[int] = []
    parents: list[int] = []
    waiting = [(-1, nodes, depth)]
    for parent, n, d in waiting:  # grows while it is read
        rank = 0
        while n > 0 and d > 0 and rank < first.shape[1] - 1 and first[d, rank, n]:
            taken = int(first[d, rank, n])
            waiting.append((len(ranks), taken - 1, d - 1))
            ranks.append(rank)
            parents.append(parent)
            n -= taken
            rank += 1
    return TokenTree(ranks, parents)


def best_shape(rates: Sequence[float], nodes: int, depth: int | None = None) -> TokenTree:
    """The tree of at most `nodes` drafted nodes and `depth` levels from which the most tokens are
    expected.

    Args:
        rates: rates[i], how often sibling i is the accepted one (`sibling_rates`); at most 1 in all.
        nodes: ≥ 0. depth: ≥ 1; None: 16 at most.

    A dynamic programme over (nodes, levels, siblings): a sibling is only there where those before
    it are, since draws come in order. Where rates fall with the rank it finds what
    `TokenTree.best` finds greedily. Source: Chen et al. 2024 (Sequoia).
    """
    rates = _check_rates(rates)
    nodes = whole("nodes", nodes)
    depth = min(nodes, DEPTH if depth is None else whole("depth", depth, 1))
    return _read(_plans(rates, nodes, depth)[1], nodes, depth)


def expected_tokens(shape: TokenTree, rates: Sequence[float]) -> float:
    """Tokens a round, the target's own included, when siblings are accepted at these rates
    everywhere, whatever came before."""
    return 1.0 + shape.worth([list(rates)] * shape.levels).sum().item()


def fastest_shape(
    rates: Sequence[float],
    target: Mapping[int, float],
    draft: float = 0.0,
    overhead: float = 0.0,
    nodes: int = 64,
    depth: int | None = None,
) -> TokenTree:
    """The tree of the most tokens a second on a clock that was read.

    Args:
        rates: as for `best_shape`.
        target: {k: seconds of a target pass over k tokens}, k = 1 among them; between two k a
            straight line, beyond the largest none is considered.
        draft: seconds of a draft pass, one a level. overhead: seconds a round of everything else.
        nodes, depth: the most of each.

    Drafting nothing is considered too, and is the empty tree. Source: Chen et al. 2024
    (Sequoia).
    """
    rates = _check_rates(rates)
    ks = sorted(target)
    if not ks or ks[0] != 1 or not all(target[k] > 0 for k in ks):
        raise ValueError(f"target={dict(target)}: must give T(1) and other T(k), all above 0")
    draft = number("draft", draft)
    overhead = number("overhead", overhead)
    nodes = min(whole("nodes", nodes), ks[-1] - 1)
    depth = min(nodes, DEPTH if depth is None else whole("depth", depth, 1))
    value, first = _plans(rates, nodes, depth)
    passes = np.interp(np.arange(1, nodes + 2), ks, [target[k] for k in ks])
    speed = (1 + value[:, 0, :]) / (passes + draft * np.arange(depth + 1)[:, None] + overhead)
    speed[0, 1:] = 0  # nodes without levels
    d, n = np.unravel_index(int(speed.argmax()), speed.shape)
    return _read(first, int(n), int(d))
