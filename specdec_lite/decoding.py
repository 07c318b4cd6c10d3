"""The only loop. `stream` yields one `Step` per round, `generate` collects them.

What lives here: checking what was asked, the prefill, the loop and its statistics. What does not:
the round (`speculation`), where drafts come from (`drafters`), who accepts them (`acceptance`).
"""

import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lite.acceptance import exact_match, speculative_sampling
from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.checks import model, whole
from specdec_lite.engine.models import CausalLM
from specdec_lite.sampling import Rng, Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter, Plain, Step, Verifier, speculate
from specdec_lite.tree import is_whole_dtype


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts over the kept tokens of one generation; nothing behind a stop token, and no prefill,
    is counted.

    tokens: emitted. target_passes: rounds. draft_passes: the drafter's, its prefill not. seconds:
    rounds only.
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
        """accepted ÷ tested: the estimate of α. NaN when nothing was tested."""
        return self.accepted / self.tested if self.tested else float("nan")

    @property
    def drafted_acceptance(self) -> float:
        """accepted ÷ drafted: what engines print. Smaller, since tokens behind a rejection were
        never tested.
        """
        return self.accepted / self.drafted if self.drafted else float("nan")

    @property
    def mean_acceptance_length(self) -> float:
        """τ: tokens per target pass, the recovered or bonus token included."""
        return self.tokens / self.target_passes if self.target_passes else float("nan")

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "Stats":
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


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What `generate` returns. tokens: LongTensor [m], the new tokens only. steps: one per target
    pass.
    """

    tokens: Tensor
    steps: list[Step]
    stats: Stats = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "stats", Stats.of(self.steps))


def _ids(name: str, ids) -> Tensor:
    try:
        return torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} is a {type(ids).__name__}: must be one row of token ids ({error})"
        ) from None


def _stops(stop_token_ids: Collection[int], vocab_size: int) -> frozenset[int]:
    ids = _ids(
        "stop_token_ids",
        list(stop_token_ids) if isinstance(stop_token_ids, (set, frozenset)) else stop_token_ids,
    )
    if ids.dim() != 1 or ids.numel() and not is_whole_dtype(ids.dtype):
        raise TypeError(
            f"stop_token_ids={stop_token_ids!r}: must be a row of whole numbers, such as (0,)"
        )
    _check_range("stop_token_ids", ids.long(), vocab_size)
    return frozenset(ids.tolist())


def _check_range(name: str, ids: Tensor, vocab_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocab_size)].tolist()
    if outside:
        raise ValueError(f"{name} holds {outside[0]}: token ids must be in 0 … {vocab_size - 1}")


def _check(target: CausalLM, prompt_ids, max_new_tokens: int) -> Tensor:
    model("target", target)
    tokens = _ids("prompt_ids", prompt_ids)
    if tokens.dim() == 2 and tokens.shape[0] == 1:
        tokens = tokens[0]
    if tokens.dim() != 1 or tokens.numel() == 0:
        raise ValueError(
            f"prompt_ids has shape {tuple(tokens.shape)}: must be one row of at least one token id"
        )
    if not is_whole_dtype(tokens.dtype):
        raise TypeError(f"prompt_ids has dtype {tokens.dtype}: must be whole numbers")
    whole("max_new_tokens", max_new_tokens, 1)
    tokens = tokens.long()
    _check_range("prompt_ids", tokens, target.vocab_size)
    if len(tokens) + max_new_tokens > target.max_positions:
        raise ValueError(
            f"prompt_ids has {len(tokens)} tokens and max_new_tokens={max_new_tokens}: "
            f"together they exceed the target's context length of {target.max_positions}"
        )
    return tokens.to(target.device)


def _check_drafter(drafter: Drafter, target: CausalLM, positions: int) -> None:
    if not isinstance(drafter, Drafter):
        raise TypeError(
            f"drafter is a {type(drafter).__name__}: must be None or a drafter, such as"
            " ModelDrafter(model, gamma=4), made from a subclass of specdec_lite.drafters.Drafter"
        )
    target.check_layers(drafter.hidden_layers)
    shape = drafter.shape()
    if shape is not None and shape.nodes >= target.longest_pass:
        raise ValueError(
            f"drafter's tree has {shape.nodes} nodes: with the token before it that exceeds"
            f" target's longest pass, {target.longest_pass}; give StaticLM larger sizes"
        )
    drafter.check(target, positions)


def default_rule(sampling: Sampling) -> RuleFunction:
    """The lossless rule that is meant where none is given."""
    return exact_match if sampling.greedy else speculative_sampling


def _check_rule(rule: RuleFunction | Verifier, sampling: Sampling) -> None:
    if isinstance(rule, Verifier):
        return
    try:
        inspect.signature(rule).bind("proposal", "target_probs", "rng")
    except (TypeError, ValueError):
        raise TypeError(
            f"rule={rule!r}: must be None or a rule of specdec_lite.acceptance, which takes"
            " (proposal, target_probs, rng); a rule with settings is made by calling it, as in"
            " typical(epsilon=0.09)"
        ) from None
    if rule is exact_match and not sampling.greedy:
        raise ValueError(
            f"rule=exact_match needs temperature=0, got temperature={sampling.temperature}: it"
            " would replace sampling by argmax. Use speculative_sampling, block_verification or"
            " sample_and_match."
        )


def stream(
    target: CausalLM,
    prompt_ids,
    drafter: Drafter | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rule: RuleFunction | Verifier | None = None,
    stop_token_ids: Collection[int] = (),
    seed: int | None = None,
    rng: Rng | None = None,
) -> Iterator[Step]:
    """Decode and yield a `Step` per target pass, as it is decided. The arguments are those of
    `generate`.

    Arguments are checked at the call, before any model runs. rng: a source of chance to use in
    place of `seed`.
    """
    tokens = _check(target, prompt_ids, max_new_tokens)
    stops = _stops(stop_token_ids, target.vocab_size)
    if drafter is not None:
        _check_drafter(drafter, target, len(tokens) + max_new_tokens)
    if seed is not None and rng is not None:
        raise ValueError(f"seed={seed!r} and an rng: give one source of chance, not two")
    if rng is not None and not (hasattr(rng, "flip") and hasattr(rng, "draw")):
        raise TypeError(
            f"rng is a {type(rng).__name__}: must have `flip` and `draw`, such as"
            " specdec_lite.sampling.SeededRng(0)"
        )
    sampling = Sampling(temperature, top_k, top_p)
    if rule is None:
        rule = default_rule(sampling)
    _check_rule(rule, sampling)
    rng = SeededRng(seed) if rng is None else rng
    return _rounds(target, tokens, drafter, max_new_tokens, sampling, rule, stops, rng)


def _rounds(target, tokens, drafter, max_new_tokens, sampling, rule, stops, rng) -> Iterator[Step]:
    layers = () if drafter is None else tuple(drafter.hidden_layers)
    cache = target.new_cache(capacity=len(tokens) + max_new_tokens + 64)
    prefill = None
    if len(tokens) > 1:
        prefill = target.score(tokens[:-1], cache, hidden_layers=layers, last=True)
    context = Context(tokens, prefill, sampling, rng, max_new_tokens, target.vocab_size, cache)
    session = Plain() if drafter is None else drafter.start(context)
    while context.wanted > 0:
        step, context = speculate(target, session, context, rule, layers, stops)
        yield step
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
    stop_token_ids: Collection[int] = (),
    seed: int | None = None,
) -> Output:
    """Decode up to max_new_tokens tokens after prompt_ids; with a drafter, speculatively.

    Args:
        target: a `CausalLM`.
        prompt_ids: ids [n] (or [1, n], or a list), n ≥ 1.
        drafter: None is plain autoregressive decoding.
        max_new_tokens: ≥ 1; with the prompt at most the target's context length.
        temperature: 0 is greedy.
        top_k, top_p: as in `Sampling`.
        rule: None is `exact_match` when greedy, else `speculative_sampling`.
        stop_token_ids: decoding ends with the first of them, which is kept.
        seed: makes a run repeatable on one machine, dtype and γ (another γ draws its chance in
            another order).

    There are no logit processors, grammars or beams: the target scores all drafted paths of a round
    at once, and what depends on the text of each path would have to follow every one of them.
    Raises ValueError or TypeError, naming the argument, before any model runs.
    """
    steps = list(
        stream(
            target,
            prompt_ids,
            drafter,
            max_new_tokens,
            temperature,
            top_k,
            top_p,
            rule,
            stop_token_ids,
            seed,
        )
    )
    tokens = [token for step in steps for token in step.tokens]
    return Output(torch.tensor(tokens, dtype=torch.long), steps)
