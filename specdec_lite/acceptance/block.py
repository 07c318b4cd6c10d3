"""Block verification: a drafted chain is judged as a whole instead of token by token."""

from torch import Tensor

from specdec_lite.acceptance.rule import drawn_from, kind_of, ratio, residual, rule
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.sampling import Rng


@rule(lossless=True)
def block_verification(proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
    """Accept a prefix by the running product of p/q instead of token by token: the same law, never
    fewer tokens on average.

    The accepted length is the *last* success; stopping at the first failure is a different, biased
    rule. Every drafted token counts as tested, so acceptance_rate is then accepted ÷ drafted.
    ValueError for anything but a chain of one draw a level. Source: Sun et al. 2025, algorithm 2.
    """
    if not proposal.is_plain_chain:
        raise ValueError(
            "block_verification judges chains of one draw a level; this proposal is a tree, or"
            " holds merged draws or candidates"
        )
    tokens = proposal.tree.tokens.tolist()
    length = len(tokens)
    rows = [
        drawn_from(proposal, None if proposal.probs is None else i, token, target_probs[0])
        for i, token in enumerate(tokens)
    ]
    weight = 1.0
    accepted = 0
    owed = residual(target_probs[0], rows[0]) if rows else target_probs[0]
    for i, token in enumerate(tokens, start=1):
        weight = min(1.0, weight * ratio(target_probs[i - 1], rows[i - 1], token))
        if i == length:
            excess = target_probs[i]
            prob = weight
        else:
            excess = (weight * target_probs[i] - rows[i]).clamp(min=0)
            mass = excess.sum().item()
            # In this order: mass + 1 − weight may round to 0.
            prob = mass / (mass + (1.0 - weight)) if mass > 0 else 0.0
        if rng.flip(prob):
            accepted = i
            owed = excess / excess.sum()
    path = tuple(range(accepted))
    kind = kind_of(path, rejected=accepted < length)
    return Verdict(path, rng.draw(owed), kind, (1,) * length)
