"""Checks for the exercises on drafts without a model: the lookup itself, the two averages, the best
draft length."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check


def _copied(text: list[int], n: int, gamma: int, ends: Sequence[int] | None = None, back: int = 0):
    """Return what follows the first of some ends of the last n tokens, by default the latest one.

    back: tokens before the end at which the copy begins.
    """
    ends = range(len(text) - 1, n - 1, -1) if ends is None else ends
    end = next((end for end in ends if text[end - n : end] == text[-n:]), None)
    return [] if end is None else text[end - back : end - back + gamma]


check_lookup = Check(
    "fn(text, n, gamma) → the tokens to propose. These are the tokens after the latest earlier"
    " occurrence of the last n tokens: γ of them, or as many as exist. [] if there is no earlier"
    " occurrence.",
    _copied,
    [
        ([1, 2, 3, 1, 2, 3, 1, 2], 2, 8),
        ([7, 1, 9, 4, 7, 2, 6, 5, 7], 1, 3),
        ([5, 6, 7, 8, 9, 5, 6], 2, 2),
        ([4, 4, 4], 2, 5),
        ([1, 2, 3, 4], 2, 4),
    ],
    {
        "nothing is ever proposed: the end of the text finds itself, and no token follows it. Begin"
        " the search one position earlier.": lambda text, n, gamma: [],
        "that is what followed the earliest occurrence."
        " Search from the end to the beginning.": lambda text, n, gamma: _copied(
            text, n, gamma, range(n, len(text))
        ),
        "that accepts only matches with γ tokens after them, and discards the most recent text."
        " Propose what follows the match, even if it is shorter than γ.": lambda text, n, gamma: (
            _copied(text, n, gamma, range(len(text) - gamma, n - 1, -1))
        ),
        "the proposal begins with the n-gram itself, which the text already contains. It must begin"
        " after the n-gram.": lambda text, n, gamma: _copied(text, n, gamma, back=n),
    },
)


Rounds = Sequence[tuple[int, int]]


def _averages(
    rounds: Rounds, own: int = 1, all_rounds: bool = True, per_emitted: bool = True
) -> tuple[float, float, float]:
    drafting = [accepted + own for drafted, accepted in rounds if drafted]
    mean, emitted = sum(drafting) / len(drafting), sum(accepted + 1 for _, accepted in rounds)
    every = sum(accepted + own for _, accepted in rounds) / len(rounds)
    drafted = sum(drafted for drafted, _ in rounds)
    wasted = drafted - sum(accepted for _, accepted in rounds)
    return every if all_rounds else mean, mean, wasted / (emitted if per_emitted else drafted)


check_averages = Check(
    "fn(rounds) → (τ over all rounds, τ over the rounds that drafted, wasted drafted tokens per"
    " emitted token). A round is (drafted, accepted).",
    _averages,
    [([(8, 8), (0, 0), (8, 2), (0, 0)],), ([(4, 0), (4, 4)],), ([(0, 0), (0, 0), (3, 2), (3, 1)],)],
    {
        "every round emits one token more than it accepts: the target's own.": {"own": 0},
        "the first average leaves out the rounds without a draft. They are passes too.": {
            "all_rounds": False
        },
        "that is the waste per drafted token. Divide by the number of emitted tokens.": {
            "per_emitted": False
        },
    },
)


def _best_gamma(lengths: Sequence[int], times: Sequence[float], free: bool = True) -> int:
    def speed(gamma: int) -> float:
        tokens = sum(1 + min(max(length, 0), gamma) for length in lengths)
        passes = sum(times[0 if free and length < 0 else gamma] for length in lengths)
        return tokens / passes

    return max(range(len(times)), key=speed)


check_best_gamma = Check(
    "fn(lengths, times) → the γ with the most tokens per second, the smaller one of equals."
    " lengths: for each round, how many tokens after the match would be accepted if γ were long"
    " enough; −1 without a match. times[g]: seconds of a pass with g drafted tokens.",
    _best_gamma,
    [
        ([12, -1, 0, 3, -1, 9, 1, -1], [1.0, 1.1, 1.1, 1.2, 1.2, 1.3, 1.3, 1.4, 1.5]),
        ([0, 0, -1, 1], [1.0, 1.2, 1.4, 1.6]),
        ([3, -1, -1, -1], [1.0, 1.3, 1.6, 1.9]),
        ([5, 5, 5], [1.0] * 8),
        ([0, 1, -1, 0, 2, 0], [1.0, 1.4, 1.7, 2.1, 2.2]),
    ],
    {
        "a round without a match drafts nothing. Its pass takes times[0] for every γ.": {
            "free": False
        },
        "that is the longest possible copy. A longer draft makes every round with a draft slower,"
        " so compare tokens per second.": lambda lengths, times: max(max(lengths), 0),
        "that is the longest draft allowed,"
        " and a pass over it takes longest.": lambda lengths, times: len(times) - 1,
    },
)
