"""The options of a generation, and a checked request: all of it is checked before any model runs."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import torch
from torch import Tensor

from specdec_lite.acceptance import exact_match, speculative_sampling
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.checks import is_whole_dtype, model as check_model, whole
from specdec_lite.contract import Context, Drafter, Limits, NoDraft, PathProcessor, Session
from specdec_lite.engine.cache import Cache, Layer
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Step, with_logprobs
from specdec_lite.sampling import Rng, Sampling, SeededRng
from specdec_lite.speculation import Verifier


class OptionNames(TypedDict, total=False):
    """The fields of `Options` by name, for editors: a function takes them as `**options`."""

    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    rule: RuleFunction | Verifier | None
    stop_token_ids: int | Collection[int] | None
    processors: PathProcessor | Sequence[PathProcessor] | None
    logprobs: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How to decode: what `generate` takes after the drafter, as its docstring describes it.

    Attributes:
        sampling: how tokens are drawn, made of temperature, top_k and top_p.

    Raises:
        TypeError: an option has the wrong type; the message names it.
        ValueError: an option has a value that is not allowed; the message names it.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    rule: RuleFunction | Verifier = None  # pyright: ignore[reportAssignmentType]
    stop_token_ids: int | Collection[int] | None = None
    processors: tuple[PathProcessor, ...] = ()
    logprobs: bool = False
    sampling: Sampling = field(init=False)

    def __post_init__(self):
        whole("max_new_tokens", self.max_new_tokens, 1)
        sampling = Sampling(self.temperature, self.top_k, self.top_p)
        processors = _processors(self.processors)
        if not isinstance(self.logprobs, bool):
            raise TypeError(f"logprobs={self.logprobs!r}: must be True or False")
        rule = default_rule(sampling) if self.rule is None else self.rule
        _check_rule(rule, sampling)
        # A frozen dataclass allows no other way to set what follows from the fields.
        for name, value in (("sampling", sampling), ("processors", processors), ("rule", rule)):
            object.__setattr__(self, name, value)


def default_rule(sampling: Sampling) -> RuleFunction:
    """Return the lossless rule that is used if none is given."""
    return exact_match if sampling.greedy else speculative_sampling


def _processors(processors: PathProcessor | Sequence[PathProcessor] | None) -> tuple:
    """Return processors as a tuple, in the order in which they are applied."""
    if processors is None:
        return ()
    several = processors if isinstance(processors, (list, tuple)) else [processors]
    for processor in several:
        if isinstance(processor, type) or not callable(processor):
            raise TypeError(
                f"processors holds {processor!r}: must be functions (prefix_ids, logits) → logits,"
                " such as MinP(0.1)"
            )
    return tuple(several)


def _check_rule(rule: RuleFunction | Verifier, sampling: Sampling) -> None:
    """Raise if the rule cannot be called, or would replace sampling by argmax."""
    if isinstance(rule, Verifier):
        return
    try:
        inspect.signature(rule).bind("proposal", "target_probs", "rng")
    except (TypeError, ValueError):
        raise TypeError(
            f"rule={rule!r}: must be None or a rule of specdec_lite.acceptance, which takes"
            " (proposal, target_probs, rng); call a rule that has settings, as in"
            " typical(epsilon=0.09)"
        ) from None
    if rule is exact_match and not sampling.greedy:
        raise ValueError(
            f"rule=exact_match needs temperature=0, got temperature={sampling.temperature}: it"
            " would replace sampling by argmax. Use speculative_sampling, block_verification or"
            " sample_and_match."
        )


SPARE_ENTRIES = 64
"""Cache entries beyond the text, for the drafted tokens of the last round."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. `prepare` makes it; no model has run yet.

    Attributes:
        target: the model that decodes.
        tokens: the prompt's ids, LongTensor [n] on the host.
        drafter: None for plain decoding.
        options: how to decode.
        stops: ids that end the text.
    """

    target: CausalLM
    tokens: Tensor
    drafter: Drafter | None
    options: Options
    stops: frozenset[int]

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """Return the target's hidden layers that the drafter wants to see."""
        return () if self.drafter is None else tuple(self.drafter.hidden_layers)

    @property
    def capacity(self) -> int:
        """Return the number of cache entries that the whole text needs."""
        return len(self.tokens) + self.options.max_new_tokens + SPARE_ENTRIES

    def reported(self, step: Step, context: Context) -> Step:
        """Return a step as it is reported; context is that of the next round."""
        if not self.options.logprobs:
            return step
        assert context.scores is not None  # a round leaves those of its accepted path
        return with_logprobs(step, context.scores.logits[0])

    def begin(self, cache: Cache, rng: Rng) -> tuple[Context, Session]:
        """Run the prefill and start the drafter."""
        # The last token of the prompt is left for the first round, as the last committed token is
        # in every later round. A prompt of one token needs no prefill.
        scores = None
        if len(self.tokens) > 1:
            scores = self.target.score(
                self.tokens[:-1], cache, hidden_layers=self.hidden_layers, last=True
            )
        context = Context(
            tokens=self.tokens,
            scores=scores,
            sampling=self.options.sampling,
            rng=rng,
            wanted=self.options.max_new_tokens,
            vocab_size=self.target.vocab_size,
            cache=cache,
            processors=self.options.processors,
        )
        return context, NoDraft() if self.drafter is None else self.drafter.start(
            context.for_drafter()
        )


def prepare(
    target: CausalLM, prompt_ids, drafter: Drafter | None = None, *values, **options
) -> Request:
    """Check the arguments of `generate` and return them as a request; run no model.

    Shapes: prompt_ids [n]. The last arguments are those of `Options`, in order or by name.
    """
    tokens, chosen = _prompt(target, prompt_ids), Options(*values, **options)
    positions = len(tokens) + chosen.max_new_tokens
    if positions > target.max_positions:
        raise ValueError(
            f"prompt_ids has {len(tokens)} tokens and max_new_tokens={chosen.max_new_tokens}: "
            f"together they exceed the target's context length of {target.max_positions}"
        )
    stops = stop_ids(chosen.stop_token_ids, target)
    if drafter is not None:
        _check_drafter(drafter, target, positions)
        _check_limits(drafter.limits(), chosen.rule)
        # At temperature 0 a lossless rule keeps the target's own token, however a draft was made.
        if not chosen.sampling.greedy:
            drafter.check_rule(chosen.rule)
    return Request(target, tokens, drafter, chosen, stops)


def _prompt(target: CausalLM, prompt_ids) -> Tensor:
    """Return the prompt as a LongTensor [n] on the host, after checking it."""
    check_model("target", target)
    tokens = _ids("prompt_ids", _row_of_encoding(prompt_ids))
    if tokens.dim() == 2 and tokens.shape[0] == 1:
        tokens = tokens[0]
    if tokens.dim() != 1 or tokens.numel() == 0:
        raise ValueError(
            f"prompt_ids has shape {tuple(tokens.shape)}: must be one row of at least one token id"
        )
    if not is_whole_dtype(tokens.dtype):
        raise TypeError(f"prompt_ids has dtype {tokens.dtype}: must be whole numbers")
    # The text stays on the host: drafters look tokens up there, and a pass uploads what it feeds.
    tokens = tokens.to("cpu", torch.long, copy=True)  # a drafter may not reach the caller's tensor
    _check_range("prompt_ids", tokens, target.vocab_size)
    return tokens


def _row_of_encoding(prompt_ids):
    """Return the `input_ids` of a tokenizer's encoding; anything else as it is."""
    if not isinstance(prompt_ids, Mapping):
        return prompt_ids
    ids, mask = ids_and_mask("prompt_ids", prompt_ids)
    if mask is not None and not bool(torch.as_tensor(mask).all()):
        raise ValueError("prompt_ids has an attention_mask with 0: give one prompt without padding")
    return ids


def ids_and_mask(name: str, encoding: Mapping) -> tuple:
    """Return the `input_ids` and the attention mask, or None, of a tokenizer's encoding."""
    if "input_ids" not in encoding:
        raise TypeError(
            f"{name} has the keys {sorted(encoding)}: must be token ids, or a tokenizer's encoding"
            " with input_ids"
        )
    return encoding["input_ids"], encoding.get("attention_mask")


def _ids(name: str, ids) -> Tensor:
    """Return ids as a tensor; raise TypeError if they are not numbers."""
    try:
        return torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} is a {type(ids).__name__}: must be one row of token ids ({error})"
        ) from None


def stop_ids(stop_token_ids: int | Collection[int] | None, target: CausalLM) -> frozenset[int]:
    """Return the stop tokens as a set, after checking them; for None, the target's own."""
    if stop_token_ids is None:
        # A configuration may name an id that the model does not have; a model of counts names none.
        own = getattr(target, "end_of_text", ())
        return frozenset(token for token in own if 0 <= token < target.vocab_size)
    # A set is no row for torch, but it is what users have for ids without an order.
    is_set = isinstance(stop_token_ids, (set, frozenset))
    ids = _ids("stop_token_ids", list(stop_token_ids) if is_set else stop_token_ids)
    ids = ids[None] if ids.dim() == 0 else ids
    if ids.dim() != 1 or ids.numel() and not is_whole_dtype(ids.dtype):
        raise TypeError(
            f"stop_token_ids={stop_token_ids!r}: must be None, a token id or a row of token ids"
        )
    _check_range("stop_token_ids", ids.long(), target.vocab_size)
    return frozenset(ids.tolist())


def _check_range(name: str, ids: Tensor, vocab_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocab_size)].tolist()
    if outside:
        raise ValueError(f"{name} contains {outside[0]}: token ids must be in 0 … {vocab_size - 1}")


def _check_drafter(drafter: Drafter, target: CausalLM, positions: int) -> None:
    """Raise if the object is not a drafter or cannot draft for the target up to `positions`."""
    if not isinstance(drafter, Drafter):
        raise TypeError(
            f"drafter is a {type(drafter).__name__}: must be None or a drafter, such as"
            " ModelDrafter(model, gamma=4), an instance of a subclass of"
            " specdec_lite.drafters.Drafter"
        )
    target.check_layers(drafter.hidden_layers)
    # A model with recorded passes takes a fixed number of tokens, among them the root.
    limits = drafter.limits()
    if limits is not None and limits.nodes >= target.longest_pass:
        raise ValueError(
            f"drafter's tree has {limits.nodes} nodes: with the last committed token that exceeds"
            f" target's longest pass, {target.longest_pass}: draft fewer nodes, or, if target is a"
            " StaticLM, make it with larger sizes"
        )
    drafter.check(target, positions)


def _check_limits(limits: Limits | None, rule: RuleFunction | Verifier) -> None:
    """Raise if the rule takes chains only and the drafter proposes trees."""
    if getattr(rule, "chains_only", False) and limits is not None and not limits.is_chain:
        raise ValueError(
            f"rule={getattr(rule, 'name', rule)} takes chains only, and the drafter's trees have up"
            f" to {limits.nodes} nodes on {limits.levels} levels: use speculative_sampling, or"
            " traversal_verification, which is block verification on trees"
        )


def source_of_chance(seed: int | None, rng: Rng | None) -> Rng:
    """Return the rng of a generation."""
    if rng is None:
        return SeededRng(seed)
    if seed is not None:
        raise ValueError(f"seed={seed!r} and an rng: give one source of chance, not two")
    if not (hasattr(rng, "flip") and hasattr(rng, "draw")):
        raise TypeError(
            f"rng is a {type(rng).__name__}: must have `flip` and `draw`, such as"
            " specdec_lite.sampling.SeededRng(0)"
        )
    return rng
