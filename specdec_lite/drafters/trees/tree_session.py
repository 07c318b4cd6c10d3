"""A draft model that scores a tree level by level, with the scored nodes in its cache."""

from collections.abc import Sequence

from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import fit
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
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

    Attributes:
        fed: node of the proposal → its number among the nodes that were fed.
    """

    def __init__(self, model: CausalLM, room: int, context: Context):
        self.model = model
        self.root = len(context.tokens)
        self.fed: dict[int, int] = {}
        self.cache = model.new_cache(capacity=self.root + context.wanted + room)
        if self.root > 1:
            self._score(context.tokens[:-1])

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
        logits = self._score(context.tokens[self.cache.length :])
        return fit(logits[-1], context.vocab_size)

    def rows(self, context: Context, tree: TokenTree, nodes: Sequence[int]) -> list[Tensor]:
        """Feed nodes of a tree and return the logits [V] after each.

        A model that scores a tree path by path cannot continue one: it is fed the whole tree.
        """
        stored = len(tree) - len(nodes)  # the other nodes are in the cache since earlier levels
        if stored and getattr(self.model.backend, "by_path", False):
            self.cache.crop(self.root - 1)
            fed = fed_tokens(self.model, context, Proposal(tree))
            logits = self._score(fed, tree, last=False)[1 + stored :]
        else:
            logits = self._score(tree.tokens[stored:], tree, last=False, cached=stored)
        return [fit(row, context.vocab_size) for row in logits]

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        # Keep the keys of the accepted path; number 0 is the root, which the last pass fed too.
        if self.cache.length > self.root:
            path = [self.fed[node] + 1 for node in verdict.path if node in self.fed]
            self.cache.keep((0, *path))
        self.cut(self.root + len(verdict.path))

    def cut(self, length: int) -> None:
        self.cache.crop(min(self.cache.length, length))
