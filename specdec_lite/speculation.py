"""One round: propose → score → judge → keep. The only place where a target's cache is cut back.

What lives here: the round, the `Step` it returns, and what a drafter must offer (`Drafter`,
`Session`). What does not: the loop (`decoding`) and the drafters themselves. Cascades run a round
inside a drafter, so this stands below them.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache, Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Rng, Sampling
from specdec_lite.theory import SUM_TOLERANCE
from specdec_lite.tree import TokenTree


@dataclass(slots=True)
class Context:
    """What a drafter may look at. tokens: the committed ids [m], the last of which no model has
    been fed yet.

    scores: the target's scores of the last round's root and accepted path (at `start`: of all
    prompt tokens but the last), with the hidden layers the drafter declared; None when the prompt
    is a single token. sampling, rng: how tokens are drawn. wanted: how many tokens may still be
    emitted, ≥ 1; drafting more is wasted. vocab_size: the target's V, the width that every row of
    `Proposal.probs` must have.
    """

    tokens: Tensor
    scores: Scores | None
    sampling: Sampling
    rng: Rng
    wanted: int
    vocab_size: int


class Session(Protocol):
    """One generation's drafting. State lives here, so generations can interleave and nothing leaks
    between them.
    """

    passes: int  # drafter forward passes so far

    def propose(self, context: Context) -> Proposal:
        """Draft at most `context.wanted - 1` levels. A drawn token may not be discarded after a
        look at it.
        """

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        """Hear what became of the last proposal; scores: of [root] + tree.tokens, rejected rows
        included.
        """


class Drafter(Protocol):
    """A source of proposals. hidden_layers: the target's hidden states it wants to see in
    `Context.scores`.
    """

    hidden_layers: tuple[Layer, ...]

    def start(self, context: Context) -> Session:
        """Begin one generation, after the target's prefill."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one round did. Everything after a stop token has been cut off: none of it is counted.

    tokens: the emitted ids in order. tree: what was drafted; path: its accepted nodes. token, kind:
    the token the target added and what it is ("recovered", "bonus", "sampled"), both None when a
    drafted stop token ended the text. tests: draws tested at each level. p, q: for every node, the
    target's and the drafter's probability of its token (q = 1: chosen). draft_passes; seconds spent
    drafting, verifying (the target's pass; both on a GPU between events in its queue) and on
    everything else. draws: how many draws landed on each node; None: one on each.
    """

    tokens: tuple[int, ...]
    tree: TokenTree
    path: tuple[int, ...]
    token: int | None
    kind: str | None
    tests: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    draft_passes: int
    drafting: float
    verifying: float
    other: float
    draws: tuple[int, ...] | None = None

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
        """Draws made, not counting levels beyond a stop token: as many as nodes, unless equal draws
        share one.
        """
        made = self.draws or (1,) * len(self.tree)
        depth = self.tree.depth.tolist()
        return sum(
            count
            for count, level in zip(made, depth)
            if self.kind is not None or level < len(self.path)
        )


def moment(device: torch.device) -> "float | torch.cuda.Event":
    """Now: the processor's clock in seconds; on a GPU an event in its queue, which marks when the
    work before it is done.
    """
    if device.type != "cuda":
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def between(first, second) -> float:
    """Seconds from one `moment` to another. Events must have been passed already: a round reads its
    verdict after them.
    """
    return second - first if isinstance(first, float) else first.elapsed_time(second) / 1e3


def check_shape(proposal: Proposal, wanted: int, vocab_size: int) -> None:
    """Raise ValueError, before the target runs, for a draft that is too deep or whose rows have
    another width; TypeError for no draft.
    """
    if not isinstance(proposal, Proposal):
        raise TypeError(
            f"the drafter proposed a {type(proposal).__name__}: must be a Proposal, NOTHING where"
            " there is nothing to propose"
        )
    tree, probs = proposal.tree, proposal.probs
    levels = len(tree) if tree.is_chain else int(tree.depth.max()) + 1
    if levels and levels >= wanted:
        raise ValueError(
            f"the drafter proposed {levels} levels with {wanted} tokens wanted: at most"
            f" {wanted - 1} are allowed"
        )
    if probs is not None and len(tree) and probs.shape[1:] != (vocab_size,):
        raise ValueError(
            f"the drafter's probs have shape {tuple(probs.shape)}: every row must be over the"
            f" target's {vocab_size} tokens"
        )


def check_proposal(proposal: Proposal, wanted: int, vocab_size: int) -> None:
    """Raise ValueError, before the target runs, for a draft that no rule may judge."""
    check_shape(proposal, wanted, vocab_size)
    tree, probs = proposal.tree, proposal.probs
    if not len(tree):
        return
    outside = [t for t in tree.tokens.tolist() if not 0 <= t < vocab_size]
    if outside:
        raise ValueError(
            f"the drafter proposed token {outside[0]}: the target's token ids are 0 …"
            f" {vocab_size - 1}"
        )
    if probs is not None and not bool(((probs.sum(-1) - 1).abs() < SUM_TOLERANCE).all()):
        raise ValueError(
            f"the drafter's probs must sum to 1 in every row; they sum to {probs.sum(-1).tolist()}"
        )
    if probs is not None and bool((probs < 0).any()):
        raise ValueError(
            f"the drafter's probs hold {probs.min().item()}: probabilities must be ≥ 0"
        )


def token_probabilities(
    proposal: Proposal, target_probs: Tensor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For every node, its token's probability under the target and under the row its first draw
    came from (1 if chosen).
    """
    tree = proposal.tree
    if not len(tree):
        return (), ()
    rows = torch.tensor(tree.parents) + 1
    p = target_probs[rows.to(target_probs.device), tree.tokens.to(target_probs.device)].tolist()
    if proposal.probs is None:
        return tuple(p), (1.0,) * len(p)
    drawn = {node: row for draws in proposal.draws.values() for node, row in reversed(draws)}
    q = [
        proposal.probs[drawn[node], token].item() if node in drawn else 1.0
        for node, token in enumerate(tree.tokens.tolist())
    ]
    return tuple(p), tuple(q)


Judged = tuple[Verdict, TokenTree, tuple[float, ...], tuple[float, ...]]


def judge(rule, proposal: Proposal, logits: Tensor, context: Context) -> Judged:
    """What the rule decides on the target's logits [n+1, V]: (verdict, tree, p and q of every
    node).

    A rule with a method `read(proposal, logits, context)` works on the device and returns the same
    four from a single read, in which it also checks the logits (`on_device`).
    """
    if hasattr(rule, "read"):
        return rule.read(proposal, logits, context)
    target_probs = context.sampling(logits)
    verdict = rule(proposal, target_probs, context.rng)
    return verdict, proposal.tree, *token_probabilities(proposal, target_probs)


def not_finite(context: Context, dtype: torch.dtype) -> ValueError:
    """The error for logits no token can be drawn from."""
    return ValueError(
        f"the target's logits hold NaN, infinity or no finite value after {len(context.tokens)}"
        f" tokens: check its weights and dtype ({dtype})"
    )


def speculate(
    target: CausalLM,
    cache: Cache,
    session: Session | None,
    context: Context,
    rule,
    hidden_layers: tuple[Layer, ...] = (),
    stop_token_ids: frozenset[int] = frozenset(),
) -> tuple[Step, Scores]:
    """Run one round and leave `cache` holding every committed token but the last.

    Returns the step and the scores of the root and the accepted path. Raises ValueError on logits
    that hold NaN or no finite value, and for a proposal that `check_proposal` refuses.
    """
    began, passes = perf_counter(), session.passes if session else 0
    start = moment(target.device)
    proposal = session.propose(context) if session else NOTHING
    on_device = hasattr(rule, "read")
    (check_shape if on_device else check_proposal)(proposal, context.wanted, target.vocab_size)
    drafted = moment(target.device)
    fed = torch.cat((context.tokens[-1:], proposal.tree.tokens.to(context.tokens.device)))
    scores = target.score(fed, cache, proposal.tree, hidden_layers)
    if not on_device and not bool(
        scores.logits[0].amax(-1).isfinite().all()
    ):  # the maximum is NaN where any logit is
        raise not_finite(context, target.dtype)
    verified = moment(target.device)
    verdict, tree, p, q = judge(rule, proposal, scores.logits[0], context)
    kept = scores.along(verdict.path) if session else scores
    cache.keep((0, *(node + 1 for node in verdict.path)))
    if session:
        session.observe(verdict, scores)
    tokens = [*tree.tokens[list(verdict.path)].tolist(), verdict.token]
    path = verdict.path
    token = verdict.token
    kind = verdict.kind
    tests = verdict.tests
    stop = next((i for i, t in enumerate(tokens) if t in stop_token_ids), None)
    if stop is not None and stop < len(path):
        tokens = tokens[: stop + 1]
        path = path[: stop + 1]
        tests = tests[: stop + 1]
        token = None
        kind = None
    counts = (
        None if proposal.nodes is None else tuple(map(list(proposal.nodes).count, range(len(tree))))
    )
    drafting, verifying = between(start, drafted), between(drafted, verified)
    other = max(0.0, perf_counter() - began - drafting - verifying)
    step = Step(
        tuple(tokens),
        tree,
        path,
        token,
        kind,
        tests,
        p,
        q,
        (session.passes if session else 0) - passes,
        drafting,
        verifying,
        other,
        counts,
    )
    return step, kept
