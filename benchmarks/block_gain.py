"""Count how many of the same drafts two rules accept, on average; nothing is timed.

    python -m benchmarks run block-verification-gain

The shipped pair decodes with γ = 8 at temperature 1, and every draft is kept with the target's rows.
Both rules then verify each draft, cut to several lengths. No random numbers are needed: the rules
give the probability that at least k drafts are accepted, and the expected number is their sum.
"""

import numpy as np
import torch
from torch import Tensor

from specdec_lite import acceptance, generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import estimate
from specdec_lite.texts.benchmark_prompts import SHA256

from .experiment import Experiment
from .scoreboard_counts import PairTexts

LENGTHS = (1, 2, 4, 6, 8)
Draft = tuple[Tensor, Tensor, Tensor]
"""Drafted tokens [γ], the rows [γ, V] they were drawn from, and the target's rows [γ + 1, V]."""


def accepted(draft: Draft, gamma: int) -> tuple[float, float]:
    """Return the expected accepted drafts of the first γ, token by token and as a block."""
    tokens, q, p = draft
    at = torch.arange(gamma), tokens[:gamma]
    ratios = p[at].double() / q[at].double()
    weights = [1.0]
    for ratio in ratios.tolist():
        weights.append(min(1.0, weights[-1] * ratio))
    w = torch.tensor(weights[1:], dtype=torch.float64)
    mass = (w[:-1, None] * p[1:gamma] - q[1:gamma]).clamp(min=0).sum(-1)
    stop = torch.cat([(mass / (mass + (1 - w[:-1]))).nan_to_num(), w[-1:]])
    alone = ratios.clamp(max=1).cumprod(0)
    block = 1 - (1 - stop).flip(0).cumprod(
        0
    )  # at least k drafts: one of the tests from k on passes
    return float(alone.sum()), float(block.sum())


@torch.inference_mode()
def drafts(pair: Pair, ids: Tensor, new_tokens: int, seed: int) -> list[Draft]:
    """Return the whole drafts of one decoded text; the text's end cuts its last ones short."""
    seen: list[Draft] = []

    @acceptance.rule(lossless=True)
    def watched(proposal, rows, rng):
        if len(proposal.tree) == max(LENGTHS):
            seen.append((proposal.tree.tokens.cpu(), proposal.probs.cpu(), rows.cpu()))
        return acceptance.speculative_sampling(proposal, rows, rng)

    drafter = ModelDrafter(pair.draft, max(LENGTHS))
    generate(pair.target, ids, drafter, new_tokens, 1.0, rule=watched, stop_token_ids=(), seed=seed)
    return seen


class BlockGain(PairTexts, Experiment):
    """The parts are the seeds; every prompt is decoded once with each."""

    name = "block-verification-gain"
    what = "tokens per round of the shipped pair by two rules that verify the same drafts at T = 1"
    time = "5 minutes, not timed"
    quick = tuple("--prompts 1 --seeds 1 --new-tokens 24".split())
    threads = 1
    timed = False

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--prompts", type=int, default=8, help="prompts per kind")
        parser.add_argument("--seeds", type=int, default=3, help="texts per prompt")
        parser.add_argument("--new-tokens", type=int, default=72, help="tokens per text")

    def check(self):
        self.check_least(prompts=1, seeds=1, new_tokens=max(LENGTHS) + 2)

    def parts(self):
        return [f"seed {seed}" for seed in range(self.options.seeds)]

    def run(self, part):
        """Return each prompt's rounds, then for each γ its sums of accepted drafts by both rules."""
        rounds, sums = [], {str(gamma): [] for gamma in LENGTHS}
        for ids in self.texts:
            found = drafts(self.pair, ids, self.options.new_tokens, int(part.split()[1]))
            rounds.append(len(found))
            for gamma in LENGTHS:
                both = np.array([accepted(draft, gamma) for draft in found]).reshape(-1, 2)
                sums[str(gamma)].append(both.sum(0).round(4).tolist())
        return {"rounds": rounds, "accepted": sums}

    def summarise(self, rows):
        rounds = np.array([each["rounds"] for each in rows.values()]).T  # [prompts, seeds]
        lines = []
        for gamma in LENGTHS:
            sums = np.array([each["accepted"][str(gamma)] for each in rows.values()])
            alone, block = rounds + sums[..., 0].T, rounds + sums[..., 1].T
            gain = estimate(lambda a, b: 100 * (b / a - 1), alone, block)
            lines.append(
                {
                    "gamma": gamma,
                    "tokens": float(alone.sum() / rounds.sum()),
                    "as_block": float(block.sum() / rounds.sum()),
                    "gain": gain["value"],
                    "low": gain["interval"][0],
                    "high": gain["interval"][1],
                }
            )
        return {
            "texts": int(rounds.size),
            "rounds": int(rounds.sum()),
            "prompts_sha256": SHA256,
            "rows": lines,
        }
