"""Greedy verification, and the rule builder that it shares with lossy longest-path rules."""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction, kind_of, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


def longest_path(accepts: Callable[[Tensor, Tensor], Tensor]) -> RuleFunction:
    """Return a rule in which every node passes or fails by itself and the longest path is kept.

    The target's most likely token follows the path. Of equally long paths the one that is more
    likely under the target is kept; of equally likely ones the first.

    Args:
        accepts: (rows [n, V], tokens [n]) → bool [n], where rows[i] is the target's distribution at
            the parent of node i.
    """

    def verify(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tree = proposal.tree
        best = best_passing(proposal, target_probs, accepts) if len(tree) else -1
        path = tree.path(best)
        drawn = [[child for child, _ in proposal.draws.get(node, ())] for node in (-1, *path)]
        tests = [drawn[level].index(node) + 1 for level, node in enumerate(path)]
        if drawn[-1]:
            tests.append(len(drawn[-1]))
        token = int(target_probs[best + 1].argmax())
        return Verdict(path, token, kind_of(path, rejected=bool(drawn[-1])), tuple(tests))

    return verify


def best_passing(
    proposal: Proposal, target_probs: Tensor, accepts: Callable[[Tensor, Tensor], Tensor]
) -> int:
    """Return the last node of the longest path of nodes that pass; −1 if none passes.

    Args:
        proposal: at least one node.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
        accepts: as for `longest_path`.
    """
    tree = proposal.tree
    tokens = tree.tokens.to(target_probs.device)
    rows = target_probs[torch.tensor(tree.parents, device=target_probs.device) + 1]
    passing = accepts(rows, tokens).tolist()
    probs = rows.gather(-1, tokens[:, None])[:, 0].tolist()
    reached = {-1: (0, 1.0)}  # node → (length, probability) of the path to it
    best = -1
    for node, parent in enumerate(tree.parents):
        allowed = proposal.candidates is None or node in proposal.candidates
        if parent in reached and passing[node] and allowed:
            length, prob = reached[parent]
            reached[node] = length + 1, prob * probs[node]
            best = node if reached[node] > reached[best] else best
    return best


_follow_argmax = longest_path(lambda rows, tokens: rows.argmax(-1) == tokens)


@rule(lossless=True)
def exact_match(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Keep a drafted token iff it is the target's argmax: greedy verification.

    Source: Stern et al. 2018, section 3.

    Args:
        proposal: the drafted tree.
        target_probs: one-hot rows [n+1, V], row 0 after the root, row i+1 after node i.
        rng: not used.

    Raises:
        ValueError: target_probs is not one-hot; the rule would replace sampling by argmax.
    """
    if not bool((target_probs.amax(-1) == 1).all()):
        raise ValueError(
            "exact_match needs one-hot target_probs (temperature=0): on a soft distribution it"
            " would replace sampling by argmax. Use speculative_sampling or sample_and_match."
        )
    return _follow_argmax(proposal, target_probs, rng)
