"""Simulate a server whose requests arrive at random and share a batch.

The clock is virtual: the seconds of a round come from a table (`goodput.PassTimes`). Each round
admits waiting requests while slots are free. Admitted requests emit their first token in this
round, without a draft. For all other requests the accepted drafts are drawn at
random. `batch` decodes real models.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specdec_lite import checks
from specdec_lite.simulation.goodput import PassTimes, best_gamma

PRIOR, WEIGHT = 0.7, 4.0
"""Acceptance rate of a new request, and the number of tests that it weighs like."""
Policy = Callable[[Sequence[float]], int]
"""Function of the estimated α of each running sequence that returns γ of the next round."""
Schedule = Callable[[Sequence[np.ndarray]], Sequence[int]]
"""Function of the acceptance probabilities of each sequence's drafts that returns how many of them are
verified, such as `scheduling.FirstDrop(times.of_drafted).lengths`."""


def fixed(gamma: int) -> Policy:
    """Return a policy that always chooses the same γ."""
    return lambda alphas: gamma


def by_goodput(times: PassTimes, largest: int | None = None) -> Policy:
    """Return a policy that chooses the γ with the highest expected tokens per second."""
    return lambda alphas: best_gamma(alphas, times, largest)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server.

    Attributes:
        arrival: seconds since the start.
        tokens: number of tokens to decode, ≥ 1.
        alpha: mean probability that a drafted token is accepted.
        spread: how much this probability differs between tokens, in [0, 1): 0 not at all; near 1
            each token is surely accepted or surely rejected. Its variance is spread · α(1 − α).
    """

    arrival: float
    tokens: int
    alpha: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Served:
    """A finished request.

    Attributes:
        request: the request.
        admitted: time of its admission to the batch, in seconds since the start.
        done: time of its last token, in seconds since the start.
    """

    request: Request
    admitted: float
    done: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of the server.

    Attributes:
        begin: start of the round, in seconds since the start.
        end: end of the round, in seconds since the start.
        batch: number of sequences.
        gamma: largest number of drafted tokens of a sequence.
        emitted: emitted tokens of all sequences together.
    """

    begin: float
    end: float
    batch: int
    gamma: int
    emitted: int


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation.

    Attributes:
        served: requests, in the order in which they finished.
        rounds: all rounds, in order.
    """

    served: list[Served]
    rounds: list[Round]

    @property
    def throughput(self) -> float:
        """Tokens per second from the first arrival to the last token."""
        first = min(each.request.arrival for each in self.served)
        return sum(each.emitted for each in self.rounds) / (self.rounds[-1].end - first)

    @property
    def latency_per_token(self) -> float:
        """Mean over requests of the seconds from arrival to the last token, per token."""
        return float(
            np.mean([(s.done - s.request.arrival) / s.request.tokens for s in self.served])
        )


def poisson(
    rate: float,
    count: int,
    tokens: int,
    alphas: Sequence[float],
    rng: np.random.Generator,
    spread: float = 0.0,
) -> list[Request]:
    """Draw `count` requests with independent arrivals, `rate` per second, each of `tokens` tokens."""
    if not checks.is_number(spread) or not 0 <= spread < 1:
        raise ValueError(f"spread={spread!r}: must be in [0, 1)")
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    rates = rng.choice(np.asarray(alphas, dtype=float), count)
    return [Request(float(at), tokens, float(alpha), spread) for at, alpha in zip(arrivals, rates)]


@dataclass(slots=True)
class Running:
    """A request in the batch.

    Attributes:
        request: the request.
        admitted: time of its admission, in seconds since the start.
        left: number of tokens still to decode.
        accepted: accepted drafts so far.
        tested: tested drafts so far.
    """

    request: Request
    admitted: float
    left: int = field(init=False)
    accepted: float = 0.0
    tested: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.request.tokens

    @property
    def alpha(self) -> float:
        """Estimated acceptance rate."""
        return (self.accepted + WEIGHT * PRIOR) / (self.tested + WEIGHT)

    def draft(self, gamma: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the acceptance probability of each draft, without drafting beyond the request's end."""
        count = min(gamma, self.left - 1)
        alpha, spread = self.request.alpha, self.request.spread
        if spread == 0 or alpha in (0, 1):
            return np.full(count, alpha)
        weight = 1 / spread - 1
        return rng.beta(weight * alpha, weight * (1 - alpha), count)

    def advance(self, chances: np.ndarray, rng: np.random.Generator) -> int:
        """Decode one round, in which drafts with these probabilities are verified: emitted tokens."""
        drafted = len(chances)
        verdicts = rng.random(drafted) < chances
        accepted = drafted if verdicts.all() else int(verdicts.argmin())
        self.accepted += accepted
        self.tested += min(accepted + 1, drafted)
        self.left -= accepted + 1
        return accepted + 1


def simulate(
    requests: Sequence[Request],
    times: PassTimes,
    policy: Policy,
    slots: int,
    rng: np.random.Generator,
    schedule: Schedule | None = None,
) -> Run:
    """Serve all requests, first come first served.

    With a schedule, a pass costs what its tokens cost, over all rows; without one, all rows are as
    wide as the widest.
    """
    waiting = deque(sorted(requests, key=lambda request: request.arrival))
    running: list[Running] = []
    served: list[Served] = []
    rounds: list[Round] = []
    now = 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0].arrival)
        begin = now
        while waiting and waiting[0].arrival <= begin and len(running) < slots:
            running.append(Running(waiting.popleft(), begin))
        gamma = policy([each.alpha for each in running])
        widest = min(gamma, max(each.left for each in running) - 1)
        drafts = [each.draft(0 if each.admitted == begin else gamma, rng) for each in running]
        now += times.of_round(len(running), widest)
        if schedule is not None:
            lengths = schedule(drafts)
            drafts = [draft[:length] for draft, length in zip(drafts, lengths, strict=True)]
            now -= times.of_pass(len(running), widest + 1)
            now += times.of_drafted(len(running), sum(lengths))
        emitted = sum(each.advance(draft, rng) for each, draft in zip(running, drafts))
        rounds.append(Round(begin, now, len(running), widest, emitted))
        served += [Served(each.request, each.admitted, now) for each in running if each.left == 0]
        running = [each for each in running if each.left]
    return Run(served, rounds)
