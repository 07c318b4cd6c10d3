"""Sessions that are watched or changed: their rows compared with rows computed in another way."""

from specdec_lite import generate
from specdec_lite.contract import Drafter, Session


class Scripted(Drafter, Session):
    """A drafter that makes the same proposal in every round, or one of the context."""

    def __init__(self, proposal):
        self.proposal = proposal

    def start(self, context):
        return self

    def propose(self, context):
        return self.proposal(context) if callable(self.proposal) else self.proposal


def changed(drafter, change):
    """Return the drafter, whose sessions now go through `change` before they draft."""
    begin = drafter.start

    def start(context):
        session = begin(context)
        change(session)
        return session

    drafter.start = start
    return drafter


def altered(drafter, alter):
    """Return the drafter, whose proposals now go through alter(session, proposal, context)."""

    def change(session):
        propose = session.propose
        session.propose = lambda context: alter(session, propose(context), context)

    return changed(drafter, change)


def differences(target, drafter, prompt, rows, broken=lambda session: None, new=24):
    """Decode at temperature 1; return each draft's distance from the rows, and the steps.

    A row is compared where its draw comes first among its siblings. Chosen siblings must be the
    likeliest tokens of their row.

    Args:
        rows: (context, tokens [k] of a path) → the distributions [≥ k, V] of these tokens.
        broken: a change of every session.
    """
    apart = []

    def distance(context, proposal):
        tree, places = proposal.tree, {}
        nodes = range(len(tree)) if proposal.nodes is None else proposal.nodes
        for path in map(list, tree.paths()):
            found = rows(context, tree.tokens[path])
            places |= {parent: row for parent, row in zip((-1, *path), found[: len(path)])}
        most = 0.0
        for parent, row in places.items():
            children = tree.children(parent)
            if proposal.probs is None:
                likeliest = row.topk(len(children)).indices
                most = max(most, float(not tree.tokens[list(children)].equal(likeliest)))
            else:
                drawn = proposal.probs[list(nodes).index(children[0])]
                most = max(most, float((row - drawn).abs().max()))
        return most

    def compared(session, proposal, context):
        if len(proposal.tree):
            apart.append(distance(context, proposal))
        return proposal

    watched = altered(changed(drafter, broken), compared)
    return apart, generate(target, prompt, watched, new, temperature=1.0, seed=1).steps
