"""Checks of arguments: each error names the argument, its value and what is allowed."""

from numbers import Integral, Real
from typing import Any

SUM_TOLERANCE = 2e-5
"""How far the sum of a row may be from 1. A float32 softmax of 262,208 logits misses by 1.3e-5."""


def is_whole(value) -> bool:
    """Return whether a value is a whole number, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_whole_dtype(dtype) -> bool:
    """Return whether tensors of a dtype may contain token ids."""
    return not (dtype.is_floating_point or dtype.is_complex or str(dtype) == "torch.bool")


def is_number(value) -> bool:
    """Return whether a value is a real number, NumPy's included."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole(name: str, value, least: int = 0, most: int | None = None, note: str = "") -> int:
    """Return a value as an int."""
    if not is_whole(value) or value < least or most is not None and value > most:
        allowed = f"≥ {least}" if most is None else f"in {least} … {most}"
        raise ValueError(f"{name}={value!r}: must be a whole number {allowed}{note}")
    return int(value)


def number(name: str, value, least: float = 0.0) -> float:
    """Return a value as a float, which may be infinite."""
    if not is_number(value) or not value >= least:
        raise ValueError(f"{name}={value!r}: must be a number ≥ {least:g}")
    return float(value)


def unit(name: str, value) -> float:
    """Return a value as a float."""
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name}={value!r}: must be in (0, 1]")
    return float(value)


def model(name: str, value) -> Any:
    """Return a value that is a `CausalLM`."""
    # By its methods, not by its class: this module imports no model.
    if not hasattr(value, "score") or not hasattr(value, "new_cache"):
        raise TypeError(
            f"{name} is a {type(value).__name__}: must be a CausalLM; wrap the model as"
            " CausalLM(model)"
        )
    return value


def instance(name: str, value, kind: type, allowed: str = "") -> Any:
    """Return a value that is an instance of a class."""
    if not isinstance(value, kind):
        allowed = allowed or f"a {kind.__name__}"
        raise TypeError(f"{name} is a {type(value).__name__}: must be {allowed}")
    return value


def drafter(name: str, value) -> Any:
    """Return a value that is a drafter."""
    is_one = hasattr(value, "start") and hasattr(value, "hidden_layers")
    if isinstance(value, type) or not is_one:
        raise TypeError(f"{name} is a {type(value).__name__}: must be a drafter")
    return value


def lossless(name: str, rule) -> Any:
    """Return a rule that is marked as lossless."""
    if not getattr(rule, "lossless", False):
        raise ValueError(
            f"{name}={getattr(rule, 'name', rule)!s}: must be a lossless rule, such as"
            " speculative_sampling"
        )
    return rule


def native(name: str, value) -> Any:
    """Return a value that is a native `CausalLM`."""
    if not model(name, value).native:
        raise ValueError(
            f"{name} wraps a {type(value.model).__name__}: must be a native model, whose layers and"
            " cache can be used in part"
        )
    return value


def own_target(own, target) -> None:
    """Raise if a drafter that was made from one target drafts for another."""
    if own is not target and own.model is not target.model:  # two wrappers may hold one model
        raise ValueError(
            "drafter is made of another target: give generate the target from which it was made"
        )


def positions(draft, needed: int) -> None:
    """Raise if a text exceeds the context length of a draft model."""
    if needed > draft.max_positions:
        raise ValueError(
            f"prompt_ids and max_new_tokens need {needed} positions: they exceed the drafter's"
            f" context length of {draft.max_positions}"
        )


def learnt(most: int, target) -> None:
    """Raise if a drafter's memory contains a token id outside the target's vocabulary."""
    if most >= target.vocab_size:
        raise ValueError(
            f"drafter has learnt token {most}: target's token ids are 0 … {target.vocab_size - 1}"
        )


def same_device(name: str, value, target) -> None:
    """Raise if a model and the target are on different devices."""
    if value.device != target.device and not getattr(value, "runs_on_host", False):
        raise ValueError(
            f"{name} runs on {value.device} and target on {target.device}: both must be on one"
            " device"
        )


def same_width(name: str, value, target) -> None:
    """Raise if a model and the target have vocabularies of different sizes."""
    if value.vocab_size != target.vocab_size:
        raise ValueError(
            f"{name} has {value.vocab_size} tokens, target has {target.vocab_size}: both must have"
            " one vocabulary"
        )
