"""One round: propose, score, verify, commit. The only code that cuts back a target's cache.

`speculate` runs the pieces of a round in order. Cascades run a round inside a drafter; batches run
the pieces for many rows.
"""

import os
from collections.abc import Collection
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.contract import Context, Drafter, Limits, NoDraft, Session
from specdec_lite.engine.cache import CacheReader, Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Step, Verdict
from specdec_lite.sampling import FlipRecorder, SeededRng, upload

__all__ = [
    "Context",
    "Drafter",
    "Limits",
    "NoDraft",
    "NotFiniteError",
    "RuleVerifier",
    "Session",
    "Step",
    "Verifier",
    "check_cache",
    "commit",
    "elapsed",
    "fed_tokens",
    "node_numbers",
    "not_finite",
    "now",
    "propose",
    "speculate",
    "verify",
]


def propose(session: Session, context: Context) -> Proposal:
    """Return the session's proposal, cut to the levels that can still be used, and checked.

    With SPECDEC_CHECK=1 in the environment every token and every row is checked too.
    """
    proposal = session.propose(context.for_drafter())
    if not isinstance(proposal, Proposal):
        raise TypeError(
            f"the drafter proposed a {type(proposal).__name__}: must be a Proposal; return NOTHING"
            " if there is nothing to propose"
        )
    proposal = proposal.trimmed(context.wanted - 1)
    probs = proposal.probs
    if probs is not None and len(proposal.tree) and probs.shape[1:] != (context.vocab_size,):
        raise ValueError(
            f"the drafter's probs have shape {tuple(probs.shape)}: every row must be over the"
            f" target's {context.vocab_size} tokens"
        )
    if os.environ.get("SPECDEC_CHECK") == "1":
        proposal.check_contents(context.vocab_size)
    return proposal


def check_cache(session: Session, context: Context) -> None:
    """Check, before a target's pass, that its cache contains every committed token but the last."""
    expected = len(context.tokens) - 1
    if context.cache is not None and context.cache.length != expected:
        raise ValueError(
            f"{type(session).__name__} changed the target's cache: it has {context.cache.length}"
            f" tokens, must have {expected}; drafters read it through `view` and `select` only"
        )


class Verifier:
    """How a round is verified: from the scores of the target's pass to a verdict.

    Plain rules are wrapped in a `RuleVerifier`. A rule that must see more than probabilities (the
    device, the hidden states) is a subclass of Verifier; pass an instance of it as `rule`.

    Attributes:
        name: in tables.
        lossless: whether the emitted text has the target's distribution.
    """

    name: str = "verifier"
    lossless: bool = False

    def __repr__(self) -> str:
        return self.name

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        """Return the verdict, with `tokens`, `p` and `q` of every node.

        Shapes: scores [root].
        """
        raise NotImplementedError


class RuleVerifier(Verifier):
    """Apply a rule to the target's adjusted probabilities; the draft's numbers are read in advance.

    Args:
        rule: a function (proposal, target_probs, rng) → Verdict.
    """

    def __init__(self, rule: RuleFunction):
        self.rule = rule

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        """Return the rule's verdict; see `Verifier.verify`.

        Shapes: scores [root].
        """
        logits = scores.logits[0]
        target_probs = context.sampling(logits)
        # The maximum is NaN where any logit is.
        finite = logits.amax(-1).isfinite().all()[None]
        proposal, host = proposal.read(target_probs, finite=finite)
        if not host["finite"][0]:
            raise not_finite(context, logits.dtype)
        about = node_numbers(proposal)
        if not isinstance(context.rng, SeededRng):
            return replace(self.rule(proposal, target_probs, context.rng), **about)
        recorder = FlipRecorder(context.rng)
        verdict = self.rule(proposal, target_probs, recorder)
        return replace(verdict, **about, coins=tuple(recorder.coins))


def node_numbers(proposal: Proposal) -> dict[str, tuple]:
    """Return each node's token, its probability under the target, and in the row of its first draw."""
    numbers = proposal.numbers
    assert numbers is not None
    q = [1.0] * len(numbers.tokens)
    for children in proposal.draws.values():
        for node, row in reversed(children):
            q[node] = numbers.drawn(row)
    return {"tokens": numbers.tokens, "p": tuple(numbers.p), "q": tuple(q)}


class NotFiniteError(ValueError):
    """The logits of the model that verifies contain NaN or no finite value."""


def not_finite(context: Context, dtype: torch.dtype) -> NotFiniteError:
    """Return the error for logits from which no token can be drawn."""
    return NotFiniteError(
        "the target's logits hold NaN, infinity or no finite value after"
        f" {len(context.tokens)} tokens: check its weights and dtype ({dtype})"
    )


def verify(
    rule: RuleFunction | Verifier, proposal: Proposal, scores: Scores, context: Context
) -> Verdict:
    """Return the verdict of a rule or a verifier on a proposal.

    Shapes: scores [root].
    """
    verifier = rule if isinstance(rule, Verifier) else RuleVerifier(rule)
    return verifier.verify(proposal, scores, context)


def commit(
    context: Context,
    proposal: Proposal,
    verdict: Verdict,
    scores: Scores,
    stops: Collection[int] = (),
) -> tuple[Step, Context]:
    """Return the step that a verdict makes, and the context of the next round.

    Shapes: scores [root].
    """
    step = Step.of(proposal, verdict, stops)
    after = replace(
        context,
        tokens=torch.cat((context.tokens, torch.tensor(step.tokens, dtype=torch.long))),
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
    """Run one round on `context.cache`, and leave every committed token but the last in it."""
    cache = context.cache
    if cache is None or isinstance(cache, CacheReader):
        raise ValueError(f"context.cache={cache!r}: a round needs the target's own cache")
    began = perf_counter()
    passes = session.passes
    start = now(target.device)
    proposal = propose(session, context)
    check_cache(session, context)
    drafted = now(target.device)
    scores = target.score(
        fed_tokens(target, context, proposal),
        cache,
        proposal.tree,
        hidden_layers,
        states=proposal.states,
    )
    verified = now(target.device)
    verdict = verify(rule, proposal, scores, context)
    cache.keep((0, *(node + 1 for node in verdict.path)))
    session.observe(verdict, scores)
    step, after = commit(context, proposal, verdict, scores, stops)
    drafting = elapsed(start, drafted)
    verifying = elapsed(drafted, verified)
    timed = replace(
        step,
        draft_passes=session.passes - passes,
        drafting=drafting,
        verifying=verifying,
        other=max(0.0, perf_counter() - began - drafting - verifying),
    )
    return timed, after


def fed_tokens(target: CausalLM, context: Context, proposal: Proposal) -> Tensor:
    """Return the ids [n+1] of the target's pass: the last committed token, and every node's."""
    parts = (context.tokens[-1:], proposal.tree.tokens)
    return torch.cat([upload(part, target.device) for part in parts])


def now(device: torch.device) -> "float | torch.cuda.Event":
    """Return the current time: on a CPU its clock in seconds, on a GPU an event in its queue.

    The event marks the moment at which all work queued before it is done.
    """
    if device.type != "cuda":
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def elapsed(first, second) -> float:
    """Return the seconds from one `now` to another."""
    return second - first if isinstance(first, float) else first.elapsed_time(second) / 1e3
