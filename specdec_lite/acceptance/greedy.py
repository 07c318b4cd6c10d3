"""Greedy verification, and the frame it shares with the lossy rules that follow the longest path."""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.acceptance.rule import RuleFunction, kind_of, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


def longest_path(accepts: Callable[[Tensor, Tensor], Tensor]) -> RuleFunction:
    """A rule in which nodes pass or fail by themselves, the longest path of passing nodes wins, and
    the target's likeliest token follows it.

    accepts(rows [n, V], tokens [n]) → [n] bool, where rows[i] is the target's distribution at the
    parent of node i. Of equally long paths the likeliest under the target wins, of equally likely
    ones the first.
    """

    def judge(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        tree = proposal.tree
        best = best_passing(proposal, target_probs, accepts) if len(tree) else -1
        path = tree.path(best)
        drawn = [[child for child, _ in proposal.draws.get(node, ())] for node in (-1, *path)]
        tests = [drawn[level].index(node) + 1 for level, node in enumerate(path)]
        if drawn[-1]:
            tests.append(len(drawn[-1]))
        token = int(target_probs[best + 1].argmax())
        return Verdict(path, token, kind_of(path, rejected=bool(drawn[-1])), tuple(tests))

    return judge


def best_passing(
    proposal: Proposal, target_probs: Tensor, accepts: Callable[[Tensor, Tensor], Tensor]
) -> int:
    """The last node of the longest path of nodes that pass; −1 where none does."""
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
    """Greedy verification: a drafted token stays iff it is the target's argmax.

    ValueError for a soft `target_probs`, on which it would replace sampling by argmax. Source:
    Stern et al. 2018, section 3.
    """
    if not bool((target_probs.amax(-1) == 1).all()):
        raise ValueError(
            "exact_match needs one-hot target_probs (temperature=0): on a soft distribution it"
            " would replace sampling by argmax. Use speculative_sampling or sample_and_match."
        )
    return _follow_argmax(proposal, target_probs, rng)
