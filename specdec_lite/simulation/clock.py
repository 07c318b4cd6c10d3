"""Replay schedules of drafting and verification on a virtual clock, with recorded costs.

A schedule places jobs on lanes that run in parallel. The accepted tokens were recorded, so a
schedule changes only the time. Times may have any unit, such as T(1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec_lite.checks import whole


@dataclass(frozen=True, slots=True)
class Span:
    """A job on a lane.

    Attributes:
        lane: name of the lane.
        start: time at which the job starts.
        end: time at which the job ends.
        label: what the job does.
        use: share of the job's tokens that are part of the text, in [0, 1].
    """

    lane: str
    start: float
    end: float
    label: str
    use: float = 1.0


@dataclass(slots=True)
class Clock:
    """A schedule of jobs; a lane runs one job at a time, and the lanes run in parallel.

    Attributes:
        spans: all jobs, in the order in which they were added.
        free: {lane: time at which its last job ends}.
    """

    spans: list[Span] = field(default_factory=list)
    free: dict[str, float] = field(default_factory=dict)

    def run(
        self, lane: str, duration: float, after: float = 0.0, label: str = "", use: float = 1.0
    ) -> float:
        """Add a job to a lane, and return the time at which it ends."""
        start = max(after, self.free.get(lane, 0.0))
        self.free[lane] = start + duration
        self.spans.append(Span(lane, start, start + duration, label, use))
        return start + duration

    @property
    def now(self) -> float:
        """Time at which the last job ends."""
        return max(self.free.values(), default=0.0)

    def idle(self, lane: str) -> float:
        """Return the time, from 0 to the end of the last job, in which a lane runs no job."""
        return self.now - sum(span.end - span.start for span in self.spans if span.lane == lane)


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded text and its costs.

    Attributes:
        ranks: for every position the rank of the text's token in the draft's distribution, given
            the text before it. Rank 0 is the draft's own token, which is accepted.
        draft: time to draft a token, above 0.
        verify: function of k that returns the time of a target pass over k tokens.
    """

    ranks: Sequence[int]
    draft: float
    verify: Callable[[int], float]

    def __post_init__(self):
        if not self.draft > 0:
            raise ValueError(f"draft={self.draft!r}: must be above 0")

    def accepted(self, position: int, count: int) -> int:
        """Return the number of accepted tokens among `count` tokens drafted from a position."""
        ranks = self.ranks[position : position + count]
        return next((i for i, rank in enumerate(ranks) if rank), len(ranks))


@dataclass(frozen=True, slots=True)
class Replay:
    """A schedule of a whole text.

    Attributes:
        clock: the jobs and their times.
        tokens: length of the text; what the last round emits after its end does not count.
        rounds: number of target passes.
    """

    clock: Clock
    tokens: int
    rounds: int

    @property
    def speed(self) -> float:
        """Tokens per unit of time."""
        return self.tokens / self.clock.now


def one_after_another(record: Record, gamma: int) -> Replay:
    """Schedule ordinary speculation: draft γ tokens, verify γ + 1, and repeat."""
    return saguaro(record, gamma, fan=None)


def saguaro(record: Record, gamma: int, fan: int | None = 3, batch: float = 1.0) -> Replay:
    """Schedule Saguaro: during verification, prepare drafts for the likely verdicts.

    For every possible number of accepted tokens, the draft predicts the `fan` likeliest tokens that
    may follow, and drafts after each of them in one batch, which takes `batch` times as long as one
    draft. If the verdict is among them, the next draft is ready; otherwise it is drafted after the
    verdict. Source: arXiv 2603.03251 (Saguaro).
    """
    whole("gamma", gamma, 1)
    clock = Clock()
    position = rounds = 0
    ready = None
    while position < len(record.ranks):
        accepted = record.accepted(position, gamma)
        if ready is None:
            ready = clock.run("draft", gamma * record.draft, clock.now, "draft", accepted / gamma)
        start = max(ready, clock.free.get("target", 0.0))
        end = clock.run("target", record.verify(gamma + 1), ready, "verify")
        position += accepted + 1
        rounds += 1
        ready = None
        if fan is not None and position < len(record.ranks):
            # Within the block, the draft's own token cannot be the recovered one, so the fan starts
            # at rank 1. The bonus token after a fully accepted block may have rank 0.
            rank = record.ranks[position - 1] + (accepted == gamma)
            hit = 1 <= rank <= fan
            duration = batch * gamma * record.draft
            prepared = clock.run("draft", duration, start, "prepare", float(hit))
            ready = max(prepared, end) if hit else None
    return Replay(clock, len(record.ranks), rounds)


def pearl(record: Record, gamma: int) -> Replay:
    """Schedule PEARL: draft a block while the previous block is verified.

    After a rejection, the target verifies the first token of the new block while the draft writes
    the other tokens. There is no bonus token, because the next block is already being drafted.
    Source: Liu et al. 2025 (PEARL).
    """
    whole("gamma", gamma, 1)
    clock = Clock()
    position = rounds = 0
    has_block = False
    while position < len(record.ranks):
        start = clock.now
        accepted = record.accepted(position, gamma)
        rounds += 1
        if not has_block:
            clock.run("draft", gamma * record.draft, start, "draft", accepted / gamma)
            clock.run("target", record.verify(1), start, "verify the first")
            has_block = accepted > 0
            position += not has_block
            continue
        has_block = accepted == gamma
        position += accepted if has_block else accepted + 1
        following = record.accepted(position, gamma) if has_block else 0
        clock.run("draft", gamma * record.draft, start, "draft", following / gamma)
        clock.run("target", record.verify(gamma), start, "verify")
    return Replay(clock, len(record.ranks), rounds)


def amusd(record: Record) -> Replay:
    """Schedule AMUSD: draft and target run without waiting for each other.

    The target verifies the tokens that have been drafted so far, at most 32. After a rejection the
    draft starts again after the recovered token. Source: arXiv 2410.17375 (AMUSD).
    """
    clock = Clock()
    position = rounds = 0
    first, start = 0, 0.0  # position and time at which the draft last started
    while position < len(record.ranks):
        verified = position - first
        now = max(clock.free.get("target", 0.0), start + (verified + 1) * record.draft)
        drafted = int((now - start) / record.draft + 1e-9)
        count = min(drafted - verified, 32)
        accepted = record.accepted(position, count)
        end = clock.run("target", record.verify(count), now, "verify", accepted / count)
        rounds += 1
        position += accepted
        if accepted < count or position >= len(record.ranks):
            use = (position - first) * record.draft / (end - start)
            clock.run("draft", end - start, start, "draft", use)
            position += accepted < count
            first, start = position, end
    return Replay(clock, len(record.ranks), rounds)
