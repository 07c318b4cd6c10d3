"""One round: propose, score, verify, commit. `commit` alone cuts back a target's cache.

`speculate` runs the pieces of a round in order. Cascades run a round inside a drafter; batches run
the pieces for many rows.
"""

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.contract import Context, PathProcessor, Session
from specdec_lite.engine.cache import Cache, CacheReader, Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Step, Verdict
from specdec_lite.sampling import SeededRng
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree


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
    # The target adds one token to every accepted path. A cut by level looks at no token, so it
    # changes no distribution.
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


def process_scores(
    processors: Sequence[PathProcessor], prefix: Tensor, tree: TokenTree, scores: Scores
) -> Scores:
    """Return the scores of [root] + tree with the logits [1, n+1, V] of every path processed.

    A node that its parent's processed logits forbid is left as it is, with all below it: no rule
    accepts it, and a grammar has no state after a text that it does not allow.

    Shapes: prefix [m], the root last.
    """
    if not processors:
        return scores
    tokens = tree.tokens.tolist()
    rows = list(scores.logits[0].unbind())
    # One read of the device per level would wait as often; nodes are few, so the host walks them.
    allowed = {-1}
    for node in range(-1, len(tree)):
        if node >= 0:
            parent = tree.parents[node]
            if parent not in allowed or rows[parent + 1][tokens[node]] == -math.inf:
                continue
            allowed.add(node)
        path = torch.tensor([tokens[i] for i in tree.path(node)], dtype=torch.long)
        text, row = torch.cat((prefix, path)), rows[node + 1]
        for processor in processors:
            row = _row_of(processor, text, row)
        rows[node + 1] = row
    return Scores(torch.stack(rows)[None], scores.hidden)


def _row_of(processor: PathProcessor, text: Tensor, row: Tensor) -> Tensor:
    """Return what a processor makes of one row [V], after checking its kind and its width."""
    after = processor(text, row)
    name = getattr(processor, "__name__", type(processor).__name__)
    if not isinstance(after, Tensor) or after.shape != row.shape:
        kind = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
        raise ValueError(
            f"processor {name} returned {kind}: must be logits of shape {(*row.shape,)}"
        )
    if not bool((after > -math.inf).any()):
        raise ValueError(f"processor {name} forbids every token after {len(text)} tokens")
    return after


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

    A plain rule needs none: see `verify`. A rule that must see more than probabilities (the device,
    the hidden states) is a subclass of Verifier; pass an instance of it as `rule`.

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

        Args:
            proposal: the drafted tree.
            scores: of [root] + tree.tokens, as the target's pass returned them.
            context: of the round.
        """
        raise NotImplementedError


def node_numbers(proposal: Proposal) -> dict[str, tuple]:
    """Return each node's token, its probability under the target, and in the row of its first draw."""
    numbers = proposal.numbers
    assert numbers is not None
    q = [1.0] * len(numbers.tokens)
    for children in proposal.draws.values():
        for node, row in reversed(children):  # the first draw on a node is written last
            q[node] = numbers.q_of(row)
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
    """Return the verdict of a verifier, or of a rule on the target's adjusted probabilities."""
    if isinstance(rule, Verifier):
        return rule.verify(proposal, scores, context)
    logits, rng = scores.logits[0], context.rng
    target_probs = context.sampling(logits)
    # The maximum is NaN where any logit is. The check costs no read of its own: its result comes to
    # the host with the numbers of the proposal.
    finite = logits.amax(-1).isfinite().all()[None]
    proposal, host = proposal.read(target_probs, finite=finite)
    if not host["finite"][0]:
        raise not_finite(context, logits.dtype)
    if isinstance(rng, SeededRng):
        rng.coins = ()
    verdict = rule(proposal, target_probs, rng)
    return replace(verdict, **node_numbers(proposal), coins=getattr(rng, "coins", ()))


def commit(
    cache: Cache,
    context: Context,
    proposal: Proposal,
    verdict: Verdict,
    scores: Scores,
    stops: Collection[int] = (),
) -> tuple[Step, Context]:
    """Cut the cache back to the accepted path; return the step, and the next round's context.

    Every committed token but the last is then in the cache. The last one, which the target added,
    is the root of the next pass.
    """
    # The pass fed the root as number 0, so node i was token i + 1.
    cache.keep((0, *(node + 1 for node in verdict.path)))
    step = Step.of(proposal, verdict, stops)
    after = replace(
        context,
        tokens=torch.cat((context.tokens, torch.tensor(step.tokens, dtype=torch.long))),
        scores=scores.along(verdict.path),  # rejected rows follow a text that does not exist
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
    """Run one round on `context.cache`: draft, score all drafts in one pass, verify, commit."""
    cache = context.cache
    if cache is None or isinstance(cache, CacheReader):
        raise ValueError(f"context.cache={cache!r}: a round needs the target's own cache")
    began = perf_counter()
    passes = session.passes  # the session counts over its whole life; a step states its own
    start = now(target.device)
    proposal = propose(session, context)
    # A drafter that fed the target's cache would shift every position of the pass.
    check_cache(session, context)
    drafted = now(target.device)
    scores = target.score(
        fed_tokens(target, context, proposal),
        cache,
        proposal.tree,
        hidden_layers,
        states=proposal.states,
    )
    scores = process_scores(context.processors, context.tokens, proposal.tree, scores)
    verified = now(target.device)
    verdict = verify(rule, proposal, scores, context)
    step, after = commit(cache, context, proposal, verdict, scores, stops)
    session.observe(verdict, scores)
    drafting = elapsed(start, drafted)
    verifying = elapsed(drafted, verified)
    timed = replace(
        step,
        draft_passes=session.passes - passes,
        drafting=drafting,
        verifying=verifying,
        # On a GPU two clocks are mixed, and their difference may fall below 0.
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
