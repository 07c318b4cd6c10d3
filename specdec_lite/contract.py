"""The contract of every drafter: what it may look at, and what it must implement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.cache import Cache, CacheReader, Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Rng, Sampling


@runtime_checkable
class PathProcessor(Protocol):
    """A function of a prefix and of the logits after it.

    It is a function: the same prefix gives the same result, since a rejected path is asked for once
    and never again, and another path may come first. State that a grammar needs is kept by prefix.
    It is called only for prefixes that it allowed itself, beginning with the prompt.
    """

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; −inf forbids a token.

        Args:
            prefix_ids: ids [n] of the text before, prompt included, on the host.
            logits: [V] of any float dtype; not to be changed in place.
        """
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter may look at.

    Attributes:
        tokens: the committed ids [m], on the host; no model has been fed the last of them.
        scores: the target's scores of the last round's root and accepted path (at `start`: of all
            prompt tokens but the last), with the hidden layers that the drafter declared; None
            if the prompt is a single token.
        sampling: how tokens are drawn.
        rng: where all chance comes from.
        wanted: number of tokens that may still be emitted, ≥ 1; levels beyond `wanted - 1` are cut.
        vocab_size: the target's V, the width that every row of `Proposal.probs` must have.
        processors: what changes the target's logits before a token is drawn; the scores that a
            drafter gets are processed.
        cache: the target's, with every committed token but the last. Drafters get a reader, which
            has `length`, `keys` and `positions`, and makes caches by `view` and `select`.
    """

    tokens: Tensor
    scores: Scores | None
    sampling: Sampling
    rng: Rng
    wanted: int
    vocab_size: int
    cache: Cache | CacheReader | None = None
    processors: tuple[PathProcessor, ...] = ()

    def for_drafter(self) -> "Context":
        """Return this context with a cache that can only be read."""
        if self.cache is None or isinstance(self.cache, CacheReader):
            return self
        return replace(self, cache=CacheReader(self.cache))


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest tree that a drafter proposes in one round.

    Attributes:
        levels: of the tree.
        nodes: of the tree.
        branches: whether a node may have several children although no level must have several, as
            in a tree whose shape is known only after drafting.
    """

    levels: int
    nodes: int
    branches: bool = False

    @classmethod
    def chain(cls, levels: int) -> "Limits":
        """Return the limits of a chain.

        Args:
            levels: length of the chain.
        """
        return cls(levels, levels)

    @property
    def is_chain(self) -> bool:
        """Return whether there is at most one node per level."""
        return self.nodes == self.levels and not self.branches


class Session:
    """One generation's drafting.

    All state of a generation is stored here, so that generations can interleave. A session inside
    another one may hear no verdict, and may be given a text without tokens that it was given
    before: what depends on the text follows it, as `drafters.chain.Followed` does.

    Attributes:
        passes: forward passes of the drafter so far; 0 for drafters without a model.
    """

    passes: int = 0

    def propose(self, context: Context) -> Proposal:
        """Draft a tree. The engine cuts off levels that cannot be used.

        A drawn token may not be discarded after its value was looked at: stop *after* it.

        Args:
            context: what the drafter may look at.
        """
        raise NotImplementedError

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        """Receive what became of the last proposal.

        Args:
            verdict: the rule's decision.
            scores: of [root] + tree.tokens, rejected rows included. These are inference tensors, so
                a loss on them raises: learn from `scores.detached()`.
        """


class Drafter:
    """A source of proposals. Subclasses implement `start`.

    Attributes:
        hidden_layers: the target's hidden states that it wants to see in `Context.scores`.
        makes_passes: whether drafting runs a model that `draft_model` does not return, as drafting
            with a part of the target does.
    """

    hidden_layers: tuple[Layer, ...] = ()
    makes_passes: bool = False

    def start(self, context: Context) -> Session:
        """Begin one generation, after the target's prefill.

        Args:
            context: with the scores of all prompt tokens but the last.
        """
        raise NotImplementedError

    def check(self, target: CausalLM, positions: int) -> None:
        """Raise ValueError, before any model runs, if it cannot draft for a target.

        A drafter that wraps other drafters calls their `check`; one with an attribute `target` drafts
        for that model alone.

        Args:
            target: the model to draft for.
            positions: length of the text, prompt included.
        """
        if isinstance(own := getattr(self, "target", None), CausalLM):
            checks.own_target(own, target)

    def check_rule(self, rule: object) -> None:
        """Raise ValueError if this drafter would change the distribution under a lossless rule.

        Args:
            rule: the acceptance rule or verifier of the generation.
        """

    def learn(self, tokens: Sequence[int] | Tensor) -> None:
        """Add a text to a memory that outlives the generation; by default, do nothing.

        Only the user calls it, between generations.

        Args:
            tokens: ids [n].
        """

    def limits(self) -> Limits | None:
        """Return the largest tree that it proposes in a round; None if that is not known."""
        return None

    def draft_model(self) -> CausalLM | None:
        """Return the model whose pass is the numerator of c; None if there is no such model."""
        return None


class NoDraft(Session):
    """Propose nothing: plain autoregressive decoding, one token per round."""

    def propose(self, context: Context) -> Proposal:
        """Return the empty proposal.

        Args:
            context: not used.
        """
        return NOTHING
