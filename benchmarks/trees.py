"""Measure token trees: acceptance of rules by temperature, tokens per pass by nodes, and speed.

`python -m benchmarks run token-trees` measures all parts; `--only clock` measures one part again.
Only the part "clock" measures time and needs a quiet machine, for about four minutes or as long as
`--minutes` states. The rules and drafters are defined in the library, and the turns in `speed`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
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
    theory,
    timing,
)
from specdec_lite.drafters import (
    ConfidenceTree,
    EagleDrafter,
    FixedTreeDrafter,
    MergedDrafter,
    ModelDrafter,
    SpecExecDrafter,
)
from specdec_lite.drafters.trees.expansion import drawn_then_chosen, with_replacement
from specdec_lite.drafters.trees.tree_shapes import (
    balanced,
    best_shape,
    expected_tokens,
    fastest_shape,
    sibling_rates,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import Pair
from specdec_lite.speculation import Drafter, Step
from specdec_lite.texts.smollm2_tasks import TASKS, chat

from .experiment import Experiment

TEMPERATURES = (1.0, 0.6, 0.3, 0.1)
NODES = (1, 2, 4, 8, 16, 32, 64)
KS = (1, 2, 3, 5, 9, 13, 17, 25, 33, 49, 65)
SIBLINGS = 4
GAMMA = 4
LEVELS = 5
"""Most levels of EAGLE's trees."""
RANKS = (0.4, 0.12, 0.06, 0.04)
"""Probability that each rank is the next token, for EAGLE's fixed tree."""
SMALL = (4, 8, 16)
"""Nodes of SmolLM2's trees."""

Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


# Rules: closed forms, without timing --------------------------------------------------------------


def match(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the probability that the target draws one of k independent drafts."""
    return (p * (1 - (1 - q) ** k)).sum(-1)


def walk(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the probability that the walk accepts one of k independent drafts."""
    alive = np.ones(len(p))
    for _ in range(k):
        alive = alive * (1 - theory.acceptance_rate(p, q))
        p = theory.residual(p, q)
    return 1 - alive


def k_seq(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of K-SEQ, with ρ found by bisection."""
    low, high = np.ones(len(p)), np.full(len(p), float(k))
    for _ in range(60):
        rho = (low + high) / 2
        beta = np.minimum(p / rho[:, None], q).sum(-1)
        above = 1 - (1 - beta) ** k > rho * beta
        low, high = np.where(above, rho, low), np.where(above, high, rho)
    return 1 - (1 - np.minimum(p / high[:, None], q).sum(-1)) ** k


def without(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of the walk over k drafts without replacement.

    The rows of q need not sum to 1.
    """
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
        rejected = np.maximum(row - p, 0)[:, token]
        total = total + rejected * without(rest, others, k - 1)
    return total


def likeliest(q: np.ndarray, k: int) -> np.ndarray:
    """Return which tokens are the k most probable ones, [pairs, V] bool."""
    return (-q).argsort(-1, kind="stable").argsort(-1, kind="stable") < k


def walk_chosen(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of the walk over the k most probable tokens of the draft."""
    return (p * likeliest(q, k)).sum(-1)


def rest_of(q: np.ndarray, k: int) -> np.ndarray:
    """Return the distributions without their k − 1 most probable tokens, normalized [pairs, V]."""
    rest = np.where(likeliest(q, k - 1), 0, q)
    return rest / rest.sum(-1, keepdims=True)


def drawn_first(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance if one drawn draft is tested before k − 1 chosen ones."""
    return walk_chosen(p, q, k - 1) + np.minimum(p, rest_of(q, k)).sum(-1)


def chosen_first(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance if k − 1 chosen drafts are tested before one drawn draft."""
    accepted = walk_chosen(p, q, k - 1)
    left = (1 - accepted)[:, None]
    return accepted + np.minimum(p, left * rest_of(q, k)).sum(-1)


RULES: dict[str, Rule] = {
    "walk, 1 draw": lambda p, q, k: walk(p, q, 1),
    "match, 3 independent draws": match,
    "walk, 3 independent draws": walk,
    "K-SEQ, 3 independent draws": k_seq,
    "walk, 3 without replacement": without,
    "walk, 3 chosen": walk_chosen,
    "walk, 2 chosen, then 1 drawn": chosen_first,
    "walk, 1 drawn, then 2 chosen": drawn_first,
}
BEST = {"best of 3 independent": True, "best of 3 without replacement": False}


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return the distributions of logits [pairs, V] at a temperature."""
    return torch.softmax(torch.from_numpy(logits) / temperature, -1).numpy()


def rule_acceptance(pairs: int, vocabulary: int = 8, k: int = 3) -> dict:
    """Return the mean acceptance of eight rules over pairs of similar distributions.

    The distributions are softmax rows at four temperatures. The result includes the best that any
    rule can achieve with independent drafts and with drafts without replacement.
    """
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((pairs, vocabulary))
    draft = target + rng.standard_normal((pairs, vocabulary))
    rows: dict[str, dict[str, float]] = {name: {} for name in (*RULES, *BEST)}
    for temperature in TEMPERATURES:
        p, q = softmax(target, temperature), softmax(draft, temperature)
        for name, rule in RULES.items():
            rows[name][f"{temperature:g}"] = float(rule(p, q, k).mean())
        for name, replace in BEST.items():
            best = [theory.optimal_acceptance(*pair, k, replace) for pair in zip(p, q)]
            rows[name][f"{temperature:g}"] = float(np.mean(best))
    return {"laws": pairs, "vocabulary": vocabulary, "k": k, "rows": rows}


def random_acceptance(pairs: int, vocabulary: int = 6, k: int = 3) -> dict:
    """Return the mean acceptance over pairs of unrelated random distributions.

    The distributions are normalized squares of uniform numbers. The result includes the number of
    pairs on which K-SEQ accepts less than the walk.
    """
    rng = np.random.default_rng(1)
    p, q = (rng.random((pairs, vocabulary)) ** 2 for _ in range(2))
    p, q = (weights / weights.sum(-1, keepdims=True) for weights in (p, q))
    acceptance_by_rule = {
        "walk": walk(p, q, k),
        "K-SEQ": k_seq(p, q, k),
        "without": without(p, q, k),
    }
    acceptance_by_rule["best of independent"] = np.array(
        [theory.optimal_acceptance(*pair, k) for pair in zip(p, q)]
    )
    return {
        "laws": pairs,
        "vocabulary": vocabulary,
        "k": k,
        "k_seq_below_walk": int(
            (acceptance_by_rule["K-SEQ"] < acceptance_by_rule["walk"] - 1e-9).sum()
        ),
        "mean": {name: float(values.mean()) for name, values in acceptance_by_rule.items()},
    }


# Trees on the pair: counts, without timing --------------------------------------------------------


def prompts(pair: Pair, per_domain: int) -> list[Tensor]:
    """Return evaluation prompts as token ids."""
    texts = corpus.evaluation_prompts().values()
    return [
        torch.tensor(pair.tokenizer.encode(row["text"]))
        for rows in texts
        for row in rows[:per_domain]
    ]


def decode(
    pair: Pair, drafter: Drafter, ids: Sequence[Tensor], tokens: int, temperature: float, **options
) -> list[Step]:
    """Decode prompts and return the rounds of all of them."""
    return [
        step
        for seed, text in enumerate(ids)
        for step in generate(
            pair.target,
            text,
            drafter,
            tokens,
            temperature=temperature,
            stop_token_ids=(),
            seed=seed,
            **options,
        ).steps
    ]


def rates(pair: Pair, ids: Sequence[Tensor], tokens: int) -> dict[str, list[float]]:
    """Return Sequoia's acceptance vector at three temperatures; at 0, siblings are chosen."""
    drafter = FixedTreeDrafter(pair.draft, balanced([SIBLINGS, SIBLINGS]))
    return {
        f"{temperature:g}": sibling_rates(decode(pair, drafter, ids, tokens, temperature), SIBLINGS)
        for temperature in (0.0, 0.6, 1.0)
    }


def binary(nodes: int) -> TokenTree:
    """Return the first nodes of a tree in which every node has two children."""
    return TokenTree(
        [node % 2 for node in range(nodes)], [(node - 2) // 2 for node in range(nodes)]
    )


def eagle2(target: CausalLM, nodes: int) -> Drafter:
    """Return a drafter with the shipped head and a tree expanded by confidence."""
    return EagleDrafter.from_pretrained(
        target, 2, draft=ConfidenceTree(4, min(nodes, LEVELS), nodes)
    )


def contenders(pair: Pair, vector: Sequence[float], nodes: int) -> dict[str, Drafter]:
    """Return drafters that draft the same number of nodes, by name."""
    draft = pair.draft
    depth = max(1, round(nodes**0.5))
    widths = [-(-nodes // depth), *[1] * (depth - 1)]
    return {
        "chain": ModelDrafter(draft, nodes),
        "binary, independent": FixedTreeDrafter(draft, binary(nodes), with_replacement),
        "binary, without replacement": FixedTreeDrafter(draft, binary(nodes)),
        "Sequoia": FixedTreeDrafter(draft, best_shape(vector, nodes)),
        "Sequoia, drawn then chosen": FixedTreeDrafter(
            draft, best_shape(vector, nodes), drawn_then_chosen
        ),
        "most probable (SpecExec)": SpecExecDrafter(draft, nodes),
        "grown by confidence (EAGLE-2)": eagle2(pair.target, nodes),
        "merged chains": MergedDrafter([ModelDrafter(draft, depth)] * widths[0]),
    }


def tokens_by_nodes(
    pair: Pair, vectors: dict, ids: Sequence[Tensor], tokens: int, sizes=NODES
) -> list[dict]:
    """Measure tokens per pass by number of nodes, for every drafter, at temperatures 0 and 1."""
    return [
        measure_tree(pair, name, drafter, nodes, ids, tokens, temperature)
        for temperature in (0.0, 1.0)
        for nodes in sizes
        for name, drafter in contenders(pair, vectors[f"{temperature:g}"], nodes).items()
    ]


def measure_tree(
    pair, name: str, drafter: Drafter, nodes: int, ids, tokens: int, temperature
) -> dict:
    """Measure the tokens per pass of one drafter."""
    steps = decode(pair, drafter, ids, tokens, temperature)
    return {
        "temperature": temperature,
        "nodes": nodes,
        "way": name,
        "fed": sum(1 + len(step.tree) for step in steps) / len(steps),
        "tokens": sum(len(step.tokens) for step in steps) / len(steps),
    }


def smollm2(count: int, tokens: int, sizes: Sequence[int]) -> list[dict]:
    """Measure SmolLM2 with its EAGLE head: a chain, a fixed tree of ranks, an expanded tree."""
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
    drafters = lambda nodes: {
        "chain": head(min(nodes, LEVELS)),
        "tree of ranks": head(TokenTree.best([RANKS] * LEVELS, nodes)),
        "grown by confidence (EAGLE-2)": eagle2(target, nodes),
    }
    return [
        measure_tree(pair, name, drafter, nodes, ids, tokens, temperature)
        for temperature in (0.0, 1.0)
        for nodes in sizes
        for name, drafter in drafters(nodes).items()
    ]


def compare_rules(pair: Pair, ids: Sequence[Tensor], tokens: int) -> list[dict]:
    """Compare four rules on the same independent drafts, at temperatures 0.6 and 1."""
    drafter = FixedTreeDrafter(pair.draft, balanced([3, 1, 1]), with_replacement)
    rules = {
        "match": acceptance.sample_and_match,
        "walk": acceptance.speculative_sampling,
        "K-SEQ": acceptance.k_seq(3),
        "traversal": acceptance.traversal_verification,
    }
    rows = []
    for temperature in (0.6, 1.0):
        for name, rule in rules.items():
            steps = decode(pair, drafter, ids, tokens, temperature, rule=rule)
            mean = sum(len(step.tokens) for step in steps) / len(steps)
            rows.append({"temperature": temperature, "rule": name, "tokens": mean})
    return rows


def batches(pair: Pair, ids: Sequence[Tensor], tokens: int) -> list[dict]:
    """Compare the positions fed by a batch of γ-token sequences with those of their merged tree."""
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


# Timings ------------------------------------------------------------------------------------------


def clock(
    pair: Pair, vectors: dict, ids: Sequence[Tensor], tokens: int, minutes: float, turns=30, ks=KS
) -> dict:
    """Time passes, levels and rounds, find the fastest tree for these costs, and time it.

    The paired turns compare that tree, the best chain and a tree of 16 nodes with plain decoding.
    """
    vector = vectors["1"]
    began = timing.machine_state()
    costs = timing.measure_costs(
        pair.target, FixedTreeDrafter(pair.draft, best_shape(vector, 8)), ks, new_tokens=tokens
    )
    prices = (costs.target, costs.draft_in_loop, costs.overhead)
    best = fastest_shape(vector, *prices, nodes=max(ks) - 1)
    chain = fastest_shape(vector[:1], *prices, nodes=max(ks) - 1)
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
        drafter = FixedTreeDrafter(pair.draft, shape)
        every[name] = Contender(ours(pair.target, drafter, None, tokens, 1.0), drafter)
    deadline = perf_counter() + 60 * minutes
    runs = take_turns(every, ids, bench, deadline)
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


class TokenTrees(Experiment):
    """The parts are counts of several kinds, and one part with times, "clock"."""

    name = "token-trees"
    what = "acceptance of rules for several draws, tokens per pass of token trees, and their cost"
    time = "30 minutes"
    quick = "--laws 3 --prompts 1 --tokens 4 --nodes 4 --turns 3 --minutes 0.05".split()
    unrelated = ("minutes", "turns")

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--laws", type=int, default=200, help="pairs of distributions per temperature"
        )
        parser.add_argument("--prompts", type=int, default=3, help="prompts per domain")
        parser.add_argument("--tokens", type=int, default=64, help="new tokens per prompt")
        parser.add_argument(
            "--nodes", type=int, default=max(NODES), help="nodes of the largest tree"
        )
        parser.add_argument(
            "--minutes", type=float, default=3.0, help="time of the turns of the part clock"
        )
        parser.add_argument("--turns", type=int, default=30, help="paired turns of the part clock")
        parser.add_argument("--dtype", default="float32")

    @cached_property
    def pair(self):
        """The shipped pair."""
        return load_pair(device="cpu", dtype=self.options.dtype)

    @cached_property
    def prompts(self):
        """The prompts as token ids."""
        return prompts(self.pair, self.options.prompts)

    def parts(self):
        return "rules random_laws rates growth rule_tokens batches smollm2 clock".split()

    def run(self, part):
        options = self.options
        count, tokens = options.prompts, options.tokens
        up_to = lambda sizes: [size for size in sizes if size <= options.nodes]
        ks = [k for k in KS if k <= options.nodes + 1]
        on_pair = lambda function: function(self.pair, self.prompts, tokens)
        make = {
            "rules": lambda: rule_acceptance(options.laws),
            "random_laws": lambda: random_acceptance(max(options.laws, 300)),
            "rates": lambda: on_pair(rates),
            "growth": lambda: tokens_by_nodes(
                self.pair, self.rows["rates"], self.prompts, tokens, up_to(NODES)
            ),
            "rule_tokens": lambda: on_pair(compare_rules),
            "batches": lambda: on_pair(batches),
            "smollm2": lambda: smollm2(count, tokens, up_to(SMALL)),
            "clock": lambda: clock(
                self.pair,
                self.rows["rates"],
                self.prompts,
                tokens,
                options.minutes,
                options.turns,
                ks,
            ),
        }
        return make[part]()
