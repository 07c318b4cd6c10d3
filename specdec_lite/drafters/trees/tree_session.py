"""A draft model that scores a tree level by level, with the scored nodes in its cache."""

from collections.abc import Sequence

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import fit
from specdec_lite.drafters.followed import Followed
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Session, fed_tokens
from specdec_lite.tree import TokenTree


class ModelTreeDrafter(Drafter):
    """Draft trees with a model of the target's vocabulary.

    Args:
        draft: a `CausalLM`.
    """

    def __init__(self, draft: CausalLM):
        self.model = checks.model("draft", draft)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.positions(self.model, positions)

    def draft_model(self) -> CausalLM:
        return self.model


class ModelTreeSession(Session):
    """The drafting of one generation: subclass it and define `propose`.

    Between rounds the cache holds every committed token but the last, or but the last two if a
    path was accepted to its end.

    Args:
        model: the draft model.
        room: cache entries that one round may need.
        context: context at the start of the generation.
    """

    def __init__(self, model: CausalLM, room: int, context: Context):
        self.model = model
        self.cache = model.new_cache(capacity=len(context.tokens) + context.wanted + room)
        self.followed = Followed(self.cache)
        if len(context.tokens) > 1:
            self._score(self.followed.behind(context.tokens[:-1]))

    def _score(
        self, tokens: Tensor, *tree: TokenTree, last: bool = True, cached: int = 0
    ) -> Tensor:
        """Feed tokens [n] and return logits [n, V], or [1, V] if only the last row is needed."""
        self.passes += 1
        # A padded target may have a token that the draft lacks: its last token is fed instead.
        tokens = tokens.clamp(max=self.model.vocab_size - 1)
        return self.model.score(tokens, self.cache, *tree, last=last, cached=cached).logits[0]  # pyright: ignore[reportArgumentType]

    def begin(self, context: Context) -> Tensor:
        """Feed the tokens committed since the last round and return the logits [V] after them."""
        logits = self._score(self.followed.behind(context.tokens))
        return fit(logits[-1], context.vocab_size)

    def rows(self, context: Context, tree: TokenTree, nodes: Sequence[int]) -> list[Tensor]:
        """Feed nodes of a tree and return the logits [V] after each.

        A model that scores a tree path by path cannot continue one: it is fed the whole tree.
        """
        stored = len(tree) - len(nodes)  # the other nodes are in the cache since earlier levels
        if stored and getattr(self.model.backend, "by_path", False):
            self.cache.crop(len(context.tokens) - 1)
            fed = fed_tokens(self.model, context, Proposal(tree))
            logits = self._score(fed, tree, last=False)[1 + stored :]
        else:
            logits = self._score(tree.tokens[stored:], tree, last=False, cached=stored)
        self.followed.tree = tree
        return [fit(row, context.vocab_size) for row in logits]
