"""Token trees, recorded: which rule accepts how much at which temperature, how many tokens a pass a
tree of so many nodes brings, and what that is worth on this machine's clock.

`python -m benchmarks.trees` writes results/trees.json, part after part, and keeps the parts that are
there already; `--only clock` measures one part again. Only the part "clock" reads a clock and wants
a quiet machine: about four minutes, or what `--minutes` says.

What lives here: what is measured. What does not: the rules and drafters themselves, and how turns
are taken (`speed`).
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import Bench, Contender, ours, ratio, take_turns
from specdec_lite import (
    TokenTree,
    acceptance,
    corpus,
    generate,
    load_pair,
    load_smollm2,
    results,
    theory,
    timing,
)
from specdec_lite.drafters import (
    EagleDrafter,
    Growth,
    MergedDrafter,
    ModelDrafter,
    ShapedDrafter,
    SpecExecDrafter,
)
from specdec_lite.drafters.grow import drawn_then_chosen, with_replacement
from specdec_lite.drafters.shapes import (
    balanced,
    best_shape,
    expected_tokens,
    fastest_shape,
    sibling_rates,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.smollm2_tasks import TASKS, chat
from specdec_lite.speculation import Drafter, Step

from .command import parser_for, typed

TEMPERATURES = (1.0, 0.6, 0.3, 0.1)
NODES = (1, 2, 4, 8, 16, 32, 64)
KS = (1, 2, 3, 5, 9, 13, 17, 25, 33, 49, 65)
SIBLINGS = 4
GAMMA = 4
LEVELS = 5
"""Of EAGLE's trees, at most."""
RANKS = (0.4, 0.12, 0.06, 0.04)
"""How often a rank is the next token, for EAGLE's fixed tree."""
SMALL = (4, 8, 16)
"""Nodes of SmolLM2's trees."""

Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


# Rules: closed forms, no clock ---------------------------------------------------------------------


def match(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """The target's own draw is among k independent ones. p, q: [laws, V]; returns [laws]."""
    return (p * (1 - (1 - q) ** k)).sum(-1)


def walk(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """The walk over k independent draws."""
    alive = np.ones(len(p))
    for _ in range(k):
        alive = alive * (1 - theory.acceptance_rate(p, q))
        p = theory.residual(p, q)
    return 1 - alive


def k_seq(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """K-SEQ, ρ by bisection."""
    low, high = np.ones(len(p)), np.full(len(p), float(k))
    for _ in range(60):
        rho = (low + high) / 2
        beta = np.minimum(p / rho[:, None], q).sum(-1)
        above = 1 - (1 - beta) ** k > rho * beta
        low, high = np.where(above, rho, low), np.where(above, high, rho)
    return 1 - (1 - np.minimum(p / high[:, None], q).sum(-1)) ** k


def without(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """The walk over k draws without replacement. q need not sum to 1."""
    mass = q.sum(-1, keepdims=True)
    if k == 0:
        return np.zeros(len(p))
    row = np.divide(q, mass, out=np.zeros_like(q), where=mass > 0)
    total = np.minimum(p, row).sum(-1)
    rest = np.maximum(p - row, 0)
    left = rest.sum(-1, keepdims=True)
    rest = np.divide(rest, left, out=p.copy(), where=left > 0)
    for token in range(q.shape[-1]):
        others = q.copy()
        others[:, token] = 0
        refused = np.maximum(row - p, 0)[:, token]
        total = total + refused * without(rest, others, k - 1)
    return total


def likeliest(q: np.ndarray, k: int) -> np.ndarray:
    """[laws, V] bool: the k likeliest tokens."""
    return (-q).argsort(-1, kind="stable").argsort(-1, kind="stable") < k


def chosen(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    return (p * likeliest(q, k)).sum(-1)


def _rest(q: np.ndarray, k: int) -> np.ndarray:
    rest = np.where(likeliest(q, k - 1), 0, q)
    return rest / rest.sum(-1, keepdims=True)


def drawn_first(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """One drawn from what k − 1 chosen ones leave, tested before them."""
    return chosen(p, q, k - 1) + np.minimum(p, _rest(q, k)).sum(-1)


def chosen_first(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """The same tokens, the chosen ones tested first."""
    taken = chosen(p, q, k - 1)
    left = (1 - taken)[:, None]
    return taken + np.minimum(p, left * _rest(q, k)).sum(-1)


RULES: dict[str, Rule] = {
    "walk, 1 draw": lambda p, q, k: walk(p, q, 1),
    "match, 3 independent draws": match,
    "walk, 3 independent draws": walk,
    "K-SEQ, 3 independent draws": k_seq,
    "walk, 3 without replacement": without,
    "walk, 3 chosen": chosen,
    "walk, 2 chosen, then 1 drawn": chosen_first,
    "walk, 1 drawn, then 2 chosen": drawn_first,
}
BEST = {"best of 3 independent": True, "best of 3 without replacement": False}


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits) / temperature, -1).numpy()


def rules(laws: int, vocabulary: int = 8, k: int = 3) -> dict:
    """Mean acceptance of eight rules over pairs of softmax laws, at four temperatures, and the best
    that any rule could do with independent draws and with draws without replacement.
    """
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((laws, vocabulary))
    draft = target + rng.standard_normal((laws, vocabulary))
    rows: dict[str, dict[str, float]] = {name: {} for name in (*RULES, *BEST)}
    for temperature in TEMPERATURES:
        p, q = softmax(target, temperature), softmax(draft, temperature)
        for name, rule in RULES.items():
            rows[name][f"{temperature:g}"] = float(rule(p, q, k).mean())
        for name, replace in BEST.items():
            best = [theory.optimal_acceptance(*pair, k, replace) for pair in zip(p, q)]
            rows[name][f"{temperature:g}"] = float(np.mean(best))
    return {"laws": laws, "vocabulary": vocabulary, "k": k, "rows": rows}


def random_laws(laws: int, vocabulary: int = 6, k: int = 3) -> dict:
    """Mean acceptance over pairs of unrelated random laws (squares of uniforms, normalised), and how
    often K-SEQ accepts less than the walk.
    """
    rng = np.random.default_rng(1)
    p, q = (rng.random((laws, vocabulary)) ** 2 for _ in range(2))
    p, q = (weights / weights.sum(-1, keepdims=True) for weights in (p, q))
    found = {"walk": walk(p, q, k), "K-SEQ": k_seq(p, q, k), "without": without(p, q, k)}
    found["best of independent"] = np.array(
        [theory.optimal_acceptance(*pair, k) for pair in zip(p, q)]
    )
    return {
        "laws": laws,
        "vocabulary": vocabulary,
        "k": k,
        "k_seq_below_walk": int((found["K-SEQ"] < found["walk"] - 1e-9).sum()),
        "mean": {name: float(values.mean()) for name, values in found.items()},
    }


# Trees on the pair: counts, no clock ---------------------------------------------------------------


def prompts(pair: Pair, per_domain: int) -> list[Tensor]:
    texts = corpus.evaluation_prompts().values()
    return [
        torch.tensor(pair.tokenizer.encode(row["text"]))
        for rows in texts
        for row in rows[:per_domain]
    ]


def decode(
    pair: Pair, drafter: Drafter, ids: Sequence[Tensor], tokens: int, temperature: float, **options
) -> list[Step]:
    return [
        step
        for seed, text in enumerate(ids)
        for step in generate(
            pair.target, text, drafter, tokens, temperature=temperature, seed=seed, **options
        ).steps
    ]


def rates(pair: Pair, ids: Sequence[Tensor], tokens: int) -> dict[str, list[float]]:
    """Sequoia's acceptance vector at three temperatures; at 0 siblings are chosen."""
    drafter = ShapedDrafter(pair.draft, balanced([SIBLINGS, SIBLINGS]))
    return {
        f"{temperature:g}": sibling_rates(decode(pair, drafter, ids, tokens, temperature), SIBLINGS)
        for temperature in (0.0, 0.6, 1.0)
    }


def binary(nodes: int) -> TokenTree:
    """The first `nodes` of a tree in which every node has two children."""
    return TokenTree(
        [node % 2 for node in range(nodes)], [(node - 2) // 2 for node in range(nodes)]
    )


def eagle2(target: CausalLM, nodes: int) -> Drafter:
    """The head that ships for a target, its tree grown by confidence."""
    return EagleDrafter.from_pretrained(target, 2, draft=Growth(4, min(nodes, LEVELS), nodes))


def contenders(pair: Pair, vector: Sequence[float], nodes: int) -> dict[str, Drafter]:
    """Ways to spend so many drafted nodes; any drafter of trees may stand here."""
    draft = pair.draft
    depth = max(1, round(nodes**0.5))
    widths = [-(-nodes // depth), *[1] * (depth - 1)]
    return {
        "chain": ModelDrafter(draft, nodes),
        "binary, independent": ShapedDrafter(draft, binary(nodes), with_replacement),
        "binary, without replacement": ShapedDrafter(draft, binary(nodes)),
        "Sequoia": ShapedDrafter(draft, best_shape(vector, nodes)),
        "Sequoia, drawn then chosen": ShapedDrafter(
            draft, best_shape(vector, nodes), drawn_then_chosen
        ),
        "most probable (SpecExec)": SpecExecDrafter(draft, nodes),
        "grown by confidence (EAGLE-2)": eagle2(pair.target, nodes),
        "merged chains": MergedDrafter([ModelDrafter(draft, depth)] * widths[0]),
    }


def growth(
    pair: Pair, vectors: dict, ids: Sequence[Tensor], tokens: int, sizes=NODES
) -> list[dict]:
    """Tokens a pass against nodes, for every way, at temperatures 0 and 1."""
    return [
        grown(pair, name, drafter, nodes, ids, tokens, temperature)
        for temperature in (0.0, 1.0)
        for nodes in sizes
        for name, drafter in contenders(pair, vectors[f"{temperature:g}"], nodes).items()
    ]


def grown(pair, name: str, drafter: Drafter, nodes: int, ids, tokens: int, temperature) -> dict:
    """What one way of spending so many nodes gives."""
    steps = decode(pair, drafter, ids, tokens, temperature)
    row = {
        "temperature": temperature,
        "nodes": nodes,
        "way": name,
        "fed": sum(1 + len(step.tree) for step in steps) / len(steps),
        "tokens": sum(len(step.tokens) for step in steps) / len(steps),
    }
    print(row, flush=True)
    return row


def smollm2(count: int, tokens: int, sizes: Sequence[int]) -> list[dict]:
    """The same of SmolLM2 with its EAGLE head: a chain, a fixed tree of ranks, a grown one. [] where
    no size is asked.
    """
    if not sizes:
        return []
    target, tokenizer = load_smollm2("cpu", "float32")
    pair = Pair(target, None, tokenizer)
    ids = [
        torch.tensor(chat(tokenizer, task.text))
        for kind in ("code", "question", "story")
        for task in TASKS[kind][:count]
    ]
    head = lambda draft: EagleDrafter.from_pretrained(target, draft=draft)
    ways = lambda nodes: {
        "chain": head(min(nodes, LEVELS)),
        "tree of ranks": head(TokenTree.best([RANKS] * LEVELS, nodes)),
        "grown by confidence (EAGLE-2)": eagle2(target, nodes),
    }
    return [
        grown(pair, name, drafter, nodes, ids, tokens, temperature)
        for temperature in (0.0, 1.0)
        for nodes in sizes
        for name, drafter in ways(nodes).items()
    ]


def judged(pair: Pair, ids: Sequence[Tensor], tokens: int) -> list[dict]:
    """The same independent draws under four rules, at temperature 1 and 0.6."""
    drafter = ShapedDrafter(pair.draft, balanced([3, 1, 1]), with_replacement)
    judges = {
        "match": acceptance.sample_and_match,
        "walk": acceptance.speculative_sampling,
        "K-SEQ": acceptance.k_seq(3),
        "traversal": acceptance.traversal_verification,
    }
    rows = []
    for temperature in (0.6, 1.0):
        for name, rule in judges.items():
            steps = decode(pair, drafter, ids, tokens, temperature, rule=rule)
            mean = sum(len(step.tokens) for step in steps) / len(steps)
            rows.append({"temperature": temperature, "rule": name, "tokens": mean})
    return rows


def batches(pair: Pair, ids: Sequence[Tensor], tokens: int) -> list[dict]:
    """Several sequences of γ tokens: positions that a batch of sequences feeds, and their tree."""
    rows = []
    for temperature in (0.6, 1.0):
        for count in (2, 4, 8):
            drafter = MergedDrafter([ModelDrafter(pair.draft, GAMMA)] * count)
            steps = decode(pair, drafter, ids, tokens, temperature)
            rows.append(
                {
                    "temperature": temperature,
                    "sequences": count,
                    "batch": sum(count + step.drafted for step in steps) / len(steps),
                    "tree": sum(1 + len(step.tree) for step in steps) / len(steps),
                    "tokens": sum(len(step.tokens) for step in steps) / len(steps),
                }
            )
    return rows


# The clock -----------------------------------------------------------------------------------------


def clock(
    pair: Pair, vectors: dict, ids: Sequence[Tensor], tokens: int, minutes: float, turns=30, ks=KS
) -> dict:
    """T(k), the cost of a level and of a round; the tree that is fastest by them; and speeds over
    plain decoding, in paired turns, of that tree, the best chain, and a tree of 16 nodes.
    """
    vector = vectors["1"]
    began = timing.machine_state()
    costs = timing.measure_costs(
        pair.target, ShapedDrafter(pair.draft, best_shape(vector, 8)), ks, new_tokens=tokens
    )
    priced = (costs.target, costs.draft_in_loop, costs.overhead)
    best = fastest_shape(vector, *priced, nodes=max(ks) - 1)
    chain = fastest_shape(vector[:1], *priced, nodes=max(ks) - 1)
    shapes = {
        "fastest tree": best,
        "fastest chain": chain,
        "16 nodes": best_shape(vector, min(16, max(ks) - 1)),
    }
    bench = Bench(
        load=lambda dtype: pair, prompts={"all": list(ids)}, turns=turns, least=min(20, turns)
    )
    every = {"plain": Contender(ours(pair.target, None, None, tokens, 1.0))}
    for name, shape in shapes.items():
        drafter = ShapedDrafter(pair.draft, shape)
        every[name] = Contender(ours(pair.target, drafter, None, tokens, 1.0), drafter)
    deadline = perf_counter() + 60 * minutes
    runs = take_turns(every, ids, bench, "trees", deadline)
    pace = {
        name: [[run.seconds / run.tokens for run in sweeps] for sweeps in each]
        for name, each in runs.items()
    }
    return {
        "state": {"start": began, "end": timing.machine_state()},
        "target": {str(k): seconds for k, seconds in costs.target.items()},
        "draft": costs.draft_in_loop,
        "overhead": costs.overhead,
        "rates": list(vector),
        "shapes": {
            name: {
                "parents": list(shape.parents),
                "levels": shape.levels,
                "expected": expected_tokens(shape, vector),
                "speedup": ratio(pace["plain"], pace[name]),
            }
            for name, shape in shapes.items()
        },
    }


def main(arguments: list[str] | None = None) -> Path:
    parser = parser_for("benchmarks.trees", __doc__)
    parts = ("rules", "random_laws", "rates", "growth", "judged", "batches", "smollm2", "clock")
    parser.add_argument("--only", nargs="*", choices=parts, default=None, help="measure these anew")
    parser.add_argument("--laws", type=int, default=200, help="pairs of laws a temperature")
    parser.add_argument("--prompts", type=int, default=3, help="prompts a domain")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--nodes", type=int, default=max(NODES), help="the largest tree")
    parser.add_argument("--minutes", type=float, default=3.0, help="for the turns of the clock")
    parser.add_argument("--turns", type=int, default=30, help="paired turns of the clock")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, default=Path("results/trees.json"))
    asked = parser.parse_args(arguments)
    stamp = results.stamp(
        "Acceptance of rules for several draws, tokens a pass of token trees, and their price",
        typed(parser, arguments),
    )
    data: dict = {}
    if asked.out.is_file():
        before = json.loads(asked.out.read_text(encoding="utf-8"))
        data = {part: before[part] for part in parts if part in before}
    pair = load_pair(device="cpu", dtype=asked.dtype)
    ids = prompts(pair, asked.prompts)
    sizes = [nodes for nodes in NODES if nodes <= asked.nodes]
    ks = [k for k in KS if k <= asked.nodes + 1]
    make = {
        "rules": lambda: rules(asked.laws),
        "random_laws": lambda: random_laws(max(asked.laws, 300)),
        "rates": lambda: rates(pair, ids, asked.tokens),
        "growth": lambda: growth(pair, data["rates"], ids, asked.tokens, sizes),
        "judged": lambda: judged(pair, ids, asked.tokens),
        "batches": lambda: batches(pair, ids, asked.tokens),
        "smollm2": lambda: smollm2(
            asked.prompts, asked.tokens, [nodes for nodes in SMALL if nodes <= asked.nodes]
        ),
        "clock": lambda: clock(
            pair, data["rates"], ids, asked.tokens, asked.minutes, asked.turns, ks
        ),
    }
    for part in parts:
        if part not in data or asked.only is not None and part in asked.only:
            began = perf_counter()
            data[part] = make[part]()
            results.save(asked.out, stamp, data)
            print(f"{part}: {perf_counter() - began:.0f} s", flush=True)
    return asked.out


if __name__ == "__main__":
    print(f"written to {main()}")
