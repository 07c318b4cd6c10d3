"""From logits to one token: the adjusted distribution, and the sources of chance.

`Sampling` turns logits into a distribution. A source of chance has `flip` and `draw`: `SeededRng`
decodes, `PlacedRng` has noise for every position, `EnumeratingRng` visits every outcome.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from specdec_lite.checks import is_number, is_whole
from specdec_lite.transfer import upload

Outcome = TypeVar("Outcome")

MOST_LIKELY = 1024
"""Tokens that top-p sorts before it sorts a whole vocabulary."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a distribution is adjusted before a token is drawn: temperature, then top-k, then top-p.

    Source: Leviathan et al. 2023, section 2.2 ("standardised sampling").

    Attributes:
        temperature: ≥ 0; 0 is greedy decoding, a one-hot distribution on the largest logit (the
            first, if several are equal).
        top_k: keep the k most likely tokens, k ≥ 1; None for all.
        top_p: keep the fewest most likely tokens whose probability reaches top_p, in (0, 1]; None
            for all.

    Raises:
        ValueError: an attribute is outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not (is_number(self.temperature) and 0 <= self.temperature < math.inf):
            raise ValueError(
                f"temperature={self.temperature!r}: must be a number ≥ 0 (0 is greedy decoding)"
            )
        if self.top_k is not None and not (is_whole(self.top_k) and self.top_k >= 1):
            raise ValueError(f"top_k={self.top_k!r}: must be None or a whole number ≥ 1")
        if self.top_p is not None and not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ValueError(f"top_p={self.top_p!r}: must be None or in (0, 1]")
        # torch does not accept every kind of number, such as a Fraction.
        object.__setattr__(self, "temperature", float(self.temperature))
        object.__setattr__(self, "top_p", None if self.top_p is None else float(self.top_p))

    @property
    def greedy(self) -> bool:
        """Return whether tokens are chosen by argmax."""
        return self.temperature == 0

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the adjusted probabilities [..., V] in float32 (float64 for float64 logits).

        Args:
            logits: [..., V] of any float dtype.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.greedy:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        if self.temperature != 1:
            # Without the maximum subtracted, a tiny temperature would make the quotient overflow.
            smallest = torch.finfo(logits.dtype).tiny
            logits = (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, smallest)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            # By index, not by a threshold: of equal logits exactly top_k stay.
            values, ids = logits.topk(self.top_k, dim=-1)
            logits = torch.full_like(logits, -math.inf).scatter_(-1, ids, values)
        probs = logits.softmax(-1)
        return probs if self.top_p is None or self.top_p == 1 else nucleus(probs, self.top_p)


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Return the fewest most likely tokens whose probability reaches top_p, renormalized.

    Shapes: probs [..., V]. Source: Holtzman et al. 2020.
    """
    bound = max(top_p, torch.finfo(probs.dtype).tiny)
    # A sort of the whole vocabulary is slow on a CPU, and a nucleus rarely needs it. The shortcut
    # gives the same result to the last bit, or None.
    if probs.device.type == "cpu" and probs.shape[-1] > MOST_LIKELY:
        adjusted = _nucleus_of_most_likely(probs, bound)
        if adjusted is not None:
            return adjusted
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    # A token is kept if the mass *before* it is below top_p: the token that reaches it is in.
    ordered = ordered.where(ordered.cumsum(-1) - ordered < bound, 0.0)
    return torch.zeros_like(probs).scatter_(-1, ids, ordered / ordered.sum(-1, keepdim=True))


def _nucleus_of_most_likely(probs: Tensor, bound: float) -> Tensor | None:
    """Return the nucleus [..., V] of every row; None if the most likely tokens leave one open."""
    values = probs.topk(MOST_LIKELY, dim=-1).values
    before = values.cumsum(-1) - values
    inside = before < bound
    count = inside.sum(-1, keepdim=True).clamp(1, MOST_LIKELY - 1)
    smallest = values.gather(-1, count - 1)
    # The nucleus must end among these tokens by more than rounding, and not between two tokens of
    # equal probability: topk breaks such a tie differently from the stable sort.
    ends = (before[..., -1:] > bound + 1e-6) & (values.gather(-1, count) < smallest)
    # Once rounded, `before` need not ascend: a token could drop out and a later one return.
    is_prefix = (inside[..., 1:] <= inside[..., :-1]).all(-1, keepdim=True)
    if not bool((ends & is_prefix).all()):
        return None
    # All V entries are summed, since the order of a sum decides its last bit.
    ordered = torch.zeros_like(probs)
    ordered[..., :MOST_LIKELY] = values.where(inside, 0.0)
    return probs.where(probs >= smallest, 0.0) / ordered.sum(-1, keepdim=True)


class Rng(Protocol):
    """Where all chance comes from: a biased coin and a biased die."""

    def flip(self, prob: float) -> bool:
        """Return True with probability min(1, prob).

        Args:
            prob: ≥ 0.
        """
        ...

    def draw(self, probs: Tensor) -> int:
        """Return a token drawn from a distribution.

        Args:
            probs: [V].
        """
        ...


def inverse(probs: Tensor, uniform: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the token [..., 1] at which the cumulative distribution first exceeds a uniform number.

    The token never has probability 0; if probs contain NaN or sum to 0 it is arbitrary and may be V.
    The second result is the sum [..., 1] of probs, which may be any number. Both are on its device.

    Shapes: probs [..., V], uniform a number in [0, 1) or a tensor [..., 1] of them.
    """
    # float32 would lose the rare tokens of a large vocabulary in the rounding of the sum.
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    mass = cumulative[..., -1:].contiguous()
    # `right` skips tokens of probability 0, whose cumulative sum equals the one before them.
    token = torch.searchsorted(cumulative, uniform * mass, right=True)
    last = torch.searchsorted(cumulative, mass)  # for a uniform · mass that was rounded up to mass
    return torch.minimum(token, last), mass


def invert(probs: Tensor, uniform: float) -> int:
    """Return the token that `inverse` finds in probs [V], with one read from the device.

    It raises ValueError if probs contain NaN or infinity, or sum to 0.
    """
    token, mass = torch.cat(inverse(probs, uniform)).tolist()
    if not 0 < mass < math.inf:
        raise ValueError(
            "cannot draw a token: the probabilities hold NaN, infinity or no mass (did the model"
            " emit NaN logits?)"
        )
    return int(token)


def draw_unread(rng: Rng, probs: Tensor) -> Tensor:
    """Return a token [1] drawn from a distribution, on its device.

    A `SeededRng` does not make the host wait for the device, so it cannot report NaN or a row
    without mass. The token is then arbitrary, and the verdict on it names the fault.
    """
    if isinstance(rng, SeededRng):
        return rng.draw_unread(probs)
    token = rng.draw(probs) if bool(probs.sum() > 0) else 0
    return torch.tensor([token], device=probs.device)


class SeededRng:
    """Chance for decoding, from one `torch.Generator`.

    Args:
        seed: a whole number; None to seed it from the operating system.

    Attributes:
        coins: the uniforms of all flips since a rule last began, in order.

    Raises:
        ValueError: the seed is not a whole number below 2**63.
    """

    coins: tuple[float, ...] = ()

    def __init__(self, seed: int | None = None):
        if not (seed is None or is_whole(seed) and abs(seed) < 1 << 63):
            raise ValueError(f"seed={seed!r}: must be None or a whole number below 2**63")
        self.generator = torch.Generator()
        self.generator.seed() if seed is None else self.generator.manual_seed(int(seed))

    def uniform(self) -> float:
        """Return a uniform number in [0, 1)."""
        return torch.rand((), generator=self.generator, dtype=torch.float64).item()

    def flip(self, prob: float) -> bool:
        """Return True with probability min(1, prob), and keep the uniform; see `Rng`."""
        uniform = self.uniform()
        self.coins += (uniform,)
        return uniform < prob

    def draw(self, probs: Tensor) -> int:
        """Return a token drawn from probs [V]; see `Rng`."""
        return invert(probs, self.uniform())

    def draw_unread(self, probs: Tensor) -> Tensor:
        """Return the token [1] that `draw` would return; see the function `draw_unread`."""
        return inverse(probs, self.uniform())[0].clamp(max=len(probs) - 1)

    def at(self, position: int) -> "SeededRng":
        """Return chance that depends only on this seed and on positions in a text.

        Each draw uses the noise of the next position. What was drawn here earlier has no effect.

        Args:
            position: of the first draw.
        """
        return PlacedRng(self.generator.initial_seed(), position)


class PlacedRng(SeededRng):
    """Draw with the noise of a position: the token with the largest log probs + Gumbel noise.

    Each draw moves one position forward. Two draws at one position share their noise, so they agree
    more often than independent draws; each has its own distribution. Source: Daliri et al. 2025.
    """

    def __init__(self, seed: int, position: int):
        super().__init__(0)
        self.seed = seed
        self.position = position

    def at(self, position: int) -> "PlacedRng":
        return PlacedRng(self.seed, position)

    def draw(self, probs: Tensor) -> int:
        """Return a token drawn from a distribution, with the noise of the present position."""
        return int(self.draw_unread(probs))

    def draw_unread(self, probs: Tensor) -> Tensor:
        """Return the token [1] that `draw` would return; see the function `draw_unread`."""
        # Python's own hash() differs from process to process; a text must not.
        key = hashlib.sha256(f"{self.seed} {self.position}".encode()).digest()
        self.generator.manual_seed(int.from_bytes(key[:8], "little", signed=True))
        self.position += 1
        # −log(−log U) is Gumbel noise: the argmax of log p + noise is distributed as p.
        uniforms = torch.rand(len(probs), generator=self.generator, dtype=torch.float64)
        noise = upload(-(-uniforms.log()).log(), probs.device)
        return (probs.double().log() + noise).argmax(-1, keepdim=True)


class EnumeratingRng:
    """Follow given choices, then take the first possible choice and keep the others for later runs.

    Attributes:
        weight: probability of the choices so far.
        others: the sequences of choices that remain to be run.

    Args:
        choices: one index per flip (0 False, 1 True) or draw (a token).
    """

    def __init__(self, choices: tuple[int, ...] = ()):
        self.choices = choices
        self.step = 0
        self.weight = 1.0
        self.others: list[tuple[int, ...]] = []

    def _choose(self, probs: list[float]) -> int:
        if self.step == len(self.choices):
            # New ground: take the first possible outcome, and leave a run for each of the others.
            possible = [i for i, prob in enumerate(probs) if prob > 0]
            self.others += [(*self.choices, i) for i in possible[1:]]
            self.choices += (possible[0],)
        chosen = self.choices[self.step]
        self.step += 1
        self.weight *= probs[chosen]
        return chosen

    def flip(self, prob: float) -> bool:
        """Return the next choice of a coin."""
        prob = min(1.0, prob)
        return bool(self._choose([1.0 - prob, prob]))

    def draw(self, probs: Tensor) -> int:
        """Return the next choice of a token."""
        return self._choose(probs.tolist())

    def at(self, position: int) -> "EnumeratingRng":
        """Return itself: every draw is enumerated, at whatever position."""
        return self


def outcomes(experiment: Callable[[Rng], Outcome]) -> Iterator[tuple[Outcome, float]]:
    """Yield every outcome of an experiment, each run with its probability.

    One outcome may be yielded several times; the probabilities of all runs sum to 1.

    Args:
        experiment: a function of an rng, from which it takes all its chance.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        rng = EnumeratingRng(pending.pop())
        result = experiment(rng)
        pending += rng.others
        yield result, rng.weight
