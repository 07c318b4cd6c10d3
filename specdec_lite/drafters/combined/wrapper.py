"""A drafter that changes how another drafter draws its tokens."""

from specdec_lite import checks
from specdec_lite.drafters.combined.composite import CompositeDrafter
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Limits, Session


class WrapperDrafter(CompositeDrafter):
    """Draft with another drafter, in a changed context: subclass it and define `inner_context`.

    Args:
        inner: any drafter.
    """

    def __init__(self, inner: Drafter):
        self.inner = checks.drafter("inner", inner)
        self.hidden_layers = inner.hidden_layers

    def inner_context(self, context: Context) -> Context:
        """Return the context that the inner drafter is given."""
        raise NotImplementedError

    def start(self, context: Context) -> "WrapperSession":
        return WrapperSession(self, self.inner.start(self.inner_context(context)))

    def check(self, target: CausalLM, positions: int) -> None:
        self.inner.check(target, positions)

    def limits(self) -> Limits | None:
        return self.inner.limits()

    def draft_model(self) -> CausalLM | None:
        return self.inner.draft_model()


class WrapperSession(Session):
    """The drafting of one generation: the inner drafter's session."""

    def __init__(self, drafter: WrapperDrafter, session: Session):
        self.drafter = drafter
        self.session = session

    def propose(self, context: Context) -> Proposal:
        proposal = self.session.propose(self.drafter.inner_context(context))
        self.passes = self.session.passes
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.session.observe(verdict, scores)
