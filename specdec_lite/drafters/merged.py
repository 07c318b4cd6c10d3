"""Several drafters at once, their drafts merged into one tree. Source: Miao et al. 2024
(SpecInfer).
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.drafters.grow import merge
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Session, Shape


class MergedDrafter(Drafter):
    """Let every drafter draft, and make one tree of it: equal beginnings become one node, and every
    draw keeps its row.

    Args:
        drafters: at least one, of chains or trees; one may stand there several times.

    Draws are tested in the order of the drafters, chosen tokens after all drawn ones (`grow.merge`).
    States that a drafter hands on are not used: the pass is shared.
    """

    def __init__(self, drafters: Sequence[Drafter]):
        self.drafters = tuple(drafters)
        for i, drafter in enumerate(self.drafters):
            instance(f"drafters[{i}]", drafter, Drafter, "a drafter")
        if not self.drafters:
            raise ValueError("drafters is empty: give at least one")
        layers = [layer for drafter in self.drafters for layer in drafter.hidden_layers]
        self.hidden_layers = tuple(dict.fromkeys(layers))

    def start(self, context: Context) -> "MergedSession":
        return MergedSession([drafter.start(context) for drafter in self.drafters])

    def check(self, target: CausalLM, positions: int) -> None:
        for drafter in self.drafters:
            drafter.check(target, positions)

    def learn(self, tokens: Sequence[int] | Tensor) -> None:
        for drafter in dict.fromkeys(self.drafters):
            drafter.learn(tokens)

    def shape(self) -> Shape | None:
        shapes = [drafter.shape() for drafter in self.drafters]
        if None in shapes:
            return None
        return Shape(max(s.levels for s in shapes), sum(s.nodes for s in shapes))


class MergedSession(Session):
    """maps: for every session, where its nodes stand in the merged tree."""

    def __init__(self, sessions: Sequence[Session]):
        self.sessions = sessions
        self.maps: list[tuple[int, ...]] = [()] * len(sessions)

    @property
    def passes(self) -> int:
        return sum(session.passes for session in self.sessions)

    def propose(self, context: Context) -> Proposal:
        most = context.wanted - 1
        drafts = [session.propose(context).trimmed(most) for session in self.sessions]
        proposal, self.maps = merge(drafts)
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        for session, new in zip(self.sessions, self.maps):
            own = {node: place for place, node in reversed([*enumerate(new)])}
            path = [own[node] for node in verdict.path if node in own]
            ended = len(path) == len(verdict.path)
            heard = replace(
                verdict,
                path=tuple(path),
                token=verdict.token if ended else verdict.tokens[verdict.path[len(path)]],
                kind=verdict.kind if ended else "recovered" if new else "sampled",
                tests=verdict.tests[: len(path) + 1],
                tokens=tuple(verdict.tokens[node] for node in new),
                p=tuple(verdict.p[node] for node in new),
                q=tuple(verdict.q[node] for node in new),
            )
            session.observe(heard, scores.along(new))

    def cut(self, length: int) -> None:
        for session in self.sessions:
            session.cut(length)
