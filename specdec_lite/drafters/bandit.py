"""Choose among several drafters in every round, by what their drafts cost and what is accepted."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Session
from specdec_lite.decoding import generate
from specdec_lite.drafters.chain import common_prefix
from specdec_lite.drafters.combined import GroupDrafter, members
from specdec_lite.drafters.copying import PromptLookupDrafter
from specdec_lite.drafters.eagle import EagleDrafter
from specdec_lite.engine.cache import Layer, Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights
from specdec_lite.measure.clocks import samples
from specdec_lite.measure.timing import pass_jobs
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.theory import expected_tokens

# One arm ----------------------------------------------------------------------------------------

LEAST = 1e-3
"""Number of rounds from which the sums are discounted no further, so that they never vanish."""


class Arm:
    """A drafter's session, with discounted sums over the rounds in which it was measured.

    Before it is measured they are those of `weight` rounds of cost 1 and `prior` tokens.

    Attributes:
        free: whether it costs so little that it can be measured in every round.
        tokens: discounted sum of the tokens that its rounds emitted or would have emitted.
        cost: discounted sum of what these rounds cost.
        rounds: discounted number of these rounds.
        missed: for each layer the target's states [1, n, d] that the session has not read yet.
        seen: number of tokens whose states were added to `missed`.
        text: the text of the last round.
    """

    def __init__(self, drafter: Drafter, context: Context, prior: float, bandit: "BanditDrafter"):
        self.session = drafter.start(context)
        self.free = self.is_free(drafter)
        self.bandit = bandit
        self.tokens = prior * bandit.weight
        self.cost = self.rounds = bandit.weight
        self.proposal = NOTHING
        self.waiting: list[tuple[int, Proposal]] = []
        self.missed: dict[Layer, Tensor] = {}
        self.seen = 0
        self.text = context.tokens[:0]
        self.passes = 0

    @staticmethod
    def is_free(drafter: Drafter) -> bool:
        """Return whether a drafter, and every drafter inside it, makes no passes and reads no states."""
        return not any(
            part.makes_passes or part.hidden_layers or part.draft_model()
            for part in members(drafter)
        )

    def index(self, rounds: float) -> float:
        """Return the tokens per cost, plus a bonus if the arm is measured only when it drafts."""
        waiting = 0.0 if self.free else math.sqrt(math.log(1 + rounds) / self.rounds)
        return self.tokens / self.cost + self.bandit.bonus * waiting

    def catch_up(self, context: Context) -> None:
        """Measure earlier drafts by the text that followed, then draft again if the arm is free."""
        known, self.text = common_prefix(self.text, context.tokens), context.tokens
        if not self.free:
            self.age()
            self.remember(context, known - 1)
            return
        text = context.tokens.tolist()
        waiting, self.waiting = self.waiting, []
        for start, proposal in waiting:
            accepted, decided = follow(proposal, text[start:])
            if decided and start <= known:
                self.add(1 + accepted, len(proposal.tree), 0)
            elif start <= known:  # else an outer round took back the text before it
                self.waiting.append((start, proposal))
        self.proposal = self.session.propose(context)
        if len(self.proposal.tree):
            self.waiting.append((len(text), self.proposal))

    def remember(self, context: Context, known: int) -> None:
        """Add the states of the newest tokens to those that the session has not read yet."""
        if (surplus := self.seen - known) > 0:  # an outer round took these tokens back
            self.seen = known
            self.missed = {layer: each[:, :-surplus] for layer, each in self.missed.items()}
        if context.scores is None:
            return
        scored = len(context.tokens) - 1
        for layer, states in context.scores.hidden.items():
            new = states[:, max(0, states.shape[1] - (scored - self.seen)) :]
            old = self.missed.get(layer)
            self.missed[layer] = new if old is None else torch.cat((old, new), 1)
        self.seen = scored

    def propose(self, context: Context) -> Proposal:
        """Return this round's proposal."""
        if self.free:
            return self.proposal
        before, scores = self.session.passes, context.scores
        scores = None if scores is None else Scores(scores.logits, self.missed)
        proposal = self.session.propose(replace(context, scores=scores))
        self.missed = {}
        self.passes = self.session.passes - before
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        """Learn from the verdict on this arm's proposal."""
        self.session.observe(verdict, scores)
        if not self.free and verdict.tokens:
            self.add(1 + len(verdict.path), len(verdict.tokens), self.passes)

    def add(self, tokens: int, nodes: int, passes: int) -> None:
        """Add one measured round."""
        if self.free:
            self.age()
        self.tokens += tokens
        self.cost += self.bandit.pass_cost(nodes) + self.bandit.c * passes
        self.rounds += 1

    def age(self) -> None:
        """Discount all sums; their ratios stay. An arm that waits counts fewer and fewer rounds."""
        if self.rounds > LEAST:
            self.tokens *= self.bandit.discount
            self.cost *= self.bandit.discount
            self.rounds *= self.bandit.discount


def follow(proposal: Proposal, text: Sequence[int]) -> tuple[int, bool]:
    """Return how many levels of a proposal a text follows, and whether more text cannot change it."""
    path = proposal.tree.along(text)
    end = path[-1] if path else -1
    return len(path), len(path) < len(text) or not proposal.tree.children(end)


# The bandit -------------------------------------------------------------------------------------
# Source: Hou et al. 2025 (BanditSpec), discounted UCB; Garivier and Moulines 2011 (the discount).
# Measuring drafters that did not draft is also the idea of Not-a-Bandit (arXiv 2510.20064), for
# other drafters.


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
        arms = [Arm(drafter, context, prior, self) for drafter, prior in pairs]
        return BanditSession(arms, self.hidden_layers)

    def pass_cost(self, nodes: int) -> float:
        """Return the cost of the target's pass with this many drafted tokens."""
        if not self.passes:
            return 1 + self.t * nodes
        last = min(nodes, len(self.passes) - 1)
        slope = (self.passes[-1] - self.passes[0]) / max(1, len(self.passes) - 1)
        return self.passes[last] + slope * (nodes - last)


class BanditSession(Session):
    """`chosen` is the arm that drafted last; None if none was asked."""

    def __init__(self, arms: list[Arm], hidden_layers: tuple[Layer, ...]):
        self.arms, self.hidden_layers = arms, hidden_layers
        self.chosen: Arm | None = None

    def propose(self, context: Context) -> Proposal:
        for arm in self.arms:
            arm.catch_up(context)
        self.chosen = None
        rounds = sum(arm.rounds for arm in self.arms)
        indexes = {arm: arm.index(rounds) for arm in self.arms}
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
        lower = [x for x in self.hidden_layers if not isinstance(x, str) and x < block]
        free = self.chosen is not None and self.chosen.free
        return replace(proposal, states=None) if lower or free else proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        if self.chosen is not None:
            self.chosen.observe(verdict, scores)


# A bandit fitted to a target --------------------------------------------------------------------

LOOKUPS = {3: 0.8, 2: 0.55, 1: 0.2}
"""Length of a repetition → acceptance rate to expect of a draft that continues it."""
HEAD = 0.5
"""Acceptance rate to expect of a trained head."""
LONGEST = 8
"""Largest draft length. Up to nine rows share most of a pass on a CPU."""
CONTEXT = 128
"""Tokens before the passes that are timed."""
REPEATS = 7
DECODED = 32
"""Tokens to decode when the head is timed."""
WEIGHT = 8
"""Number of rounds that an expectation counts as."""


def automatic(
    target: CausalLM, passes: Sequence[float] | None = None, c: float | None = None
) -> BanditDrafter:
    """Return a drafter that chooses in every round: prompt lookup, a trained head, or no draft.

    Lookups copy what followed the last one, two or three tokens earlier in the text. The head is
    EAGLE-1's, if one is shipped for this target. Draft lengths follow from what a pass over several
    tokens costs: where four rows share a pass and a fifth begins another, three tokens are drafted.
    A drafter that gains nothing by its own costs and recent acceptance is passed over, until the
    text would have followed it again; the round is then a plain one.

    Args:
        target: the model that decodes.
        passes: T(1), T(2), … of the target, in any unit; None to measure them now, in one to three
            seconds.
        c: cost of a draft pass of the head, in passes of the target over one token; None to
            measure it now.

    Raises:
        TypeError: target is not a CausalLM.
        ValueError: passes is empty or contains a number that is not positive.
    """
    checks.model("target", target)
    if passes is not None and not len(passes):
        raise ValueError("passes is empty: must contain T(1)")
    head = shipped_head(target)
    if passes is None or (c is None and head is not None):
        measured, measured_c = measure(target, head)
        passes = measured if passes is None else passes
        c = measured_c if c is None else c
    times = [checks.number("passes", each, 1e-12) for each in passes]
    costs = [most / times[0] for most in accumulate(times, max)]
    drafters, priors = [], []
    for repeated, rate in LOOKUPS.items():
        gamma, gain = best_length(rate, costs)
        drafters.append(PromptLookupDrafter(gamma, repeated, repeated))
        priors.append(gain)
    if head is not None:
        gamma, gain = best_length(HEAD, costs, c or 0.0)
        drafters.append(EagleDrafter(target, head.head, gamma))
        priors.append(gain)
    return BanditDrafter(drafters, c or 0.0, priors=priors, weight=WEIGHT, passes=costs)


def best_length(rate: float, costs: Sequence[float], c: float = 0.0) -> tuple[int, float]:
    """Return the draft length with the most expected tokens per cost, and this number of tokens."""
    gains = {
        gamma: float(expected_tokens(rate, gamma)) / (costs[gamma] + c * gamma)
        for gamma in range(1, len(costs))
    }
    best = max(gains, key=lambda gamma: gains[gamma], default=1)
    return best, gains.get(best, 0.0)


def shipped_head(target: CausalLM) -> EagleDrafter | None:
    """Return EAGLE-1's head for this target; None if none is shipped."""
    try:
        folder = find_weights("eagle1", target)
    except ValueError:
        return None
    return EagleDrafter.from_pretrained(target, 1, folder)


def measure(target: CausalLM, head: EagleDrafter | None) -> tuple[list[float], float]:
    """Return the seconds T(1) … T(LONGEST + 1), and the cost of a draft pass in units of T(1).

    Passes alternate. The shortest of each counts, which a busy machine disturbs least.
    """
    text = torch.arange(1, 1 + CONTEXT) % target.vocab_size
    jobs = pass_jobs(target, text, range(1, LONGEST + 2))
    passes = [min(seconds) for seconds in samples(jobs, target.device, REPEATS, 1).values()]
    if head is None:
        return passes, 0.0
    steps = generate(target, text, head, DECODED, stop_token_ids=()).steps
    drafting = [step.drafting / step.draft_passes for step in steps if step.draft_passes]
    return passes, min(drafting, default=0.0) / passes[0]
