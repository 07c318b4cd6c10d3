"""Choose a drafter in every round by what recent rounds accepted: discounted UCB.

Source: Hou et al. 2025 (BanditSpec); Garivier and Moulines 2011 (the discount). Measuring drafters
that did not draft is also the idea of Not-a-Bandit (arXiv 2510.20064), for other drafters.
"""

from collections.abc import Sequence
from dataclasses import replace

from specdec_lite import checks
from specdec_lite.drafters.combined.arms import Arm
from specdec_lite.drafters.combined.composite import GroupDrafter, largest
from specdec_lite.engine.cache import Scores
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Limits, Session


class BanditDrafter(GroupDrafter):
    """Let the drafter with the most recent tokens per cost draft, one per round.

    A drafter that makes no passes and reads no states is measured in every round, by the text that
    follows. Any other is measured only when it drafts, and gets a bonus that grows while it waits.
    A drafter that proposes nothing is passed over, and one below plain decoding does not draft.

    Args:
        drafters: at least one, in order of preference among equal ones.
        c: cost of a draft pass, in passes of the target over one token.
        t: cost of every drafted token in the target's pass, in the same unit.
        discount: weight of a round relative to the next one, in [0, 1].
        bonus: size of the bonus.
        priors: tokens per cost to expect of each drafter before it is measured; default: 2 for all.
        weight: number of rounds that a prior counts as, ≥ 0.001.
        passes: cost of the target's pass with 0, 1, 2, … drafted tokens, in place of t.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        c: float = 0.1,
        t: float = 0.04,
        discount: float = 0.98,
        bonus: float = 0.05,
        priors: Sequence[float] = (),
        weight: float = 1.0,
        passes: Sequence[float] = (),
    ):
        super().__init__(drafters)
        self.passes = [checks.number("passes", cost, 1e-3) for cost in passes]
        self.weight = checks.number("weight", weight, 1e-3)
        self.priors = [checks.number("priors", prior) for prior in priors] or [2.0] * len(drafters)
        if len(self.priors) != len(drafters):
            raise ValueError(f"priors has {len(priors)} numbers for {len(drafters)} drafters")
        self.c, self.t = checks.number("c", c), checks.number("t", t)
        self.discount = checks.unit("discount", discount)
        self.bonus = checks.number("bonus", bonus)

    def start(self, context: Context) -> "BanditSession":
        pairs = zip(self.drafters, self.priors)
        arms = [Arm(drafter, context, prior, self.weight) for drafter, prior in pairs]
        return BanditSession(self, arms)

    def pass_cost(self, nodes: int) -> float:
        """Return the cost of the target's pass with this many drafted tokens."""
        if not self.passes:
            return 1 + self.t * nodes
        last = min(nodes, len(self.passes) - 1)
        slope = (self.passes[-1] - self.passes[0]) / max(1, len(self.passes) - 1)
        return self.passes[last] + slope * (nodes - last)

    def limits(self) -> Limits | None:
        if known := self.known_limits():
            return largest(known, max(each.nodes for each in known))
        return None


class BanditSession(Session):
    """The drafting of one generation. `chosen` is the arm that drafted last; None if none was asked."""

    def __init__(self, drafter: BanditDrafter, arms: list[Arm]):
        self.drafter, self.arms = drafter, arms
        self.chosen: Arm | None = None

    def propose(self, context: Context) -> Proposal:
        for arm in self.arms:
            arm.catch_up(context, self.drafter)
        self.chosen = None
        rounds = sum(arm.rounds for arm in self.arms)
        indexes = {arm: arm.index(rounds, self.drafter.bonus) for arm in self.arms}
        for arm in sorted(self.arms, key=lambda arm: indexes[arm], reverse=True):
            if indexes[arm] <= 1:
                break
            proposal = arm.propose(context)
            self.passes = sum(each.session.passes for each in self.arms)
            self.chosen = arm
            if len(proposal.tree):
                return self._readable(proposal)
        return NOTHING

    def _readable(self, proposal: Proposal) -> Proposal:
        """Return the proposal without its states if an arm reads a layer below them.

        Nor are those of a free arm used: others drafted after it, perhaps into the same cache.
        """
        if proposal.states is None:
            return proposal
        # The target's pass would begin behind block b and not compute what the arm reads.
        block = proposal.states[0]
        lower = [x for x in self.drafter.hidden_layers if not isinstance(x, str) and x < block]
        free = self.chosen is not None and self.chosen.free
        return replace(proposal, states=None) if lower or free else proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        if self.chosen is not None:
            self.chosen.observe(verdict, scores, self.drafter)
