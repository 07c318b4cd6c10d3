"""Measure drafts made from the target itself, for the shipped pair and SmolLM2.

    python -m benchmarks run early-exit-acceptance        # α and saturation by depth; 4 minutes
    python -m benchmarks run layer-skip-search            # α of sets of sublayers, searches; 15 minutes
    python -m benchmarks run quantized-draft-acceptance   # α of quantized copies; 3 minutes
    python -m benchmarks run self-draft-speed             # timed: paired turns; needs a quiet machine
    python -m benchmarks run sparse-cache-speed           # timed: long contexts; needs a quiet machine

`layer-skip-search` compares its search with optuna's. Only this experiment needs `pip install
optuna`.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.experiment import Experiment
from benchmarks.speed import Bench, Contender, ours, take_turns
from specdec_book import recordings
from specdec_lite import CausalLM, theory, timing
from specdec_lite.decoding import default_rule
from specdec_lite.drafters import (
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantizedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.heads.heads import ExitHead
from specdec_lite.drafters.self_drafts.chunks import Chunks
from specdec_lite.drafters.self_drafts.layer_skip import every_sublayer, greedy_search
from specdec_lite.drafters.self_drafts.quantization import quantize, stored_bytes
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import SHIPPED, load
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter, NoDraft, speculate
from specdec_lite.texts.corpus import evaluation_prompts, held_out_text
from specdec_lite.texts.smollm2_tasks import chat
from specdec_lite.training.own_text import continue_prompts
from specdec_lite.training.skip_acceptance import SkipAcceptance

TARGETS = ("pair", "smollm2")
QUESTIONS = (
    "Explain why the sky is blue in two sentences.",
    "Write a short story about a lighthouse keeper.",
    "How do I reverse a list in Python?",
    "Give me three tips for growing tomatoes.",
    "What is the difference between a virus and a bacterium?",
    "Describe how a bicycle stays upright.",
    "Write a polite letter asking for a refund.",
    "Summarise the rules of chess for a child.",
)


def load_target(name: str) -> tuple[CausalLM, object]:
    """Return a target and its tokenizer."""
    if name == "pair":
        pair = load_pair(device="cpu", dtype="float32")
        return pair.target, pair.tokenizer
    return load_smollm2("cpu", "float32")


def prompts(name: str, tokenizer, count: int = 8) -> list[list[int]]:
    """Return held-out prompts: of the pair's three domains in turn, or questions to SmolLM2."""
    if name == "smollm2":
        return [[*chat(tokenizer, text)] for text in QUESTIONS[:count]]
    domains = evaluation_prompts().values()
    texts = [items[i]["text"] for i in range(count) for items in domains]
    return [tokenizer.encode(text)[:96] for text in texts[:count]]


def own_texts(name: str, target: CausalLM, tokenizer, count: int, new: int) -> tuple[Tensor, int]:
    """Continue held-out prompts with the target at temperature 1.

    The prompts are cut from the left to one length.
    """
    rows = prompts(name, tokenizer, count)
    length = min(map(len, rows))
    cut = torch.tensor([row[-length:] for row in rows])
    return continue_prompts(target, cut, new, 1.0, seed=5), length


def mean(values: Tensor) -> dict:
    """Return the mean over texts and positions with its interval.

    Shapes: values [texts, positions].
    """
    rows = values.double().numpy()
    return ratio(rows, np.ones_like(rows))


# Acceptance, without timing -----------------------------------------------------------------------


@torch.inference_mode()
def exits(name: str, args) -> dict:
    """Measure α by depth, with and without adapters, and the depth at which the argmax settles.

    The result also contains one readable text with that depth for every token.
    """
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, args.texts, args.new)
    depths = list(range(target.num_layers + 1))
    hidden = target.score(texts, target.new_cache(len(texts)), hidden_layers=depths).hidden
    positions = slice(first, -1)
    normed = [target.model.norm(hidden[b][:, positions]) for b in depths]
    target_probs = target.model.head(normed[-1]).softmax(-1)
    final = target_probs.argmax(-1)
    share = lambda logits: torch.minimum(target_probs, logits.softmax(-1)).sum(-1).mean().item()
    rates, agreement, agrees = [], [], []
    for state in normed[1:]:
        logits = target.model.head(state)
        rates.append(share(logits))
        agrees.append(logits.argmax(-1) == final)
        agreement.append(agrees[-1].double().mean().item())
    stays = torch.stack(agrees).flip(0).int().cumprod(0).flip(0)  # [depths, B, n]
    settled = target.num_layers + 1 - stays.sum(0)
    folders = {
        int(path.parent.name): path for path in args.adapters.glob(f"{name}/*/*.safetensors")
    }
    folders |= {
        load(path, target, ExitHead).layers: path
        for path in (SHIPPED / "early_exit").glob(f"{name}/*.safetensors")
    }
    adapters = {}
    for layers, path in sorted(folders.items()):
        adapter = load(path, target, ExitHead)
        logits = target.model.head(adapter(normed[layers]))
        adapters[str(layers)] = {
            "rate": share(logits),
            "agreement": (logits.argmax(-1) == final).double().mean().item(),
        }
    row = texts[0, first + 1 :].tolist()
    return {
        "layers": target.num_layers,
        "places": final.numel(),
        "rates": rates,
        "agreement": agreement,
        "settled": [(settled == b).double().mean().item() for b in depths[1:]],
        "adapters": adapters,
        "text": [tokenizer.decode([token]) for token in row],
        "depth": settled[0].tolist(),
    }


def permille(rates: list[float]) -> str:
    """Return three digits per rate, concatenated, at most 999."""
    return "".join(f"{min(999, round(1000 * rate)):03d}" for rate in rates)


def costs_by_bytes(target: CausalLM) -> dict:
    """Return the bytes of weights that a pass reads: one attention, one MLP, the head."""
    block = target.model.blocks[0]
    size = lambda *parts: sum(w.nbytes for part in parts for w in part.parameters())
    return {
        "attention": size(block.norm1, block.qkv, block.out),
        "mlp": size(block.norm2, block.gate_up, block.down),
        "head": target.model.head.weight.nbytes,
    }


def leave_out(target: CausalLM, costs: dict, skip) -> float:
    """Return c, measured in bytes, of a draft without some sublayers."""
    whole = costs["head"] + target.num_layers * (costs["attention"] + costs["mlp"])
    return 1 - sum(costs[kind] for _, kind in skip) / whole


class Search:
    """Acceptance of sets of skipped sublayers on a stored text, and the speedups they predict.

    Args:
        target: Model that drafts.
        text: Text on which acceptance is measured.
        offered: Sublayers that may be skipped.
    """

    def __init__(self, target: CausalLM, text: SkipAcceptance, offered: list):
        self.text, self.offered, self.trials = text, offered, []
        self.cost = partial(leave_out, target, costs_by_bytes(target))

    def acceptance(self, skip) -> float:
        """Measure the acceptance rate of a draft without some sublayers."""
        self.trials.append((sorted(skip), self.text.mean(skip)))
        return self.trials[-1][1]

    def predicted_speedup(self, skip, rate: float) -> float:
        """Return the speedup at the best γ, with c measured in bytes."""
        return theory.optimal_gamma(rate, self.cost(skip))[1]

    def best(self) -> dict:
        """Return the set with the largest predicted speedup, with its rate and its c."""
        skip, rate = max(self.trials, key=lambda one: self.predicted_speedup(*one))
        return {"skip": skip, "rate": rate, "c": self.cost(skip)}


def search_greedily(search: Search, most: int) -> None:
    """Add the sublayer that lowers acceptance least, again and again."""
    greedy_search(search.acceptance, search.offered, most)


def search_randomly(search: Search, most: int, count: int) -> None:
    """Try random sets."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        size = int(rng.integers(1, most + 1))
        picked = rng.choice(len(search.offered), size, replace=False)
        search.acceptance([search.offered[i] for i in picked])


def search_with_optuna(search: Search, most: int, count: int) -> None:
    """Maximize the predicted speedup with tree-structured Parzen estimators."""
    import optuna  # only this recording needs it

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, multivariate=True)
    )

    def objective(trial) -> float:
        switches = [trial.suggest_int(str(i), 0, 1) for i in range(len(search.offered))]
        skip = [one for one, off in zip(search.offered, switches) if off]
        return search.predicted_speedup(skip, search.acceptance(skip))

    study.enqueue_trial({str(i): 0 for i in range(len(search.offered))})
    study.optimize(objective, count)


def run_searches(
    target: CausalLM, text: SkipAcceptance, other: SkipAcceptance, offered, most: int
) -> dict:
    """Compare greedy, random and Bayesian search with the same number of evaluated sets.

    The best set of each search is also evaluated on a second text that no search has seen.
    """
    count = 1 + sum(len(offered) - i for i in range(most))
    runs = {
        "greedy": search_greedily,
        "random": partial(search_randomly, count=count),
        "bayesian": partial(search_with_optuna, count=count),
    }
    report: dict = {"evaluations": count, "offered": offered}
    for name, run in runs.items():
        search = Search(target, text, offered)
        run(search, most)
        best = search.best()
        best["elsewhere"] = mean(other.by_position(best["skip"]))
        promises = [search.predicted_speedup(*one) for one in search.trials]
        so_far = np.maximum.accumulate(promises).round(4).tolist()
        report[name] = {"best": best, "so_far": so_far}
        if name == "greedy":
            sizes = {
                len(skip): (skip, rate) for skip, rate in sorted(search.trials, key=itemgetter(1))
            }
            report[name]["path"] = [
                {"skip": skip, "rate": rate} for _, (skip, rate) in sorted(sizes.items())
            ]
    return report


def sublayers(name: str, args) -> tuple[CausalLM, SkipAcceptance, SkipAcceptance]:
    """Return a target, the text for its searches, and another text that no search sees."""
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, 2 * args.texts, args.new)
    return target, *(SkipAcceptance(target, half, first) for half in texts.split(args.texts))


def skip_alone(name: str, args) -> dict:
    """Measure α without each single sublayer."""
    target, text, _ = sublayers(name, args)
    return {
        "layers": target.num_layers,
        "places": text.tokens.numel(),
        "bytes": costs_by_bytes(target),
        "alone": [text.mean([one]) for one in every_sublayer(target.num_layers)],
    }


def skip_search(name: str, args, alone: list[float]) -> dict:
    """Run the searches on the sublayers that lower acceptance least when left out alone."""
    target, text, other = sublayers(name, args)
    every = every_sublayer(target.num_layers)
    best = np.argsort(alone)[::-1][: args.offered]
    return run_searches(target, text, other, [every[i] for i in sorted(best)], args.most)


def skip_sets(name: str, args) -> dict:
    """Measure every set of skipped groups of neighboring blocks.

    A group has --group blocks of the pair's target, or six times as many of SmolLM2's.
    """
    group = args.group * (1 if name == "pair" else 6)
    return {"group": group, "sets": permille(sublayers(name, args)[1].all_sets(group))}


@torch.inference_mode()
def bits(name: str, args) -> dict:
    """Measure the acceptance rate of quantized copies and the bytes of their linear layers."""
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, args.texts, args.new)
    logits_of = lambda model: model.score(texts, model.new_cache(len(texts))).logits[
        :, first - 1 : -1
    ]
    target_probs = logits_of(target).softmax(-1)
    rows = []
    for width in (8, 6, 5, 4, 3, 2):
        logits = logits_of(quantize(target, width))
        rows.append(
            {
                "bits": width,
                "rate": mean(torch.minimum(target_probs, logits.softmax(-1)).sum(-1)),
                "agreement": (logits.argmax(-1) == target_probs.argmax(-1)).double().mean().item(),
                "bytes": stored_bytes(target, width),
            }
        )
    linear = costs_by_bytes(target)
    whole = linear["head"] + target.num_layers * (linear["attention"] + linear["mlp"])
    return {"places": target_probs[..., 0].numel(), "bytes": whole, "rows": rows}


# Timings ------------------------------------------------------------------------------------------


def contenders(target: CausalLM, args, skip) -> dict[str, Drafter]:
    """Return the drafters that take part in `speed`."""
    gamma = args.gamma
    return {
        "early exit": EarlyExitDrafter.from_pretrained(target, gamma=gamma, reuse=False),
        "early exit, reuse": EarlyExitDrafter.from_pretrained(target, gamma=gamma),
        "skipped sublayers": LayerSkipDrafter(target, skip, gamma),
        "8 bits": QuantizedDrafter(target, 8, gamma),
        "sparse cache": SparseCacheDrafter(target, 4, args.windows[0], gamma),
        "look-ahead rows": PassDrafter.from_pretrained(target),
    }


def speed(name: str, args) -> dict:
    """Time each method against plain decoding in alternating turns, and apply the formulas."""
    target, tokenizer = load_target(name)
    search = recordings.load("layer-skip-search").data["targets"][name]["search"]
    greedy = search["greedy"]  # skip four sublayers if the search found no gain
    skip = [tuple(one) for one in greedy["best"]["skip"] or greedy["path"][4]["skip"]]
    drafters = contenders(target, args, skip)
    run = lambda drafter: ours(target, drafter, None, args.new, args.temperature)
    every = {"plain": Contender(run(None))}
    every |= {label: Contender(run(each), each, label) for label, each in drafters.items()}
    rows = [torch.tensor(ids) for ids in prompts(name, tokenizer, args.texts)]
    for contender in every.values():
        contender.run(rows[0], 0)
    alone = passes(target, rows[0], drafters, args)
    bench = Bench(None, {}, turns=args.turns, least=min(20, args.turns))
    turns = take_turns(every, rows, bench, perf_counter() + 60 * args.minutes)
    return {
        "gamma": args.gamma,
        "temperature": args.temperature,
        "new": args.new,
        "window": args.windows[0],
        "turns": sum(map(len, turns["plain"])),
        "layers": drafters["early exit"].layers,
        "skip": skip,
        **explain_turns(turns, drafters, alone, args.gamma),
    }


def explain_turns(turns: dict, drafters: dict, alone: dict, gamma: int) -> dict:
    """Return the measured speedups with the predictions from single passes."""
    table = lambda label, get: np.array([[get(run) for run in row] for row in turns[label]])
    over = lambda label, get: table(label, lambda run: sum(map(get, run.steps)))
    steps = {
        label: [s for row in turns[label] for run in row for s in run.steps] for label in turns
    }
    one = float(np.median([step.verifying for step in steps["plain"]]))
    pace = {label: table(label, lambda run: run.seconds / run.tokens) for label in turns}
    undisturbed = timing.round_costs(steps["plain"], one).total
    rows = []
    for label, drafter in drafters.items():
        costs = timing.round_costs(steps[label], one)
        levels = drafter.limits().levels
        alpha = ratio(over(label, lambda s: s.accepted), over(label, lambda s: s.tested))
        tau = ratio(table(label, lambda run: run.tokens), table(label, lambda run: len(run.steps)))
        c_alone = alone["drafts"][label] / alone["one"]
        passed = c_alone * (1 if label == "look-ahead rows" else levels)
        verify = alone["verify" if levels == gamma else "ahead"] / alone["one"]
        if label == "early exit, reuse":
            verify -= alone["shared"] / alone["one"] * (verify - 1)
        rows.append(
            {
                "method": label,
                "levels": levels,
                "speedup": ratio(pace["plain"], pace[label]),
                "alpha": alpha,
                "tau": tau,
                "draft": costs.draft,
                "verify": costs.verify,
                "other": costs.other,
                "from_costs": tau["value"] * undisturbed / costs.total,
                "c_alone": c_alone,
                "predicted": tau["value"] / (passed + verify),
            }
        )
    seconds = {label: over(label, lambda s: s.drafting + s.verifying) for label in turns}
    count = {label: table(label, lambda run: len(run.steps)) for label in turns}
    shared, whole = alone["shared"] / alone["one"], alone["verify"] / alone["one"]
    change = estimate(
        lambda reuse, reuse_rounds, again, again_rounds, plain, passes: (
            (reuse / reuse_rounds - again / again_rounds) / (plain / passes)
        ),
        *(seconds["early exit, reuse"], count["early exit, reuse"]),
        *(seconds["early exit"], count["early exit"]),
        *(seconds["plain"], count["plain"]),
    )
    return {
        "target_seconds": one,
        "alone": alone,
        "reuse": {
            "shared": shared,
            "verify": whole,
            "predicted_change": -shared * (whole - 1),
            "measured_change": change,
            "gain": ratio(pace["early exit"], pace["early exit, reuse"]),
        },
        "rows": rows,
    }


def passes(target: CausalLM, ids: Tensor, drafters: dict, args) -> dict:
    """Time single passes alternately, in seconds.

    "one", "verify" and "ahead" are target passes over one token, γ + 1 tokens, and one token more
    than the look-ahead rows draft. "shared" is a pass of the first layers over one token without
    the head. "drafts" contains one pass of each draft.

    Shapes: ids [n].
    """
    gamma = args.gamma
    levels = drafters["look-ahead rows"].limits().levels
    cache = target.new_cache(capacity=len(ids) + max(gamma, levels) + 1)
    scores = target.score(ids[:-1], cache, last=True)
    context = Context(ids, scores, Sampling(0.0), SeededRng(0), 99, target.vocab_size, cache)
    fed = ids[-1:].expand(max(gamma, levels) + 1)
    layers = drafters["early exit"].layers

    def draft(drafter):
        if drafter.draft_model() is not None:
            return timing.pass_job(drafter.draft_model(), ids, 1)
        if isinstance(drafter, PassDrafter):
            return lambda: target.score(fed[:levels], cache.view())
        return lambda: target.score(fed[:1], drafter.draft_cache(context))

    jobs = {
        "one": lambda: target.score(fed[:1], cache.view()),
        "verify": lambda: target.score(fed[: gamma + 1], cache.view()),
        "ahead": lambda: target.score(fed[: levels + 1], cache.view()),
        "shared": lambda: target.score(fed[:1], cache.view(layers=layers), logits=False),
    }
    jobs |= {("draft", label): draft(drafter) for label, drafter in drafters.items()}
    seconds = timing.interleaved(jobs, target.device, repeats=args.repeats)
    return {
        **{label: seconds[label] for label in ("one", "verify", "ahead", "shared")},
        "drafts": {label: seconds["draft", label] for label in drafters},
    }


def long_text() -> tuple[CausalLM, Tensor]:
    """Return SmolLM2 and the held-out prose as token ids [n]."""
    target, tokenizer = load_target("smollm2")
    text = "\n\n".join(held_out_text()["prose"])
    return target, torch.tensor(tokenizer.encode(text, add_special_tokens=False))


def sparse_drafters(target: CausalLM, length: int, args) -> dict[str, SparseCacheDrafter]:
    """Return drafters by the part of the cache that they retain.

    The part is a window, half a window with as many tokens in chunks, or everything.
    """
    middle = target.num_layers // 2
    drafters = {}
    for budget in args.windows:
        chunks = Chunks([middle, middle + 1], budget // 2)
        drafters[f"window {budget}"] = SparseCacheDrafter(target, 4, budget, args.gamma)
        drafters[f"chunks {budget}"] = SparseCacheDrafter(
            target, 4, budget // 2, args.gamma, chunks
        )
    return drafters | {"everything": SparseCacheDrafter(target, 0, length + args.new, args.gamma)}


class LongText:
    """A target that reads a text once and decodes from several positions of it.

    Decode the last position first, because decoding overwrites the cache entries after its
    position.

    Args:
        target: Model that decodes.
        tokens: Token ids [n].
        hidden_layers: Layers whose states the drafters read.
        args: Options of the command line.
    """

    def __init__(self, target: CausalLM, tokens: Tensor, hidden_layers: tuple, args):
        self.target, self.tokens, self.hidden_layers, self.args = (
            target,
            tokens,
            hidden_layers,
            args,
        )
        self.cache = target.new_cache(capacity=len(tokens) + args.new + 16)
        target.score(tokens[:-1], self.cache, last=True)

    def context(self, position: int, seed: int = 0) -> Context:
        """Return the context after some tokens, the last of which is not fed yet."""
        self.cache.crop(position - 2)
        known = self.tokens[position - 2 : position - 1]
        scores = self.target.score(known, self.cache, hidden_layers=self.hidden_layers)
        sampling = Sampling(self.args.temperature)
        about = (sampling, SeededRng(seed), self.args.new, self.target.vocab_size, self.cache)
        return Context(self.tokens[:position], scores, *about)

    def decode(self, drafter: SparseCacheDrafter | None, position: int, seed: int) -> list:
        """Decode `new` tokens and return the rounds; the last round may be cut short."""
        context = self.context(position, seed)
        session = NoDraft() if drafter is None else drafter.start(context)
        rule, steps = default_rule(context.sampling), []
        while context.wanted > 0:
            step, context = speculate(self.target, session, context, rule, self.hidden_layers)
            steps.append(step)
        return steps

    def passes(self, drafters: dict) -> dict:
        """Time alternately one-token passes, (γ+1)-token passes and each drafter's proposal."""
        context = self.context(len(self.tokens))
        fed = context.tokens[-1:]

        def draft(drafter):
            drafter.start(context).propose(replace(context, sampling=Sampling(0.0)))

        jobs = {
            "one": lambda: self.target.score(fed, self.cache.view()),
            "verify": lambda: self.target.score(fed.expand(self.args.gamma + 1), self.cache.view()),
        }
        jobs |= {label: lambda d=drafter: draft(d) for label, drafter in drafters.items()}
        return timing.interleaved(jobs, self.target.device, repeats=self.args.repeats)


def at_length(target: CausalLM, tokens: Tensor, args) -> dict:
    """Measure α, costs and speedup of each draft at one context length.

    Costs are measured in the decoding loop and alone. The speedup is measured and predicted.
    """
    length = len(tokens)
    drafters = sparse_drafters(target, length, args)
    hidden_layers = max((each.hidden_layers for each in drafters.values()), key=len)
    text = LongText(target, tokens, hidden_layers, args)
    everything = drafters.pop("everything")
    alone = text.passes(drafters)
    every = {"plain": None, **drafters}
    rng = np.random.default_rng(length)
    runs: dict = {label: [] for label in every}
    positions = [length - args.new * i for i in range(args.texts)]
    for position in positions:
        for rows in runs.values():
            rows.append([])
        for turn in range(max(1, args.turns // args.texts)):
            for label in rng.permutation(list(every)):
                runs[label][-1].append(text.decode(every[label], position, seed=position + turn))
    same = text.decode(everything, positions[-1], seed=0)
    table = lambda label, get: np.array([[sum(map(get, s)) for s in row] for row in runs[label]])
    seconds = {label: table(label, lambda step: step.seconds) for label in every}
    one = float(np.median([s.verifying for row in runs["plain"] for turn in row for s in turn]))
    keys = target.new_cache(capacity=1).storage.tensors.keys
    rows = []
    for label in drafters:
        rounds = [s for row in runs[label] for turn in row for s in turn]
        costs = timing.round_costs(rounds, one)
        accepted, tested = table(label, lambda s: s.accepted), table(label, lambda s: s.tested)
        rate = ratio(accepted, tested)
        draft, verify = (alone[part] / alone["one"] for part in (label, "verify"))
        tokens_per_round = theory.expected_tokens(rate["value"], args.gamma)
        rows.append(
            {
                "draft": label,
                "speedup": ratio(seconds["plain"], seconds[label]),
                "alpha": rate,
                "tau": args.new * rate_of_rounds(runs[label]),
                "c": costs.draft / args.gamma,
                "verify": costs.verify,
                "c_alone": draft / args.gamma,
                "verify_alone": verify,
                "predicted": tokens_per_round / (draft + verify),
            }
        )
    return {
        "context": length,
        "cache_bytes": 2 * keys[..., :1, :].numel() * keys.element_size() * length,
        "turns": seconds["plain"].size,
        "places": len(positions),
        "seconds": one,
        "alone": alone["one"],
        "everything": sum(s.accepted for s in same) / sum(s.tested for s in same),
        "drafts": rows,
    }


def rate_of_rounds(rows: list) -> float:
    """Return the number of texts divided by the number of rounds."""
    return sum(map(len, rows)) / sum(len(turn) for row in rows for turn in row)


# The experiments ----------------------------------------------------------------------------------


TIMING = {
    "--gamma": {"type": int, "default": 3},
    "--temperature": {"type": float, "default": 0.0},
    "--windows": {"type": int, "nargs": "+", "default": [64, 256, 1024]},
    "--repeats": {"type": int, "default": 15, "help": "repetitions of passes timed alone"},
    "--turns": {"type": int, "default": 24},
}
"""Options of the experiments with times."""


class SelfDrafts(Experiment):
    """A measurement of each target, which is a part; the variants are the measurements.

    Attributes:
        measure: Function from the name of a target and the options to its row.
        texts, new: Default number of texts, and of tokens per text.
        more: Further options, as `add_argument` takes them.
    """

    measure: ClassVar[Callable[[str, argparse.Namespace], dict]]
    texts, new = 8, 64
    more: ClassVar[dict[str, dict]] = {}
    variants = {
        "early-exit-acceptance": {
            "measure": staticmethod(exits),
            "what": "early exits: acceptance and saturation by depth",
            "time": "4 minutes",
            "quick": "--texts 1 --new 4".split(),
            "more": {"--adapters": {"type": Path, "default": Path(".work/early_exit")}},
        },
        "quantized-draft-acceptance": {
            "measure": staticmethod(bits),
            "what": "quantized copies of the target: acceptance by bits",
            "time": "3 minutes",
            "quick": "--texts 1 --new 4".split(),
            "texts": 4,
            "new": 48,
        },
        "self-draft-speed": {
            "measure": staticmethod(speed),
            "what": "drafts from the target itself against plain decoding",
            "time": "20 minutes, quiet",
            "quick": (
                "--targets pair --texts 2 --new 6 --turns 4 --minutes 0.1 --repeats 2".split()
            ),
            "unrelated": ("minutes",),
            "more": TIMING
            | {"--minutes": {"type": float, "default": 8.0, "help": "time per target"}},
        },
    }

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
        parser.add_argument("--texts", type=int, default=cls.texts)
        parser.add_argument("--new", type=int, default=cls.new, help="tokens per text")
        for name, about in cls.more.items():
            parser.add_argument(name, **about)

    def check(self):
        if min(self.options.texts, self.options.new) < 1:
            raise ValueError("--texts and --new: must be at least 1")

    def parts(self):
        return list(self.options.targets)

    def run(self, part):
        return self.measure(part, self.options)

    def summarise(self, rows):
        return {"targets": dict(rows)}

    def restore(self, data):
        return data["targets"]


STEPS = ("alone", "search", "sets")


class LayerSkipSearch(SelfDrafts):
    """Acceptance without sublayers; each target has three parts."""

    name = "layer-skip-search"
    what = "sublayers left out: the acceptance of sets of them"
    time = "15 minutes"
    quick = "--targets pair --texts 1 --new 2 --offered 3 --most 2 --group 4".split()
    texts, new = 4, 16
    more = {
        "--most": {"type": int, "default": 12, "help": "most sublayers that a search leaves out"},
        "--offered": {"type": int, "default": 24, "help": "sublayers to choose from"},
        "--group": {
            "type": int,
            "default": 1,
            "help": "neighboring blocks that are skipped together",
        },
    }

    def parts(self):
        return [f"{name} {step}" for name in self.options.targets for step in STEPS]

    def run(self, part):
        name, step = part.split()
        if step == "alone":
            return skip_alone(name, self.options)
        if step == "search":
            return skip_search(name, self.options, self.rows[f"{name} alone"]["alone"])
        return skip_sets(name, self.options)

    def summarise(self, rows):
        targets = {}
        for name in self.options.targets:
            alone, search, sets = (rows[f"{name} {step}"] for step in STEPS)
            targets[name] = alone | {"search": search} | sets
        return {"targets": targets}

    def restore(self, data):
        return {}  # searches and sets depend on the first part


class SparseCacheSpeed(Experiment):
    """Drafts on a part of SmolLM2's cache; the parts are the context lengths."""

    name = "sparse-cache-speed"
    what = "drafts on a part of the cache, after long texts"
    time = "1 hour, quiet"
    quick = "--lengths 128 --windows 32 --texts 1 --new 4 --turns 2 --repeats 2".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--texts", type=int, default=8)
        parser.add_argument("--new", type=int, default=64, help="tokens per text")
        for name, about in TIMING.items():
            parser.add_argument(name, **about)
        parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8064])

    @cached_property
    def text(self) -> tuple[CausalLM, Tensor]:
        """SmolLM2 and the text."""
        return long_text()

    def parts(self):
        return [str(length) for length in sorted(self.options.lengths)]

    def run(self, part):
        target, ids = self.text
        return at_length(target, ids[: int(part)], self.options)

    def summarise(self, rows):
        weights = sum(w.nbytes for w in self.text[0].model.parameters())
        settings = {name: getattr(self.options, name) for name in ("gamma", "temperature", "new")}
        return {"weights": weights, **settings, "rows": list(rows.values())}

    def restore(self, data):
        return {str(row["context"]): row for row in data["rows"]}
