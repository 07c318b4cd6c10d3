"""Shapes for drawn trees, as trees of ranks: the best for a number of nodes or for a clock.

Rank 0 is the sibling that is tested first. Source: Chen et al. 2024 (Sequoia).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from specdec_lite.checks import instance, number, whole
from specdec_lite.speculation import Step
from specdec_lite.tree import TokenTree

DEPTH = 16


def balanced(widths: Sequence[int]) -> TokenTree:
    """Return the tree in which every node of level i has widths[i] children."""
    return TokenTree.cartesian([range(whole("widths", width, 1)) for width in widths])


def sibling_rates(steps: Sequence[Step], count: int) -> list[float]:
    """Return how often the first, second, … of `count` siblings was accepted.

    The rates are relative to all nodes on accepted paths where siblings were tested: Sequoia's
    acceptance vector.
    """
    whole("count", count, 1)
    visits = 0
    accepted = [0] * count
    for step in steps:
        for level, tests in enumerate(step.tests):
            visits += 1
            # The last test of a level succeeded exactly if the path goes through this level.
            if level < len(step.path) and tests <= count:
                accepted[tests - 1] += 1
    if not visits:
        raise ValueError("steps contain no test of a drafted token: there is nothing to measure")
    return [times / visits for times in accepted]


def check_ranks(tree: TokenTree, levels: int, vocab_size: int) -> TokenTree:
    """Return a tree of ranks after checking that heads can fill it."""
    instance("tree", tree, TokenTree, "a TokenTree of ranks, such as TokenTree.chain([0, 0, 0])")
    if tree.levels > levels:
        raise ValueError(f"tree has {tree.levels} levels: must have at most {levels}, one per head")
    ranks = tree.tokens.tolist()
    if ranks and not 0 <= min(ranks) <= max(ranks) < vocab_size:
        raise ValueError(
            f"tree holds ranks {min(ranks)} … {max(ranks)}: must be in 0 … {vocab_size - 1}"
        )
    return tree


def _check_rates(rates: Sequence[float]) -> list[float]:
    rates = [number(f"rates[{rank}]", rate) for rank, rate in enumerate(rates)]
    if not rates or sum(rates) > 1 + 1e-9:
        raise ValueError(f"rates={rates}: must be one share for each sibling, at most 1 in all")
    return rates


def _plans(rates: list[float], nodes: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (value, first), both [depth + 1, ranks + 1, nodes + 1].

    value[d, b, n] is the largest expected number of accepted tokens from n nodes below an accepted
    node, in d levels, if siblings 0 … b − 1 exist already. first[d, b, n] is how many of the n
    nodes go to sibling b and its subtree; 0 means that no sibling is added.
    """
    value = np.zeros((depth + 1, len(rates) + 1, nodes + 1))
    first = np.zeros(value.shape, dtype=int)
    for d in range(1, depth + 1):
        for b in reversed(range(len(rates))):
            for n in range(1, nodes + 1):
                # Give 1 … n nodes to sibling b and its subtree, and the others to later siblings.
                below = rates[b] * (1 + value[d - 1, 0, :n])  # of 1 … n nodes for sibling b
                total = below + value[d, b + 1, n - 1 :: -1]
                if total.max() > 0:
                    first[d, b, n] = 1 + int(total.argmax())
                    value[d, b, n] = total.max()
    return value, first


def _read(first: np.ndarray, nodes: int, depth: int) -> TokenTree:
    """Return the tree of a plan, numbered level by level."""
    ranks: list[int] = []
    parents: list[int] = []
    queue = [(-1, nodes, depth)]
    for parent, n, d in queue:  # entries are appended during the loop
        rank = 0
        while n > 0 and d > 0 and rank < first.shape[1] - 1 and first[d, rank, n]:
            taken = int(first[d, rank, n])
            queue.append((len(ranks), taken - 1, d - 1))
            ranks.append(rank)
            parents.append(parent)
            n -= taken
            rank += 1
    return TokenTree(ranks, parents)


def best_shape(rates: Sequence[float], nodes: int, depth: int | None = None) -> TokenTree:
    """Return the tree with the largest expected number of accepted tokens.

    A dynamic program over (nodes, levels, siblings): a sibling exists only if all earlier ones do,
    since draws are tested in order. If rates fall with the rank, the result is that of
    `TokenTree.best`, which is greedy. Source: Chen et al. 2024 (Sequoia).
    """
    rates = _check_rates(rates)
    nodes = whole("nodes", nodes)
    depth = min(nodes, DEPTH if depth is None else whole("depth", depth, 1))
    return _read(_plans(rates, nodes, depth)[1], nodes, depth)


def expected_tokens(shape: TokenTree, rates: Sequence[float]) -> float:
    """Return the expected tokens per round, including the target's own."""
    return 1.0 + shape.worth([list(rates)] * shape.levels).sum().item()


def fastest_shape(
    rates: Sequence[float],
    target: Mapping[int, float],
    draft: float = 0.0,
    overhead: float = 0.0,
    nodes: int = 64,
    depth: int | None = None,
) -> TokenTree:
    """Return the tree with the most expected tokens per second; the empty tree if drafting is slower.

    Source: Chen et al. 2024 (Sequoia).
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
    # T(k) was measured at some k; between them it is taken as linear.
    passes = np.interp(np.arange(1, nodes + 2), ks, [target[k] for k in ks])
    speed = (1 + value[:, 0, :]) / (passes + draft * np.arange(depth + 1)[:, None] + overhead)
    speed[0, 1:] = 0  # nodes without levels
    d, n = np.unravel_index(int(speed.argmax()), speed.shape)
    return _read(first, int(n), int(d))


def check_draws(rule: object, most: int, independent: bool) -> None:
    """Check, before decoding, that a rule can verify a tree of a given shape."""
    k = getattr(rule, "independent_draws", None)
    if k is None or most < 2:
        return
    if not independent:
        raise ValueError(
            f"rule={getattr(rule, 'name', rule)} takes independent draws from one row, and this"
            " drafter's siblings differ: use siblings=with_replacement, or speculative_sampling"
        )
    if most > k:
        raise ValueError(
            f"rule={getattr(rule, 'name', rule)} takes at most {k} draws at a node, and the tree"
            f" has {most}: use k_seq({most})"
        )
