"""Drafters that contain other drafters."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Step
from specdec_lite.speculation import Context, Drafter, Limits, NotFiniteError, speculate


class CompositeDrafter(Drafter):
    """A drafter with others in its attribute `inner`, `drafters` or `legs`."""

    def check_rule(self, rule: object) -> None:
        """Require `same_noise` where a `CoupledDrafter` meets a tree, a merge or a cascade.

        There the noise of a position decides about several tokens. After a rejection, other rules
        would draw again with noise whose outcome they have already seen.
        """
        name = getattr(rule, "name", rule)
        parts = list(members(self))
        branching = [part for part in parts if branches(part)]
        coupled = any(getattr(part, "shares_noise", False) for part in parts)
        if coupled and branching and name != "same_noise":
            raise ValueError(
                f"rule={name!s}: a CoupledDrafter with a {type(branching[0]).__name__} is lossless"
                " only under same_noise"
            )

    def learn(self, tokens: Sequence[int] | Tensor) -> None:
        for drafter in children(self):
            drafter.learn(tokens)


class GroupDrafter(CompositeDrafter):
    """A drafter with several others, each of which drafts from the committed text.

    Args:
        drafters: at least one drafter, of chains or trees; the same one may occur several times.
    """

    def __init__(self, drafters: Sequence[Drafter]):
        self.drafters = tuple(drafters)
        for i, drafter in enumerate(self.drafters):
            instance(f"drafters[{i}]", drafter, Drafter, "a drafter")
        if not self.drafters:
            raise ValueError("drafters is empty: give at least one")
        layers = [layer for drafter in self.drafters for layer in drafter.hidden_layers]
        self.hidden_layers = tuple(dict.fromkeys(layers))

    def check(self, target: CausalLM, positions: int) -> None:
        for drafter in self.drafters:
            drafter.check(target, positions)

    def known_limits(self) -> list[Limits]:
        """Return the limits of all drafters; an empty list if those of any are not known."""
        limits = [drafter.limits() for drafter in self.drafters]
        known = [each for each in limits if each is not None]
        return known if len(known) == len(limits) else []


def largest(limits: Sequence[Limits], nodes: int) -> Limits:
    """Return the limits of a tree that may be as deep, and branch, as any of several."""
    return Limits(max(each.levels for each in limits), nodes, any(not x.is_chain for x in limits))


def children(drafter: Drafter) -> list[Drafter]:
    """Return the drafters directly inside a drafter, each once."""
    values = [getattr(drafter, name, ()) for name in ("inner", "drafters", "legs")]
    lists = [each if isinstance(each, (tuple, list)) else (each,) for each in values]
    each_once = dict.fromkeys(x[0] if isinstance(x, tuple) else x for each in lists for x in each)
    return list(each_once)


def members(drafter: Drafter) -> Iterator[Drafter]:
    """Yield a drafter and all drafters inside it."""
    yield drafter
    for each in children(drafter):
        yield from members(each)


def branches(drafter: Drafter) -> bool:
    """Return whether a drafter may draw several tokens for one position in one round."""
    limits = drafter.limits()
    chain = limits is not None and limits.is_chain
    return not chain or getattr(drafter, "nested_rounds", False)


def inner_round(*arguments: Any) -> tuple[Step, Context]:
    """Run one round of a cascade's middle model."""
    try:
        return speculate(*arguments)
    except NotFiniteError as error:
        text = str(error).replace("the target's", "the cascade's middle model's")
        raise NotFiniteError(text) from None
