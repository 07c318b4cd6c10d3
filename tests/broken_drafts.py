"""Drafts and targets that are broken on purpose: never harmful, only slow; a diagnosis names each."""

import torch

from specdec_lite.drafters import ModelDrafter
from specdec_lite.drafters.chain import draft_chain, fit
from specdec_lite.drafters.model import ModelSession
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal
from specdec_lite.tree import TokenTree


class Wrapped:
    """A model that answers for another."""

    def __init__(self, model):
        self.whole = model

    def __getattr__(self, name):
        return getattr(self.__dict__["whole"], name)


class TemplateBlindDraft(Wrapped):
    """Knows nothing once it has read the marker: its rows are uniform."""

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
    """Knows nothing beyond a number of positions."""

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
    """Behind the root it answers for the neighbouring token."""

    def score(self, tokens, cache, tree=None, *args, **kwargs):
        scores = self.whole.score(tokens, cache, tree, *args, **kwargs)
        if tree is None or scores.logits.shape[1] == 1:
            return scores
        logits = scores.logits.clone()
        logits[:, 1:] = logits[:, 1:].roll(1, -1)
        return Scores(logits, scores.hidden)


class OnePlaceForAllRows(Wrapped):
    """In a batch every row is told the positions of the longest; alone it is sound."""

    def __init__(self, target):
        super().__init__(target)
        self.model = SharedPositions(target.model)


class SharedPositions(Wrapped):
    def __call__(self, tokens, tensors, slots, positions, *rest):
        longest = positions[positions[:, 0].argmax()]
        return self.whole(tokens, tensors, slots, longest.expand_as(positions), *rest)


class StaleSession(ModelSession):
    """Feeds only the last token after a round, and keeps what was rejected."""

    def observe(self, verdict, scores):
        self.length.observe(verdict)

    def propose(self, context):
        fed = [int(context.tokens[-1])]

        def follow(token):
            return self._score(fed if token is None else [token]).logits[0, -1]

        return draft_chain(context, follow, self.length)


class StaleDrafter(ModelDrafter):
    def start(self, context):
        return StaleSession(self.model, self.length, context)


class LostSession(ModelSession):
    """Behind its first token it is fed another one than it drafted."""

    def propose(self, context):
        self.root = len(context.tokens)

        def follow(token):
            fed = context.tokens[self.cache.length :] if token is None else [(token + 7) % 1000]
            return self._score(fed).logits[0, -1]

        return draft_chain(context, follow, self.length)

    def observe(self, verdict, scores):
        self.length.observe(verdict)
        self.cut(self.root)


class LostBehindTheFirst(ModelDrafter):
    def start(self, context):
        return LostSession(self.model, self.length, context)


class ArgmaxSession(ModelSession):
    """Proposes q's likeliest tokens at every temperature."""

    def propose(self, context):
        self.root = len(context.tokens)
        tokens = []
        for _ in range(min(self.length.gamma, context.wanted - 1)):
            fed = [tokens[-1]] if tokens else context.tokens[self.cache.length :]
            tokens.append(int(fit(self._score(fed).logits[0, -1], context.vocab_size).argmax()))
        return Proposal(TokenTree.chain(tokens))


class ArgmaxDrafter(ModelDrafter):
    def start(self, context):
        return ArgmaxSession(self.model, self.length, context)
