"""Measure one aspect of a device per function: `(bench) -> dict` of plain numbers.

`gpu` runs these functions as its steps. Where only shapes matter, a model has random weights, and
its recording says so; α always comes from the pair trained here. Attention runs without cuDNN, as
in the library (`transformer.steady_attention`), unless a row states another kernel.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_book.recordings import published
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
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.gpu.graphs import SIZES, StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.gpu.whole_draft import CapturedDrafter
from specdec_lite.loading.memory import native_size
from specdec_lite.loading.pairs import SHIPPED, Pair, save_model
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import SHIPPED as WEIGHTS
from specdec_lite.measure.intervals import ratio
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context
from specdec_lite.training import (
    Plan,
    distillation_loss,
    initialize,
    next_token_loss,
    prepare,
    tokenize,
    train,
)
from specdec_lite.training.head_texts import smollm2_texts

from .hugging_face import HuggingFace
from .speed import Contender, ours, take_turns, theirs

COMPILED = "hf compiled"
"""Name of Transformers' compiled decoding. The recording contains the error if compilation fails, for
example without a C compiler or Triton."""
ROOT = Path(__file__).resolve().parents[1]
BATCH = 8
"""Texts per training step of a head."""
PASSES = ("eager", "static")
"""Kinds of passes: ordinary, and of fixed shape. A GPU captures the second kind as graphs."""
MODES = {
    "eager": ("eager", ModelDrafter, None),
    "eager, one read": ("eager", DeviceDrafter, on_device),
    "static, plain rule": ("static", ModelDrafter, None),
    "static": ("static", DeviceDrafter, on_device),
    "static, whole draft": ("static", CapturedDrafter, on_device),
}
"""Modes of a whole round: (kind of pass, drafter, rule). The modes separate the three effects."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of everything that is measured.

    Attributes:
        target: Shape of the target that is trained.
        draft: Shape of the draft that is trained.
        random: Shapes that are timed with random weights, by name.
        deep: Shapes of the comparison of a shallow with a deep, narrow draft, by name.
        seconds: Training time of the target and of the draft.
        steps: Largest number of training steps of the target, the draft and its distillation.
        rows: Windows per training step.
        window: Tokens per training window.
        capacity: Tokens that a cache of fixed size can store.
        gamma: Draft length.
        ks: Tokens per timed chain pass.
        trees: Nodes per timed tree pass.
        batches: Batch sizes.
        contexts: Context lengths in tokens, for the grid.
        context: Context length in tokens, for everything else.
        prompts: Number of evaluation prompts.
        new_tokens: Tokens per generated text.
        first: Number of first decode steps that are timed one by one.
        repeats: Repetitions of a timed pass.
        turns: Paired turns per setting.
        copied: Bytes copied to measure the bandwidth.
        budget: Seconds for each group of passes.
        tests: Name of the only test to run; empty runs all of them.
    """

    target: TransformerConfig
    draft: TransformerConfig
    random: dict[str, TransformerConfig]
    deep: dict[str, TransformerConfig]
    seconds: tuple[float, float] = (330.0, 200.0)
    steps: tuple[int, int, int] = (3000, 600, 2400)
    rows: int = 16
    window: int = 512
    capacity: int = 768
    gamma: int = 4
    ks: tuple[int, ...] = (1, 2, 3, 5, 8, 16, 32, 64)
    trees: tuple[int, ...] = (8, 16, 32, 64)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    contexts: tuple[int, ...] = (128, 256, 512, 1024, 1536, 1920)
    context: int = 256
    prompts: int = 4
    new_tokens: int = 128
    first: int = 64
    repeats: int = 7
    turns: int = 20
    copied: int = 4 << 30
    budget: float = 12.0
    tests: str = ""

    @property
    def is_tiny(self) -> bool:
        """Whether these sizes only check that the code runs."""
        return self.copied < 1 << 30


def llama(
    hidden: int, feed: int, layers: int, heads: int, vocabulary: int = 2048, tied: bool = True
) -> TransformerConfig:
    """Return a Llama configuration with as many key/value heads as query heads."""
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
    target=llama(1024, 3072, 26, 16),
    draft=llama(512, 1408, 3, 8),
    random={
        "0.1 B": llama(768, 2048, 12, 12, 32000),
        "1 B": llama(2048, 5632, 22, 32, 32000, tied=False),
        "7 B": llama(4096, 11008, 32, 32, 32000, tied=False),
    },
    deep={
        "target": llama(2048, 5632, 28, 16),
        "shallow": llama(1024, 2816, 2, 16),
        "narrow and deep": llama(320, 896, 24, 5),
    },
)
TINY = Scale(
    target=llama(64, 128, 3, 2),
    draft=llama(32, 64, 1, 2),
    random={"0.1 B": llama(32, 64, 1, 2), "1 B": llama(64, 96, 2, 2), "7 B": llama(96, 192, 2, 2)},
    deep={
        "target": llama(64, 128, 4, 2),
        "shallow": llama(64, 128, 1, 2),
        "narrow and deep": llama(32, 64, 3, 2),
    },
    seconds=(2.0, 2.0),
    steps=(4, 2, 2),
    rows=2,
    window=32,
    capacity=160,
    gamma=2,
    ks=(1, 3),
    trees=(4,),
    batches=(1, 2),
    contexts=(16, 32),
    context=32,
    prompts=1,
    new_tokens=12,
    first=6,
    repeats=1,
    turns=2,
    copied=1 << 20,
    budget=0.5,
    tests="test_only_the_capture_class_needs_a_gpu",
)


@dataclass
class Bench:
    """A device, the sizes to measure, and the models, which are built on first use.

    Attributes:
        device: PyTorch's name of the device.
        dtype: PyTorch's name of the dtype.
        scale: Sizes of everything.
        work: Folder of the trained pair and of unfinished work.
        until: Value of `perf_counter` at which paired turns shall end.
        cache: Models built so far.
    """

    device: str
    dtype: str
    scale: Scale
    work: Path
    until: float = float("inf")
    cache: dict = field(default_factory=dict)

    @property
    def graphs(self) -> bool:
        """Whether passes of fixed shape are captured as CUDA graphs on this device."""
        return torch.device(self.device).type == "cuda"

    def pair(self, dtype: str) -> Pair:
        """Return the pair that was trained here."""
        if dtype not in self.cache:
            self.cache[dtype] = load_pair(
                self.work / "pair" / "target",
                self.work / "pair" / "draft",
                self.device,
                dtype,
                context=self.scale.capacity,
            )
        return self.cache[dtype]

    def models(self, passes: str, dtype: str) -> tuple[CausalLM, CausalLM]:
        """Return the target and the draft."""
        pair, gamma = self.pair(dtype), self.scale.gamma
        if passes == "eager":
            return pair.target, pair.draft
        if (passes, dtype) not in self.cache:
            self.cache[passes, dtype] = (
                StaticLM(pair.target, self.scale.capacity, (1, 2, gamma + 1)),
                StaticLM(pair.draft, self.scale.capacity, (1, 2)),
            )
        return self.cache[passes, dtype]

    def method(self, mode: str, dtype: str) -> tuple[CausalLM, ModelDrafter, object]:
        """Return the target, the drafter and the rule of a mode."""
        passes, drafter, rule = MODES[mode]
        target, draft = self.models(passes, dtype)
        return target, drafter(draft, self.scale.gamma), rule

    @cached_property
    def prompts(self) -> list[Tensor]:
        """The evaluation prompts as token ids, at most `scale.context` tokens each."""
        tokenizer = self.pair(self.dtype).tokenizer
        texts = [item["text"] for item in corpus.evaluation_prompts()["code"][: self.scale.prompts]]
        return [torch.tensor(tokenizer.encode(text))[-self.scale.context :] for text in texts]

    def attention(self) -> dict[str, Callable[[], AbstractContextManager]]:
        """Return the ways to choose the attention kernel: the library's and, on a GPU, cuDNN."""
        cudnn = lambda: sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH])
        return {"the library's": nullcontext} | ({"cuDNN": cudnn} if self.graphs else {})


def random_model(
    config: TransformerConfig, device: str, dtype: torch.dtype, std: float = 0.02
) -> CausalLM:
    """Return a model with random weights, for timings, which depend on shapes alone."""
    with torch.device("meta"):
        model = Transformer(config).to(dtype)
    model = model.to_empty(device=device)
    if config.tied:
        model.head.weight = model.embedding.weight
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=std)
    return CausalLM(model.requires_grad_(False))


def weight_bytes(model: CausalLM) -> int:
    """Return the bytes of all weights of a model."""
    return sum(weight.nbytes for weight in model.model.parameters())


def torch_dtype(name: str) -> torch.dtype:
    """Return the PyTorch dtype of this name."""
    return getattr(torch, name)


# 1. Correctness, and which kernels run ------------------------------------------------------------


def compare_captured(bench: Bench) -> dict:
    """Compare the logits of passes of fixed shape with those of ordinary passes.

    On a GPU the passes of fixed shape are captured graphs. The comparison covers every size,
    float32 and the chosen dtype, each attention kernel, and the model before and after a dtype
    round trip.
    """
    rows = []
    for dtype in dict.fromkeys(("float32", bench.dtype)):
        for name, kernels in bench.attention().items():
            model = random_model(bench.scale.draft, bench.device, torch_dtype(dtype), std=0.2)
            capacity = bench.scale.capacity
            sizes = tuple(size for size in SIZES if 3 * size < capacity)
            static = StaticLM(model, capacity, sizes)
            with kernels():
                for after in ("load", "dtype round trip"):
                    if after != "load":
                        model.model.double()
                        model.model.to(torch_dtype(dtype))
                    about = {"dtype": dtype, "attention": name, "after": after}
                    rows += [
                        about | row for row in logit_differences(model, static, sizes, bench.scale)
                    ]
    return {"weights": "random", "rows": rows}


def logit_differences(
    model: CausalLM, static: StaticLM, sizes: tuple[int, ...], scale: Scale
) -> list[dict]:
    """Return the largest difference of logits for each pass length, for chains and trees."""
    text = torch.arange(scale.context, device=model.device) % model.vocab_size
    caches = [timing.prefilled(m, text) for m in (model, static)]
    rows = []
    for size in sizes:
        for tree in (None, binary_tree(size - 1)) if size > 2 else (None,):
            one, other = (
                m.score(torch.arange(1, size + 1), cache, tree).logits.float()
                for m, cache in zip((model, static), caches)
            )
            for cache in caches:
                cache.crop(len(text))
            rows.append(
                {
                    "size": size,
                    "tree": tree is not None,
                    "difference": float((one - other).abs().max()),
                    "largest_logit": float(one.abs().max()),
                }
            )
    return rows


def binary_tree(nodes: int) -> TokenTree:
    """Return a binary tree with this number of nodes."""
    return TokenTree([1] * nodes, [-1 if node < 2 else node // 2 - 1 for node in range(nodes)])


GPU_TESTS = ("gpu/test_graphs", "gpu/test_on_device", "measure/test_timing_more")


def tests(bench: Bench) -> dict:
    """Run the tests that need a GPU in a separate process and count their outcomes."""
    files = [f"tests/{name}.py" for name in GPU_TESTS]
    chosen = [f"{files[0]}::{bench.scale.tests}"] if bench.scale.tests else files
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *chosen]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(
                f"pytest did not begin: {(process.stdout + process.stderr).strip()[-300:]}"
            )
        cases = list(ElementTree.parse(report).iter("testcase"))
    outcome = {"passed": 0, "skipped": [], "failed": {}}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        wrong = [part for part in case if part.tag in ("failure", "error")]
        if wrong:
            outcome["failed"][name] = wrong[0].get("message", "")[:400]
        elif case.find("skipped") is not None:
            outcome["skipped"].append(name)
        else:
            outcome["passed"] += 1
    return outcome


def first_steps(bench: Bench) -> dict:
    """Time the first eager decode steps one by one.

    Where attention builds a plan for every new length, each of these steps contains that cost.
    """
    rows = []
    for name, kernels in bench.attention().items():
        model = random_model(bench.scale.target, bench.device, torch_dtype(bench.dtype))
        text = torch.arange(bench.scale.context, device=model.device) % model.vocab_size
        for count in (1, bench.scale.gamma + 1):
            with kernels():
                cache = timing.prefilled(model, text, room=count * bench.scale.first)
                fed = text[:count]
                seconds = [
                    timing.clocked(lambda: model.score(fed, cache), model.device)
                    for _ in range(bench.scale.first)
                ]
            rows.append({"attention": name, "tokens": count, "seconds": seconds})
    return {"weights": "random", "rows": rows}


def record_launches(bench: Bench) -> dict:
    """Record one draft pass and one whole draft, operation by operation.

    The operations are recorded as the host calls them and as the GPU runs its kernels, with the
    names of the attention kernels. Each entry of "operations" is [kind, start, seconds].
    """
    dtype, gamma = torch_dtype(bench.dtype), bench.scale.gamma
    plain = random_model(bench.scale.draft, bench.device, dtype)
    static = StaticLM(plain, bench.scale.capacity, (1, 2, gamma + 1))
    text = torch.arange(bench.scale.context, device=plain.device) % plain.vocab_size
    rows, kernels = [], {}
    for mode, model in zip(PASSES, (plain, static)):
        cache = timing.prefilled(model, text, room=gamma + 1)
        jobs = {
            f"{mode}, {count} tokens" if count > 1 else mode: timing.pass_job(
                model, text, count, cache=cache
            )
            for count in (1, gamma + 1)
        }
        for name, (passes, drafter, rule) in MODES.items():
            if passes == mode:
                jobs[f"{name}, {gamma} drafted"] = whole_draft(drafter(model, gamma), text, gamma)
        for name, job in jobs.items():
            for lane, operations in (
                ("host", timeline.operations(job)),
                ("GPU", timeline.kernels(job)),
            ):
                if operations:
                    rows.append(
                        {
                            "mode": name,
                            "lane": lane,
                            "seconds": timeline.span(operations),
                            "busy": timeline.span(operations) - timeline.idle(operations),
                            "shares": timeline.shares(operations),
                            "operations": [
                                [op.kind, round(op.start, 8), round(op.seconds, 8)]
                                for op in operations
                            ],
                        }
                    )
                if lane == "GPU":
                    kernels[name] = sorted({op.name for op in operations if op.kind == "attention"})
    return {"weights": "random", "gamma": gamma, "attention_kernels": kernels, "rows": rows}


def whole_draft(drafter: ModelDrafter, text: Tensor, gamma: int) -> Callable[[], object]:
    """Return a job that drafts γ tokens at temperature 1 after a text and discards them."""
    context = Context(
        text, None, Sampling(1.0), SeededRng(0), gamma + 1, drafter.model.vocab_size, None
    )
    session = drafter.start(context)

    def job() -> None:
        session.cache.crop(len(text) - 1)
        session.propose(context)

    return job


# 2. Passes ----------------------------------------------------------------------------------------


def copy_bandwidth(bench: Bench) -> float:
    """Return the bytes read and written per second by a copy within the device's memory."""
    source = torch.ones(bench.scale.copied // 4, device=bench.device)
    goal = torch.empty_like(source)
    jobs = {"copy": lambda: goal.copy_(source)}
    seconds = timing.interleaved(jobs, source.device, bench.scale.repeats)["copy"]
    return 2 * source.nbytes / seconds


def passes(name: str) -> Callable[[Bench], dict]:
    """Return the step that times one of the shapes with random weights."""

    def step(bench: Bench) -> dict:
        """Time chain and tree passes, and compare the bytes read per second with a copy.

        The bytes are those of weights, keys and values.
        """
        scale, dtype = bench.scale, torch_dtype(bench.dtype)
        config = scale.random[name]
        bandwidth = copy_bandwidth(bench)
        plain = random_model(config, bench.device, dtype)
        weights = weight_bytes(plain) - (
            0 if config.tied else plain.model.embedding.weight.nbytes
        )  # of an untied embedding one row is read
        sizes = tuple(sorted({*scale.ks, *(nodes + 1 for nodes in scale.trees)}))
        rows = []
        for mode, model in zip(PASSES, (plain, StaticLM(plain, scale.capacity, sizes))):
            text = torch.arange(scale.context, device=model.device) % model.vocab_size
            cache = timing.prefilled(model, text, room=max(sizes))
            jobs = {("chain", k): timing.pass_job(model, text, k, cache=cache) for k in scale.ks}
            jobs |= {
                ("tree", n): timing.pass_job(model, text, binary_tree(n), cache=cache)
                for n in scale.trees
            }
            spreads = timing.spreads(
                jobs, model.device, scale.repeats, warmup=1, budget=scale.budget
            )
            seen = scale.capacity if mode == "static" else scale.context + 1
            keys = native_size(config).cache * dtype.itemsize * seen
            one = spreads["chain", 1].median
            rows.append(
                {
                    "mode": mode,
                    "chains": {k: spreads["chain", k].median for k in scale.ks},
                    "trees": {n: spreads["tree", n].median for n in scale.trees},
                    "weights_read": weights,
                    "cache_read": keys,
                    "bandwidth_share": (weights + keys) / one / bandwidth,
                }
            )
        return {
            "weights": "random",
            "shape": name,
            "parameters": weight_bytes(plain) // dtype.itemsize,
            "bytes": weight_bytes(plain),
            "copy_bandwidth": bandwidth,
            "context": scale.context,
            "capacity": scale.capacity,
            "rows": rows,
        }

    return step


# 3. A pair trained here ---------------------------------------------------------------------------


def train_target(bench: Bench) -> dict:
    """Train the target for as many steps as a probe says the time allows."""
    return run_training(bench, ("target",), bench.scale.seconds[0])


def train_draft(bench: Bench) -> dict:
    """Train the draft and distill the trained target into it."""
    return run_training(bench, ("draft", "distilled"), bench.scale.seconds[1])


def run_training(bench: Bench, names: tuple[str, ...], seconds: float) -> dict:
    """Run stages of the pair's training, resuming stages that were interrupted."""
    scale, folder = bench.scale, bench.work / "pair"
    if scale.is_tiny:
        tokenizer = load_pair().tokenizer
        streams = {"docs": tokenize(tokenizer, corpus.training_text()["docs"][:40])}
    else:
        tokenizer, streams = prepare(bench.work, SHIPPED)
    target, draft = (
        initialize(Transformer(config)).to(bench.device) for config in (scale.target, scale.draft)
    )
    if "target" not in names:
        saved = torch.load(bench.work / "target.pt", map_location=bench.device, weights_only=True)
        target.load_state_dict(saved["model"])
    stages = {
        "target": (target, next_token_loss(target), 6e-4, 0.9),
        "draft": (draft, next_token_loss(draft), 2e-3, 0.2),
        "distilled": (draft, distillation_loss(draft, target), 2e-3, 0.65),
    }
    done = {}
    for name, most in zip(stages, scale.steps):
        if name not in names:
            continue
        model, loss, rate, share = stages[name]
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
            most = max(2, min(most, int(seconds * share / each)))
        else:
            most = torch.load(bench.work / f"{name}.steps", weights_only=True)
        torch.save(most, bench.work / f"{name}.steps")
        done[name] = {
            "steps": most,
            "seconds": train(model, loss, streams, plan(most), bench.work / f"{name}.pt"),
        }
    models = {"target": target} if "target" in names else {"draft": draft}
    for name, model in models.items():
        save_model(folder / name, model, tokenizer, limit=2_000_000_000)
    return {
        "parameters": {
            name: sum(weight.numel() for weight in model.parameters())
            for name, model in models.items()
        },
        "tokens_per_step": scale.rows * scale.window,
        "stages": done,
    }


def losslessness(bench: Bench) -> dict:
    """Find where speculative greedy text first differs from plain text, by dtype and mode.

    A row contains the gap between the two logits at that position.
    """
    rows = []
    dtypes = dict.fromkeys(("float32", bench.dtype))
    for dtype in dtypes:
        for mode in MODES:
            target, drafter, rule = bench.method(mode, dtype)
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
    """Return the largest difference between logits of one pass and of γ + 1 passes.

    Both cover the same γ + 1 tokens; different kernels add in a different order.
    """
    model = bench.pair(dtype).target
    ids = bench.prompts[0]
    count = bench.scale.gamma + 1
    whole, single = model.new_cache(), model.new_cache()
    for cache in (whole, single):
        model.score(ids[:-count], cache)
    together = model.score(ids[-count:], whole).logits[0].float()
    alone = torch.stack(
        [
            model.score(ids[i : i + 1], single).logits[0, 0].float()
            for i in range(len(ids) - count, len(ids))
        ]
    )
    return float((together - alone).abs().max())


def contenders(bench: Bench, temperature: float) -> dict[str, Contender]:
    """Return every decoder that takes part in the paired turns, by name.

    These are all modes, each with and without a draft, and Hugging Face.
    """
    every = {}
    for mode in MODES:
        target, drafter, rule = bench.method(mode, bench.dtype)
        for name, d in ((f"plain {mode}", None), (f"speculative {mode}", drafter)):
            if name != "plain static, whole draft":  # without a draft it is "plain static"
                run = ours(target, d, rule, bench.scale.new_tokens, temperature)
                every[name] = Contender(run, d)
    hugging_face = HuggingFace(bench.work / "pair", bench.dtype, bench.scale.gamma, bench.device)
    jobs = {"hf plain": (hugging_face, False), "hf assisted": (hugging_face, True)}
    if bench.graphs:  # transformers compiles for a GPU
        jobs[COMPILED] = hugging_face.compiled(), False
    for name, (decode, assisted) in jobs.items():
        every[name] = Contender(theirs(decode, bench.scale.new_tokens, temperature, assisted))
    return every


def speed(temperature: float) -> Callable[[Bench], dict]:
    """Return the step that times all contenders at one temperature."""

    def step(bench: Bench) -> dict:
        """Measure tokens per second in paired turns of random order, with α, τ and predictions.

        The formulas predict each speedup twice: from passes timed alone, and from the decoding
        rounds.
        """
        every = contenders(bench, temperature)
        not_run = {}
        for name in list(every):  # warm up: capture and compile for every prompt length
            try:
                for ids in bench.prompts:
                    every[name].run(ids, 0)
            except Exception as error:
                if name != COMPILED:
                    raise
                not_run[name] = f"{type(error).__name__}: {error}"[:400]
                del every[name]
        runs = take_turns(every, bench.prompts, turns_of(bench), deadline=bench.until)
        pace = {
            name: np.array([[run.seconds / run.tokens for run in row] for row in rows])
            for name, rows in runs.items()
        }
        first = {
            name: median(run.first for row in rows for run in row) for name, rows in runs.items()
        }
        return {
            "temperature": temperature,
            "not_run": not_run,
            "gamma": bench.scale.gamma,
            "new_tokens": bench.scale.new_tokens,
            "turns": sum(map(len, next(iter(runs.values())))),
            "tokens_per_second": {
                name: float(1 / seconds.mean()) for name, seconds in pace.items()
            },
            "first_token_seconds": first,
            "rows": [
                {"mode": mode} | explain_mode(bench, mode, temperature, runs, pace)
                for mode in MODES
            ],
        }

    return step


@dataclass(frozen=True, slots=True)
class Turns:
    """The settings that `take_turns` reads from a bench.

    Attributes:
        turns: Paired turns.
        least: Smallest number of turns under a deadline.
        seed: Seed of the order of turns.
    """

    turns: int
    least: int
    seed: int = 0


def turns_of(bench: Bench) -> Turns:
    """Return the number of paired turns for the prompts of a bench."""
    return Turns(bench.scale.turns, min(bench.scale.turns, 2 * len(bench.prompts)))


def explain_mode(bench: Bench, mode: str, temperature: float, runs: dict, pace: dict) -> dict:
    """Return a mode's speedup over its own plain decoding, with the costs that explain it.

    "alone" contains c, T(γ+1)/T(1) and the predicted speedup from passes timed one by one with a
    synchronization after each; a captured round does not synchronize between passes. "rounds"
    contains the parts of the decoding rounds in units of the plain rounds' T(1), measured between
    markers in the device's own queue, so that the parts add up.
    """
    gamma, name = bench.scale.gamma, f"speculative {mode}"
    plain = "plain static" if mode == "static, whole draft" else f"plain {mode}"
    steps = lambda which: [step for row in runs[which] for run in row for step in run.steps]
    total = lambda get: sum(map(get, steps(name)))
    tested, rounds = total(lambda s: s.tested), len(steps(name))
    tau = total(lambda s: len(s.tokens)) / rounds
    one = median(step.verifying for step in steps(plain))
    costs = timing.round_costs(steps(name), one)
    base = timing.round_costs(steps(plain), one)
    target, drafter, _ = bench.method(mode, bench.dtype)
    ids = bench.prompts[0].to(target.device)
    alone = timing.interleaved(
        {
            "one": timing.pass_job(target, ids, 1),
            "verify": timing.pass_job(target, ids, gamma + 1),
            "draft": timing.pass_job(drafter.model, ids, 1),
        },
        target.device,
        bench.scale.repeats,
    )
    c, verify = alone["draft"] / alone["one"], alone["verify"] / alone["one"]
    return {
        "alpha": total(lambda s: s.accepted) / tested if tested else None,
        "tau": tau,
        "speedup": ratio(pace[plain], pace[name]),
        "alone": {
            "target_seconds": alone["one"],
            "c": c,
            "verify": verify,
            "predicted": theory.corrected_improvement(tau, gamma, c, verify),
        },
        "rounds": {
            "target_seconds": one,
            "draft": costs.draft,
            "c_in_loop": costs.draft / gamma,
            "verify": costs.verify,
            "other": costs.other,
            "plain": base.total,
            "predicted": tau * base.total / costs.total,
        },
    }


def footprint(bench: Bench) -> dict:
    """Measure what the draft adds: bytes of weights and cache, and time to the first token."""
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


def batches(bench: Bench) -> dict:
    """Time passes of the target's shape over one and over γ + 1 tokens, by batch size."""
    scale = bench.scale
    rows = []
    eager = random_model(scale.target, bench.device, torch_dtype(bench.dtype))
    for mode in PASSES:
        for batch in scale.batches:
            # A StaticLM retains its slots. A new one per batch size frees the large slots.
            model = (
                eager
                if mode == "eager"
                else StaticLM(eager, scale.capacity, (1, 2, scale.gamma + 1))
            )
            times = timing.pass_times(
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
                    "one": times[batch, 1].median,
                    "verify": times[batch, scale.gamma + 1].median,
                }
            )
            del model
            gc.collect()  # slots and their programs refer to each other
    return {"weights": "random", "gamma": scale.gamma, "rows": rows}


def depth(bench: Bench) -> dict:
    """Measure c of a shallow and of a narrow, deep draft of similar size, with random weights.

    The predicted speedup uses a published acceptance (accepted ÷ drafted, γ = 2).
    """
    published_row = dict(
        map(lambda row: (row[0], row[1]), published("trained_draft_pitfall")["rows"])
    )
    rows, dtype, scale = [], torch_dtype(bench.dtype), bench.scale
    eager = {name: random_model(config, bench.device, dtype) for name, config in scale.deep.items()}
    for mode in PASSES:
        models = (
            eager
            if mode == "eager"
            else {name: StaticLM(model, scale.capacity, (1, 3)) for name, model in eager.items()}
        )
        times = {
            name: timing.pass_times(
                model, (1, 3), scale.context, repeats=scale.repeats, budget=scale.budget
            )
            for name, model in models.items()
        }
        base = times["target"][1, 1].median
        verify = times["target"][1, 3].median / base
        layers = scale.deep["target"].num_layers
        for name in ("shallow", "narrow and deep"):
            c = times[name][1, 1].median / base
            rows.append(
                {
                    "mode": mode,
                    "draft": name,
                    "layers": scale.deep[name].num_layers,
                    "c": c,
                    "parameter_ratio": weight_bytes(eager[name]) / weight_bytes(eager["target"]),
                    "layer_ratio": scale.deep[name].num_layers / layers,
                    "verify": verify,
                    "at_published_acceptance": theory.corrected_improvement(
                        1 + 2 * published_row["acceptance"], 2, c, verify
                    ),
                }
            )
    return {"weights": "random", "published": published_row, "gamma": 2, "rows": rows}


# 4. A head for SmolLM2, trained longer ------------------------------------------------------------


LONGER = 10.0
"""Training steps of the new head, divided by those of the shipped head."""


def train_longer(bench: Bench) -> dict:
    """Train SmolLM2's head ten times as long as the shipped head and evaluate both.

    Two fifths of the time are for generating text with the target. An interrupted run resumes with
    the text that exists.
    """
    shipped = json.loads((WEIGHTS / "eagle1" / "smollm2" / "report.json").read_text("utf-8"))
    work, out = bench.work / "eagle", bench.work / "eagle1"
    device, module = ["--device", bench.device], [sys.executable, "-m"]
    if not any(work.glob("*.pt")):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*module, "specdec_lite.training.smollm2_text", *device],
                cwd=ROOT,
                check=True,
                timeout=0.4 * (bench.until - perf_counter()),
            )
    target, tokenizer = load_smollm2(bench.device)
    texts = len(smollm2_texts(target, tokenizer, work).training)
    epochs = LONGER * shipped["steps"] * BATCH / texts
    kind = ["--target", "smollm2", "--version", "1", "--batch", str(BATCH)]
    where = ["--out", str(out), "--work", str(work), "--epochs", f"{epochs:.6g}"]
    head = [*module, "specdec_lite.training", "eagle", *kind, *device, *where]
    subprocess.run(head, cwd=ROOT, check=True)
    report = json.loads((out / "report.json").read_text("utf-8"))
    both = {"shipped": shipped, "longer": report}
    agrees = {name: report["held_out"]["all"]["agrees"]["mean"] for name, report in both.items()}
    accepted = {name: float(np.cumprod(row).sum()) for name, row in agrees.items()}
    return {
        "steps": {name: report["steps"] for name, report in both.items()},
        "texts": {name: report["texts"] for name, report in both.items()},
        "greedy_agreement": agrees,
        "accepted_at_4": accepted,
        "better": accepted["longer"] > accepted["shipped"],
        "weights": out.name,
    }


# 5. The map ---------------------------------------------------------------------------------------


def grid(bench: Bench) -> dict:
    """Time passes of the pair's shapes for every batch size and context, with random weights.

    A map γ × batch × context follows from these times for any α. Each row contains the seconds of
    target passes over `ks` tokens and of one draft pass, in fixed shapes as large as the context
    requires. The cells are measured from coarse to fine until the time is used up.
    """
    scale, dtype = bench.scale, torch_dtype(bench.dtype)
    ks = (1, 2, 3, 5, 9, 17) if not scale.is_tiny else (1, 3)
    models = [random_model(config, bench.device, dtype) for config in (scale.target, scale.draft)]
    cells = [(batch, context) for context in scale.contexts for batch in scale.batches]
    order = sorted(range(len(cells)), key=lambda cell: cell % 4)
    rows = []
    for cell in order:
        batch, context = cells[cell]
        if perf_counter() > bench.until:
            break
        target, draft = (
            StaticLM(model, context + 2 * max(ks), ks[:count])
            for model, count in zip(models, (len(ks), 1))
        )
        timed = lambda model, ks: timing.pass_times(
            model, ks, context, (batch,), max(1, scale.repeats // 2), scale.budget
        )
        times = timed(target, ks)
        rows.append(
            {
                "batch": batch,
                "context": context,
                "target": [times[batch, k].median for k in ks],
                "draft": timed(draft, (1,))[batch, 1].median,
            }
        )
        del target, draft
        gc.collect()  # slots and their programs refer to each other
    return {
        "weights": "random",
        "ks": list(ks),
        "cells": len(cells),
        "rows": sorted(rows, key=lambda row: (row["context"], row["batch"])),
    }


# 6. The scoreboard --------------------------------------------------------------------------------


def scoreboard(bench: Bench) -> dict:
    """Time every row of the scoreboard on this device, with `benchmarks.scoreboard_clocks`."""
    out = bench.work / "scoreboard.json"
    little = ["--rows", "prompt lookup", *"--turns 2 --rounds 1 --check-share 0".split()]
    options = [
        "--device",
        bench.device,
        "--out",
        str(out),
        *(little if bench.scale.is_tiny else []),
    ]
    command = [sys.executable, "-m", "benchmarks", "run", "scoreboard-clocks", *options]
    subprocess.run([*command, "--work", str(bench.work)], cwd=ROOT, check=True)
    return {"scoreboard": json.loads(out.read_text("utf-8"))}
