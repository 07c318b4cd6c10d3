"""Checks for the exercises on when to stop drafting, on hidden drafts and on several drafters."""

from collections.abc import Sequence

import numpy as np

from specdec_book.exercises.check import Check, leading


def _length(q: Sequence[float], threshold: float, after: int = 1) -> int:
    return min(leading(value >= threshold for value in q) + after, len(q))


check_length = Check(
    "fn(q, threshold) → number of drafted tokens",
    _length,
    [
        ([0.9, 0.8, 0.3, 0.9, 0.2], 0.4),
        ([0.9, 0.8, 0.7], 0.4),
        ([0.1, 0.9], 0.4),
        ([0.9, 0.2, 0.9, 0.9], 0.4),
        ([0.5, 0.4, 0.39, 0.9], 0.4),
    ],
    {
        "that drops the unsure token after looking at it, which changes the distribution: stop"
        " after it, never before.": {"after": 0},
        "drafting ends at the first unsure token; you count sure ones"
        " after it.": lambda q, threshold: sum(value >= threshold for value in q),
        "a token exactly at the threshold is sure enough: stop below it.": lambda q, threshold: min(
            leading(value > threshold for value in q) + 1, len(q)
        ),
    },
)


def _risk_length(chances: Sequence[float], risk: float, after: int = 1) -> int:
    sure = leading(1 - alive <= risk for alive in np.cumprod(chances))
    return min(sure + after, len(chances))


check_risk_length = Check(
    "fn(chances, risk) → number of drafted tokens",
    _risk_length,
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], 0.3),
        ([0.8, 0.95, 0.6, 0.9], 0.3),
        ([0.99, 0.99, 0.99], 0.3),
        ([0.9, 0.7, 0.9, 0.9, 0.5], 0.5),
        ([0.5, 0.9], 0.5),
    ],
    {
        "that drops the last token after looking at it, which changes the distribution: stop after"
        " it, never before.": {"after": 0},
        "that looks at one token at a time: all tokens so far are accepted with the product of"
        " their chances.": lambda chances, risk: _length(chances, 1 - risk),
        "probabilities of rejection do not add up:"
        " multiply the chances of acceptance.": lambda chances, risk: min(
            leading(np.cumsum(1 - np.array(chances)) <= risk) + 1, len(chances)
        ),
    },
)


_agreement = lambda guess, text: leading(a == b for a, b in zip(guess, text))
check_score = Check(
    "fn(guess, text) → tokens that a round with this draft would have emitted",
    lambda guess, text: _agreement(guess, text) + 1,
    [
        ([1, 2, 3], [1, 2, 9, 4]),
        ([5, 6], [6, 5, 5]),
        ([1, 2], [1, 2, 3]),
        ([7, 8, 9, 7], [7, 8, 9, 7, 1]),
        ([4, 1, 2, 3], [4, 5, 2, 3, 0]),
    ],
    {
        "those are the accepted tokens; the target adds one of its own in every round.": _agreement,
        "that counts the whole draft as accepted:"
        " it ends at the first other token.": lambda guess, text: len(guess) + 1,
        "a token after the first rejected one is not emitted,"
        " even if it agrees.": lambda guess, text: sum(a == b for a, b in zip(guess, text)) + 1,
    },
)


check_cascade_gain = Check(
    "fn(c, gamma, tau, v) → speedup of a target's round whose draft comes from a cascade",
    lambda c, gamma, tau, v: (1 + c * gamma) / (1 + c * gamma * v / tau),
    [(0.3, 6, 2.0, 1.2), (0.1, 4, 1.5, 1.5), (0.5, 8, 3.0, 1.1), (0.2, 5, 1.2, 1.6)],
    {
        "an inner round verifies several tokens: it costs v passes of the middle model.": {"v": 1},
        "only the draft gets faster by τ ÷ v;"
        " the target's pass takes as long as before.": lambda c, gamma, tau, v: tau / v,
        "that is the new time divided by the old one: exchange them.": lambda c, gamma, tau, v: (
            (1 + c * gamma * v / tau) / (1 + c * gamma)
        ),
    },
)


def _choice(
    tokens: Sequence[float],
    costs: Sequence[float],
    rounds: Sequence[float],
    bonus: float,
    plain: float = 1.0,
) -> int:
    waiting = np.sqrt(np.log(1 + sum(rounds)) / np.asarray(rounds))
    indexes = np.asarray(tokens) / np.asarray(costs) + bonus * waiting
    return int(indexes.argmax()) if indexes.max() > plain else -1


check_choice = Check(
    "fn(tokens, costs, rounds, bonus) → number of the drafter that plays; −1: none",
    _choice,
    [  # tokens, costs and rounds of each drafter, and the bonus
        ([9.0, 4.0], [6.0, 4.0], [5.0, 4.0], 0.05),
        ([9.0, 7.0], [6.0, 5.0], [5.0, 0.5], 0.3),
        ([4.0], [4.0], [4.0], 0.0),
        ([0.5, 4.3], [0.75, 3.6], [0.5, 3.0], 0.5),
        ([0.6, 0.3], [0.75, 0.5], [0.5, 0.5], 0.5),
    ],
    {
        "a drafter with an index of 1 or less is slower than plain decoding: return −1.": {
            "plain": 0
        },
        "the bonus is missing: a drafter that waits must be tried again at some time.": {
            "bonus": 0.0
        },
        "divide by the costs, not by the rounds: a long draft may emit more and"
        " cost more.": lambda tokens, costs, rounds, bonus: _choice(tokens, rounds, rounds, bonus),
    },
)


check_overlap_gain = Check(
    "fn(c, gamma, hit) → speedup if a share of all drafts was made during verification",
    lambda c, gamma, hit: (1 + c * gamma) / (1 + (1 - hit) * c * gamma),
    [(0.1, 6, 0.8), (0.3, 4, 0.5), (0.05, 4, 1.0), (0.2, 5, 0.0)],
    {
        "after a miss the draft is made after the verdict: only hits save its time.": {"hit": 1},
        "use mean times, not mean speeds: a round takes 1 + (1 − hit)·c·gamma on average; divide"
        " the time without overlap by that.": lambda c, gamma, hit: 1 + hit * c * gamma,
        "a hit saves the draft's time, a miss costs it: exchange them.": lambda c, gamma, hit: (
            (1 + c * gamma) / (1 + hit * c * gamma)
        ),
    },
)


def _constant_speed(
    right: Sequence[int],
    gamma: int,
    c: float,
    added: int = 1,
    wasted: bool = True,
    cut: bool = True,
) -> float:
    position, rounds, drafted = 0, 0, 0
    while position < len(right):
        length = min(gamma, len(right) - position - 1) if cut else gamma
        accepted = min(right[position], length)
        rounds += 1
        drafted += length if wasted else accepted
        position += max(1, accepted + added)
    return len(right) / (rounds + c * drafted)


check_constant_speed = Check(
    "fn(right, gamma, c) → tokens per pass time of a constant draft length",
    _constant_speed,
    [
        ([3, 0, 1, 4, 2, 0, 0, 5, 1, 0, 2, 1], 2, 0.1),
        ([3, 0, 1, 4, 2, 0, 0, 5, 1, 0, 2, 1], 4, 0.3),
        ([0, 0, 0, 0, 0], 3, 0.2),
        ([8, 7, 6, 5, 4, 3, 2, 1, 0], 4, 0.05),
    ],
    {
        "every round adds one token of the target after the accepted ones: move on by accepted"
        " + 1.": {"added": 0},
        "rejected drafts cost time too: count all drafted tokens.": {"wasted": False},
        "the last draft is cut: before the end of the text, at most len(right) − position − 1"
        " tokens are drafted.": {"cut": False},
    },
)


check_shared_draw = Check(
    "fn(p, noise) → the token that Gumbel noise draws from a distribution",
    lambda p, noise: int(np.argmax(np.log(p) + np.asarray(noise))),
    [
        ([0.5, 0.3, 0.2], [0.1, 0.9, 0.2]),
        ([0.5, 0.3, 0.2], [-0.6, -0.5, 1.4]),
        ([0.1, 0.2, 0.7], [2.0, 0.5, -0.3]),
        ([0.25, 0.25, 0.5], [1.2, -0.4, 0.1]),
        ([0.6, 0.39, 0.01], [0.1, 0.3, 0.9]),
    ],
    {
        "add the noise to log p, not to p: otherwise the token is not drawn"
        " from p.": lambda p, noise: int(np.argmax(np.asarray(p) + np.asarray(noise))),
        "that is the likeliest token, without any noise: every draw would be the same.": {
            "noise": 0
        },
    },
)


def _hit_gain(c: float, gamma: int, fan: int, growth: float, verdicts: int = 1) -> float:
    preparing = c * gamma * (1 + growth * ((gamma + verdicts) * fan - 1))
    return (1 + c * gamma) / max(1.0, preparing)


check_hit_gain = Check(
    "fn(c, gamma, fan, growth) → speedup of a round of Saguaro whose draft is ready",
    _hit_gain,
    [(0.25, 4, 3, 0.0), (0.25, 4, 3, 0.1), (0.1, 2, 2, 0.5), (0.05, 6, 3, 0.2)],
    {
        "with gamma drafted tokens there are gamma + 1 verdicts: 0 to gamma accepted.": {
            "verdicts": 0
        },
        "that prices all prepared drafts as free:"
        " the round lasts until they are finished.": lambda c, gamma, fan, growth: 1 + c * gamma,
        "the target verifies while the drafts are prepared: take the longer of the two times, not"
        " their sum.": lambda c, gamma, fan, growth: (
            (1 + c * gamma) / (1 + c * gamma * (1 + growth * ((gamma + 1) * fan - 1)))
        ),
    },
)
