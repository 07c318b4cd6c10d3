"""Greedy verification, and the rule builder that it shares with lossy longest-path rules."""

from collections.abc import Callable, Sequence

from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction, kind_of, numbers_of, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng
from specdec_lite.transfer import download, upload


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
        numbers = numbers_of(proposal, target_probs)
        # A longest path looks at no draw: every node is tested on the device, and read together.
        parts = {"likeliest": target_probs.argmax(-1)}
        if len(tree):
            before = upload([parent + 1 for parent in tree.parents], target_probs.device)
            tokens = upload(tree.tokens, target_probs.device)
            parts["passing"] = accepts(target_probs[before], tokens)
        host = download(**parts)
        best = best_passing(proposal, host.get("passing", ()), numbers.p)
        return keep_path(proposal, best, int(host["likeliest"][best + 1]))

    return verify


def keep_path(proposal: Proposal, last: int, token: int) -> Verdict:
    """Return the verdict that accepts the path to a node."""
    path = proposal.tree.path(last)
    # Siblings before the accepted one count as tested, and below the last node all draws failed.
    drawn = [[child for child, _ in proposal.draws.get(node, ())] for node in (-1, *path)]
    tests = [drawn[level].index(node) + 1 for level, node in enumerate(path)]
    if drawn[-1]:
        tests.append(len(drawn[-1]))
    return Verdict(path, token, kind_of(path, rejected=bool(drawn[-1])), tuple(tests))


def best_passing(proposal: Proposal, passing: Sequence[float], probs: Sequence[float]) -> int:
    """Return the last node of the longest path of nodes that pass; −1 if none passes."""
    reached = {-1: (0, 1.0)}  # node → (length, probability) of the path to it
    best = -1
    for node, parent in enumerate(proposal.tree.parents):
        allowed = proposal.candidates is None or node in proposal.candidates
        # Parents come before children, so one pass over the nodes finds every path.
        if parent in reached and passing[node] and allowed:
            length, prob = reached[parent]
            reached[node] = length + 1, prob * probs[node]
            best = node if reached[node] > reached[best] else best
    return best


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
    numbers = numbers_of(proposal, target_probs)
    likeliest = target_probs.argmax(-1)
    host = download(likeliest=likeliest, largest=target_probs.gather(-1, likeliest[:, None])[:, 0])
    if any(prob != 1 for prob in host["largest"]):
        raise ValueError(
            "exact_match needs one-hot target_probs (temperature=0): on a soft distribution it"
            " would replace sampling by argmax. Use speculative_sampling or sample_and_match."
        )
    # In a one-hot row the argmax is the token with probability 1.
    best = best_passing(proposal, [p == 1 for p in numbers.p], numbers.p)
    return keep_path(proposal, best, int(host["likeliest"][best + 1]))
