"""What an argument must be, a line a check; errors name it, its value and what is allowed."""

from numbers import Integral, Real


def is_whole(value) -> bool:
    """A whole number, NumPy's included, and not a bool: `top_k=True` is a mistake, not 1."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def whole(name: str, value, least: int = 0, most: int | None = None, note: str = "") -> int:
    """`value` as an int. ValueError where it is no whole number from `least` to `most`."""
    if not is_whole(value) or value < least or most is not None and value > most:
        allowed = f"≥ {least}" if most is None else f"in {least} … {most}"
        raise ValueError(f"{name}={value!r}: must be a whole number {allowed}{note}")
    return int(value)


def number(name: str, value, least: float = 0.0) -> float:
    """`value` as a float. ValueError where it is no number ≥ `least`; infinity is one."""
    if not is_number(value) or not value >= least:
        raise ValueError(f"{name}={value!r}: must be a number ≥ {least:g}")
    return float(value)


def unit(name: str, value) -> float:
    """`value` as a float. ValueError where it is no number in (0, 1]."""
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name}={value!r}: must be in (0, 1]")
    return float(value)


def model(name: str, value):
    """`value` itself. TypeError where it is no `CausalLM`."""
    if not hasattr(value, "score") or not hasattr(value, "new_cache"):
        raise TypeError(
            f"{name} is a {type(value).__name__}: must be a CausalLM; wrap the model as"
            " CausalLM(model)"
        )
    return value


def instance(name: str, value, kind: type, allowed: str = ""):
    """`value` itself. TypeError where it is of another class; allowed: what to call this one."""
    if not isinstance(value, kind):
        allowed = allowed or f"a {kind.__name__}"
        raise TypeError(f"{name} is a {type(value).__name__}: must be {allowed}")
    return value


def drafter(name: str, value):
    """`value` itself. TypeError where it is no drafter."""
    if not hasattr(value, "start") or not hasattr(value, "hidden_layers"):
        raise TypeError(f"{name} is a {type(value).__name__}: must be a drafter")
    return value


def lossless(name: str, rule):
    """`rule` itself. ValueError where it is not marked as lossless."""
    if not getattr(rule, "lossless", False):
        raise ValueError(
            f"{name}={getattr(rule, 'name', rule)!s}: must be a lossless rule, such as"
            " speculative_sampling"
        )
    return rule


def native(name: str, value):
    """`value` itself. TypeError where it is no `CausalLM`, ValueError for one of Hugging Face."""
    if not model(name, value).native:
        raise ValueError(
            f"{name} wraps a {type(value.model).__name__}: must be a native model, whose layers and"
            " cache can be used in part"
        )
    return value


def own_target(own, target) -> None:
    """ValueError where a drafter made of one target is to draft for another."""
    if own is not target:
        raise ValueError("drafter is made of another target: give generate the one it was made of")


def positions(draft, needed: int) -> None:
    """ValueError where a text of so many positions exceeds the context of a draft model."""
    if needed > draft.max_positions:
        raise ValueError(
            f"prompt_ids and max_new_tokens need {needed} positions: they exceed the drafter's"
            f" context length of {draft.max_positions}"
        )


def learnt(most: int, target) -> None:
    """ValueError where a drafter's memory holds, as its greatest, a token that the target has not."""
    if most >= target.vocab_size:
        raise ValueError(
            f"drafter has learnt token {most}: target's token ids are 0 … {target.vocab_size - 1}"
        )


def same_device(name: str, value, target) -> None:
    """ValueError where a model and the target are on different devices."""
    if value.device != target.device:
        raise ValueError(
            f"{name} runs on {value.device} and target on {target.device}: both must be on one"
            " device"
        )


def same_width(name: str, value, target) -> None:
    """ValueError where a model and the target have vocabularies of different size."""
    if value.vocab_size != target.vocab_size:
        raise ValueError(
            f"{name} has {value.vocab_size} tokens, target has {target.vocab_size}: both must have"
            " one vocabulary"
        )
