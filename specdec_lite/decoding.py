"""The only loop: `stream` yields one `Step` per round, and `generate` collects the steps."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.contract import Drafter, PathProcessor
from specdec_lite.engine.models import CausalLM
from specdec_lite.options import OptionNames, Request, default_rule, prepare, source_of_chance
from specdec_lite.proposal import Step
from specdec_lite.sampling import Rng
from specdec_lite.speculation import Verifier, speculate

__all__ = ["Output", "Stats", "default_rule", "generate", "prepare", "stream"]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts over the emitted tokens of one generation.

    The prefill is not counted, and neither is anything after a stop token.

    Attributes:
        tokens: emitted tokens.
        accepted: accepted draws.
        tested: draws that the rule tested.
        drafted: draws that were made.
        target_passes: rounds.
        draft_passes: forward passes of the drafter, without its prefill.
        seconds: seconds of all rounds.
        drafting: seconds spent drafting.
        verifying: seconds spent in the target's passes.
    """

    tokens: int
    accepted: int
    tested: int
    drafted: int
    target_passes: int
    draft_passes: int
    seconds: float
    drafting: float
    verifying: float

    @property
    def acceptance_rate(self) -> float:
        """Return accepted ÷ tested, the estimate of α; NaN if nothing was tested."""
        return self.accepted / self.tested if self.tested else float("nan")

    @property
    def drafted_acceptance(self) -> float:
        """Return accepted ÷ drafted, the rate that engines print; NaN if nothing was drafted.

        It is at most `acceptance_rate`, since tokens after a rejection are drafted but not tested.
        """
        return self.accepted / self.drafted if self.drafted else float("nan")

    @property
    def mean_acceptance_length(self) -> float:
        """Return τ: tokens per target pass, including the recovered or bonus token."""
        return self.tokens / self.target_passes if self.target_passes else float("nan")

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "Stats":
        """Return the sums over the steps of one generation.

        Args:
            steps: one `Step` per round.
        """
        return cls(
            tokens=sum(len(step.tokens) for step in steps),
            accepted=sum(step.accepted for step in steps),
            tested=sum(step.tested for step in steps),
            drafted=sum(step.drafted for step in steps),
            target_passes=len(steps),
            draft_passes=sum(step.draft_passes for step in steps),
            seconds=sum(step.seconds for step in steps),
            drafting=sum(step.drafting for step in steps),
            verifying=sum(step.verifying for step in steps),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Output:
    """The result of `generate`.

    Attributes:
        tokens: the new tokens only, LongTensor [m].
        steps: one `Step` per target pass.
        stats: sums over the steps.
    """

    tokens: Tensor
    steps: list[Step]
    stats: Stats = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "stats", Stats.of(self.steps))  # the dataclass is frozen

    @property
    def logprobs(self) -> Tensor:
        """Return the log-probability of every token [m]; empty unless they were asked for."""
        return torch.tensor([value for step in self.steps for value in step.logprobs])

    def __repr__(self) -> str:
        stats = self.stats
        rates = f", acceptance rate {stats.acceptance_rate:.2f}" if stats.tested else ""
        return f"Output({stats.tokens} tokens in {stats.target_passes} target passes{rates})"

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "Output":
        """Return the output that steps make.

        Args:
            steps: one `Step` per round, in order.
        """
        tokens = [token for step in steps for token in step.tokens]
        return cls(torch.tensor(tokens, dtype=torch.long), list(steps))


def stream(
    target: CausalLM,
    prompt_ids,
    drafter: Drafter | None = None,
    *values,
    seed: int | None = None,
    rng: Rng | None = None,
    **options: Unpack[OptionNames],
) -> Iterator[Step]:
    """Decode, and yield a `Step` after each target pass.

    Args:
        target, prompt_ids, drafter, seed: see `generate`.
        values: options of `generate` in its order, from max_new_tokens on.
        rng: a source of chance to use instead of `seed`.
        options: options of `generate` by name.

    Returns:
        An iterator over the steps. The prefill runs when the first step is requested.

    Raises:
        TypeError: at the call, before any model runs; the message names the argument.
        ValueError: likewise.
    """
    # Checked here, not in the generator: errors come with the call, not with the first step.
    request = prepare(target, prompt_ids, drafter, *values, **options)
    return _rounds(request, source_of_chance(seed, rng))


def _rounds(request: Request, rng: Rng) -> Iterator[Step]:
    """Yield the steps of a checked request."""
    context, session = request.begin(request.target.new_cache(capacity=request.capacity), rng)
    rule, layers, stops = request.options.rule, request.hidden_layers, request.stops
    # Without a drafter every proposal is empty, and a round is a step of plain decoding.
    while context.wanted > 0:
        step, context = speculate(request.target, session, context, rule, layers, stops)
        yield request.reported(step, context)
        if step.tokens[-1] in stops:
            return


def generate(
    target: CausalLM,
    prompt_ids,
    drafter: Drafter | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rule: RuleFunction | Verifier | None = None,
    stop_token_ids: int | Collection[int] | None = None,
    seed: int | None = None,
    processors: PathProcessor | Sequence[PathProcessor] | None = (),
    logprobs: bool = False,
) -> Output:
    """Decode up to max_new_tokens tokens after prompt_ids; with a drafter, speculatively.

    There are no beams.

    Args:
        target: a `CausalLM`.
        prompt_ids: ids [n] or [1, n], a tensor or a list, n ≥ 1; or a tokenizer's encoding, such as
            `tokenizer(text, return_tensors="pt")`.
        drafter: None for plain autoregressive decoding.
        max_new_tokens: ≥ 1; with the prompt at most the target's context length.
        temperature: ≥ 0; 0 is greedy.
        top_k: as in `Sampling`.
        top_p: as in `Sampling`.
        rule: None for `exact_match` at temperature 0 and `speculative_sampling` above.
        stop_token_ids: decoding ends after the first of these ids, which is part of the output. A
            row or one id; None for the target's own, `target.end_of_text`, and () for none.
        seed: makes a run repeatable on one machine, dtype and γ. Another γ draws random numbers in
            another order.
        processors: functions (prefix_ids, logits) → logits, applied in order to every path that the
            target scores, before temperature, top-k and top-p; see `PathProcessor`.
        logprobs: whether steps keep the log-probabilities of their tokens, `Step.logprobs`.

    Returns:
        The new tokens, the steps and their statistics.

    Raises:
        TypeError: before any model runs; the message names the argument.
        ValueError: likewise.
    """
    values = (max_new_tokens, temperature, top_k, top_p, rule, stop_token_ids, processors, logprobs)
    return Output.of(list(stream(target, prompt_ids, drafter, *values, seed=seed)))
