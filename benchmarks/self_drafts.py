"""Drafts from the target itself, measured: one recording a part, each with the pair and SmolLM2.

    python -m benchmarks.self_drafts exits       # α and saturation by depth; 4 minutes
    python -m benchmarks.self_drafts skips       # α of sets of sublayers, and searches; 15 minutes
    python -m benchmarks.self_drafts bits        # α of rounded copies; 3 minutes
    python -m benchmarks.self_drafts ahead       # α by position: look-ahead rows and heads; 5 minutes
    python -m benchmarks.self_drafts speed       # a clock: paired turns; wants a quiet machine
    python -m benchmarks.self_drafts sparse      # a clock: long contexts; wants a quiet machine

`skips` compares its search with optuna's: `pip install optuna`, which nothing else needs.
What is finished is kept in --work, so an interrupted run goes on.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import Bench, Contender, ours, take_turns
from specdec_lite import CausalLM, generate, results, theory, timing
from specdec_lite.decoding import default_rule
from specdec_lite.drafters import (
    BlockwiseDrafter,
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantisedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.chunks import Chunks
from specdec_lite.drafters.heads import ExitHead
from specdec_lite.drafters.layer_skip import every_sublayer, greedy_search
from specdec_lite.drafters.quantised import quantised, stored_bytes
from specdec_lite.loading.corpus import evaluation_prompts, held_out_text
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import SHIPPED, load
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.proposal import NOTHING
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter, Session, speculate
from specdec_lite.training.own_text import continued
from specdec_lite.training.skipping import StoredText

from .command import parser_for, typed

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
    if name == "pair":
        pair = load_pair(device="cpu", dtype="float32")
        return pair.target, pair.tokenizer
    return load_smollm2("cpu", "float32")


def chat(tokenizer, text: str) -> list[int]:
    told = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )
    return tokenizer.encode(told, add_special_tokens=False)


def prompts(name: str, tokenizer, count: int = 8) -> list[list[int]]:
    """Held-out prompts: of the pair's three domains in turn, or questions to SmolLM2."""
    if name == "smollm2":
        return [chat(tokenizer, text) for text in QUESTIONS[:count]]
    domains = evaluation_prompts().values()
    texts = [items[i]["text"] for i in range(count) for items in domains]
    return [tokenizer.encode(text)[:96] for text in texts[:count]]


def own_texts(name: str, target: CausalLM, tokenizer, count: int, new: int) -> tuple[Tensor, int]:
    """Held-out prompts, cut from the left to one length, with what the target adds at temperature 1:
    ([count, n], first place of its own).
    """
    rows = prompts(name, tokenizer, count)
    length = min(map(len, rows))
    cut = torch.tensor([row[-length:] for row in rows])
    return continued(target, cut, new, 1.0, seed=5), length


class Work:
    """Finished parts, one file each, named after what was asked for and the size of it."""

    def __init__(self, folder: Path, size: str):
        self.folder = folder
        self.size = size
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, make: Callable[[], object]):
        path = self.folder / f"{name}-{self.size}.json"
        if not path.exists():
            began = perf_counter()
            part = path.with_suffix(".part")
            part.write_text(json.dumps(make()), encoding="utf-8")
            part.replace(path)
            print(f"{name}: {perf_counter() - began:.0f} s", flush=True)
        return json.loads(path.read_text(encoding="utf-8"))


def mean(values: Tensor) -> dict:
    """The mean over texts and places [texts, places], with its interval."""
    rows = values.double().numpy()
    return ratio(rows, np.ones_like(rows))


# Acceptance: no clock ------------------------------------------------------------------------------


@torch.inference_mode()
def exits(name: str, args) -> dict:
    """α by depth without an adapter and with those trained, the depth from which the argmax stays,
    and one readable text with that depth for every token.
    """
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, args.texts, args.new)
    depths = list(range(target.num_layers + 1))
    hidden = target.score(texts, target.new_cache(len(texts)), hidden_layers=depths).hidden
    places = slice(first, -1)
    normed = [target.model.norm(hidden[b][:, places]) for b in depths]
    law = target.model.head(normed[-1]).softmax(-1)
    final = law.argmax(-1)
    share = lambda logits: torch.minimum(law, logits.softmax(-1)).sum(-1).mean().item()
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
    """Three digits a rate, one behind the other, 999 at most."""
    return "".join(f"{min(999, round(1000 * rate)):03d}" for rate in rates)


def costs_by_bytes(target: CausalLM) -> dict:
    """Bytes of weights that a pass reads: one attention, one MLP, the head."""
    block = target.model.blocks[0]
    size = lambda *parts: sum(w.nbytes for part in parts for w in part.parameters())
    return {
        "attention": size(block.norm1, block.qkv, block.out),
        "mlp": size(block.norm2, block.gate_up, block.down),
        "head": target.model.head.weight.nbytes,
    }


def leave_out(target: CausalLM, costs: dict, skip) -> float:
    """c by bytes of a draft without the sublayers in `skip`."""
    whole = costs["head"] + target.num_layers * (costs["attention"] + costs["mlp"])
    return 1 - sum(costs[kind] for _, kind in skip) / whole


class Search:
    """Sets of sublayers asked of a stored text, each once counted, and what they promise."""

    def __init__(self, target: CausalLM, text: StoredText, offered: list):
        self.text, self.offered, self.asked = text, offered, []
        self.cost = partial(leave_out, target, costs_by_bytes(target))

    def acceptance(self, skip) -> float:
        self.asked.append((sorted(skip), self.text.acceptance(skip)))
        return self.asked[-1][1]

    def promise(self, skip, rate: float) -> float:
        """The speedup at the best γ, c by bytes."""
        return theory.optimal_gamma(rate, self.cost(skip))[1]

    def best(self) -> dict:
        """The set that promises most, and its rate."""
        skip, rate = max(self.asked, key=lambda one: self.promise(*one))
        return {"skip": skip, "rate": rate, "c": self.cost(skip)}


def greedily(search: Search, most: int) -> None:
    greedy_search(search.acceptance, search.offered, most)


def randomly(search: Search, most: int, count: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(count):
        size = int(rng.integers(1, most + 1))
        picked = rng.choice(len(search.offered), size, replace=False)
        search.acceptance([search.offered[i] for i in picked])


def bayesian(search: Search, most: int, count: int) -> None:
    """Tree-structured Parzen estimators, which optuna keeps; the promise is what they maximise."""
    import optuna  # for this recording alone

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, multivariate=True)
    )

    def promised(trial) -> float:
        switches = [trial.suggest_int(str(i), 0, 1) for i in range(len(search.offered))]
        skip = [one for one, off in zip(search.offered, switches) if off]
        return search.promise(skip, search.acceptance(skip))

    study.enqueue_trial({str(i): 0 for i in range(len(search.offered))})
    study.optimize(promised, count)


def searched(target: CausalLM, text: StoredText, other: StoredText, offered, most: int) -> dict:
    """Greedy, random and Bayesian search, each with as many sets asked of `text`; the best of each
    is asked of `other` too, which no search has seen.
    """
    count = 1 + sum(len(offered) - i for i in range(most))
    runs = {
        "greedy": greedily,
        "random": partial(randomly, count=count),
        "bayesian": partial(bayesian, count=count),
    }
    made: dict = {"evaluations": count, "offered": offered}
    for name, run in runs.items():
        search = Search(target, text, offered)
        run(search, most)
        best = search.best()
        best["elsewhere"] = mean(other.by_place(best["skip"]))
        promises = [search.promise(*one) for one in search.asked]
        so_far = np.maximum.accumulate(promises).round(4).tolist()
        made[name] = {"best": best, "so_far": so_far}
        if name == "greedy":
            sizes = {
                len(skip): (skip, rate) for skip, rate in sorted(search.asked, key=itemgetter(1))
            }
            made[name]["path"] = [
                {"skip": skip, "rate": rate} for _, (skip, rate) in sorted(sizes.items())
            ]
    return made


def skips(name: str, args, work: Work) -> dict:
    """The searches, and the rate of every set in which --group neighbouring blocks share their
    switches: one of the pair's, six of SmolLM2's.
    """
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, 2 * args.texts, args.new)
    text, other = (StoredText(target, half, first) for half in texts.split(args.texts))
    offered = every_sublayer(target.num_layers)
    alone = work(f"skips-{name}-alone", lambda: [text.acceptance([one]) for one in offered])
    best = np.argsort(alone)[::-1][: args.offered]  # those whose loss alone is least
    offered = [offered[i] for i in sorted(best)]
    group = args.group * (1 if name == "pair" else 6)
    return {
        "layers": target.num_layers,
        "places": text.fed.numel(),
        "bytes": costs_by_bytes(target),
        "alone": alone,
        "search": work(
            f"skips-{name}-search", lambda: searched(target, text, other, offered, args.most)
        ),
        "group": group,
        "sets": work(f"skips-{name}-sets-{group}", lambda: permille(text.every_set(group))),
    }


@torch.inference_mode()
def bits(name: str, args) -> dict:
    """The rate of rounded copies, and the bytes that their linear layers take."""
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, args.texts, args.new)
    rows = lambda model: model.score(texts, model.new_cache(len(texts))).logits[:, first - 1 : -1]
    law = rows(target).softmax(-1)
    found = []
    for width in (8, 6, 5, 4, 3, 2):
        logits = rows(quantised(target, width))
        found.append(
            {
                "bits": width,
                "rate": mean(torch.minimum(law, logits.softmax(-1)).sum(-1)),
                "agreement": (logits.argmax(-1) == law.argmax(-1)).double().mean().item(),
                "bytes": stored_bytes(target, width),
            }
        )
    linear = costs_by_bytes(target)
    whole = linear["head"] + target.num_layers * (linear["attention"] + linear["mlp"])
    return {"places": law[..., 0].numel(), "bytes": whole, "rows": found}


def by_position(target: CausalLM, drafter, rows, new: int) -> dict:
    """Accepted ÷ reached for each drafted position at temperature 1, and τ."""
    texts = [
        generate(target, ids, drafter, new, 1.0, seed=seed).steps for seed, ids in enumerate(rows)
    ]
    levels = max(len(step.tree) for steps in texts for step in steps)
    whole = [[step for step in steps if len(step.tree) == levels] for steps in texts]
    reached = [
        [[sum(step.accepted >= level for step in steps)] for steps in whole]
        for level in range(levels + 1)
    ]
    emitted = [[sum(len(step.tokens) for step in steps)] for steps in whole]
    return {
        "rounds": sum(map(len, whole)),
        "conditional": [ratio(over, under) for under, over in zip(reached, reached[1:])],
        "tau": ratio(emitted, reached[0]),
    }


def ahead(name: str, args) -> dict:
    """Look-ahead rows, and for the pair's target its blockwise heads."""
    target, tokenizer = load_target(name)
    rows = prompts(name, tokenizer, args.texts)
    found = {"rows": by_position(target, PassDrafter.from_pretrained(target), rows, args.new)}
    if name == "pair":
        heads = BlockwiseDrafter.from_pretrained(target, k=5)
        found["heads"] = by_position(target, heads, rows, args.new)
    return found


# Clocks -------------------------------------------------------------------------------------------


def contestants(target: CausalLM, args, skip) -> dict[str, Drafter]:
    """What takes turns in `speed`."""
    gamma = args.gamma
    return {
        "early exit": EarlyExitDrafter.from_pretrained(target, gamma=gamma, reuse=False),
        "early exit, reuse": EarlyExitDrafter.from_pretrained(target, gamma=gamma),
        "skipped sublayers": LayerSkipDrafter(target, skip, gamma),
        "8 bits": QuantisedDrafter(target, 8, gamma),
        "sparse cache": SparseCacheDrafter(target, 4, args.windows[0], gamma),
        "look-ahead rows": PassDrafter.from_pretrained(target),
    }


def speed(name: str, args) -> dict:
    """Each method against plain decoding, in turns, and the formulas beside it."""
    target, tokenizer = load_target(name)
    search = results.load("skips").data["targets"][name]["search"]
    greedy = search["greedy"]  # where no set promises a gain, four sublayers all the same
    skip = [tuple(one) for one in greedy["best"]["skip"] or greedy["path"][4]["skip"]]
    drafters = contestants(target, args, skip)
    run = lambda drafter: ours(target, drafter, None, args.new, args.temperature)
    every = {"plain": Contender(run(None))}
    every |= {label: Contender(run(each), each, label) for label, each in drafters.items()}
    rows = [torch.tensor(ids) for ids in prompts(name, tokenizer, args.texts)]
    for contender in every.values():
        contender.run(rows[0], 0)
    alone = passes(target, rows[0], drafters, args)
    bench = Bench(None, {}, turns=args.turns, least=min(20, args.turns))
    turns = take_turns(every, rows, bench, name, perf_counter() + 60 * args.minutes)
    return {
        "gamma": args.gamma,
        "temperature": args.temperature,
        "new": args.new,
        "window": args.windows[0],
        "turns": sum(map(len, turns["plain"])),
        "layers": drafters["early exit"].layers,
        "skip": skip,
        **explained(turns, drafters, alone, args.gamma),
    }


def explained(turns: dict, drafters: dict, alone: dict, gamma: int) -> dict:
    """What the turns say, beside what single passes and the formulas do."""
    table = lambda label, get: np.array([[get(run) for run in row] for row in turns[label]])
    over = lambda label, get: table(label, lambda run: sum(map(get, run.steps)))
    steps = {
        label: [s for row in turns[label] for run in row for s in run.steps] for label in turns
    }
    one = float(np.median([step.verifying for step in steps["plain"]]))
    pace = {label: table(label, lambda run: run.seconds / run.tokens) for label in turns}
    undisturbed = timing.round_costs(steps["plain"], one).total
    made = []
    for label, drafter in drafters.items():
        costs = timing.round_costs(steps[label], one)
        levels = drafter.shape().levels
        alpha = ratio(over(label, lambda s: s.accepted), over(label, lambda s: s.tested))
        tau = ratio(table(label, lambda run: run.tokens), table(label, lambda run: len(run.steps)))
        by_itself = alone["drafts"][label] / alone["one"]
        passed = by_itself * (1 if label == "look-ahead rows" else levels)
        verify = alone["verify" if levels == gamma else "ahead"] / alone["one"]
        if label == "early exit, reuse":
            verify -= alone["shared"] / alone["one"] * (verify - 1)
        made.append(
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
                "c_alone": by_itself,
                "predicted": tau["value"] / (passed + verify),
            }
        )
    seconds = {label: over(label, lambda s: s.drafting + s.verifying) for label in turns}
    count = {label: table(label, lambda run: len(run.steps)) for label in turns}
    shared, whole = alone["shared"] / alone["one"], alone["verify"] / alone["one"]
    change = estimate(
        lambda kept, kept_rounds, anew, anew_rounds, plain, passes: (
            (kept / kept_rounds - anew / anew_rounds) / (plain / passes)
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
        "rows": made,
    }


def passes(target: CausalLM, ids: Tensor, drafters: dict, args) -> dict:
    """Seconds of single passes, in turns: over one token, over γ + 1 and over one more than
    look-ahead rows draft; the first layers over one token, without the head ("shared"); and one
    pass of each draft.
    """
    gamma = args.gamma
    levels = drafters["look-ahead rows"].shape().levels
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
        return lambda: target.score(fed[:1], drafter.part(context))

    jobs = {
        "one": lambda: target.score(fed[:1], cache.view()),
        "verify": lambda: target.score(fed[: gamma + 1], cache.view()),
        "ahead": lambda: target.score(fed[: levels + 1], cache.view()),
        "shared": lambda: target.score(fed[:1], cache.view(layers=layers), logits=False),
    }
    jobs |= {("draft", label): draft(drafter) for label, drafter in drafters.items()}
    found = timing.interleaved(jobs, target.device, repeats=args.repeats)
    return {
        **{label: found[label] for label in ("one", "verify", "ahead", "shared")},
        "drafts": {label: found["draft", label] for label in drafters},
    }


class Nothing(Session):
    """No draft: plain decoding."""

    def propose(self, context):
        return NOTHING


def sparse(name: str, args, work: Work) -> dict:
    """SmolLM2 behind a long text: plain decoding and drafts on windows, with chunks and without, in
    turns on one prefilled cache.
    """
    target, tokenizer = load_target("smollm2")
    said = "\n\n".join(held_out_text()["prose"])
    ids = torch.tensor(tokenizer.encode(said, add_special_tokens=False))
    weights = sum(w.nbytes for w in target.model.parameters())
    rows = [
        work(f"sparse-{length}", lambda: at_length(target, ids[:length], args))
        for length in sorted(args.lengths)
    ]
    asked = {name: getattr(args, name) for name in ("gamma", "temperature", "new")}
    return {"weights": weights, **asked, "rows": rows}


def on_a_part(target: CausalLM, length: int, args) -> dict[str, SparseCacheDrafter]:
    """The drafts by what they keep of the cache: a window, or half a window and as many in chunks;
    and one that keeps everything.
    """
    middle = target.num_layers // 2
    made = {}
    for budget in args.windows:
        chunks = Chunks([middle, middle + 1], budget // 2)
        made[f"window {budget}"] = SparseCacheDrafter(target, 4, budget, args.gamma)
        made[f"chunks {budget}"] = SparseCacheDrafter(target, 4, budget // 2, args.gamma, chunks)
    return made | {"everything": SparseCacheDrafter(target, 0, length + args.new, args.gamma)}


class LongText:
    """A target that has read a text once, and decodes behind several places of it: the last place
    first, for what is decoded there overwrites what follows it.
    """

    def __init__(self, target: CausalLM, tokens: Tensor, wanted: tuple, args):
        self.target, self.tokens, self.wanted, self.args = target, tokens, wanted, args
        self.cache = target.new_cache(capacity=len(tokens) + args.new + 16)
        target.score(tokens[:-1], self.cache, last=True)

    def context(self, place: int, seed: int = 0) -> Context:
        """Behind the first `place` tokens, the last of them not fed."""
        self.cache.crop(place - 2)
        known = self.tokens[place - 2 : place - 1]
        scores = self.target.score(known, self.cache, hidden_layers=self.wanted)
        sampling = Sampling(self.args.temperature)
        about = (sampling, SeededRng(seed), self.args.new, self.target.vocab_size, self.cache)
        return Context(self.tokens[:place], scores, *about)

    def decode(self, drafter: SparseCacheDrafter | None, place: int, seed: int) -> list:
        """The rounds that emit `new` tokens, the last of which may be cut short."""
        context = self.context(place, seed)
        session = Nothing() if drafter is None else drafter.start(context)
        rule, steps = default_rule(context.sampling), []
        while context.wanted > 0:
            step, context = speculate(self.target, session, context, rule, self.wanted)
            steps.append(step)
        return steps

    def passes(self, drafters: dict) -> dict:
        """Seconds, in turns: a pass over one token, one over γ + 1, and all drafting of a round."""
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
    """One context length: α, costs in the loop and alone, speedup measured and predicted of each
    draft.
    """
    length = len(tokens)
    drafters = on_a_part(target, length, args)
    wanted = max((each.hidden_layers for each in drafters.values()), key=len)
    text = LongText(target, tokens, wanted, args)
    everything = drafters.pop("everything")
    alone = text.passes(drafters)
    every = {"plain": None, **drafters}
    rng = np.random.default_rng(length)
    runs: dict = {label: [] for label in every}
    places = [length - args.new * i for i in range(args.texts)]
    for place in places:
        for found in runs.values():
            found.append([])
        for turn in range(max(1, args.turns // args.texts)):
            for label in rng.permutation(list(every)):
                runs[label][-1].append(text.decode(every[label], place, seed=place + turn))
    same = text.decode(everything, places[-1], seed=0)
    table = lambda label, get: np.array([[sum(map(get, s)) for s in row] for row in runs[label]])
    seconds = {label: table(label, lambda step: step.seconds) for label in every}
    one = float(np.median([s.verifying for row in runs["plain"] for turn in row for s in turn]))
    keys = target.new_cache(capacity=1).storage.tensors.keys
    made = []
    for label in drafters:
        rounds = [s for row in runs[label] for turn in row for s in turn]
        costs = timing.round_costs(rounds, one)
        accepted, tested = table(label, lambda s: s.accepted), table(label, lambda s: s.tested)
        rate = ratio(accepted, tested)
        draft, verify = (alone[part] / alone["one"] for part in (label, "verify"))
        tokens_a_round = theory.expected_tokens(rate["value"], args.gamma)
        made.append(
            {
                "draft": label,
                "speedup": ratio(seconds["plain"], seconds[label]),
                "alpha": rate,
                "tau": args.new * rate_of_rounds(runs[label]),
                "c": costs.draft / args.gamma,
                "verify": costs.verify,
                "c_alone": draft / args.gamma,
                "verify_alone": verify,
                "predicted": tokens_a_round / (draft + verify),
            }
        )
    return {
        "context": length,
        "cache_bytes": 2 * keys[..., :1, :].numel() * keys.element_size() * length,
        "turns": seconds["plain"].size,
        "places": len(places),
        "seconds": one,
        "alone": alone["one"],
        "everything": sum(s.accepted for s in same) / sum(s.tested for s in same),
        "drafts": made,
    }


def rate_of_rounds(rows: list) -> float:
    """Generations ÷ rounds."""
    return sum(map(len, rows)) / sum(len(turn) for row in rows for turn in row)


# The command line ---------------------------------------------------------------------------------

PARTS = {
    "exits": ("exits", "Early exits: acceptance and saturation by depth"),
    "skips": ("skips", "Sublayers left out: the acceptance of sets of them"),
    "bits": ("bits", "Rounded copies of the target: acceptance by bits"),
    "ahead": ("ahead", "Look-ahead rows and heads: acceptance by position"),
    "speed": ("selfspeed", "Drafts from the target itself against plain decoding"),
    "sparse": ("sparse", "Drafts on a part of the cache, behind long texts"),
}


def main(arguments: list[str] | None = None) -> None:
    parser = parser_for("benchmarks.self_drafts", __doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--work", type=Path, default=Path(".work/self_drafts"))
    parser.add_argument("--adapters", type=Path, default=Path(".work/early_exit"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--new", type=int, default=64, help="tokens a text")
    parser.add_argument("--most", type=int, default=12, help="sublayers that a search leaves out")
    parser.add_argument("--offered", type=int, default=24, help="sublayers to choose from")
    parser.add_argument("--group", type=int, default=1, help="blocks that share their switches")
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--windows", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--repeats", type=int, default=15, help="of passes that are timed alone")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8064])
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=8.0, help="of turns, a target (speed)")
    args = parser.parse_args(arguments)
    size = f"{args.texts}x{args.new}"
    work = Work(args.work, size)
    make = globals()[args.part]
    takes_work = args.part in ("skips", "sparse")
    if args.part == "sparse":
        data = make("smollm2", args, work)
    else:
        data = {"targets": {}}
        for name in args.targets:
            data["targets"][name] = (
                make(name, args, work)
                if takes_work
                else work(f"{args.part}-{name}", lambda: make(name, args))
            )
    file, what = PARTS[args.part]
    command = typed(parser, arguments)
    print(results.save(args.out / f"{file}.json", results.stamp(what, command), data))


if __name__ == "__main__":
    main()
