"""SpecInfer: the drafts of several drafters, merged into one tree. Source: Miao et al. 2024."""

from collections.abc import Sequence
from dataclasses import replace

from specdec_lite.drafters.combined.composite import GroupDrafter, largest
from specdec_lite.drafters.trees.expansion import merge
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Limits, Session


class MergedDrafter(GroupDrafter):
    """Let every drafter draft, and verify all drafts as one tree.

    Draws are tested in the order of the drafters, and chosen tokens after all drawn ones
    (`trees.expansion.merge`). Drafted states are not reused, since the pass is shared.

    Args:
        drafters: at least one drafter, of chains or trees; the same one may occur several times.
    """

    def start(self, context: Context) -> "MergedSession":
        return MergedSession([drafter.start(context) for drafter in self.drafters])

    def limits(self) -> Limits | None:
        if known := self.known_limits():
            return largest(known, sum(each.nodes for each in known))
        return None


class MergedSession(Session):
    """The drafting of one generation. `maps` has each session's nodes as merged nodes."""

    def __init__(self, sessions: Sequence[Session]):
        self.sessions = sessions
        self.maps: list[tuple[int, ...]] = [()] * len(sessions)

    @property
    def passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum(session.passes for session in self.sessions)

    def propose(self, context: Context) -> Proposal:
        drafts = [each.propose(context).trimmed(context.wanted - 1) for each in self.sessions]
        proposal, self.maps = merge(drafts)
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        for session, new in zip(self.sessions, self.maps):
            own = {merged: node for node, merged in reversed([*enumerate(new)])}
            path = [own[node] for node in verdict.path if node in own]
            complete = len(path) == len(verdict.path)
            part = replace(
                verdict,
                path=tuple(path),
                token=verdict.token if complete else verdict.tokens[verdict.path[len(path)]],
                kind=verdict.kind if complete else "recovered" if new else "sampled",
                tests=verdict.tests[: len(path) + 1],
                tokens=tuple(verdict.tokens[node] for node in new),
                p=tuple(verdict.p[node] for node in new),
                q=tuple(verdict.q[node] for node in new),
            )
            session.observe(part, scores.along(new))
