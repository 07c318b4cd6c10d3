"""Measure what passes, drafting and rounds cost on this machine.

Every number is a median over alternating repetitions after a warm-up (`clocks`). `theory` and
`roofline` compute what the numbers imply.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from specdec_lite.checks import instance, is_whole, whole
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate, prepare
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure.clocks import Spread, interleaved, spreads
from specdec_lite.proposal import Step
from specdec_lite.tree import TokenTree

WARM = 16
"""Tokens to decode once before the loop is timed."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of passes and rounds.

    Attributes:
        target: {k: seconds of a target pass over k tokens}.
        draft: seconds of a draft pass without the choice of a token, timed alternately with the
            target's passes; None if the drafter has no model.
        draft_in_loop: seconds of a draft pass during decoding, with the choice of its token. Only
            the first of γ draft passes follows a target pass. None if drafting makes no passes.
        overhead: seconds per round outside drafting and the target's pass.
        round: seconds of all drafting in a round that drafted; None if no round drafted.
    """

    target: dict[int, float]
    draft: float | None = None
    draft_in_loop: float | None = None
    overhead: float | None = None
    round: float | None = None


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The parts of an average round, in units of T(1).

    Attributes:
        draft: all drafting; γc if drafting takes γ passes.
        verify: the target's pass, v.
        other: everything else, o.
    """

    draft: float
    verify: float
    other: float

    @property
    def total(self) -> float:
        """The whole round, in units of T(1)."""
        return self.draft + self.verify + self.other


def pass_job(
    model: CausalLM,
    prompt: torch.Tensor,
    count: int | TokenTree,
    batch: int = 1,
    cache: Cache | None = None,
) -> Callable[[], None]:
    """Return a job that scores tokens after the prompt and then removes them from the cache.

    Args:
        model: the model to run.
        prompt: token ids [n]; those beyond the model's vocabulary become its last.
        count: number of tokens in a row, or a tree, which is fed with its root as in a round.
        batch: number of equal rows.
        cache: a cache that contains the prompt in `batch` rows; None to create one.
    """
    tree = None
    if isinstance(count, TokenTree):
        tree = count
        count = 1 + len(tree)
    prompt = prompt.clamp(max=model.vocab_size - 1).to(model.device)
    cache = _prefilled(model, prompt, batch, count) if cache is None else cache
    fed = prompt.repeat(count // len(prompt) + 1)[:count].expand(batch, -1)

    def job() -> None:
        model.score(fed, cache, tree=tree)
        cache.crop(len(prompt))

    return job


def pass_jobs(
    model: CausalLM, prompt: torch.Tensor, ks: Sequence[int], batch: int = 1
) -> dict[int, Callable[[], None]]:
    """Return {k: job that scores k tokens after the prompt}; all jobs share one cache.

    With static shapes every additional cache would be captured and stored.

    Args:
        model: the model to run.
        prompt: token ids [n].
        ks: numbers of tokens per row.
        batch: number of equal rows.
    """
    cache = _prefilled(model, prompt, batch, max(ks))
    return {k: pass_job(model, prompt, k, batch, cache) for k in ks}


def _prefilled(model: CausalLM, prompt: torch.Tensor, batch: int, room: int) -> Cache:
    """Return a cache with the prompt [n] in each row, and with room for this many tokens more."""
    cache = model.new_cache(batch, capacity=len(prompt) + room)
    model.score(prompt.expand(batch, -1), cache, last=True)
    return cache


def _check_loop(target: CausalLM, drafter: Drafter, prompt: int, new_tokens: int) -> None:
    whole("new_tokens", new_tokens, 1)
    instance("drafter", drafter, Drafter, "None or a drafter")
    needed = prompt + max(new_tokens, WARM)
    models = {"target": target, "drafter": drafter.draft_model() or target}
    for name, each in models.items():
        if needed > each.max_positions:
            raise ValueError(
                f"new_tokens={new_tokens} after {prompt} of context (or of the prompt): {needed}"
                f" positions, the {name} has {each.max_positions}"
            )
    drafter.check(target, needed)


def _check_passes(name: str, model: CausalLM, ks: Iterable[int], context: int) -> tuple[int, ...]:
    instance(name, model, CausalLM)
    if not isinstance(ks, Iterable):
        raise ValueError(f"ks={ks!r}: must be a row of whole numbers, such as (1, 5)")
    ks = tuple(ks)
    if not ks or not all(is_whole(n) and n >= 1 for n in (context, *ks)):
        raise ValueError(f"ks={ks}, context={context!r}: all must be whole numbers ≥ 1")
    if context + max(ks) > model.max_positions:
        raise ValueError(
            f"context={context} and k={max(ks)} need more positions than the model's"
            f" {model.max_positions}"
        )
    return ks


def _arbitrary(model: CausalLM, count: int) -> torch.Tensor:
    """Return arbitrary token ids [count]; a pass costs the same for any ids."""
    rng = torch.Generator().manual_seed(0)
    return torch.randint(model.vocab_size, (count,), generator=rng).to(model.device)


def pass_times(
    model: CausalLM,
    ks: Sequence[int] = (1, 2, 4, 8, 16, 32),
    context: int = 128,
    batches: Sequence[int] = (1,),
    repeats: int = 9,
    budget: float = 20.0,
) -> dict[tuple[int, int], Spread]:
    """Time passes over k tokens in each batch size.

    Args:
        model: the model to time.
        ks: numbers of tokens per row, each ≥ 1.
        context: tokens in the cache before the pass, ≥ 1.
        batches: numbers of rows, each ≥ 1.
        repeats: timed runs of each pass.
        budget: seconds after which no further repetition starts; every pass runs at least twice.

    Returns:
        {(batch, k): Spread in seconds}.

    Raises:
        ValueError: a number is less than 1, or context + k exceeds the model's positions.
        TypeError: model is not a CausalLM.
    """
    if not batches or min(batches) < 1:
        raise ValueError(f"batches={tuple(batches)}: all must be ≥ 1")
    ks = _check_passes("model", model, ks, context)
    text = _arbitrary(model, context)
    jobs = {
        (batch, k): job for batch in batches for k, job in pass_jobs(model, text, ks, batch).items()
    }
    return spreads(jobs, model.device, repeats, warmup=1, budget=budget)


def measure_costs(
    target: CausalLM,
    drafter: Drafter | None = None,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    context: int = 128,
    prompt=None,
    temperature: float = 1.0,
    new_tokens: int = 96,
) -> Costs:
    """Time target passes over k tokens, and a drafter alone and during decoding.

    Args:
        target: the model to time.
        drafter: the drafter to time; None to time the target alone.
        ks: numbers of tokens per pass, each ≥ 1.
        context: tokens in the cache before each pass.
        prompt: token ids to decode from when timing rounds (default: arbitrary ids).
        temperature: of decoding.
        new_tokens: number of tokens to decode, ≥ 1.

    Raises:
        ValueError: an argument is out of range, or the models cannot read a text of this length.
        TypeError: target is not a CausalLM, or drafter is not a Drafter.
    """
    ks = _check_passes("target", target, ks, context)
    text = _arbitrary(target, context)
    prompt = text if prompt is None else prompt
    if drafter is not None:
        _check_loop(target, drafter, len(prompt), new_tokens)
        prepare(target, prompt, drafter, new_tokens, temperature)
        prompt = torch.as_tensor(prompt)
    draft = None if drafter is None else drafter.draft_model()
    if draft is not None and context + 1 > draft.max_positions:
        raise ValueError(f"context={context}: the drafter has {draft.max_positions} positions")
    jobs: dict[int | str, Callable[[], None]] = {**pass_jobs(target, text, ks)}
    if draft is not None:
        jobs["draft"] = pass_job(draft, text, 1)
    seconds = interleaved(jobs, target.device)
    passes = {k: seconds[k] for k in ks}
    if drafter is None:
        return Costs(passes)
    generate(target, prompt, drafter, WARM, temperature, stop_token_ids=(), seed=0)
    steps = [
        step
        for seed in range(3)
        for step in generate(
            target, prompt, drafter, new_tokens, temperature, stop_token_ids=(), seed=seed
        ).steps
    ]
    drafting = [step.drafting for step in steps if len(step.tree)]
    per_pass = [step.drafting / step.draft_passes for step in steps if step.draft_passes]
    return Costs(
        passes,
        draft=seconds.get("draft"),
        draft_in_loop=statistics.median(per_pass) if per_pass else None,
        overhead=statistics.median(step.other for step in steps),
        round=statistics.median(drafting) if drafting else None,
    )


def round_costs(steps: Sequence[Step], one: float) -> RoundCosts:
    """Compute the parts of an average round, in units of T(1), from the rounds of a run.

    Rounds are grouped by the number of tokens in their tree. Each part is the median within a
    group, averaged over the groups by their numbers of rounds. The median ignores single disturbed
    rounds, and each tree size keeps its share.

    Args:
        steps: rounds, at least one.
        one: seconds of T(1), such as the median pass of plain rounds that alternated with these.

    Raises:
        ValueError: there are no rounds, or one is not above 0.
    """
    if not steps or not one > 0:
        raise ValueError(f"steps has {len(steps)} rows and one={one!r}: both must be above 0")
    groups: dict[int, list[Step]] = {}
    for step in steps:
        groups.setdefault(len(step.tree), []).append(step)

    def average(part: str) -> float:
        sums = [
            len(group) * statistics.median(getattr(step, part) for step in group)
            for group in groups.values()
        ]
        return sum(sums) / len(steps) / one

    return RoundCosts(average("drafting"), average("verifying"), average("other"))
