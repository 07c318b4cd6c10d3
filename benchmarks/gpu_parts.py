"""The measurements of `benchmarks.gpu`, one function each: `(bench) -> dict` of plain numbers.

What lives here: what is measured and how. What does not: the command line, resuming and the table
(`gpu`). Random weights stand in where only shapes matter, and are called so; α comes from the pair
that was trained, never from elsewhere.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from specdec_lite import (
    CausalLM,
    TokenTree,
    corpus,
    generate,
    load_pair,
    stream,
    theory,
    timeline,
    timing,
)
from specdec_lite.acceptance import exact_match, speculative_sampling
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.loading.pairs import SHIPPED, Pair, save_model
from specdec_lite.measure.results import published
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, verify
from specdec_lite.training import (
    Plan,
    distillation_loss,
    initialise,
    next_token_loss,
    prepare,
    tokenize,
    train,
)

from .hugging_face import HuggingFace

MODES = ("eager", "static")
"""As the models are, with the plain drafter and rule; in static shapes (on a GPU captured as
graphs), with drafting and judging on the device.
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is. random: the shape that is timed with random weights. seconds: for
    training, all of it.
    """

    target: TransformerConfig
    draft: TransformerConfig
    random: TransformerConfig
    seconds: float = 240.0
    steps: tuple[int, int, int] = (1500, 300, 1200)
    rows: int = 16
    window: int = 512
    capacity: int = 768
    gamma: int = 4
    ks: tuple[int, ...] = (1, 2, 3, 5, 8, 16, 32, 64)
    trees: tuple[int, ...] = (8, 16, 32, 64)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    context: int = 256
    prompts: int = 4
    new_tokens: int = 128
    repeats: int = 7
    copied: int = 4 << 30
    budget: float = 12.0


def llama(
    hidden: int, feed: int, layers: int, heads: int, vocabulary: int = 2048, tied: bool = True
) -> TransformerConfig:
    """A Llama shape with as many key/value heads as query heads."""
    return TransformerConfig(
        vocabulary,
        hidden,
        feed,
        layers,
        heads,
        heads,
        hidden // heads,
        tied=tied,
        max_positions=2048,
    )


FULL = Scale(
    llama(1024, 3072, 26, 16), llama(512, 1408, 3, 8), llama(4096, 11008, 32, 32, 32000, tied=False)
)
TINY = Scale(
    llama(64, 128, 3, 2),
    llama(32, 64, 1, 2),
    llama(96, 192, 4, 2),
    4.0,
    (4, 2, 2),
    2,
    32,
    160,
    2,
    (1, 3),
    (4,),
    (1, 2),
    32,
    1,
    12,
    1,
    1 << 20,
    0.5,
)


@dataclass
class Bench:
    """Where and how large, and the models, made when they are first asked for."""

    device: str
    dtype: str
    scale: Scale
    work: Path
    made: dict = field(default_factory=dict)

    @property
    def graphs(self) -> bool:
        """Whether passes of fixed shape are captured here."""
        return torch.device(self.device).type == "cuda"

    def pair(self, dtype: str) -> Pair:
        """The pair trained on the spot, in a dtype."""
        if dtype not in self.made:
            self.made[dtype] = load_pair(
                self.work / "pair" / "target",
                self.work / "pair" / "draft",
                self.device,
                dtype,
                context=self.scale.capacity,
            )
        return self.made[dtype]

    def models(self, mode: str, dtype: str) -> tuple[CausalLM, CausalLM]:
        """Target and draft: as they are, or in static shapes, captured as graphs where there is a
        GPU.
        """
        pair, gamma = self.pair(dtype), self.scale.gamma
        if mode == "eager":
            return pair.target, pair.draft
        if (mode, dtype) not in self.made:
            self.made[mode, dtype] = (
                StaticLM(pair.target, self.scale.capacity, (1, 2, gamma + 1)),
                StaticLM(pair.draft, self.scale.capacity, (1, 2)),
            )
        return self.made[mode, dtype]

    def method(self, mode: str, dtype: str) -> tuple[ModelDrafter, object]:
        """The drafter and the rule that go with a mode."""
        draft = self.models(mode, dtype)[1]
        return (
            (ModelDrafter(draft, self.scale.gamma), None)
            if mode == "eager"
            else (DeviceDrafter(draft, self.scale.gamma), on_device)
        )

    @cached_property
    def prompts(self) -> list[torch.Tensor]:
        tokenizer = self.pair(self.dtype).tokenizer
        texts = [item["text"] for item in corpus.evaluation_prompts()["code"][: self.scale.prompts]]
        return [torch.tensor(tokenizer.encode(text))[-self.scale.context :] for text in texts]


def random_model(config: TransformerConfig, device: str, dtype: torch.dtype) -> CausalLM:
    """A model whose weights mean nothing: for times, which depend on shapes alone."""
    with torch.device("meta"):
        model = Transformer(config).to(dtype)
    model = model.to_empty(device=device)
    if config.tied:
        model.head.weight = model.embedding.weight
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    return CausalLM(model.requires_grad_(False))


def weight_bytes(model: CausalLM) -> int:
    return sum(weight.nbytes for weight in model.model.parameters())


# The parts ----------------------------------------------------------------------------------------


def training(bench: Bench) -> dict:
    """Train target and draft, and distil the draft; as many steps as the seconds allow, by a probe
    of each stage.
    """
    scale, folder = bench.scale, bench.work / "pair"
    if scale is TINY:
        tokenizer = load_pair().tokenizer
        streams = {"docs": tokenize(tokenizer, corpus.training_text()["docs"][:40])}
    else:
        tokenizer, streams = prepare(bench.work, SHIPPED)
    target, draft = (
        initialise(Transformer(config)).to(bench.device) for config in (scale.target, scale.draft)
    )
    stages = (
        ("target", target, next_token_loss(target), 6e-4, 0.6),
        ("draft", draft, next_token_loss(draft), 2e-3, 0.1),
        ("distilled", draft, distillation_loss(draft, target), 2e-3, 0.3),
    )
    done = {}
    for (name, model, loss, rate, share), most in zip(stages, scale.steps):
        plan = lambda steps: Plan(
            steps, rate, scale.rows, scale.window, scale.window, warmup=max(1, min(100, steps // 5))
        )
        if not (bench.work / f"{name}.pt").exists():
            before = {key: value.clone() for key, value in model.state_dict().items()}
            train(
                model, loss, streams, plan(2), bench.work / f"start-{name}.pt"
            )  # a device's first steps are slow
            each = train(model, loss, streams, plan(6), bench.work / f"probe-{name}.pt") / 6
            model.load_state_dict(before)
            most = max(2, min(most, int(scale.seconds * share / each)))
        else:
            most = torch.load(bench.work / f"{name}.steps", weights_only=True)
        torch.save(most, bench.work / f"{name}.steps")
        done[name] = {
            "steps": most,
            "seconds": train(model, loss, streams, plan(most), bench.work / f"{name}.pt"),
        }
    for name, model in (("target", target), ("draft", draft)):
        save_model(folder / name, model, tokenizer, limit=2_000_000_000)
    parameters = {
        name: sum(w.numel() for w in model.parameters())
        for name, model in (("target", target), ("draft", draft))
    }
    return {"parameters": parameters, "tokens_per_step": scale.rows * scale.window, "stages": done}


def losslessness(bench: Bench) -> dict:
    """Where speculative greedy text first leaves the plain one, with the gap of the two logits
    there, by dtype and mode.
    """
    rows = []
    dtypes = dict.fromkeys(("float32", bench.dtype))
    for dtype in dtypes:
        for mode in MODES:
            target = bench.models(mode, dtype)[0]
            drafter, rule = bench.method(mode, dtype)
            for index, ids in enumerate(bench.prompts):
                plain, fast = (
                    generate(target, ids, d, bench.scale.new_tokens, rule=r).tokens
                    for d, r in ((None, None), (drafter, rule))
                )
                differ = (plain != fast).nonzero()
                row = {
                    "dtype": dtype,
                    "mode": mode,
                    "prompt": index,
                    "tokens": len(plain),
                    "diverges_at": None,
                }
                if len(differ):
                    at = int(differ[0])
                    logits = (
                        target.score(torch.cat((ids, plain[:at])), target.new_cache(), last=True)
                        .logits[0, -1]
                        .float()
                    )
                    row |= {
                        "diverges_at": at,
                        "gap": abs(float(logits[plain[at]] - logits[fast[at]])),
                        "largest_logit": float(logits.abs().max()),
                    }
                rows.append(row)
    return {
        "rows": rows,
        "one_against_many": {dtype: one_against_many(bench, dtype) for dtype in dtypes},
    }


def one_against_many(bench: Bench, dtype: str) -> float:
    """Largest difference between logits of γ + 1 tokens in one pass and in γ + 1 passes: another
    kernel sums in another order.
    """
    model = bench.pair(dtype).target
    ids = bench.prompts[0]
    count = bench.scale.gamma + 1
    whole, single = model.new_cache(), model.new_cache()
    for cache in (whole, single):
        model.score(ids[:-count], cache)
    together = model.score(ids[-count:], whole).logits[0].float()
    apart = torch.stack(
        [
            model.score(ids[i : i + 1], single).logits[0, 0].float()
            for i in range(len(ids) - count, len(ids))
        ]
    )
    return float((together - apart).abs().max())


def copy_bandwidth(bench: Bench) -> float:
    """Bytes read and written per second by a copy within the device's memory."""
    source = torch.ones(bench.scale.copied // 4, device=bench.device)
    goal = torch.empty_like(source)
    return (
        2
        * source.nbytes
        / timing.interleaved(
            {"copy": lambda: goal.copy_(source)}, source.device, bench.scale.repeats
        )["copy"]
    )


def tree_pass(model: CausalLM, nodes: int, context: int):
    """A job that scores a binary tree of `nodes` nodes after `context` tokens, and forgets it."""
    cache = model.new_cache(capacity=context + nodes + 1)
    model.score(torch.zeros(context, dtype=torch.long), cache, last=True)
    tree = TokenTree([1] * nodes, [-1 if node < 2 else node // 2 - 1 for node in range(nodes)])
    fed = torch.ones(nodes + 1, dtype=torch.long, device=model.device)

    def job() -> None:
        model.score(fed, cache, tree)
        cache.crop(context)

    return job


def passes(bench: Bench) -> dict:
    """A large model with random weights: T(k), trees, and the share of the copy bandwidth that
    reading the weights reaches.
    """
    scale, dtype = bench.scale, getattr(torch, bench.dtype)
    plain = random_model(scale.random, bench.device, dtype)
    read = weight_bytes(plain) - (
        0 if scale.random.tied else plain.model.embedding.weight.nbytes
    )  # of an untied embedding one row
    sizes = tuple(sorted({*scale.ks, *(nodes + 1 for nodes in scale.trees)}))
    bandwidth, rows = copy_bandwidth(bench), []
    for mode, model in zip(MODES, (plain, StaticLM(plain, scale.capacity, sizes))):
        chains = timing.pass_times(
            model, scale.ks, scale.context, repeats=scale.repeats, budget=scale.budget
        )
        trees = timing.spreads(
            {n: tree_pass(model, n, scale.context) for n in scale.trees},
            model.device,
            scale.repeats,
            budget=scale.budget,
        )
        one = chains[1, 1].median
        rows.append(
            {
                "mode": mode,
                "chains": {k: chains[1, k].median for k in scale.ks},
                "trees": {n: trees[n].median for n in scale.trees},
                "bandwidth_share": read / one / bandwidth,
            }
        )
    return {
        "weights": "random",
        "parameters": weight_bytes(plain) // dtype.itemsize,
        "bytes": weight_bytes(plain),
        "copy_bandwidth": bandwidth,
        "context": scale.context,
        "rows": rows,
    }


def batches(bench: Bench) -> dict:
    """Seconds of passes over one and over γ + 1 tokens of the trained target, by batch size."""
    scale = bench.scale
    rows = []
    eager = bench.models("eager", bench.dtype)[0]
    for mode in MODES:
        for batch in scale.batches:
            # Slots stay with their StaticLM, to be used again: one for each batch, so that the
            # large ones go.
            model = (
                eager
                if mode == "eager"
                else StaticLM(eager, scale.capacity, (1, 2, scale.gamma + 1))
            )
            found = timing.pass_times(
                model,
                (1, scale.gamma + 1),
                scale.context,
                (batch,),
                scale.repeats,
                scale.budget / len(scale.batches),
            )
            rows.append(
                {
                    "mode": mode,
                    "batch": batch,
                    "one": found[batch, 1].median,
                    "verify": found[batch, scale.gamma + 1].median,
                }
            )
    return {"gamma": scale.gamma, "rows": rows}


def phases(bench: Bench, temperature: float = 1.0) -> dict:
    """A round taken apart: γ draft passes, the target's pass, the verdict; between CUDA events on a
    GPU.
    """
    rows, gamma = [], bench.scale.gamma
    for mode in MODES:
        target, draft = bench.models(mode, bench.dtype)
        drafter, rule = bench.method(mode, bench.dtype)
        rule = rule or (speculative_sampling if temperature else exact_match)
        tokens = bench.prompts[0].to(target.device)
        cache = target.new_cache(capacity=bench.scale.capacity // 2)
        target.score(tokens[:-1], cache)
        sampling = Sampling(temperature)
        context = Context(tokens, None, sampling, SeededRng(0), gamma + 1, target.vocab_size, cache)
        session = drafter.start(context)
        proposal = session.propose(context)
        fed = torch.cat((tokens[-1:], proposal.tree.tokens.to(tokens.device)))
        scores = target.score(fed, cache)
        cache.crop(len(tokens) - 1)

        def drafting():
            session.cache.crop(len(tokens) - 1)
            session.propose(context)

        def verifying(count=gamma + 1):
            target.score(fed[:count], cache)
            cache.crop(len(tokens) - 1)

        jobs = {
            "draft": drafting,
            "verify": verifying,
            "judge": lambda: verify(rule, proposal, scores, context),
            "one": lambda: verifying(1),
        }
        rows.append({"mode": mode, **timing.interleaved(jobs, target.device, bench.scale.repeats)})
    return {"gamma": gamma, "rows": rows}


def contenders(bench: Bench, temperature: float) -> dict:
    """name → job(ids, seed); ours return their `Output`."""
    jobs = {}
    for mode in MODES:
        target = bench.models(mode, bench.dtype)[0]
        drafter, rule = bench.method(mode, bench.dtype)
        plain_rule = on_device if mode == "static" else None
        for name, d, r in (
            (f"plain {mode}", None, plain_rule),
            (f"speculative {mode}", drafter, rule),
        ):
            jobs[name] = lambda ids, seed, target=target, d=d, r=r: generate(
                target, ids, d, bench.scale.new_tokens, temperature, rule=r, seed=seed
            )
    run = HuggingFace(bench.work / "pair", bench.dtype, bench.scale.gamma, bench.device)
    return jobs | {
        f"hf {name}": lambda ids, seed, assisted=assisted: run(
            ids, bench.scale.new_tokens, temperature, seed, assisted
        )
        for name, assisted in (("plain", False), ("assisted", True))
    }


def speed(bench: Bench) -> dict:
    """Tokens per second of every contender, in turns; α, τ; the corrected prediction from the
    phases beside what came out.

    live_seconds: the phases of the very rounds that decoded (between CUDA events on a GPU), means
    over all of them.
    """
    scale, rows = bench.scale, []
    for temperature in (0.0, 1.0):
        jobs = contenders(bench, temperature)
        parts = {row["mode"]: row for row in phases(bench, temperature)["rows"]}
        seconds = {name: np.zeros((len(bench.prompts), scale.repeats)) for name in jobs}
        counts = {mode: [] for mode in MODES}
        for turn in range(-1, scale.repeats):
            for index, ids in enumerate(bench.prompts):
                for name, job in jobs.items():
                    timing.synchronise(torch.device(bench.device))
                    began = perf_counter()
                    out = job(ids, turn)
                    timing.synchronise(torch.device(bench.device))
                    if turn >= 0:
                        seconds[name][index, turn] = perf_counter() - began
                        if name.startswith("speculative"):
                            counts[name.split()[1]].append(out.stats)
        rates = {
            name: scale.new_tokens * len(bench.prompts) / float(np.median(taken, axis=1).sum())
            for name, taken in seconds.items()
        }
        rows += [
            speed_row(bench, mode, temperature, rates, counts[mode], parts[mode]) for mode in MODES
        ]
    return {
        "gamma": scale.gamma,
        "dtype": bench.dtype,
        "new_tokens": scale.new_tokens,
        "rows": rows,
    } | footprint(bench)


def speed_row(
    bench: Bench, mode: str, temperature: float, rates: dict, stats: list, parts: dict
) -> dict:
    total = lambda name: sum(getattr(s, name) for s in stats)
    tested = total("tested")
    gamma = bench.scale.gamma
    one = parts["one"]
    tau = total("tokens") / total("target_passes")
    c = parts["draft"] / gamma / one
    verify = parts["verify"] / one
    overhead = parts["judge"] / one
    rounds = total("target_passes")
    idle = total("seconds") - total("drafting") - total("verifying")
    live = {
        "draft_pass": total("drafting") / max(1, total("draft_passes")),
        "verify": total("verifying") / rounds,
        "other": idle / rounds,
    }
    return {
        "mode": mode,
        "temperature": temperature,
        "alpha": total("accepted") / tested if tested else None,
        "tau": tau,
        "c": c,
        "verify": verify,
        "overhead": overhead,
        "predicted": theory.corrected_improvement(tau, gamma, c, verify, overhead),
        "measured": rates[f"speculative {mode}"] / rates[f"plain {mode}"],
        "live_seconds": live,
        "c_in_loop": live["draft_pass"] / one,
        "tokens_per_second": rates,
    }


def footprint(bench: Bench) -> dict:
    """What the draft adds: bytes of its weights and of its cache; and seconds to the first token,
    with it and without.
    """
    (target, draft), ids = bench.models("eager", bench.dtype), bench.prompts[0]
    cache = draft.new_cache(capacity=bench.scale.capacity).storage.tensors
    first = lambda drafter: lambda: next(stream(target, ids, drafter, bench.scale.gamma + 2))
    jobs = {"plain": first(None), "speculative": first(ModelDrafter(draft, bench.scale.gamma))}
    return {
        "draft_bytes": {
            "weights": weight_bytes(draft),
            "cache": cache.keys.nbytes + cache.values.nbytes,
        },
        "target_bytes": weight_bytes(target),
        "first_token": timing.interleaved(jobs, target.device, bench.scale.repeats),
    }


def depth(bench: Bench) -> dict:
    """Random weights: the c of a shallow and of a narrow, deep draft with like parameters; what a
    published acceptance (÷ drafted, γ = 2) would then give.
    """
    tiny = bench.scale is TINY
    target = llama(64, 128, 6, 2) if tiny else llama(2048, 5632, 28, 16)
    drafts = {
        "shallow": llama(64, 128, 1, 2) if tiny else llama(1024, 2816, 2, 16),
        "narrow and deep": llama(32, 64, 5, 2) if tiny else llama(320, 896, 24, 5),
    }
    given = dict(map(lambda row: (row[0], row[1]), published("trained_draft_pitfall")["rows"]))
    rows = []
    dtype = getattr(torch, bench.dtype)
    capacity = bench.scale.capacity
    eager = {
        name: random_model(config, bench.device, dtype)
        for name, config in {"target": target, **drafts}.items()
    }
    for mode in MODES:
        models = (
            eager
            if mode == "eager"
            else {name: StaticLM(model, capacity, (1, 3)) for name, model in eager.items()}
        )
        one = {
            name: timing.pass_times(
                model,
                (1, 3),
                bench.scale.context,
                repeats=bench.scale.repeats,
                budget=bench.scale.budget,
            )
            for name, model in models.items()
        }
        base = one["target"][1, 1].median
        for name in drafts:
            c, verify = one[name][1, 1].median / base, one["target"][1, 3].median / base
            rows.append(
                {
                    "mode": mode,
                    "draft": name,
                    "layers": drafts[name].num_layers,
                    "c": c,
                    "parameter_ratio": weight_bytes(eager[name]) / weight_bytes(eager["target"]),
                    "layer_ratio": drafts[name].num_layers / target.num_layers,
                    "verify": verify,
                    "at_published_acceptance": theory.corrected_improvement(
                        1 + 2 * given["acceptance"], 2, c, verify
                    ),
                }
            )
    return {"weights": "random", "published": given, "gamma": 2, "rows": rows}


def launches(bench: Bench) -> dict:
    """One pass of the trained draft, operation by operation: as the host calls them, and as a GPU
    runs its kernels.

    operations: [kind, start, seconds] each. The last part, since a profiler may slow down what runs
    after it.
    """
    rows, ids = [], bench.prompts[0]
    for mode in MODES:
        draft = bench.models(mode, bench.dtype)[1]
        cache = draft.new_cache(capacity=bench.scale.capacity // 2)
        draft.score(ids, cache, last=True)

        def job() -> None:
            draft.score(ids[:1], cache)
            cache.crop(len(ids))

        for lane, found in (("host", timeline.operations(job)), ("GPU", timeline.kernels(job))):
            if found:
                rows.append(
                    {
                        "mode": mode,
                        "lane": lane,
                        "seconds": timeline.span(found),
                        "shares": timeline.shares(found),
                        "operations": [
                            [op.kind, round(op.start, 8), round(op.seconds, 8)] for op in found
                        ],
                    }
                )
    return {"rows": rows}


PARTS = {
    "training": training,
    "losslessness": losslessness,
    "passes": passes,
    "depth": depth,
    "batches": batches,
    "phases": phases,
    "speed": speed,
    "timeline": launches,
}
