"""One round: propose → score → verify → commit. The only place where a target's cache is cut back.

Here stand the contract of every drafter (`Drafter`, `Session`, `Context`), the round in pieces, and
the `Step` that a round returns. The loop around it is in `decoding`, the drafters are in
`drafters`; cascades run a round inside a drafter, batches drive the pieces for many rows.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.engine.cache import Cache, Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Rng, Sampling, SeededRng
from specdec_lite.theory import SUM_TOLERANCE
from specdec_lite.tree import TokenTree

# The contract of a drafter -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter may look at.

    Attributes:
        tokens: the committed ids [m], the last of which no model has been fed yet.
        scores: the target's scores of the last round's root and accepted path (at `start`: of all
            prompt tokens but the last), with the hidden layers that the drafter declared; None
            when the prompt is a single token.
        sampling, rng: how tokens are drawn.
        wanted: how many tokens may still be emitted, ≥ 1; levels beyond `wanted - 1` are cut off.
        vocab_size: the target's V, the width that every row of `Proposal.probs` must have.
        cache: the target's, which drafters read through `view` and `select` only. It holds every
            committed token but the last.
    """

    tokens: Tensor
    scores: Scores | None
    sampling: Sampling
    rng: Rng
    wanted: int
    vocab_size: int
    cache: Cache | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The most that a drafter proposes in one round: levels of the tree, and its nodes."""

    levels: int
    nodes: int

    @classmethod
    def chain(cls, levels: int) -> "Shape":
        return cls(levels, levels)

    @property
    def is_chain(self) -> bool:
        return self.nodes == self.levels


class Session:
    """One generation's drafting. State lives here, so that generations can interleave and nothing
    leaks between them.

    passes: forward passes of the drafter so far; 0 for drafters without a model.
    """

    passes: int = 0

    def propose(self, context: Context) -> Proposal:
        """Draft. The engine cuts what is deeper than can be used; a drawn token may not be
        discarded after a look at it: stop *after* it.
        """
        raise NotImplementedError

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        """Hear what became of the last proposal.

        scores: of [root] + tree.tokens, rejected rows included. They are inference tensors: a loss
        on them raises, so learn from `scores.detached()`.
        """

    def cut(self, length: int) -> None:
        """Of the text only the first `length` tokens stand: an outer round has rejected the rest.

        Heard by sessions inside a session (cascades), before the next `propose`.
        """


class Drafter:
    """A source of proposals: subclass it, and give `start`.

    hidden_layers: the target's hidden states it wants to see in `Context.scores`.
    """

    hidden_layers: tuple[Layer, ...] = ()

    def start(self, context: Context) -> Session:
        """Begin one generation, after the target's prefill."""
        raise NotImplementedError

    def check(self, target: CausalLM, positions: int) -> None:
        """Raise ValueError, before any model runs, where it cannot draft for this target up to so
        many positions. A drafter that wraps others asks them.
        """

    def learn(self, tokens: Sequence[int] | Tensor) -> None:
        """Take a text into a memory that outlives the generation. Only ever called by the user,
        between generations; the default forgets it.
        """

    def shape(self) -> Shape | None:
        """The most it proposes in a round; None where that is not known beforehand."""
        return None

    def draft_model(self) -> CausalLM | None:
        """The model one pass of which is what c, the cost of a drafted token, speaks of; None where
        there is no such model.
        """
        return None


# What a round did ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """What one round did. Everything after a stop token has been cut off: none of it is counted.

    Attributes:
        tokens: the emitted ids in order.
        tree, path: what was drafted, and its accepted nodes.
        token, kind: the token the target added and what it is ("recovered", "bonus", "sampled"),
            both None when a drafted stop token ended the text.
        tests: draws tested at each level.
        p, q: for every node, the target's and the drafter's probability of its token (q = 1:
            chosen).
        draws: how many draws landed on each node; 0 where a node could not be accepted.
        coins: the uniforms of the tests, in their order; empty where the rule draws none.
        draft_passes: forward passes of the drafter.
        drafting, verifying, other: seconds spent drafting, in the target's pass (both on a GPU
            between events in its queue) and on everything else.
    """

    tokens: tuple[int, ...]
    tree: TokenTree
    path: tuple[int, ...]
    token: int | None
    kind: str | None
    tests: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    draws: tuple[int, ...]
    coins: tuple[float, ...] = ()
    draft_passes: int = 0
    drafting: float = 0.0
    verifying: float = 0.0
    other: float = 0.0

    @property
    def seconds(self) -> float:
        return self.drafting + self.verifying + self.other

    @property
    def accepted(self) -> int:
        return len(self.path)

    @property
    def tested(self) -> int:
        return sum(self.tests)

    @property
    def drafted(self) -> int:
        """Draws made, not counting levels beyond a stop token. Nodes that could not be accepted
        were no draws.
        """
        if self.kind is not None:
            return sum(self.draws)
        depth = self.tree.depth.tolist()
        return sum(count for count, level in zip(self.draws, depth) if level < len(self.path))

    @classmethod
    def of(cls, proposal: Proposal, verdict: Verdict, stops: Collection[int] = ()) -> "Step":
        """The step that a verdict on a proposal makes, cut behind the first stop token."""
        tree = TokenTree(verdict.tokens, proposal.tree.parents)
        emitted = [*(verdict.tokens[node] for node in verdict.path), verdict.token]
        stop = next((i for i, token in enumerate(emitted) if token in stops), len(emitted))
        cut = stop < len(verdict.path)  # a drafted token ends the text
        counts = [0] * len(tree)
        for children in proposal.draws.values():
            for node, _ in children:
                counts[node] += 1
        return cls(
            tokens=tuple(emitted[: stop + 1]),
            tree=tree,
            path=verdict.path[: stop + 1],
            token=None if cut else verdict.token,
            kind=None if cut else verdict.kind,
            tests=verdict.tests[: stop + 1] if cut else verdict.tests,
            p=verdict.p,
            q=verdict.q,
            draws=tuple(counts),
            coins=verdict.coins,
        )


# The round in pieces -------------------------------------------------------------------------------


def propose(session: Session, context: Context) -> Proposal:
    """The session's proposal, cut to the levels that can still be used, and checked.

    TypeError and ValueError, before the target runs, for what is no proposal and for rows of
    another width; under SPECDEC_CHECK=1 every token and every row is looked at too.
    """
    proposal = session.propose(context)
    if not isinstance(proposal, Proposal):
        raise TypeError(
            f"the drafter proposed a {type(proposal).__name__}: must be a Proposal, NOTHING where"
            " there is nothing to propose"
        )
    proposal = proposal.trimmed(context.wanted - 1)
    probs = proposal.probs
    if probs is not None and len(proposal.tree) and probs.shape[1:] != (context.vocab_size,):
        raise ValueError(
            f"the drafter's probs have shape {tuple(probs.shape)}: every row must be over the"
            f" target's {context.vocab_size} tokens"
        )
    if os.environ.get("SPECDEC_CHECK") == "1":
        check_contents(proposal, context.vocab_size)
    return proposal


def check_contents(proposal: Proposal, vocab_size: int) -> None:
    """ValueError for tokens that the target does not have, and for rows that are no distributions.

    Reads the device, and at a large vocabulary costs as much as drawing: for those who write a
    drafter, so every test runs with it.
    """
    outside = [t for t in proposal.tree.tokens.tolist() if not 0 <= t < vocab_size]
    if outside:
        raise ValueError(
            f"the drafter proposed token {outside[0]}: the target's token ids are 0 …"
            f" {vocab_size - 1}"
        )
    probs = proposal.probs
    if probs is None:
        return
    if not bool(((probs.sum(-1) - 1).abs() < SUM_TOLERANCE).all()):
        sums = probs.sum(-1).tolist()
        raise ValueError(f"the drafter's probs must sum to 1 in every row; they sum to {sums}")
    if bool((probs < 0).any()):
        least = probs.min().item()
        raise ValueError(f"the drafter's probs hold {least}: probabilities must be ≥ 0")


class Verifier:
    """How a round is verified: from what the target's pass returned to a verdict.

    Plain rules get `PlainVerifier`. A rule that must see more than probabilities (the device, the
    hidden states) is a verifier itself: subclass this, and pass an instance where a rule is asked
    for.
    """

    name: str = "verifier"
    lossless: bool = False

    def __repr__(self) -> str:
        return self.name

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        """The verdict, with `tokens`, `p` and `q` of every node. ValueError on logits that hold NaN
        or no finite value.
        """
        raise NotImplementedError


class PlainVerifier(Verifier):
    """A rule on the target's adjusted probabilities, which are read from the device once."""

    def __init__(self, rule: RuleFunction):
        self.rule = rule

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        logits = scores.logits[0]
        target_probs = context.sampling(logits)
        tokens = tuple(proposal.tree.tokens.tolist())
        # The maximum is NaN where any logit is.
        finite = logits.amax(-1).isfinite().all().double()[None]
        sound, *found = torch.cat((finite, *node_probabilities(proposal, target_probs))).tolist()
        if not sound:
            raise not_finite(context, logits.dtype)
        coins: list[float] = []
        if isinstance(context.rng, SeededRng):
            context.rng.coins = coins
        verdict = self.rule(proposal, target_probs, context.rng)
        count = len(tokens)
        return replace(
            verdict,
            tokens=tokens,
            p=tuple(found[:count]),
            q=tuple(found[count:]),
            coins=tuple(coins),
        )


def node_probabilities(proposal: Proposal, target_probs: Tensor) -> tuple[Tensor, Tensor]:
    """For every node, its token's probability [n] under the target and under the row that its first
    draw came from (1 if chosen), in float64 on the target's device.
    """
    tree = proposal.tree
    tokens = tree.tokens.to(target_probs.device)
    rows = torch.tensor(tree.parents, dtype=torch.long, device=target_probs.device) + 1
    p = target_probs[rows, tokens].double()
    q = torch.ones_like(p)
    if proposal.probs is not None:
        first = {}
        for children in proposal.draws.values():
            for node, row in children:
                first.setdefault(node, row)
        nodes = list(first)
        drawn = proposal.probs[list(first.values()), proposal.tree.tokens[nodes]]
        q[nodes] = drawn.to(q)
    return p, q


def not_finite(context: Context, dtype: torch.dtype) -> ValueError:
    """The error for logits no token can be drawn from."""
    return ValueError(
        "the target's logits hold NaN, infinity or no finite value after"
        f" {len(context.tokens)} tokens: check its weights and dtype ({dtype})"
    )


def verify(
    rule: RuleFunction | Verifier, proposal: Proposal, scores: Scores, context: Context
) -> Verdict:
    """What the rule decides on the scores of [root] + tree.tokens."""
    verifier = rule if isinstance(rule, Verifier) else PlainVerifier(rule)
    return verifier.verify(proposal, scores, context)


def commit(
    context: Context,
    proposal: Proposal,
    verdict: Verdict,
    scores: Scores,
    stops: Collection[int] = (),
) -> tuple[Step, Context]:
    """The step that a verdict makes, and the context of the next round."""
    step = Step.of(proposal, verdict, stops)
    new = torch.tensor(step.tokens, dtype=torch.long, device=context.tokens.device)
    after = replace(
        context,
        tokens=torch.cat((context.tokens, new)),
        scores=scores.along(verdict.path),
        wanted=context.wanted - len(step.tokens),
    )
    return step, after


def speculate(
    target: CausalLM,
    session: Session,
    context: Context,
    rule: RuleFunction | Verifier,
    hidden_layers: tuple[Layer, ...] = (),
    stops: Collection[int] = (),
) -> tuple[Step, Context]:
    """Run one round on `context.cache` and leave it holding every committed token but the last.

    Returns the step and the context of the next round. Raises what `propose` and `verify` raise.
    """
    began = perf_counter()
    passes = session.passes
    start = now(target.device)
    proposal = propose(session, context)
    drafted = now(target.device)
    fed = torch.cat((context.tokens[-1:], proposal.tree.tokens.to(context.tokens.device)))
    scores = target.score(fed, context.cache, proposal.tree, hidden_layers, states=proposal.states)
    verified = now(target.device)
    verdict = verify(rule, proposal, scores, context)
    context.cache.keep((0, *(node + 1 for node in verdict.path)))
    session.observe(verdict, scores)
    step, after = commit(context, proposal, verdict, scores, stops)
    drafting = elapsed(start, drafted)
    verifying = elapsed(drafted, verified)
    times = {
        "draft_passes": session.passes - passes,
        "drafting": drafting,
        "verifying": verifying,
        "other": max(0.0, perf_counter() - began - drafting - verifying),
    }
    return replace(step, **times), after


def now(device: torch.device) -> "float | torch.cuda.Event":
    """The processor's clock in seconds; on a GPU an event in its queue, which marks when the work
    before it is done.
    """
    if device.type != "cuda":
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def elapsed(first, second) -> float:
    """Seconds from one `now` to another. Events must have been passed already: a round reads its
    verdict after them.
    """
    return second - first if isinstance(first, float) else first.elapsed_time(second) / 1e3


class Plain(Session):
    """No draft: plain autoregressive decoding, one token a round."""

    def propose(self, context: Context) -> Proposal:
        return NOTHING
