"""Compute how far each lossy rule moves the target's distribution; nothing is timed.

    python -m benchmarks run rule-drift

The drift is the total variation between the target's distribution and the distribution of the first
token that a rule emits after one token of the shipped pair's draft, at temperature 1. It is
enumerated over the drafted tokens, so it has no sampling error for a given place in a text.
"""

import torch
from torch import Tensor

from specdec_lite import TokenTree
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import estimate
from specdec_lite.proposal import Proposal, one_hot
from specdec_lite.sampling import Sampling
from specdec_lite.texts.benchmark_prompts import SHA256

from .experiment import Experiment
from .methods import METHODS, Method
from .scoreboard_counts import PairTexts

MASS = 0.999
"""Probability under q of the drafted tokens that are enumerated, most likely first."""


class FixedCoin:
    """A random number generator with a fixed coin, which stores the row it would draw from.

    Args:
        side: Result of every flip.
    """

    def __init__(self, side: bool):
        self.side = side
        self.prob: float | None = None
        self.row: Tensor | None = None

    def flip(self, prob: float) -> bool:
        """Store the probability and return the fixed side."""
        self.prob = min(1.0, prob)
        return self.side

    def draw(self, row: Tensor) -> int:
        """Store the row and return token 0."""
        self.row = row
        return 0


def first_token_distribution(p: Tensor, q: Tensor, rule: RuleFunction, mass: float = 1.0) -> Tensor:
    """Return the distribution [V] of the first token that a rule emits after one draft from q.

    This is `acceptance.output_distribution` for large vocabularies. The rule may flip at most once
    per token and draw after that.
    """
    probs = torch.zeros_like(p)
    order = q.argsort(descending=True)
    count = int((q[order].cumsum(0) < mass - 1e-9).sum()) + 1
    rows = torch.stack([p, p])
    for token in (x for x in order[:count].tolist() if q[x] > 0):
        proposal = Proposal(TokenTree.chain([token]), q[None])
        accepting = FixedCoin(True)
        path = rule(proposal, rows, accepting).path
        share = (accepting.prob if accepting.prob is not None else 1.0) if path else 0.0
        probs[token] += q[token] * share
        if share < 1:
            rejecting = FixedCoin(False)
            verdict = rule(proposal, rows, rejecting)
            rest = one_hot(verdict.token, p) if rejecting.row is None else rejecting.row
            probs += q[token] * (1 - share) * rest
    return probs / probs.sum()


@torch.inference_mode()
def drift(
    pair: Pair, rule: RuleFunction, prompts: list[Tensor], places: int, mass: float = MASS
) -> list[list[float]]:
    """Return a rule's total variation from the target at places of some texts [prompts, places]."""
    sampling = Sampling(1.0)
    distances = []
    for ids in prompts:
        rows = [
            sampling(model.score(ids, model.new_cache(capacity=len(ids))).logits[0]).double()
            for model in (pair.target, pair.draft)
        ]
        at = torch.linspace(16, len(ids) - 1, places).long().tolist()
        distances.append([])
        for p, q in zip(*(row[at] for row in rows)):
            probs = first_token_distribution(p, q, rule, mass)
            distances[-1].append(0.5 * (probs - p).abs().sum().item())
    return distances


def lossy_rules() -> dict[str, Method]:
    """Return {row: method} of the lossy rules that verify a chain of the draft model."""
    return {
        name: method
        for name, method in METHODS.items()
        if not method.lossless and name.startswith("draft model ×")
    }


class RuleDrift(PairTexts, Experiment):
    """The parts are the lossy rules."""

    name = "rule-drift"
    what = "how far each lossy rule moves the distribution of the first token, by enumeration"
    time = "5 minutes, not timed"
    quick = tuple("--prompts 1 --places 1".split())

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--prompts", type=int, default=4, help="prompts per kind")
        parser.add_argument("--places", type=int, default=4, help="places per prompt")

    def check(self):
        self.check_least(prompts=1, places=1)

    def parts(self):
        return [*lossy_rules()]

    def run(self, part):
        distances = drift(self.pair, lossy_rules()[part].rule, self.texts, self.options.places)
        mean = estimate(lambda each: each / (len(self.texts) * self.options.places), distances)
        return {"mean": mean, "most": max(map(max, distances))}

    def summarise(self, rows):
        return {
            "temperature": 1.0,
            "mass": MASS,
            "places": len(self.texts) * self.options.places,
            "prompts_sha256": SHA256,
            "drift": rows,
        }

    def restore(self, data):
        return data["drift"]
