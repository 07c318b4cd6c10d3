"""From logits to one token: the adjusted distribution, and the three kinds of chance.

What lives here: `Sampling` (temperature, top-k, top-p as one adjusted distribution) and the rngs,
each with `flip` and `draw`: `SeededRng` decodes, `RecordingRng` also keeps its uniforms, `PlacedRng`
has noise for every place of a text, `EnumeratingRng` walks every outcome with its weight. What does
not: when a drafted token is accepted (`acceptance`).
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from specdec_lite.checks import is_number, is_whole

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a distribution is adjusted before a token is drawn from it: first temperature, then
    top-k, then top-p.

    temperature: ≥ 0; 0 is greedy decoding, a one-hot distribution on the largest logit (the first
    of equals). top_k: keep the k likeliest tokens, k ≥ 1. top_p: keep the fewest likeliest tokens
    whose mass reaches top_p, in (0, 1]. Raises ValueError for anything else. Source: Leviathan et
    al. 2023, section 2.2 ("standardised sampling").
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not (
            is_number(self.temperature)
            and math.isfinite(self.temperature)
            and self.temperature >= 0
        ):
            raise ValueError(
                f"temperature={self.temperature!r}: must be a number ≥ 0 (0 is greedy decoding)"
            )
        if self.top_k is not None and not (is_whole(self.top_k) and self.top_k >= 1):
            raise ValueError(f"top_k={self.top_k!r}: must be None or a whole number ≥ 1")
        if self.top_p is not None and not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ValueError(f"top_p={self.top_p!r}: must be None or in (0, 1]")
        object.__setattr__(
            self, "temperature", float(self.temperature)
        )  # a fraction, or a NumPy number, is one that torch may not know
        object.__setattr__(self, "top_p", None if self.top_p is None else float(self.top_p))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def __call__(self, logits: Tensor) -> Tensor:
        """logits [..., V] of any float dtype → probabilities [..., V] in float32 (float64 stays
        float64).
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.greedy:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        if self.temperature != 1:
            # The maximum is subtracted first: at a tiny temperature the quotient alone would
            # overflow.
            smallest = torch.finfo(logits.dtype).tiny
            logits = (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, smallest)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            values, ids = logits.topk(self.top_k, dim=-1)
            logits = torch.full_like(logits, -math.inf).scatter_(-1, ids, values)
        probs = logits.softmax(-1)
        return probs if self.top_p is None or self.top_p == 1 else nucleus(probs, self.top_p)


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """The fewest likeliest tokens whose mass reaches top_p, renormalised. probs: [..., V]. Source:
    Holtzman et al. 2020.
    """
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    kept = ordered.where(
        ordered.cumsum(-1) - ordered < max(top_p, torch.finfo(probs.dtype).tiny), 0.0
    )
    return torch.zeros_like(probs).scatter_(-1, ids, kept / kept.sum(-1, keepdim=True))


class Rng(Protocol):
    """Where all chance comes from: a biased coin and a biased die."""

    def flip(self, prob: float) -> bool:
        """True with probability min(1, prob)."""

    def draw(self, probs: Tensor) -> int:
        """A token drawn from probs [V]."""


def inverse(probs: Tensor, uniform: float | Tensor) -> tuple[Tensor, Tensor]:
    """The token [..., 1] at which the cumulative distribution of probs [..., V] first exceeds
    `uniform` (a number, or [..., 1]), and the mass [..., 1] of probs, both left on the device; never
    a token of probability 0.

    Cumulative sum, in float64 since float32 loses the rare tokens of a large vocabulary, and binary
    search: several times faster than `torch.multinomial`. Of probs that hold NaN or no
    mass the token means nothing, and may be V.
    """
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    mass = cumulative[..., -1:].contiguous()
    token = torch.searchsorted(cumulative, uniform * mass, right=True)
    last = torch.searchsorted(cumulative, mass)  # where uniform · mass was rounded up to mass
    return torch.minimum(token, last), mass


def invert(probs: Tensor, uniform: float) -> int:
    """The token that `inverse` finds, and the device's only read. Raises ValueError when probs hold
    NaN or no mass.
    """
    token, mass = torch.cat(inverse(probs, uniform)).tolist()
    if not 0 < mass < math.inf:
        raise ValueError(
            "cannot draw a token: the probabilities hold NaN, infinity or no mass (did the model"
            " emit NaN logits?)"
        )
    return int(token)


class SeededRng:
    """Chance for decoding, from one `torch.Generator`; `seed=None` seeds it from the operating
    system. coins: a list that the uniforms of its flips go to, where anyone keeps them.
    """

    coins: list[float] | None = None

    def __init__(self, seed: int | None = None):
        if not (seed is None or is_whole(seed) and abs(seed) < 1 << 63):
            raise ValueError(f"seed={seed!r}: must be None or a whole number below 2**63")
        self.generator = torch.Generator()
        self.generator.seed() if seed is None else self.generator.manual_seed(int(seed))

    def uniform(self) -> float:
        return torch.rand((), generator=self.generator, dtype=torch.float64).item()

    def flip(self, prob: float) -> bool:
        uniform = self.uniform()
        if self.coins is not None:
            self.coins.append(uniform)
        return uniform < prob

    def draw(self, probs: Tensor) -> int:
        return invert(probs, self.uniform())

    def at(self, position: int) -> "PlacedRng":
        """Chance that is a function of this seed and of places in a text: `position` and those
        behind it, one a draw. What was drawn here before changes nothing.
        """
        return PlacedRng(self.generator.initial_seed(), position)


class PlacedRng(SeededRng):
    """Draws with the noise of a place: the token at which log probs + Gumbel noise is largest.

    Every draw moves one place on. Two distributions that are drawn from at one place share their
    noise, and so agree more often than two independent draws would; each alone is drawn from as it
    should be. Source: Daliri et al. 2025 (drafter-invariant speculative decoding).
    """

    def __init__(self, seed: int, position: int):
        super().__init__(0)
        self.seed = seed
        self.position = position

    def draw(self, probs: Tensor) -> int:
        key = hashlib.sha256(f"{self.seed} {self.position}".encode()).digest()
        self.generator.manual_seed(int.from_bytes(key[:8], "little", signed=True))
        self.position += 1
        uniforms = torch.rand(len(probs), generator=self.generator, dtype=torch.float64)
        noise = -(-uniforms.log()).log()
        return int((probs.double().log() + noise.to(probs.device)).argmax())


class RecordingRng(SeededRng):
    """A seeded rng that keeps every uniform it used, in order: what a stepper shows and a parity
    test replays.
    """

    def __init__(self, seed: int | None = None):
        super().__init__(seed)
        self.uniforms: list[float] = []

    def uniform(self) -> float:
        self.uniforms.append(super().uniform())
        return self.uniforms[-1]


class EnumeratingRng:
    """Follows a given list of choices, then takes the first possible one and notes the others for
    later.
    """

    def __init__(self, choices: tuple[int, ...] = ()):
        self.choices = choices
        self.step = 0
        self.weight = 1.0
        self.others: list[tuple[int, ...]] = []

    def _choose(self, probs: list[float]) -> int:
        if self.step == len(self.choices):
            possible = [i for i, prob in enumerate(probs) if prob > 0]
            self.others += [(*self.choices, i) for i in possible[1:]]
            self.choices += (possible[0],)
        chosen = self.choices[self.step]
        self.step += 1
        self.weight *= probs[chosen]
        return chosen

    def flip(self, prob: float) -> bool:
        prob = min(1.0, prob)
        return bool(self._choose([1.0 - prob, prob]))

    def draw(self, probs: Tensor) -> int:
        return self._choose(probs.tolist())

    def at(self, position: int) -> "EnumeratingRng":
        """Itself: every draw is enumerated, wherever it stands."""
        return self


def outcomes(experiment: Callable[[Rng], Outcome]) -> Iterator[tuple[Outcome, float]]:
    """Every outcome of an experiment that takes its chance from an rng, each run with its
    probability.

    The same outcome may come more than once; the weights of all runs sum to 1. This is how exact
    laws are computed from the very rule that decodes: no second formula stands beside it.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        rng = EnumeratingRng(pending.pop())
        result = experiment(rng)
        pending += rng.others
        yield result, rng.weight
