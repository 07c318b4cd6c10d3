"""Drafts from the target itself, measured: one recording a part, each with the pair and SmolLM2.

    python -m benchmarks.self_drafts exits       # α and saturation by depth; 4 minutes
    python -m benchmarks.self_drafts skips       # α of every set of sublayers, and searches; 40 minutes
    python -m benchmarks.self_drafts bits        # α of rounded copies; 3 minutes
    python -m benchmarks.self_drafts ahead       # α by position: look-ahead rows and heads; 5 minutes
    python -m benchmarks.self_drafts speed       # a clock: paired turns; wants a quiet machine
    python -m benchmarks.self_drafts sparse      # a clock: long contexts; wants a quiet machine

What is finished is kept in --work, so an interrupted run goes on. The clocks take --minutes a
target (speed) or a context length (sparse).
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import Bench, Contender, ours, ratio, take_turns
from specdec_lite import CausalLM, generate, results, theory, timing
from specdec_lite.acceptance import exact_match
from specdec_lite.drafters import (
    BlockwiseDrafter,
    EarlyExitDrafter,
    LayerSkipDrafter,
    PassDrafter,
    QuantisedDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.early_exit import SHIPPED as ADAPTERS
from specdec_lite.drafters.heads import ExitHead
from specdec_lite.drafters.layer_skip import every_sublayer, greedy_search
from specdec_lite.drafters.quantised import quantised, stored_bytes
from specdec_lite.drafters.sparse_cache import Chunks
from specdec_lite.loading.corpus import evaluation_prompts, held_out_text
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import load
from specdec_lite.proposal import NOTHING
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Session, speculate
from specdec_lite.training.own_text import continued
from specdec_lite.training.skipping import StoredText

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
        load(path, target, ExitHead).layers: path for path in ADAPTERS.glob(f"{name}/*.safetensors")
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


def searched(target: CausalLM, text: StoredText, offered, most: int, seed: int = 0) -> dict:
    """Greedy search, and as many random sets of the same sizes."""
    asked = []

    def acceptance(skip):
        asked.append(skip)
        return text.acceptance(skip)

    path = greedy_search(acceptance, offered, most)
    rng = np.random.default_rng(seed)
    count = len(asked)
    drawn = []
    for _ in range(count):
        size = int(rng.integers(1, most + 1))
        picked = [offered[i] for i in rng.choice(len(offered), size, replace=False)]
        drawn.append((picked, text.acceptance(picked)))
    described = lambda skip: sorted([block, kind] for block, kind in skip)
    return {
        "evaluations": count,
        "greedy": [{"skip": described(skip), "rate": rate} for skip, rate in path],
        "random": [{"skip": described(skip), "rate": rate} for skip, rate in drawn],
    }


def skips(name: str, args, work: Work) -> dict:
    """The searches; for the pair's target also the rate of every set."""
    target, tokenizer = load_target(name)
    texts, first = own_texts(name, target, tokenizer, args.texts, args.new)
    text = StoredText(target, texts, first)
    costs = costs_by_bytes(target)
    offered = every_sublayer(target.num_layers)
    if name == "smollm2":  # only those whose loss alone is least: thirty of sixty
        alone = work("skips-smollm2-alone", lambda: [text.acceptance([one]) for one in offered])
        order = np.argsort(alone)[::-1][: args.offered]
        offered = sorted(offered[i] for i in order)
    made = {
        "layers": target.num_layers,
        "places": text.fed.numel(),
        "bytes": costs,
        "search": work(f"skips-{name}-search", lambda: searched(target, text, offered, args.most)),
    }
    if name == "pair":
        made["group"] = args.group
        made["sets"] = work(
            f"skips-pair-sets-{args.group}", lambda: permille(text.every_set(args.group))
        )
    return made


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
                "rate": torch.minimum(law, logits.softmax(-1)).sum(-1).mean().item(),
                "agreement": (logits.argmax(-1) == law.argmax(-1)).double().mean().item(),
                "bytes": stored_bytes(target, width),
            }
        )
    linear = costs_by_bytes(target)
    whole = linear["head"] + target.num_layers * (linear["attention"] + linear["mlp"])
    return {"places": law[..., 0].numel(), "bytes": whole, "rows": found}


def by_position(target: CausalLM, drafter, rows, new: int) -> dict:
    """Accepted ÷ reached for each drafted position at temperature 1, and τ."""
    steps = [
        step
        for seed, ids in enumerate(rows)
        for step in generate(target, ids, drafter, new, 1.0, seed=seed).steps
    ]
    levels = max(len(step.tree) for step in steps)
    whole = [step for step in steps if len(step.tree) == levels]
    reached = [sum(step.accepted >= level for step in whole) for level in range(levels + 1)]
    return {
        "rounds": len(whole),
        "reached": reached,
        "conditional": [b / a if a else 0.0 for a, b in zip(reached, reached[1:])],
        "tau": sum(len(step.tokens) for step in whole) / len(whole),
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


def contestants(name: str, target: CausalLM, gamma: int, skip) -> dict:
    """What takes turns in `speed`."""
    trained = EarlyExitDrafter.from_pretrained(target, gamma=gamma)
    anew = EarlyExitDrafter.from_pretrained(target, gamma=gamma, reuse=False)
    layers = trained.layers
    return {
        "early exit": anew,
        "early exit, reuse": trained,
        "early exit, no adapter": EarlyExitDrafter(target, layers, gamma),
        "skipped sublayers": LayerSkipDrafter(target, skip, gamma),
        "8 bits": QuantisedDrafter(target, 8, gamma),
        "look-ahead rows": PassDrafter.from_pretrained(target),
    }


def speed(name: str, args) -> dict:
    """Each method against plain decoding, in turns, and the formulas beside it."""
    target, tokenizer = load_target(name)
    found = results.load("skips").data["targets"][name]["search"]
    skip = found["greedy"][min(args.skipped, len(found["greedy"]) - 1)]["skip"]
    drafters = contestants(name, target, args.gamma, [tuple(one) for one in skip])
    run = lambda drafter: ours(target, drafter, None, args.new, args.temperature)
    every = {"plain": Contender(run(None))}
    every |= {label: Contender(run(each), each, label) for label, each in drafters.items()}
    rows = [torch.tensor(ids) for ids in prompts(name, tokenizer, args.texts)]
    for contender in every.values():
        contender.run(rows[0], 0)
    bench = Bench(None, {}, turns=args.turns, least=min(20, args.turns), new_tokens=args.new)
    deadline = perf_counter() + 60 * args.minutes
    turns = take_turns(every, rows, bench, name, deadline)
    layers = drafters["early exit"].layers
    alone = passes(target, rows[0], args.gamma, layers)
    table = lambda label, get: np.array([[get(r) for r in row] for row in turns[label]])
    pace = {label: table(label, lambda r: r.seconds / r.tokens) for label in every}
    steps = {label: [s for row in turns[label] for r in row for s in r.steps] for label in every}
    one = float(np.median([step.verifying for step in steps["plain"]]))
    undisturbed = timing.round_costs(steps["plain"], one).total
    made = []
    for label, drafter in drafters.items():
        costs = timing.round_costs(steps[label], one)
        levels = drafter.shape().levels
        tau = sum(len(s.tokens) for s in steps[label]) / len(steps[label])
        accepted = sum(s.accepted for s in steps[label])
        made.append(
            {
                "method": label,
                "levels": levels,
                "speedup": ratio(pace["plain"], pace[label]),
                "alpha": accepted / max(1, sum(s.tested for s in steps[label])),
                "tau": tau,
                "draft": costs.draft,
                "verify": costs.verify,
                "other": costs.other,
                "from_costs": tau * undisturbed / costs.total,
            }
        )
    # What reuse ought to be, from passes timed alone and from the rounds without it.
    plain_exit = next(row for row in made if row["method"] == "early exit")
    reuse = next(row for row in made if row["method"] == "early exit, reuse")
    whole, shared = alone["verify"] / alone["one"], alone["shared"] / alone["one"]
    return {
        "gamma": args.gamma,
        "temperature": args.temperature,
        "new": args.new,
        "turns": sum(map(len, turns["plain"])),
        "target_seconds": one,
        "layers": layers,
        "skip": skip,
        "alone": alone,
        "reuse": {
            "shared": shared,
            "verify": whole,
            "predicted_change": -shared * (whole - 1),
            "measured_change": reuse["draft"]
            + reuse["verify"]
            - plain_exit["draft"]
            - plain_exit["verify"],
            "predicted": theory.reuse_improvement(
                reuse["tau"],
                args.gamma,
                plain_exit["draft"] / args.gamma,
                shared,
                whole,
                reuse["other"],
            ),
        },
        "rows": made,
    }


def passes(target: CausalLM, ids: Tensor, gamma: int, layers: int) -> dict:
    """Seconds of single passes, in turns: one token, γ + 1 tokens, the first layers over one token
    with the head and without ("shared"), and the layers behind them over γ + 1 rows.
    """
    cache = target.new_cache(capacity=len(ids) + gamma + 1)
    target.score(ids, cache, last=True)
    fed = ids[:1].expand(gamma + 1)
    hidden = torch.zeros(1, gamma + 1, target.hidden_size, dtype=target.dtype)

    def job(fed, layers=None, **options):
        target.score(fed, cache.view(layers=layers), **options)

    jobs = {
        "one": lambda: job(fed[:1]),
        "verify": lambda: job(fed),
        "shallow": lambda: job(fed[:1], layers),
        "shared": lambda: job(fed[:1], layers, logits=False),
        "behind": lambda: job(fed, states=(layers, hidden)),
        "ahead": lambda: job(fed[:4]),
    }
    return timing.interleaved(jobs, target.device, repeats=30)


class Nothing(Session):
    """No draft: plain decoding."""

    def propose(self, context):
        return NOTHING


def sparse(name: str, args, work: Work) -> dict:
    """SmolLM2 behind a long text: plain decoding, a window, and a window with chunks, in turns on
    one prefilled cache.
    """
    target, tokenizer = load_target("smollm2")
    said = "\n\n".join(held_out_text()["prose"])
    ids = torch.tensor(tokenizer.encode(said, add_special_tokens=False))
    weights = sum(w.nbytes for w in target.model.parameters())
    rows = [
        work(f"sparse-{length}", lambda: at_length(target, ids, length, args))
        for length in args.lengths
    ]
    return {"weights": weights, "gamma": args.gamma, "window": args.window, "rows": rows}


def at_length(target: CausalLM, ids: Tensor, length: int, args) -> dict:
    """One context length: α, τ, costs and speedup of each draft."""
    middle = target.num_layers // 2
    chunks = Chunks([middle, middle + 1], args.window // 2)
    drafters = {
        "plain": None,
        "window": SparseCacheDrafter(target, 4, args.window, args.gamma),
        "window and chunks": SparseCacheDrafter(target, 4, args.window // 2, args.gamma, chunks),
    }
    tokens = ids[:length]
    cache = target.new_cache(capacity=length + args.new + 16)
    wanted = (middle, middle + 1)
    prefill = target.score(tokens[:-1], cache, hidden_layers=wanted, last=True)
    runs = {label: [] for label in drafters}
    rng = np.random.default_rng(length)
    deadline = perf_counter() + 60 * args.minutes
    for turn in range(args.turns):
        if turn >= min(4, args.turns) and perf_counter() > deadline:
            break
        for label in rng.permutation(list(drafters)):
            cache.crop(length - 1)
            drafter = drafters[label]
            context = Context(
                tokens, prefill, Sampling(0.0), SeededRng(0), args.new, target.vocab_size, cache
            )
            session = Nothing() if drafter is None else drafter.start(context)
            layers = () if drafter is None else drafter.hidden_layers
            steps = []
            while context.wanted > 0:
                step, context = speculate(target, session, context, exact_match, layers)
                steps.append(step)
            if turn:  # the first warms up
                runs[label].append(steps)
    pace = {
        label: np.array([[sum(s.seconds for s in steps) / args.new for steps in found]])
        for label, found in runs.items()
    }
    one = float(np.median([s.verifying for steps in runs["plain"] for s in steps]))
    made = {
        "context": length,
        "cache_bytes": 2
        * cache.storage.tensors.keys[..., :length, :].numel()
        * cache.storage.tensors.keys.element_size(),
        "turns": len(runs["plain"]),
        "seconds": one,
        "drafts": [],
    }
    for label in list(drafters)[1:]:
        steps = [s for found in runs[label] for s in found]
        costs = timing.round_costs(steps, one)
        made["drafts"].append(
            {
                "draft": label,
                "speedup": ratio(pace["plain"], pace[label]),
                "alpha": sum(s.accepted for s in steps) / max(1, sum(s.tested for s in steps)),
                "tau": sum(len(s.tokens) for s in steps) / len(steps),
                "c": costs.draft / args.gamma,
                "verify": costs.verify,
            }
        )
    return made


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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.self_drafts", description=__doc__.splitlines()[0]
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--work", type=Path, default=Path(".work/self_drafts"))
    parser.add_argument("--adapters", type=Path, default=Path(".work/early_exit"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--new", type=int, default=64, help="tokens a text")
    parser.add_argument("--most", type=int, default=12, help="sublayers that a search leaves out")
    parser.add_argument(
        "--offered", type=int, default=24, help="sublayers of SmolLM2 to choose from"
    )
    parser.add_argument("--group", type=int, default=1, help="blocks that share their switches")
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--skipped", type=int, default=6, help="sublayers left out, in speed")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8064])
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=8.0)
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
    typed = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python -m benchmarks.self_drafts", *typed])
    print(results.save(args.out / f"{file}.json", results.stamp(what, command), data))


if __name__ == "__main__":
    main()
