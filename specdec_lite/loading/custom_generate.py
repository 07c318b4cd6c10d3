"""Any drafter inside transformers' own `model.generate`, through its argument `custom_generate`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.contract import Drafter
from specdec_lite.decoding import Output, stream
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Step
from specdec_lite.speculation import Verifier

if TYPE_CHECKING:
    from transformers.generation.streamers import BaseStreamer

WARPERS = {
    "TemperatureLogitsWarper": "temperature",
    "TopKLogitsWarper": "top_k",
    "TopPLogitsWarper": "top_p",
}
"""Processors of transformers that `Sampling` has too → their attribute."""
OF_THE_PREFIX = (
    "RepetitionPenaltyLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "NoBadWordsLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "SuppressTokensLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "ExponentialDecayLengthPenalty",
    "PrefixConstrainedLogitsProcessor",
)
"""Processors of transformers that are functions of the prefix and of the logits after it."""
STOPS = ("MaxLengthCriteria", "EosTokenCriteria")
REFUSED = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "output_scores": False,
    "penalty_alpha": 0.0,
}
"""Options of a generation config that cannot be combined with drafts → the value that is off."""
MODES = ("greedy_search", "sample")
"""Generation modes of transformers that this loop replaces."""
READ = ("attention_mask", "past_key_values", "cache", "position_ids", "cache_position")
"""Inputs of a model that are checked below."""
HARMLESS = ("use_cache", "logits_to_keep")
"""Inputs of a model that change no logits."""


class SpeculativeGenerate:
    """A decoding loop for `model.generate(ids, custom_generate=SpeculativeGenerate(drafter))`.

    It takes one prompt without padding, greedy or with temperature, top-k and top-p. Penalties and
    constraints in `OF_THE_PREFIX` come before these and follow every drafted path. It returns the
    ids as `generate` of transformers does. With sampling it draws its seed from torch's global
    generator, so `torch.manual_seed` makes a run repeatable; the random numbers are used in another
    order than in transformers, so the sampled text differs while its distribution is the same. One
    exception: top-k keeps exactly k tokens here, while transformers keeps every token that ties with
    the k-th, and top-p breaks ties in the other order. In bfloat16 such ties are common.

    Args:
        drafter: any drafter. One that is made from a target is made from this model: `CausalLM(model)`.
        rule: as in `generate`.
        streamer: a streamer of transformers, which is given the prompt and then one token after
            another, and is ended with the text. Give it here: transformers passes none to a custom
            loop, so the reader of one that is given to `model.generate` waits forever.

    Attributes:
        output: tokens, steps and statistics of the last call; None before the first.
    """

    def __init__(
        self,
        drafter: Drafter,
        rule: RuleFunction | Verifier | None = None,
        streamer: "BaseStreamer | None" = None,
    ):
        self.drafter = checks.drafter("drafter", drafter)
        self.rule = rule
        self.streamer = streamer
        self.output: Output | None = None
        self._target: CausalLM | None = None

    def __call__(
        self, model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs
    ) -> Tensor:
        """Decode; transformers calls this with what it has prepared.

        Shapes: input_ids [1, n].
        """
        check_options(generation_config, input_ids)
        check_inputs(input_ids, kwargs)
        check_prepared(model, input_ids, kwargs)
        limit, stops = read_criteria(stopping_criteria)
        sampling = read_processors(logits_processor)
        if not generation_config.do_sample:
            sampling["temperature"] = 0.0
        if self._target is None or self._target.model is not model:
            self._target = CausalLM(model)
        rounds = stream(
            self._target,
            input_ids,
            self.drafter,
            max_new_tokens=limit - input_ids.shape[1],
            rule=self.rule,
            stop_token_ids=[token for token in stops if token < self._target.vocab_size],
            seed=int(torch.randint(2**62, ())) if generation_config.do_sample else None,
            **sampling,
        )
        self.output = Output.of(list(self._streamed(input_ids, rounds)))
        return torch.cat((input_ids, self.output.tokens[None].to(input_ids)), dim=1)

    def _streamed(self, input_ids: Tensor, rounds: Iterator[Step]) -> Iterator[Step]:
        """Yield the rounds, and feed the streamer with the prompt [1, n] and each token."""
        if self.streamer is None:
            yield from rounds
            return
        try:
            self.streamer.put(input_ids.cpu())
            for step in rounds:
                for token in step.tokens:  # one by one, as transformers does
                    self.streamer.put(torch.tensor([token]))
                yield step
        finally:  # a reader in another thread waits for the end, also after an error
            self.streamer.end()


def check_options(config: Any, input_ids: Tensor) -> None:
    """Refuse options that cannot be combined with drafts, and several rows [B, n]."""
    for name, off in REFUSED.items():
        value = getattr(config, name, None)
        if value is not None and value != off:
            raise ValueError(f"{name}={value!r}: cannot be combined with a drafter")
    mode = str(getattr(config.get_generation_mode(), "value", ""))
    if mode not in MODES:
        raise ValueError(f"the options ask for {mode}: a drafter replaces {' and '.join(MODES)}")
    if len(input_ids) != 1:
        raise ValueError(
            f"inputs has {len(input_ids)} rows: must be one prompt; `generate_batch` takes several"
        )


def check_inputs(input_ids: Tensor, inputs: dict) -> None:
    """Refuse every input of the model beside the token ids [1, n] that could change its logits.

    The target's passes are given token ids alone, so an image or an embedding would be dropped.
    """
    for name, value in inputs.items():
        if value is not None and name not in READ + HARMLESS:
            raise ValueError(
                f"{name}: cannot be combined with a drafter, whose target reads token ids alone"
            )
    mask = inputs.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise ValueError("attention_mask has zeros: the prompt must have no padding")
    for name in ("past_key_values", "cache"):  # the old and the new name in transformers
        if inputs.get(name) is not None and inputs[name].get_seq_length() > 0:
            raise ValueError(f"{name} is not empty: give the whole prompt as inputs")
    usual = torch.arange(input_ids.shape[1])
    for name in ("position_ids", "cache_position"):
        value = inputs.get(name)
        if value is not None and value.flatten().tolist() != usual.tolist():
            raise ValueError(f"{name} must be 0 … {len(usual) - 1}: a drafter's loop counts from 0")


def check_prepared(model: Any, input_ids: Tensor, inputs: dict) -> None:
    """Refuse what a model adds to the ids [1, n] before its first pass, such as a soft prompt."""
    # Without the empty cache: for a static one, the whole mask would be built here.
    given = {name: inputs[name] for name in inputs.keys() - {"past_key_values", "cache"}}
    prepared = model.prepare_inputs_for_generation(input_ids, is_first_iteration=True, **given)
    ids = prepared.pop("input_ids", None)
    try:
        check_inputs(input_ids, prepared)
        if ids is None or ids.tolist() != input_ids.tolist():
            raise ValueError("other input_ids than the prompt's")
    except ValueError as error:
        name = f"{type(model).__name__}.prepare_inputs_for_generation"
        raise ValueError(f"{name} gives what a drafter's loop does not feed: {error}") from None


@dataclass(frozen=True, slots=True)
class OfTransformers:
    """A processor of transformers as a `PathProcessor`: it is given one path as a batch of one."""

    processor: Any

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; see `PathProcessor`."""
        return self.processor(prefix_ids[None].to(logits.device), logits[None].clone())[0]


def read_processors(processors: Any) -> dict[str, Any]:
    """Return temperature, top_k, top_p and the other processors as arguments of `generate`."""
    settings: dict[str, Any] = {"temperature": 1.0}
    names = [type(processor).__name__ for processor in processors]
    unknown = [name for name in names if name not in WARPERS and name not in OF_THE_PREFIX]
    if unknown:
        raise ValueError(
            f"{unknown[0]}: cannot be combined with a drafter here; what depends on the prefix alone"
            f" can: {', '.join(OF_THE_PREFIX)}; `generate` of this library also has processors.MinP"
        )
    warpers = [name for name in names if name in WARPERS]
    in_order = sorted(warpers, key=list(WARPERS).index)
    # `Sampling` comes after every processor, so a processor after a warper would change places.
    if names[len(names) - len(warpers) :] != in_order or len(set(warpers)) < len(warpers):
        raise ValueError(
            f"{names}: must end in at most temperature, top-k and top-p, in this order"
        )
    for name, processor in zip(names, processors):
        if name in WARPERS:
            settings[WARPERS[name]] = getattr(processor, WARPERS[name])
    settings["processors"] = [
        OfTransformers(processor)
        for name, processor in zip(names, processors)
        if name in OF_THE_PREFIX
    ]
    return settings


def read_criteria(criteria: Any) -> tuple[int, list[int]]:
    """Return the longest length, prompt included, and the tokens that end the text."""
    lengths, stops = [], []
    for criterion in criteria:
        name = type(criterion).__name__
        if name not in STOPS:
            raise ValueError(f"{name}: a drafter's loop stops at a length or at tokens only")
        if name == "MaxLengthCriteria":
            lengths.append(int(criterion.max_length))
        else:
            stops += torch.as_tensor(criterion.eos_token_id).flatten().tolist()
    if not lengths:
        raise ValueError("max_new_tokens: must be given")
    return min(lengths), stops
