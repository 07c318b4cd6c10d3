"""Formulas of the interactives: each beside the Python that it repeats, or beside known results."""

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import product

import pytest
import torch
from javascript import evaluate

from specdec_book import recordings
from specdec_book.viz import serving
from specdec_book.viz.interactives import GUESSES, WIDTHS, hundredths
from specdec_lite import roofline, theory
from specdec_lite.acceptance import residual
from specdec_lite.sampling import Sampling
from specdec_lite.simulation import advice
from specdec_lite.simulation.estimate import FITTED, Hardware
from specdec_lite.simulation.goodput import PassTimes, estimated as tabulated, goodput, steady
from specdec_lite.tree import TokenTree

ALPHAS, GAMMAS = (0, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99, 1), (1, 2, 3, 5, 8, 24)
COSTS = (0, 0.02, 0.1, 0.3, 0.9, 1, 1.2)
MODELS, MACHINES = ([1e6, 10.8e6, 70e9], WIDTHS), ([2e10, 2e12], [3e11, 3.12e14])
PASSES = [*product(*MODELS, *MACHINES, [1, 5, 32], [1, 8], [0.0, 1e9])]


def columns(*places: int) -> set[tuple]:
    """Return some columns of `PASSES`."""
    return {tuple(point[place] for place in places) for point in PASSES}


def parents(seed: int, count: int = 200) -> list[list[int]]:
    """Return some trees as lists of parents, at random and by hand."""
    rng = random.Random(seed)
    by_hand = [[], [-1], [-1, 0, 1, 2], [-1, -1, -1], [-1, -1, 0, 0, 0, 1, 1, 1]]
    return by_hand + [
        [rng.randrange(-1, node) for node in range(rng.randint(1, 16))] for _ in range(count)
    ]


def of(shape: list[int]) -> TokenTree:
    return TokenTree([0] * len(shape), shape)


def value(shape: list[int], accuracies: list[list[float]]) -> float:
    """Return the expected tokens per pass, from `TokenTree`'s own paths and children."""
    tree = of(shape)
    ranks = [tree.children(parent).index(node) for node, parent in enumerate(shape)]
    factors = lambda node: (accuracies[d][ranks[at]] for d, at in enumerate(tree.path(node)))
    return 1.0 + sum(math.prod(factors(node)) for node in range(len(tree)))


def fits(shape: list[int], accuracies: list[list[float]]) -> bool:
    """Return whether the heads have a guess for each node of a tree."""
    depth = [*of(shape).depth.tolist(), -1]  # the last entry is the root's
    sizes = [*map(len, accuracies), *[0] * (len(shape) + 1)]
    return all(shape.count(node) <= sizes[depth[node] + 1] for node in range(-1, len(shape)))


def leaks(shape: list[int]) -> list:
    mask = of(shape).mask
    return [[i, j] for i in range(len(shape)) for j in range(i) if not mask[i, j]]


def causal(shape: list[int], kind: str) -> list:
    return [[j <= i for j in range(len(shape))] for i in range(len(shape))]


def columns_of(nodes: list[dict]) -> list[dict]:
    return [{"column": 1 + d} for d in of([node["parent"] for node in nodes]).depth.tolist()]


def growing(seed: int, count: int = 12) -> list[dict]:
    """Return the nodes of a tree that an EAGLE head might have drafted."""
    rng = random.Random(seed)
    nodes: list[dict] = []
    for node in range(count):
        parent = rng.randrange(-1, node)
        above = nodes[parent] if parent >= 0 else {"worth": 1.0, "right": True}
        right = above["right"] and not any(n["right"] and n["parent"] == parent for n in nodes)
        worth = above["worth"] * rng.random()
        nodes.append({"word": "x", "parent": parent, "worth": worth, "right": right})
    return nodes


def first_lead(grown: list[dict], fixed: list[dict]) -> int:
    """Return the smallest budget at which more nodes of the first tree are accepted; 0 if none is."""
    right = [[node["right"] for node in nodes] for nodes in (grown, fixed)]
    budgets = range(1, len(grown) + 1)
    return next((n for n in budgets if sum(right[0][:n]) > sum(right[1][:n])), 0)


CONTEXTS = recordings.load("next-words").data["contexts"]
SAMPLINGS = [(1.0, 0, 1.0), (0.0, 0, 1.0), (0.3, 0, 1.0), (2.0, 0, 1.0), (1.0, 1, 1.0)]
SAMPLINGS += [(1.0, 3, 1.0), (1.5, 50, 1.0), (1.0, 0, 0.7), (1.8, 0, 0.95), (1.2, 20, 0.5)]
SAMPLINGS += [(0.0, 5, 0.3)]
# a published mistake leaves out the token whose mass reaches top_p
REACHED = ([["a", 2.0], ["b", 1.0], ["c", 0.0]], [], 1.0, 0, 0.7)


def adjusted(words: list, tail: list, temperature: float, top_k: int, top_p: float) -> dict:
    """Return the distribution of the recorded words; each tail logit is repeated by its count."""
    logits = [logit for _, logit in words] + [logit for logit, count in tail for _ in range(count)]
    row = Sampling(temperature, top_k or None, top_p)(torch.tensor(logits, dtype=torch.float64))
    rest = row[len(words) :].sum().item()
    return {"probs": row[: len(words)].tolist(), "rest": rest, "count": int((row > 0).sum())}


def situations() -> list[tuple]:
    """Return inputs of the advice: the table's own, some at random, and some with a measured round."""
    rng = random.Random(0)
    key = lambda entry: entry if isinstance(entry, int) else entry["key"]
    cases = [each["inputs"] for each in advice.TABLE["situations"]]
    menus = advice.INPUTS.items()
    cases += [{name: key(rng.choice(menu)) for name, menu in menus} for _ in range(60)]
    measured = {"tau": 2.2, "gamma": 3, "speedup": 0.8}
    cases += [case | measured | {"alpha": rng.choice([0, 0.7])} for case in cases[:20]]
    return [(case,) for case in cases]


SMALL = PassTimes((1, 3), (1, 2, 4), ((1.0, 1.5, 2.0), (1.1, 3.0, 4.5)), (0.1, 0.25))
NETWORKS = {0: (serving.DENSE, serving.SMALL), 3: (serving.MIXTURE, serving.NOTHING)}


def times_of(pair: int, machine: int, context: int) -> PassTimes:
    names = ("bandwidth", "throughput", "per_layer", "gpus")
    hardware = Hardware(*(serving.MACHINES[machine][name] for name in names))
    target, draft = NETWORKS[pair]

    def seconds(batch: int, k: int) -> float:
        rest = FITTED.rest_of_round(batch, k - 1) if k > 1 else FITTED.rest_of_step(batch)
        return FITTED.seconds(target, hardware, batch, k, context) + rest

    return tabulated(seconds, lambda b: FITTED.draft_seconds(draft, hardware, b, context))


def estimated(pair: dict, machine: dict, engine: dict, context: int) -> dict:
    at = serving.PAIRS.index(pair), serving.MACHINES.index(machine)
    table = serving.table("", times_of(*at, context))
    return {name: table[name] for name in ("batches", "tokens", "seconds", "drafting")}


def read(entry: dict) -> PassTimes:
    rows = tuple(map(tuple, entry["seconds"]))
    return PassTimes(
        tuple(entry["batches"]), tuple(entry["tokens"]), rows, tuple(entry["drafting"])
    )


def flow(entry: dict, load: float, alpha: float, gamma: int, slots: int) -> dict:
    state = steady(load, alpha, gamma, read(entry), slots)
    numbers = {name: getattr(state, name) for name in ("batch", "latency", "capacity")}
    return numbers | {"overloaded": state.is_overloaded}


def best_under_load(entry: dict, load: float, alpha: float, slots: int) -> int:
    """Return the γ with the lowest latency; if every γ is overloaded, the highest capacity."""

    def cost(gamma: int) -> tuple[bool, float]:
        state = flow(entry, load, alpha, gamma, slots)
        full = state["overloaded"]
        return full, -state["capacity"] if full else state["latency"]

    return min(range(entry["tokens"][-1]), key=cost)


def loads(shares: Iterable[float]) -> Iterable[tuple[dict, float]]:
    """Return tables of pass times, each with loads at some shares of its capacity."""
    for times in (times_of(0, 0, 512), times_of(3, 1, 8192), SMALL):
        full = steady(1e-9, 0.0, 0, times, times.batches[-1]).capacity
        yield from ((serving.table("", times), share * full) for share in shares)


def capacity(pair: dict, machine: dict, context: int) -> int:
    """Return how many sequences' caches fit beside the weights."""
    size = lambda net: net["parameters"] + net["experts"] * net["expert_parameters"]
    weights = sum(size(net) * net["bytes_per_weight"] for net in (pair["target"], pair["draft"]))
    each = context * sum(pair[model]["cache_bytes"] for model in ("target", "draft"))
    return max(0, int((machine["memory"] - weights) // each))


def residual_after(p: list[float], q: list[float], count: int) -> dict:
    """Return what is left of p after rejected siblings, each drawn from q, and its share of p."""
    (left, drawn), share = (torch.tensor(row, dtype=torch.float64) for row in (p, q)), 1.0
    for _ in range(count):
        share *= 1 - float(theory.acceptance_rate(left, drawn))
        left = residual(left, drawn)
    return {"share": share} | ({"distribution": left.tolist()} if share > 1e-9 else {})


def hoeffding(tokens: int, draws: int) -> float:
    """Return the half-width of a band that holds every frequency in 99 % of runs."""
    return math.sqrt(math.log(2 * tokens / 0.01) / (2 * draws))


PS = [[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.0, 0.25, 0.75]]
KS, TIMES = [1, 2, 5, 17, 65], [1.0, 1.1, 1.15, 1.5, 3.0]
BETWEEN = {1: 1.0, 2: 1.1, 3: 1.1 + 0.05 / 3, 41: 2.25, 65: 3.0}
TREES = [(shape,) for shape in parents(0)]
HEADS = [
    GUESSES["accuracies"],
    [[0.9], [0.9], [0.9], [0.9]],
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
    [[0.34, 0.33, 0.33]],
    [[0.2, 0.2, 0.2, 0.2, 0.2], [0.95, 0.05], [0.01, 0.0]],
    [[0.7, 0.1, 0.1, 0.05, 0.02], [0.5, 0.2, 0.1, 0.1], [0.4, 0.2]],
]
HEADED = [(*tree, heads) for heads in HEADS for tree in TREES if fits(*tree, heads)]
DRAWS = random.Random(0)
PERMILLE = [999, *(round(999 * DRAWS.uniform(0.6, 1)) for _ in range(63))]
RATES = "".join(f"{rate:03d}" for rate in PERMILLE)
"""Acceptance rates of all sets of three attentions and three MLPs, by the mask of what is skipped."""
PARTS = {"attention": 1.0, "mlp": 2.0, "head": 3.0}


def rate(rates: str, mask: int) -> float:
    return min(99, round(PERMILLE[mask] / 10)) / 100 if mask else 1.0


def skipped(layers: int, mask: int) -> tuple[int, int]:
    """Return the numbers of skipped attentions and MLPs: alternating binary digits of the mask."""
    digits = f"{mask:0{2 * layers}b}"
    return digits[::2].count("1"), digits[1::2].count("1")


def cost(parts: dict, layers: int, skips: tuple[int, int]) -> float:
    return 1 - (skips[0] + 2 * skips[1]) / (3 + 3 * layers)


def best_length(alpha: float, c: float) -> tuple[int, float]:
    gains = [theory.walltime_improvement(alpha, gamma, c) for gamma in range(1, 17)]
    return gains.index(max(gains)) + 1, max(gains)


GROWN = [(growing(seed), budget) for seed in range(20) for budget in (1, 5, 12)]
FORMULAS: dict[str, list[tuple[str, Callable, Iterable[tuple]]]] = {
    "explorer": [
        ("expectedTokens", theory.expected_tokens, product(ALPHAS, GAMMAS)),
        ("walltimeImprovement", theory.walltime_improvement, product(ALPHAS, GAMMAS, COSTS)),
        ("operationsFactor", theory.operations_factor, product(ALPHAS, GAMMAS, COSTS)),
        ("draftedAcceptance", theory.drafted_acceptance, product(ALPHAS, GAMMAS)),
        ("optimalGamma", theory.optimal_gamma, product(ALPHAS, COSTS, [24])),
        (
            "guaranteedImprovement",  # corollary 3.9
            lambda alpha, c: max(1.0, theory.walltime_improvement(alpha, 1, c)),
            product(ALPHAS, COSTS),
        ),
        (
            "draftingShare",
            lambda gamma, c, *rest: gamma * c / theory.break_even_tokens(gamma, c, *rest),
            product(GAMMAS, COSTS, [1.3], [0.1]),
        ),
        (
            "correctedImprovement",
            theory.corrected_improvement,
            product([1 + alpha for alpha in ALPHAS], GAMMAS, COSTS, [1.3], [0.1]),
        ),
    ],
    "bench": [
        ("band", hoeffding, product((3, 8), (1, 100, 10_000))),
        ("residualAfter", residual_after, product(PS, PS, range(4))),
    ],
    "roofline": [
        ("ridgeTokens", roofline.ridge_tokens, columns(1, 2, 3)),
        ("passSeconds", roofline.pass_seconds, PASSES),
    ],
    "tree_explorer": [
        ("depth", lambda shape: of(shape).depth.tolist(), TREES),
        ("mask", lambda shape: of(shape).mask.tolist(), TREES),
        ("mask", causal, [(shape, "causal") for (shape,) in TREES]),
        ("paths", lambda shape: of(shape).paths(), TREES),
        ("leaks", leaks, TREES),
        ("expectedTokens", value, HEADED),
    ],
    "growth": [
        ("expected", lambda nodes, n: 1 + sum(node["worth"] for node in nodes[:n]), GROWN),
        ("accepted", lambda nodes, n: sum(node["right"] for node in nodes[:n]), GROWN),
        ("firstLead", first_lead, [(growing(seed), growing(seed + 100)) for seed in range(20)]),
        ("places", columns_of, [(growing(seed),) for seed in range(20)]),
    ],
    "tree_budget": [
        ("pass", lambda ks, times, k, growth: BETWEEN[k], [(KS, TIMES, k, 1) for k in BETWEEN])
    ],
    "skip_switches": [
        ("best", best_length, product((0.0, 0.3, 0.81, 0.97, 1.0), (0.05, 0.4, 0.9))),
        ("rate", rate, product([hundredths(RATES)], range(64))),
        ("counts", skipped, product([3], range(64))),
        ("cost", cost, [(PARTS, 3, skipped(3, mask)) for mask in range(64)]),
    ],
    "next_word": [
        (
            "adjust",
            adjusted,
            [(c["words"], c["tail"], *each) for c in CONTEXTS for each in SAMPLINGS],
        ),
        ("adjust", adjusted, [REACHED]),
    ],
    "advice": [("card", lambda case: [list(row) for row in advice.card(case)], situations())],
    "serving": [
        ("capacity", capacity, product(serving.PAIRS, serving.MACHINES, (512, 32768))),
        (
            "estimate",
            estimated,
            product(
                [serving.PAIRS[pair] for pair in NETWORKS],
                serving.MACHINES[:3],
                [asdict(FITTED)],
                (512, 32768),
            ),
        ),
        (
            "steady",
            flow,
            [
                (*each, alpha, gamma, slots)
                for each in loads((0.01, 0.4, 0.9, 1.5))
                for alpha, slots in product((0.0, 0.7, 1.0), (1, 2, 3))
                for gamma in (0, 2, each[0]["tokens"][-1] - 1)
            ],
        ),
        (
            "bestUnderLoad",
            best_under_load,
            [(*each, 0.7, each[0]["batches"][-1]) for each in loads((0.05, 0.6, 0.97))],
        ),
        (
            "goodput",
            lambda entry, alpha, batch, gamma: goodput([alpha] * batch, gamma, read(entry)),
            [(entry, 0.6, 3, 2) for entry, _ in loads((1.0,))],
        ),
    ],
}
"""Module → (its formula, the same in Python, cases of arguments) each."""
ROWS = [(module, *row) for module, rows in FORMULAS.items() for row in rows]


TREE = [-1, -1, 0, 0, 0, 1, 1, 1, 5]
ROWS_OF = [{"name": "a", "x": None}, {"name": "b", "x": 1}, {"name": "c", "x": 3}]
KINDS = [{"source": "text", "lossless": True}, {"source": "model", "lossless": False}]
SIZES = dict(cheap=(1, 1.1), slower=(1, 1.0), middle=(5, 1.5), large=(9, 1.4), even=(9, 1.5))
SIZES |= {"fastest": (9, 2.0), "unknown": (None, 3.0)}
POINTS = [{"name": name, "bytes": size, "gain": gain} for name, (size, gain) in SIZES.items()]
LAWS = [{"law": [["a", 0.5], ["b", 0.25]]}, {"law": [["a", 0.75], ["d", 0.0]]}]
SOLUTION = [0.625, 0.375, 0.0]
"""A pair of the bench's task: with q = (0.5, 0.3, 0.2) two wrong rules emit p."""


def nodes(*right: bool) -> list[dict]:
    return [{"word": "x", "parent": -1, "worth": 0.1, "right": each} for each in right]


NONE = nodes(False, False, False)
LEVEL, AHEAD = {"grown": NONE, "static": NONE}, {"grown": nodes(True, False, False), "static": NONE}
SOLVED = {"grown": nodes(False, True, True), "static": nodes(False, True, False)}
EXAMPLES: dict[tuple[str, str], list[tuple[tuple, object]]] = {
    ("tree_explorer", "relation"): [
        ((TREE, 5, 1), "its parent"),
        ((TREE, 8, 1), "its ancestor"),
        ((TREE, 1, 8), "its descendant"),
        ((TREE, 4, 3), "its sibling"),
        ((TREE, 5, 4), "its cousin"),
        ((TREE, 8, 2), "a node of another branch"),
        ((TREE, 3, 3), "itself"),
    ],
    ("bench", "setShare"): [
        (([0.5, 0.3, 0.2], 0, 0.2), [0.2, 0.48, 0.32]),
        (([0.5, 0.3, 0.2], 2, 0.0), [0.625, 0.375, 0]),
        (([1.0, 0.0, 0.0], 0, 0.4), [0.4, 0.3, 0.3]),
    ],
    ("bench", "emitted"): [
        (("soft_argmax", [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]), [0.4, 0.6, 0.0]),  # as published
        (("from_p", SOLUTION, [0.5, 0.3, 0.2]), SOLUTION),
        (("lenient", SOLUTION, [0.5, 0.3, 0.2]), SOLUTION),
    ],
    ("next_word", "hit"): [
        (([0.665, 0.0, 0.245], u), word)
        for u, word in {0.0: 0, 0.664: 0, 0.666: 2, 0.9: 2, 0.95: 3}.items()
    ],
    ("next_word", "labelMiddle"): [
        ((10, 100, 40, 12), 60),
        ((10, 100, 40, 50), 80),
        ((10, 100, 40, 75), 42.5),
        ((10, 60, 40, 40), 40),
    ],
    ("timelines", "pairs"): [
        ((list("abcde"), shift), [[i, i + shift] for i in range(3)]) for shift in (0, 1)
    ],
    ("timelines", "largest"): [((LAWS,), 0.75)],
    ("timelines", "shiftAt"): [
        ((-40, 50, 0), 1),
        ((-10, 50, 0), 0),
        ((40, 50, 1), 0),
        ((-400, 50, 0), 1),
        ((400, 50, 1), 0),
    ],
    ("growth", "opening"): [  # a lead that does not solve the task
        (([LEVEL, SOLVED, AHEAD], 3), 2),
        (([AHEAD, SOLVED], 3), 0),
        (([LEVEL, LEVEL], 3), 0),
    ],
    ("skip_switches", "bit"): [
        ((3, 0, "attention"), 0b100000),
        ((3, 0, "mlp"), 0b010000),
        ((3, 2, "mlp"), 0b000001),
    ],
    ("scoreboard", "sort"): [  # rows without a value are last
        ((ROWS_OF, "x", False), [ROWS_OF[1], ROWS_OF[2], ROWS_OF[0]]),
        ((ROWS_OF, "x", True), [ROWS_OF[2], ROWS_OF[1], ROWS_OF[0]]),
        ((ROWS_OF, "name", True), ROWS_OF[::-1]),
        ((ROWS_OF, "missing", True), ROWS_OF),
    ],
    ("scoreboard", "filter"): [
        ((KINDS, "all", "all"), KINDS),
        ((KINDS, "text", "all"), KINDS[:1]),
        ((KINDS, "all", "lossy"), KINDS[1:]),
        ((KINDS, "model", "lossless"), []),
    ],
    ("scoreboard", "frontier"): [((POINTS, "bytes", "gain"), ["cheap", "middle", "fastest"])],
    ("scoreboard", "formatBytes"): [
        ((0,), "0 B"),
        ((215,), "215 B"),
        ((4321,), "4.3 kB"),
        ((262_392,), "262 kB"),
        ((5_124_178,), "5.1 MB"),
        ((25_196_593,), "25 MB"),
    ],
    ("scoreboard", "formatMinutes"): [
        ((3.4, {}), "3 min"),
        ((None, {"trained": True}), "not recorded"),
        ((None, {}), "none"),
    ],
    ("scoreboard", "page"): [
        (("05_draft_then_verify",), "5"),
        (("07b_better_rule",), "7b"),
        (("11_token_trees",), "11"),
        (("a2_blockwise_heads",), "blockwise heads"),
    ],
}
"""(Module, its formula) → (arguments, the result) each."""


def differences(given, expected, place: str = "") -> list[str]:
    """Return where two results differ; of a dict only the expected keys count."""
    if isinstance(expected, dict):
        pairs = [(given[key], value, f"{place}.{key}") for key, value in expected.items()]
    elif isinstance(expected, list | tuple):
        if len(given) != len(expected):
            return [f"{place}: {len(given)} and not {len(expected)} entries"]
        pairs = [(*both, f"{place}[{i}]") for i, both in enumerate(zip(given, expected))]
    elif isinstance(expected, float):
        same = math.isclose(given, expected, rel_tol=1e-12, abs_tol=1e-12)
        return [] if same else [f"{place}: {given} and not {expected}"]
    else:
        return [] if given == expected else [f"{place}: {given} and not {expected}"]
    return [line for each in pairs for line in differences(*each)]


@pytest.mark.parametrize(
    "module, name, python, cases", ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS]
)
def test_a_formula_equals_pythons(module: str, name: str, python: Callable, cases: Iterable):
    cases = [*cases]
    given = evaluate(module, name, cases)
    wrong = [
        f"{case}{line}"[:400]
        for case, result in zip(cases, given, strict=True)
        for line in differences(result, python(*case))
    ]
    assert cases and wrong == []


@pytest.mark.parametrize("module, name", EXAMPLES)
def test_a_formula_has_its_known_results(module: str, name: str):
    arguments, results = zip(*EXAMPLES[module, name])
    assert differences(evaluate(module, name, arguments), results) == []


def test_the_table_notices_another_result():
    assert differences([1.0, {"a": 2}], [1.0 + 1e-8, {"a": 3}]) and differences([1], [1, 2])
    assert not differences({"a": 1.0, "more": 0}, {"a": 1.0 + 1e-13})
