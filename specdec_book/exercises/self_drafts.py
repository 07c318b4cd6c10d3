"""Checks for the exercises on drafts from the target itself: the cost of a draft of some sublayers,
of a round with reuse, and the exit that pays most."""

from collections.abc import Sequence

from specdec_book.exercises.check import Check
from specdec_lite.theory import optimal_gamma


def _cost(layers: int, attention: float, mlp: float, head: float, off: Sequence[str]) -> float:
    size = {"attention": attention, "mlp": mlp}
    return 1 - sum(size[part] for part in off) / (head + layers * (attention + mlp))


check_cost = Check(
    "fn(layers, attention, mlp, head, off) → c by bytes: bytes read by a draft without the"
    " sublayers in `off`, divided by bytes read by the target. attention, mlp: bytes of one"
    " sublayer.",
    _cost,
    [
        (12, 1.0, 2.0, 2.0, ["mlp"]),
        (12, 1.0, 2.0, 2.0, ["attention", "attention", "mlp"]),
        (30, 3.5, 10.6, 113.0, ["mlp", "mlp", "mlp"]),
        (4, 1.0, 1.0, 0.0, []),
    ],
    {
        "the head is read in every draft pass too, and it is not small. Include it in the target's"
        " bytes.": {"head": 0},
        "that counts sublayers. An MLP has more weights than an attention,"
        " so count bytes.": lambda layers, attention, mlp, head, off: 1 - len(off) / (2 * layers),
        "that is the fraction left out;"
        " c is the fraction that the draft still reads.": lambda *case: 1 - _cost(*case),
    },
)


def _round(gamma: int, c: float, shared: float, verify: float) -> float:
    return gamma * c + verify - shared * (verify - 1)


check_round = Check(
    "fn(gamma, c, shared, verify) → cost of a round of an early exit with reuse, in units of T(1)."
    " shared: s, the first layers' share of a pass. verify: v, a whole pass over γ + 1 tokens.",
    _round,
    [(4, 0.4, 0.3, 1.0), (4, 0.4, 0.3, 5.0), (2, 0.5, 0.4, 1.5), (8, 0.2, 0.1, 3.0)],
    {
        "that is the round without reuse, in which the first layers run twice.": {"shared": 0},
        "the last drafted token has not passed the first layers yet. They still run for"
        " one row.": lambda gamma, c, shared, verify: gamma * c + verify - shared * verify,
        "a saved row is not a whole pass. γ more rows cost v − 1, not γ, and reuse saves"
        " only that.": lambda gamma, c, shared, verify: gamma * c + verify - gamma * shared,
    },
)


def _exit(rates: Sequence[float], costs: Sequence[float]) -> int:
    speeds = [optimal_gamma(a, c)[1] for a, c in zip(rates, costs)]
    return 1 + max(range(len(speeds)), key=speeds.__getitem__)


check_exit = Check(
    "fn(rates, costs) → the depth (from 1) of the best exit, each with its own best γ. rates[i],"
    " costs[i]: α and c of the exit after layer i + 1.",
    _exit,
    [
        ([0.1, 0.3, 0.7, 0.8], [0.2, 0.4, 0.6, 0.8]),
        ([0.2, 0.9, 0.95], [0.3, 0.55, 0.8]),
        ([0.62, 0.95], [0.3, 0.5]),
        ([0.55, 0.9], [0.05, 0.35]),
        ([0.45, 0.59, 0.78], [0.16, 0.22, 0.65]),
    ],
    {
        "the exit with the highest acceptance is the deepest one, which also"
        " costs most.": lambda rates, costs: 1 + max(range(len(rates)), key=lambda i: rates[i]),
        "the sign of α − c says whether a draft gains,"
        " not how much. Compare the speedups.": lambda rates, costs: (
            1 + max(range(len(rates)), key=lambda i: rates[i] - costs[i])
        ),
        "the depth counts from 1. The first entry is the exit after layer 1.": -1,
    },
)
