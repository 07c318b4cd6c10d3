"""Rules and drafters that are wrong on purpose, each a bug that was once published. Every check of
a law must reject them.

A rule here is a function (proposal, target_probs, rng) → Verdict, a draft a function (law, gamma,
rng) → Proposal, as in `laws`.
"""

import torch

from specdec_lite.acceptance import (
    Proposal,
    Verdict,
    one_hot,
    ratio,
    residual,
    speculative_sampling,
    walk,
)
from specdec_lite.tree import TokenTree

# Ways to draft ------------------------------------------------------------------------------------


def with_replacement(count):
    """`count` siblings, each drawn from q."""
    return lambda q, rng: [(rng.draw(q), q) for _ in range(count)]


def without_replacement(count, honest=True, ordered=False):
    """`count` different siblings. honest: each with the renormalised row it was drawn from.
    ordered: sorted by q afterwards.
    """

    def children(q, rng):
        made, left = [], q
        while len(made) < count and left.sum() > 0:
            left = left / left.sum()
            token = rng.draw(left)
            made.append((token, left if honest else q))
            left = left.clone()
            left[token] = 0
        return sorted(made, key=lambda child: -q[child[0]].item()) if ordered else made

    return children


def chosen(count, soft=False):
    """The `count` likeliest tokens of q, rightly as point masses, or wrongly (soft) with q itself."""
    return lambda q, rng: [
        (token, q if soft else one_hot(token, q)) for token in q.topk(count).indices.tolist()
    ]


def mixed(count):
    """One drawn sibling, then the likeliest others as point masses."""

    def children(q, rng):
        drawn = rng.draw(q)
        others = [token for token in q.topk(count).indices.tolist() if token != drawn][: count - 1]
        return [(drawn, q), *((token, one_hot(token, q)) for token in others)]

    return children


def sorted_by_q(count):
    """Drawn with replacement, then put in order of q: the order is part of the law."""
    return lambda q, rng: sorted(
        with_replacement(count)(q, rng), key=lambda child: -q[child[0]].item()
    )


def grow(children, merge="no"):
    """A draft in which every node gets `children(q, rng)`: [(token, row of its draw)], γ levels
    deep.

    merge: "nodes" puts equal siblings on one node and keeps every draw; "draws" wrongly drops the
    repeated draws too.
    """

    def propose(law, gamma, rng):
        tokens = []
        parents = []
        rows = []
        nodes = []
        level = [(-1, ())]
        for _ in range(gamma):
            below = []
            for parent, text in level:
                landed = {}
                for token, row in children(torch.as_tensor(law(text), dtype=torch.float64), rng):
                    if token in landed and merge == "draws":
                        continue
                    if token not in landed or merge == "no":
                        landed[token] = len(tokens)
                        below.append((len(tokens), (*text, token)))
                        tokens.append(token)
                        parents.append(parent)
                    rows.append(row)
                    nodes.append(landed[token])
            level = below
        return Proposal(TokenTree(tokens, parents), torch.stack(rows), nodes)

    return propose


def adjusted_too_late(sharpen):
    """Draws from the sharpened q and reports the raw one: q before temperature or top-p."""
    return grow(lambda q, rng: [(rng.draw(sharpen(q)), q)])


def stops_at_unsure(threshold, keep_it):
    """A chain that ends at the first token with q below the threshold: after it (legal), or
    dropping it (a bias).
    """

    def propose(law, gamma, rng):
        tokens, rows = [], []
        for _ in range(gamma):
            q = torch.as_tensor(law(tuple(tokens)), dtype=torch.float64)
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


def accept_impossible(p, q, token):
    """q(x) = 0 taken as a reason to accept."""
    return 1.0 if q[token] <= 0 else p[token].item() / q[token].item()


accepts_q_zero = walk(accept_impossible, residual)


def residual_not_carried(proposal, target_probs, rng):
    """Every sibling is tested against p itself; only the recovered token is drawn from a residual."""
    tokens, node, path = proposal.tree.tokens.tolist(), -1, []
    while True:
        p = owed = target_probs[node + 1]
        for child, row in proposal.draws.get(node, ()):
            q = proposal.probs[row]
            if rng.flip(ratio(p, q, tokens[child])):
                path.append(child)
                node = child
                break
            owed = residual(p, q)
        else:
            return Verdict(tuple(path), rng.draw(owed), "recovered", ())


def bonus_by_argmax(proposal, target_probs, rng):
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
    """Block verification that stops at the first failed test, although its length is the last
    success.
    """
    if not len(proposal.tree):
        return Verdict((), rng.draw(target_probs[0]), "sampled", ())
    tokens, rows = proposal.tree.tokens.tolist(), proposal.probs
    weight, accepted, owed = 1.0, 0, residual(target_probs[0], rows[0])
    for i, token in enumerate(tokens, start=1):
        weight = min(1.0, weight * ratio(target_probs[i - 1], rows[i - 1], token))
        excess = (
            target_probs[i]
            if i == len(tokens)
            else (weight * target_probs[i] - rows[i]).clamp(min=0)
        )
        mass = excess.sum().item()
        prob = weight if i == len(tokens) else mass / (mass + 1 - weight) if mass > 0 else 0.0
        if not rng.flip(prob):
            break
        accepted, owed = i, excess / mass
    return Verdict(tuple(range(accepted)), rng.draw(owed), "recovered", ())


def longest_of_independent_paths(proposal, target_probs, rng):
    """Every path judged by itself as a chain; the longest accepted one wins."""
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
    """K-SEQ with a ρ below the root: what it owes falls below nothing, and a clamp hides it."""

    def judge(proposal, target_probs, rng):
        tokens, draws = proposal.tree.tokens.tolist(), proposal.draws[-1]
        p, q = target_probs[0], proposal.probs[draws[0][1]]
        for child, _ in draws:
            if rng.flip(ratio(p, q, tokens[child]) / rho):
                return Verdict((child,), rng.draw(target_probs[child + 1]), "bonus", (1,))
        kept = torch.minimum(p / rho, q)
        beta = kept.sum()
        owed = (p - kept * (1 - (1 - beta) ** len(draws)) / beta).clamp(min=0)
        return Verdict((), rng.draw(owed / owed.sum()), "recovered", (len(draws),))

    return judge


def traversal(again=False, independent=False):
    """Traversal verification, written as it is explained. again: a node's weight is computed anew
    from its parent after draws below it were refused. independent: refused siblings leave their
    parent as it was.
    """

    def judge(proposal, target_probs, rng):
        tokens = proposal.tree.tokens.tolist()

        def down(node, weight, first):
            """(accepted path, token), or None where everything from here down was refused."""
            owed = target_probs[node + 1]
            for child, row in proposal.draws.get(node, ()):
                q = proposal.probs[row]
                below = down(child, min(1.0, weight * ratio(owed, q, tokens[child])), False)
                if below:
                    return ((child, *below[0]), below[1])
                excess = (weight * owed - q).clamp(min=0)
                mass = excess.sum().item()
                if independent:
                    continue
                owed = excess / mass if mass > 0 else owed
                if not again:
                    weight = mass / (mass + (1 - weight)) if mass > 0 else 0.0
            return ((), rng.draw(owed)) if first or rng.flip(weight) else None

        path, token = down(-1, 1.0, True)
        return Verdict(path, token, "recovered", ())

    return judge


def draws_per_path(proposal, target_probs, rng):
    """REST's repository above temperature 0: every path has target draws of its own, so a shared
    node is drawn more than once; the longest path wins; behind it a token is drawn from p again.
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
    """One target draw a node, as it should be; but where no child has it, another one is made."""
    tokens, path = proposal.tree.tokens.tolist(), [-1]
    while children := proposal.tree.children(path[-1]):
        token = rng.draw(target_probs[path[-1] + 1])
        child = next((child for child in children if tokens[child] == token), None)
        if child is None:
            break
        path.append(child)
    return Verdict(tuple(path[1:]), rng.draw(target_probs[path[-1] + 1]), "recovered", ())
