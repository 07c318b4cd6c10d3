"""Rules and drafters that are wrong on purpose, each a bug that was once published.

Every test of a distribution must fail for them. A rule here is a function (proposal, target_probs,
rng) → Verdict. A draft is a function (draft model, gamma, rng) → Proposal, as in
`acceptance.distributions`.
"""

import torch

from specdec_lite.acceptance import (
    Proposal,
    Verdict,
    block_verification,
    one_hot,
    ratio,
    residual,
    speculative_sampling,
    walk,
)
from specdec_lite.drafters.trees import Family, read_children
from specdec_lite.tree import TokenTree

# Ways to draft ------------------------------------------------------------------------------------


def with_replacement(count):
    """Draw `count` siblings from q."""
    return lambda q, rng: [(rng.draw(q), q) for _ in range(count)]


def without_replacement(count, honest=True, ordered=False):
    """Return a draw of `count` different siblings."""

    def children(q, rng):
        siblings, row = [], q
        while len(siblings) < count and row.sum() > 0:
            row = row / row.sum()
            token = rng.draw(row)
            siblings.append((token, row if honest else q))
            row = row.clone()
            row[token] = 0
        return sorted(siblings, key=lambda child: -q[child[0]].item()) if ordered else siblings

    return children


def chosen(count, soft=False):
    """Return the `count` most likely tokens of q, as one-hot draws or, wrongly, with q (soft)."""
    return lambda q, rng: [
        (token, q if soft else one_hot(token, q)) for token in q.topk(count).indices.tolist()
    ]


def mixed(count):
    """Return one drawn sibling, then the most likely others as one-hot draws."""

    def children(q, rng):
        drawn = rng.draw(q)
        others = [token for token in q.topk(count).indices.tolist() if token != drawn][: count - 1]
        return [(drawn, q), *((token, one_hot(token, q)) for token in others)]

    return children


def sorted_by_q(count):
    """Draw with replacement, then sort by q, although the order is part of the distribution."""
    return lambda q, rng: sorted(
        with_replacement(count)(q, rng), key=lambda child: -q[child[0]].item()
    )


def grow(children, merge="no"):
    """Return a draft of γ levels in which every node gets the same kind of children."""

    def propose(drafter, gamma, rng):
        tokens = []
        parents = []
        rows = []
        nodes = []
        level = [(-1, ())]
        for _ in range(gamma):
            below = []
            for parent, text in level:
                node_of = {}
                q = torch.as_tensor(drafter(text), dtype=torch.float64)
                for token, row in children(q, rng):
                    if token in node_of and merge == "draws":
                        continue
                    if token not in node_of or merge == "no":
                        node_of[token] = len(tokens)
                        below.append((len(tokens), (*text, token)))
                        tokens.append(token)
                        parents.append(parent)
                    rows.append(row)
                    nodes.append(node_of[token])
            level = below
        return Proposal(TokenTree(tokens, parents), torch.stack(rows), nodes)

    return propose


def draw_tree(siblings, count):
    """Return a draft of γ levels with siblings of `drafters.trees`: equal ones share a node."""

    def children(q, rng):
        (family,) = read_children([siblings(q, count, rng)])
        return [(token, one_hot(token, q) if row is None else row) for token, row in family]

    return grow(children, merge="nodes")


def backwards(siblings):
    """Return siblings of `drafters.trees` in the opposite order."""

    def draw(*arguments):
        family = siblings(*arguments)
        return Family(family.tokens.flip(0), family.masses.flip(0), family.rows[::-1])

    return draw


def adjusted_too_late(sharpen):
    """Draw from the sharpened q but report the raw q, as before temperature or top-p."""
    return grow(lambda q, rng: [(rng.draw(sharpen(q)), q)])


def stops_at_unsure(threshold, keep_it):
    """Draft a chain that ends at the first token with q below the threshold."""

    def propose(drafter, gamma, rng):
        tokens, rows = [], []
        for _ in range(gamma):
            q = torch.as_tensor(drafter(tuple(tokens)), dtype=torch.float64)
            token = rng.draw(q)
            if keep_it or q[token] >= threshold:
                tokens.append(token)
                rows.append(q)
            if q[token] < threshold:
                break
        return Proposal(TokenTree.chain(tokens), torch.stack(rows) if rows else None)

    return propose


# Rules --------------------------------------------------------------------------------------------

recovered_from_p = walk(ratio, lambda p, q: p)
"""Draw from p after a rejection, as Spec-RL does with the rollouts of the epoch before (its issue 14)."""


def accept_impossible(p, q, token):
    """Accept if q(x) = 0, as though the draft could not be wrong."""
    return 1.0 if q[token] <= 0 else p[token].item() / q[token].item()


accepts_q_zero = walk(accept_impossible, residual)


def residual_not_carried(proposal, target_probs, rng):
    """Test every sibling against p itself; draw only the recovered token from a residual."""
    tokens, node, path = proposal.tree.tokens.tolist(), -1, []
    while True:
        p = remaining = target_probs[node + 1]
        for child, row in proposal.draws.get(node, ()):
            q = proposal.probs[row]
            if rng.flip(ratio(p, q, tokens[child])):
                path.append(child)
                node = child
                break
            remaining = residual(p, q)
        else:
            return Verdict(tuple(path), rng.draw(remaining), "recovered", ())


def bonus_by_argmax(proposal, target_probs, rng):
    """Take the argmax as bonus token instead of drawing it."""
    verdict = speculative_sampling(proposal, target_probs, rng)
    if verdict.kind == "recovered":
        return verdict
    return Verdict(
        verdict.path,
        int(target_probs[(verdict.path or (-1,))[-1] + 1].argmax()),
        verdict.kind,
        verdict.tests,
    )


def block_with_early_break(proposal, target_probs, rng):
    """Stop block verification at the first failed test, although the last success counts."""

    class Stops:
        passed, draw = True, rng.draw

        def flip(self, prob):
            self.passed = self.passed and rng.flip(prob)
            return self.passed

    return block_verification(proposal, target_probs, Stops())


def longest_of_independent_paths(proposal, target_probs, rng):
    """Verify every path by itself as a chain, and keep the longest accepted one."""
    best = None
    for path in proposal.tree.paths():
        chain = Proposal(
            TokenTree.chain(proposal.tree.tokens[list(path)]), proposal.probs[list(path)]
        )
        verdict = speculative_sampling(chain, target_probs[[0, *(node + 1 for node in path)]], rng)
        if best is None or len(verdict.path) > len(best.path):
            best = Verdict(path[: len(verdict.path)], verdict.token, verdict.kind, verdict.tests)
    return best


def k_seq_clamped(rho):
    """Return K-SEQ with a ρ below the root: its residual is negative, and a clamp hides it."""

    def verify(proposal, target_probs, rng):
        tokens, draws = proposal.tree.tokens.tolist(), proposal.draws[-1]
        p, q = target_probs[0], proposal.probs[draws[0][1]]
        for child, _ in draws:
            if rng.flip(ratio(p, q, tokens[child]) / rho):
                return Verdict((child,), rng.draw(target_probs[child + 1]), "bonus", (1,))
        overlap = torch.minimum(p / rho, q)
        beta = overlap.sum()
        remaining = (p - overlap * (1 - (1 - beta) ** len(draws)) / beta).clamp(min=0)
        return Verdict((), rng.draw(remaining / remaining.sum()), "recovered", (len(draws),))

    return verify


def traversal(again=False, independent=False):
    """Return traversal verification, written as it is explained."""

    def verify(proposal, target_probs, rng):
        tokens = proposal.tree.tokens.tolist()

        def down(node, weight, first):
            """Return (accepted path, token), or None if everything from here down was rejected."""
            after = target_probs[node + 1]
            for child, row in proposal.draws.get(node, ()):
                q = proposal.probs[row]
                below = down(child, min(1.0, weight * ratio(after, q, tokens[child])), False)
                if below:
                    return ((child, *below[0]), below[1])
                excess = (weight * after - q).clamp(min=0)
                mass = excess.sum().item()
                if independent:
                    continue
                after = excess / mass if mass > 0 else after
                if not again:
                    weight = mass / (mass + (1 - weight)) if mass > 0 else 0.0
            return ((), rng.draw(after)) if first or rng.flip(weight) else None

        path, token = down(-1, 1.0, True)
        return Verdict(path, token, "recovered", ())

    return verify


def draws_per_path(proposal, target_probs, rng):
    """Verify as REST's repository does above temperature 0.

    Every path has its own target draws, so a shared node is drawn more than once. The longest path
    is kept, and the token after it is drawn from p again.
    """
    tokens, best = proposal.tree.tokens.tolist(), ()
    for path in proposal.tree.paths():
        stays = []
        for parent, node in zip((-1, *path), path):
            if rng.draw(target_probs[parent + 1]) != tokens[node]:
                break
            stays.append(node)
        best = tuple(stays) if len(stays) > len(best) else best
    return Verdict(best, rng.draw(target_probs[(best or (-1,))[-1] + 1]), "recovered", ())


def drawn_again(proposal, target_probs, rng):
    """Draw one target token per node, as is right, but draw again if no child has it."""
    tokens, path = proposal.tree.tokens.tolist(), [-1]
    while children := proposal.tree.children(path[-1]):
        token = rng.draw(target_probs[path[-1] + 1])
        child = next((child for child in children if tokens[child] == token), None)
        if child is None:
            break
        path.append(child)
    return Verdict(tuple(path[1:]), rng.draw(target_probs[path[-1] + 1]), "recovered", ())
