"""Many prompts at once: rows of different lengths, one pass of the target a round for all of them.

What lives here: the loop over rounds of a batch. What does not: the shared pass (`engine.ragged`),
the round itself (`speculation`, in pieces). Every row has its drafter's session, its chance and its
cache, so it emits what it would emit alone; what the rows share is the pass, and the wait for the
slowest of them. Source: Qian et al. 2024, arXiv 2404.15778 (BASS), without its kernels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from specdec_lite import checks
from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.decoding import Output, default_rule, stream
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.ragged import row_caches, score_rows
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import (
    Context,
    Drafter,
    Plain,
    Session,
    Step,
    Verifier,
    commit,
    propose,
    verify,
)


@dataclass(slots=True)
class Row:
    """One prompt on its way: place among the prompts, and all that `generate` would hold for it."""

    place: int
    context: Context
    session: Session
    cache: Cache
    steps: list[Step]
    stopped: bool = False

    @property
    def is_done(self) -> bool:
        return self.stopped or self.context.wanted < 1


def generate_batch(
    target: CausalLM,
    prompts: Sequence,
    drafter: Drafter | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rule: RuleFunction | Verifier | None = None,
    stop_token_ids: Collection[int] = (),
    seeds: Sequence[int | None] | None = None,
) -> list[Output]:
    """Decode every prompt as `generate` would, all of them together.

    Args:
        target: a native `CausalLM`.
        prompts: rows of ids, of any lengths, at least one.
        drafter: drafts for each row by itself; None is plain decoding.
        max_new_tokens, temperature, top_k, top_p, rule, stop_token_ids: as in `generate`, for all.
        seeds: one for each prompt; None: from the operating system.

    A row that is done leaves the batch, whose passes become narrower. A step's `verifying` is the
    whole pass, which all rows wait for; its `drafting` and `other` are its own. Rows equal their
    single runs up to rounding: a batch multiplies matrices of another shape, so in half precision a
    greedy text may part at a near-tie. Raises what `generate` raises, before any model runs.
    """
    checks.native("target", target)
    prompts = list(prompts)
    if not prompts:
        raise ValueError("prompts is empty: must hold at least one row of token ids")
    seeds = [None] * len(prompts) if seeds is None else list(seeds)
    if len(seeds) != len(prompts):
        raise ValueError(f"seeds has {len(seeds)} entries: must be one for each of {len(prompts)}")
    options = (max_new_tokens, temperature, top_k, top_p, rule, stop_token_ids)
    for prompt, seed in zip(prompts, seeds):
        stream(target, prompt, drafter, *options, seed)  # checks alone
    rows, storage = started(
        target, prompts, drafter, max_new_tokens, temperature, top_k, top_p, seeds
    )
    rule = default_rule(Sampling(temperature)) if rule is None else rule
    stops = frozenset(torch.as_tensor(list(stop_token_ids)).long().tolist())
    return to_the_end(target, storage, rows, drafter, rule, stops)


def to_the_end(
    target: CausalLM,
    storage,
    rows: list[Row],
    drafter: Drafter | None,
    rule: RuleFunction | Verifier,
    stops: Collection[int] = (),
) -> list[Output]:
    """All rounds of rows whose prompts have been read; in the order of the prompts."""
    done: dict[int, Output] = {}
    while rows:
        one_round(target, storage, rows, drafter, rule, stops)
        finished = [row for row in rows if row.is_done]
        for row in finished:
            tokens = [token for step in row.steps for token in step.tokens]
            done[row.place] = Output(torch.tensor(tokens, dtype=torch.long), row.steps)
        if finished:
            left = [index for index, row in enumerate(rows) if not row.is_done]
            rows = [rows[index] for index in left]
            if rows:
                storage.keep_rows(left)
    return [done[place] for place in sorted(done)]


def started(target, prompts, drafter, max_new_tokens, temperature, top_k, top_p, seeds):
    """(rows behind their prefills, their storage)."""
    layers = () if drafter is None else tuple(drafter.hidden_layers)
    texts = [torch.as_tensor(prompt).flatten().long().to(target.device) for prompt in prompts]
    longest = max(map(len, texts))
    storage, caches = row_caches(target, len(texts), longest + max_new_tokens + 64)
    rows = []
    for place, (text, cache, seed) in enumerate(zip(texts, caches, seeds)):
        scores = None
        if len(text) > 1:
            scores = target.score(text[:-1], cache, hidden_layers=layers, last=True)
        context = Context(
            text,
            scores,
            Sampling(temperature, top_k, top_p),
            SeededRng(seed),
            max_new_tokens,
            target.vocab_size,
            cache,
        )
        session = Plain() if drafter is None else drafter.start(context)
        rows.append(Row(place, context, session, cache, []))
    return rows, storage


def one_round(
    target: CausalLM,
    storage,
    rows: Sequence[Row],
    drafter: Drafter | None,
    rule: RuleFunction | Verifier,
    stops: Collection[int],
) -> None:
    """Every row drafts, one pass scores them all, every row verifies and commits."""
    layers = () if drafter is None else tuple(drafter.hidden_layers)
    proposals: list[Proposal] = []
    drafting = []
    passes = [row.session.passes for row in rows]
    for row in rows:
        began = perf_counter()
        # rows that a self-draft computed stand in for a pass of one row alone
        proposals.append(replace(propose(row.session, row.context), states=None))
        drafting.append(perf_counter() - began)
    began = perf_counter()
    fed = [
        torch.cat((row.context.tokens[-1:], proposal.tree.tokens.to(target.device)))
        for row, proposal in zip(rows, proposals)
    ]
    trees = [proposal.tree for proposal in proposals]
    scores = score_rows(target, storage, fed, [row.cache for row in rows], trees, layers)
    verifying = perf_counter() - began
    for place, (row, proposal, found) in enumerate(zip(rows, proposals, scores)):
        began = perf_counter()
        verdict = verify(rule, proposal, found, row.context)
        row.cache.keep((0, *(node + 1 for node in verdict.path)))
        row.session.observe(verdict, found)
        step, row.context = commit(row.context, proposal, verdict, found, stops)
        row.stopped = step.tokens[-1] in stops
        times = {
            "draft_passes": row.session.passes - passes[place],
            "drafting": drafting[place],
            "verifying": verifying,
            "other": perf_counter() - began,
        }
        row.steps.append(replace(step, **times))
