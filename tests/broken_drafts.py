"""Drafts and targets that are broken on purpose. The text stays exact; a diagnosis names each bug."""

import torch

from specdec_lite.drafters import ModelDrafter
from specdec_lite.drafters.chain import draft_chain, fit
from specdec_lite.drafters.models import ModelSession
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree


class Wrapped:
    """A model that passes everything on to another."""

    def __init__(self, model):
        self.whole = model

    def __getattr__(self, name):
        return getattr(self.__dict__["whole"], name)


class TemplateBlindDraft(Wrapped):
    """A draft whose rows are uniform once it has read the marker."""

    def __init__(self, model, marker):
        super().__init__(model)
        self.first = marker[0]

    def score(self, tokens, cache, *args, **kwargs):
        scores = self.whole.score(tokens, cache, *args, **kwargs)
        cache.blind = getattr(cache, "blind", False) or int(
            torch.as_tensor(tokens).flatten()[0]
        ) == (self.first)
        return Scores(torch.zeros_like(scores.logits)) if cache.blind else scores


class NearSightedDraft(Wrapped):
    """A draft whose rows are uniform beyond a number of positions."""

    def __init__(self, model, most):
        super().__init__(model)
        self.most = most

    def score(self, tokens, cache, *args, **kwargs):
        scores = self.whole.score(tokens, cache, *args, **kwargs)
        begin = cache.length - scores.logits.shape[1]
        logits = scores.logits.clone()
        logits[:, max(0, self.most - begin) :] = 0
        return Scores(logits)


class ShiftedTarget(Wrapped):
    """A target whose rows after the root belong to the neighboring token."""

    def score(self, tokens, cache, tree=None, *args, **kwargs):
        scores = self.whole.score(tokens, cache, tree, *args, **kwargs)
        if tree is None or scores.logits.shape[1] == 1:
            return scores
        logits = scores.logits.clone()
        logits[:, 1:] = logits[:, 1:].roll(1, -1)
        return Scores(logits, scores.hidden)


class OnePlaceForAllRows(Wrapped):
    """A target that gives every row of a batch the positions of the longest row."""

    def __init__(self, target):
        super().__init__(target)
        self.model = SharedPositions(target.model)


class SharedPositions(Wrapped):
    def __call__(self, tokens, tensors, slots, positions, *rest):
        longest = positions[positions[:, 0].argmax()]
        return self.whole(tokens, tensors, slots, longest.expand_as(positions), *rest)


def drafter_of(session):
    """Return the class of model drafters that draft with these sessions."""
    start = lambda self, context: session(self.model, self.length, context)
    return type(session.__name__, (ModelDrafter,), {"start": start, "__doc__": session.__doc__})


@drafter_of
class StaleDrafter(ModelSession):
    """A session that feeds only the last token after a round and never removes rejected tokens."""

    def observe(self, verdict, scores):
        self.length.observe(verdict)

    def propose(self, context):
        fed = [int(context.tokens[-1])]

        def follow(token):
            return self._score(fed if token is None else [token]).logits[0, -1]

        return draft_chain(context, follow, self.length)


@drafter_of
class LostBehindTheFirst(ModelSession):
    """A session that, after its first token, is fed another token than it drafted."""

    def propose(self, context):
        def follow(token):
            fed = self.followed.behind(context.tokens) if token is None else [(token + 7) % 1000]
            return self._score(fed).logits[0, -1]

        return draft_chain(context, follow, self.length)

    def observe(self, verdict, scores):
        self.length.observe(verdict)


@drafter_of
class ArgmaxDrafter(ModelSession):
    """A session that proposes q's most likely tokens at every temperature."""

    def propose(self, context):
        tokens = []
        for _ in range(min(self.length.gamma, context.wanted - 1)):
            fed = [tokens[-1]] if tokens else self.followed.behind(context.tokens)
            tokens.append(int(fit(self._score(fed).logits[0, -1], context.vocab_size).argmax()))
        return Proposal(TokenTree.chain(tokens))


def shifted_states(session, proposal, context):
    """Report every state of the exit one row late."""
    if proposal.states is None:
        return proposal
    block, rows = proposal.states
    return Proposal(proposal.tree, proposal.probs, states=(block, rows.roll(1, dims=1)))
