"""Drafters around another one, which change how its tokens are drawn: here a temperature of the
draft's own. Draws that share their noise with the target's are in `coupled`.
"""

from dataclasses import replace

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Context, Drafter, Session, Shape


class Around(Drafter):
    """inner: any drafter. A subclass says in `inside` what that one sees of the context."""

    def __init__(self, inner: Drafter):
        self.inner = checks.drafter("inner", inner)
        self.hidden_layers = inner.hidden_layers

    def inside(self, context: Context) -> Context:
        raise NotImplementedError

    def start(self, context: Context) -> "AroundSession":
        return AroundSession(self, self.inner.start(self.inside(context)))

    def check(self, target: CausalLM, positions: int) -> None:
        self.inner.check(target, positions)

    def shape(self) -> Shape | None:
        return self.inner.shape()

    def draft_model(self) -> CausalLM | None:
        return self.inner.draft_model()


class AroundSession(Session):
    def __init__(self, drafter: Around, session: Session):
        self.drafter = drafter
        self.session = session

    def propose(self, context: Context) -> Proposal:
        proposal = self.session.propose(self.drafter.inside(context))
        self.passes = self.session.passes
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.session.observe(verdict, scores)

    def cut(self, length: int) -> None:
        self.session.cut(length)


class TemperedDrafter(Around):
    """Draft at a temperature of the draft's own, ≥ 0; top-k and top-p stay the target's.

    At 0 the tokens are chosen (argmax), above it they are drawn, and their rows are those they were
    drawn from: any temperature is lossless, the acceptance differs.
    """

    def __init__(self, inner: Drafter, temperature: float = 0.0):
        super().__init__(inner)
        self.temperature = Sampling(temperature).temperature

    def inside(self, context: Context) -> Context:
        return replace(context, sampling=replace(context.sampling, temperature=self.temperature))
