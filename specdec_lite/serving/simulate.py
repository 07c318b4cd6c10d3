"""Requests that arrive by chance and share a batch, on a virtual clock: seconds come from a table.

What lives here: arrivals, continuous batching, what a request waited and what the server did. What
does not: the choice of γ and the table (`goodput`), real models (`batch`). A round admits whoever
waits while there is a slot, and lasts as long as the table says for γ tokens of every sequence. It
reads the prompts of those it admitted, which emit their first token: nothing was drafted for them
yet. Which drafts of the others are accepted is drawn.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specdec_lite import checks
from specdec_lite.serving.goodput import PassTimes, best_gamma

Policy = Callable[[Sequence[float]], int]
"""What is known of each running sequence's α → γ of the next round."""


def fixed(gamma: int) -> Policy:
    """Always the same γ."""
    return lambda alphas: gamma


def by_goodput(times: PassTimes, largest: int | None = None) -> Policy:
    """The γ that promises most tokens a second, at this batch and these sequences."""
    return lambda alphas: best_gamma(alphas, times, largest)


@dataclass(frozen=True, slots=True)
class Request:
    """arrival: seconds. tokens: it wants, ≥ 1. alpha: how often a draft of it is accepted."""

    arrival: float
    tokens: int
    alpha: float


@dataclass(frozen=True, slots=True)
class Served:
    """A request's way: admitted and done in seconds since the start."""

    request: Request
    admitted: float
    done: float

    @property
    def wait(self) -> float:
        return self.admitted - self.request.arrival

    @property
    def latency(self) -> float:
        return self.done - self.request.arrival


@dataclass(frozen=True, slots=True)
class Round:
    """What the server did at a time. emitted, accepted, tested: of all its sequences together."""

    begin: float
    end: float
    batch: int
    gamma: int
    emitted: int
    accepted: int
    tested: int


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation: requests in the order in which they were done, and every round."""

    served: list[Served]
    rounds: list[Round]

    @property
    def throughput(self) -> float:
        """Tokens a second from the first arrival to the last token."""
        first = min(each.request.arrival for each in self.served)
        return sum(each.emitted for each in self.rounds) / (self.rounds[-1].end - first)

    @property
    def latency_a_token(self) -> float:
        """Mean seconds from arrival to the end, a token of the request."""
        return float(np.mean([each.latency / each.request.tokens for each in self.served]))

    @property
    def mean_batch(self) -> float:
        """Sequences in a round, by the time it took."""
        busy = sum(each.end - each.begin for each in self.rounds)
        return sum(each.batch * (each.end - each.begin) for each in self.rounds) / busy

    @property
    def mean_gamma(self) -> float:
        return float(np.mean([each.gamma for each in self.rounds]))


def poisson(
    rate: float, count: int, tokens: int, alphas: Sequence[float], rng: np.random.Generator
) -> list[Request]:
    """Requests whose arrivals know nothing of one another.

    Args:
        rate: requests a second, above 0.
        count: requests, ≥ 1.
        tokens: that each one wants, ≥ 1.
        alphas: each request draws one of them.
        rng: of arrivals and α.
    """
    if checks.number("rate", rate) == 0:
        raise ValueError("rate=0: must be above 0")
    checks.whole("count", count, 1)
    checks.whole("tokens", tokens, 1)
    if not len(alphas) or not all(0 <= alpha <= 1 for alpha in alphas):
        raise ValueError(f"alphas={alphas!r}: must hold at least one rate, each in [0, 1]")
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    drawn = rng.choice(np.asarray(alphas, dtype=float), count)
    return [Request(float(at), tokens, float(alpha)) for at, alpha in zip(arrivals, drawn)]


@dataclass(slots=True)
class Running:
    """A request on its way. accepted, tested: what its drafts have shown so far."""

    request: Request
    admitted: float
    left: int = field(init=False)
    accepted: float = 0.0
    tested: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.request.tokens

    def alpha(self, prior: float, weight: float) -> float:
        """Accepted ÷ tested, begun with `weight` tests at the prior."""
        return (self.accepted + weight * prior) / (self.tested + weight)

    def advance(self, gamma: int, rng: np.random.Generator) -> tuple[int, int, int]:
        """(emitted, accepted, tested) of a round; drafts beyond the request's end are not made."""
        drafted = min(gamma, self.left - 1)
        passed = rng.random(drafted) < self.request.alpha
        accepted = drafted if passed.all() else int(passed.argmin())
        tested = min(accepted + 1, drafted)
        self.accepted += accepted
        self.tested += tested
        self.left -= accepted + 1
        return accepted + 1, accepted, tested


def simulate(
    requests: Sequence[Request],
    times: PassTimes,
    policy: Policy,
    slots: int,
    rng: np.random.Generator,
    prefill: float = 0.0,
    prior: float = 0.7,
    weight: float = 4.0,
) -> Run:
    """Serve all requests, first come first served.

    Args:
        requests: at least one, in any order.
        times: seconds of passes and drafts.
        policy: chooses γ before every round, from what the past has shown.
        slots: sequences that fit together, 1 … the table's largest batch.
        rng: of the verdicts.
        prefill: seconds that a prompt adds to its first round, for all that share it.
        prior, weight: what is believed of a request's α before it has shown any, and as how many
            tests that counts; above 0. A request for which nothing is drafted shows nothing.
    """
    if not requests:
        raise ValueError("requests is empty: must hold at least one")
    checks.whole("slots", slots, 1, times.batches[-1])
    checks.number("prefill", prefill)
    checks.unit("prior", prior)
    if checks.number("weight", weight) == 0:
        raise ValueError("weight=0: must be above 0")
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
            now += prefill
        gamma = policy([each.alpha(prior, weight) for each in running])
        widest = min(gamma, max(each.left for each in running) - 1)
        now += times.of_round(len(running), widest)
        counts = [each.advance(0 if each.admitted == begin else gamma, rng) for each in running]
        rounds.append(Round(begin, now, len(running), widest, *map(sum, zip(*counts))))
        served += [Served(each.request, each.admitted, now) for each in running if each.left == 0]
        running = [each for each in running if each.left]
    return Run(served, rounds)
