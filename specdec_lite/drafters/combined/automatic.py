"""Choose drafters and draft lengths for a target: by what its passes cost here, and what is accepted."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from specdec_lite import checks
from specdec_lite.decoding import generate
from specdec_lite.drafters.combined.bandit import BanditDrafter
from specdec_lite.drafters.copying.prompt_lookup import PromptLookupDrafter
from specdec_lite.drafters.eagle.eagle import EagleDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights
from specdec_lite.measure.clocks import samples
from specdec_lite.measure.timing import pass_job, prefilled
from specdec_lite.theory import expected_tokens

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
    cache = prefilled(target, text, 1, LONGEST + 1)
    jobs = {k: pass_job(target, text, k, cache=cache) for k in range(1, LONGEST + 2)}
    passes = [min(seconds) for seconds in samples(jobs, target.device, REPEATS, 1).values()]
    if head is None:
        return passes, 0.0
    steps = generate(target, text, head, DECODED, stop_token_ids=()).steps
    drafting = [step.drafting / step.draft_passes for step in steps if step.draft_passes]
    return passes, min(drafting, default=0.0) / passes[0]
