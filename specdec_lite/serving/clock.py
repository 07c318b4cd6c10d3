"""A virtual clock: what schedules of drafting and verifying would take, from recorded costs.

What lives here: lanes on which jobs take time, and the schedules that overlap drafting with
verifying, replayed on a recorded text. What does not: threads, models, and any law: which tokens
are accepted was recorded, and no schedule changes it. Times are in any unit, such as T(1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec_lite.checks import whole


@dataclass(frozen=True, slots=True)
class Span:
    """A job on a lane. use: the share of its tokens that the text kept, in [0, 1]."""

    lane: str
    start: float
    end: float
    what: str
    use: float = 1.0


@dataclass(slots=True)
class Clock:
    """Jobs on lanes: one lane does one job at a time, lanes run beside one another."""

    spans: list[Span] = field(default_factory=list)
    free: dict[str, float] = field(default_factory=dict)

    def run(
        self, lane: str, seconds: float, after: float = 0.0, what: str = "", use: float = 1.0
    ) -> float:
        """Put a job on a lane, not before `after`; returns when it ends."""
        start = max(after, self.free.get(lane, 0.0))
        self.free[lane] = start + seconds
        self.spans.append(Span(lane, start, start + seconds, what, use))
        return start + seconds

    @property
    def now(self) -> float:
        """When the last job ends."""
        return max(self.free.values(), default=0.0)

    def idle(self, lane: str) -> float:
        """Time up to now in which a lane did nothing."""
        return self.now - sum(span.end - span.start for span in self.spans if span.lane == lane)


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded text and its costs.

    Attributes:
        ranks: for every place the text's token's rank in the draft's row there, the draft having
            read the text up to it: 0 is the draft's own token, which is accepted.
        draft: time of a drafted token, above 0.
        verify: k → time of a target pass over k tokens.
    """

    ranks: Sequence[int]
    draft: float
    verify: Callable[[int], float]

    def __post_init__(self):
        if not self.draft > 0:
            raise ValueError(f"draft={self.draft!r}: must be above 0")

    def accepted(self, place: int, most: int) -> int:
        """How many of `most` tokens drafted from `place` on the target keeps."""
        ahead = self.ranks[place : place + most]
        return next((i for i, rank in enumerate(ahead) if rank), len(ahead))


@dataclass(frozen=True, slots=True)
class Replay:
    """What a schedule took for a text of `tokens` tokens. rounds: target passes."""

    clock: Clock
    tokens: int
    rounds: int

    @property
    def speed(self) -> float:
        """Tokens per unit of time."""
        return self.tokens / self.clock.now


def one_after_another(record: Record, gamma: int) -> Replay:
    """Ordinary speculation: draft γ, verify γ + 1, again."""
    return saguaro(record, gamma, fan=None)


def saguaro(record: Record, gamma: int, fan: int | None = 3) -> Replay:
    """While the target verifies, drafts for its likely verdicts are prepared.

    For every number of accepted tokens the `fan` likeliest other tokens are foreseen and drafted
    behind, all in one batch; the verdict is a hit when it is one of them. After a miss the draft is
    made then. fan=None: nothing is prepared. Source: arXiv 2603.03251 (Saguaro).
    """
    whole("gamma", gamma, 1)
    clock = Clock()
    place = rounds = 0
    ready = None
    while place < len(record.ranks):
        run = record.accepted(place, gamma)
        if ready is None:
            ready = clock.run("draft", gamma * record.draft, clock.now, "draft", run / gamma)
        began = max(ready, clock.free.get("target", 0.0))
        done = clock.run("target", record.verify(gamma + 1), ready, "verify")
        place += run + 1
        rounds += 1
        ready = None
        if fan is not None and place <= len(record.ranks):
            # The draft's own token was drafted on, except behind a whole block: there it is free.
            rank = record.ranks[place - 1] + (run == gamma)
            hit = 1 <= rank <= fan
            prepared = clock.run("draft", gamma * record.draft, began, "prepare", float(hit))
            ready = max(prepared, done) if hit else None
    return Replay(clock, place, rounds)


def pearl(record: Record, gamma: int) -> Replay:
    """A block is drafted while the one before it is verified; after a rejection the first token of
    the new block is verified while the others are drafted. There is no bonus token: the next block
    is under way. Source: Liu et al. 2025 (PEARL).
    """
    whole("gamma", gamma, 1)
    clock = Clock()
    place = rounds = 0
    under_way = False
    while place < len(record.ranks):
        began = clock.now
        run = record.accepted(place, gamma)
        rounds += 1
        if not under_way:
            clock.run("draft", gamma * record.draft, began, "draft", run / gamma)
            clock.run("target", record.verify(1), began, "verify the first")
            under_way = run > 0
            place += not under_way
            continue
        under_way = run == gamma
        place += run if under_way else run + 1
        following = record.accepted(place, gamma) if under_way else 0
        clock.run("draft", gamma * record.draft, began, "draft", following / gamma)
        clock.run("target", record.verify(gamma), began, "verify")
    return Replay(clock, place, rounds)


def amusd(record: Record, most: int = 32) -> Replay:
    """Both lanes run freely: the target verifies whatever has been drafted by then, at most `most`
    tokens; after a rejection the draft begins anew behind it. Source: arXiv 2410.17375 (AMUSD).
    """
    whole("most", most, 1)
    clock = Clock()
    place = rounds = 0
    began, since = 0, 0.0  # the place and the time at which the draft last began
    while place < len(record.ranks):
        verified = place - began
        now = max(clock.free.get("target", 0.0), since + (verified + 1) * record.draft)
        drafted = int((now - since) / record.draft + 1e-9)
        taken = min(drafted - verified, most)
        run = record.accepted(place, taken)
        done = clock.run("target", record.verify(taken), now, "verify", run / taken)
        rounds += 1
        place += run
        if run < taken or place >= len(record.ranks):
            useful = (place - began) * record.draft / (done - since)
            clock.run("draft", done - since, since, "draft", useful)
            place += run < taken
            began, since = place, done
    return Replay(clock, place, rounds)
