"""Measure the card itself: clocks, memory, products, launches, attention, and a trace."""

from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu.plan.bench import Bench, random_transformer
from specdec_lite.gpu.plan.forward import Layers, pass_of
from specdec_lite.gpu.plan.rounds import GAMMA, MODES, ShippedPair
from specdec_lite.measure import profiler
from specdec_lite.measure.clocks import clocked, synchronize
from specdec_lite.measure.machine import machine_state, read_bandwidth
from specdec_lite.measure.timing import prefilled
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Rows of the product with one weight matrix."""


def copy_bandwidth(bench: Bench, size: int) -> float:
    """Return the bytes read and written per second by a copy within the device's memory."""
    source = bench.random(size // bench.dtype.itemsize)
    goal = torch.empty_like(source)
    return 2 * size / bench.time(lambda: goal.copy_(source)).median


@torch.inference_mode()
def card(bench: Bench) -> dict:
    """Measure what a datasheet states: bandwidth and arithmetic, and what launches and reads cost."""
    result: dict = {"state": machine_state(bench.device)}
    if bench.graphs:
        sizes = torch.cuda.get_device_properties(bench.device)
        result["processors"] = sizes.multi_processor_count
        result["memory_bytes"] = sizes.total_memory
        result["capability"] = f"{sizes.major}.{sizes.minor}"
    size = bench.scale.read_bytes
    result["read_bandwidth"] = read_bandwidth([size], bench.device)[size]
    result["copy_bandwidth"] = copy_bandwidth(bench, size)
    n = bench.scale.square
    a, b = bench.random(n, n), bench.random(n, n)
    result["peak"] = {"size": n, "flops": 2 * n**3 / bench.time(lambda: a @ b).median}
    bench.keep(result)
    result["products"] = products(bench)
    result["launches"] = launches(bench)
    result["warm_state"] = machine_state(bench.device)
    return result


def products(bench: Bench) -> dict:
    """Time a product with the widest matrix of the target's block, by number of rows.

    Each run multiplies with several copies of the matrix, so that no copy is read from a cache.
    """
    config = bench.scale.models[bench.scale.target]
    shape = (2 * config.intermediate_size, config.hidden_size)
    matrices = [bench.random(*shape, std=0.02) for _ in range(4)]
    rows = []
    for count in ROWS:
        x = bench.random(count, config.hidden_size)
        run = lambda x=x: tuple(F.linear(x, matrix) for matrix in matrices)
        seconds = bench.time_captured(run).median / len(matrices)
        flops = 2 * count * shape[0] * shape[1] / seconds
        rows.append(
            {
                "rows": count,
                "seconds": seconds,
                "flops": flops,
                "bandwidth": matrices[0].nbytes / seconds,
            }
        )
    return {"matrix": list(shape), "rows": rows}


def launches(bench: Bench) -> dict:
    """Time tiny operations eager and captured, and the host's read of one number: seconds each."""
    count, x = 200, torch.zeros(64, device=bench.device)

    def run() -> tuple:
        for _ in range(count):
            x.add_(1)
        return (x,)

    read = []
    for _ in range(50):
        x.add_(1)
        began = perf_counter()
        x[0].item()
        read.append(perf_counter() - began)
    return {
        "eager": bench.time(run).median / count,
        "captured": bench.time_captured(run).median / count,
        "read": sorted(read)[len(read) // 2],
    }


# Attention ------------------------------------------------------------------------------------------


def attention_kernels(bench: Bench) -> dict[str, Callable]:
    """Return the ways to choose the attention kernel: the library's and, on a GPU, cuDNN."""
    cudnn = lambda: sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH])
    return {"the library's": nullcontext} | ({"cuDNN": cudnn} if bench.graphs else {})


@torch.inference_mode()
def first_steps(bench: Bench) -> dict:
    """Time the first eager decode steps one by one, with the library's attention and with cuDNN.

    Where attention builds a plan for every new length, each of these steps contains that cost.
    """
    rows, first = [], bench.scale.first
    model = ShippedPair(bench.device, str(bench.dtype).removeprefix("torch.")).pair.target
    text = torch.arange(64, device=model.device) % model.vocab_size
    for name, kernels in attention_kernels(bench).items():
        for count in (1, GAMMA + 1):
            seconds, until = [], min(bench.until, perf_counter() + 10)
            with kernels():
                cache = prefilled(model, text, room=count * first)
                for _ in range(first):
                    if seconds and perf_counter() > until:
                        break
                    job = lambda: model.score(text[:count], cache)
                    seconds.append(clocked(job, model.device))
            rows.append({"attention": name, "tokens": count, "seconds": seconds})
            bench.keep({"rows": rows})
    return {"weights": "the shipped target", "rows": rows, "attention": attention_times(bench)}


def attention_times(bench: Bench) -> list[dict]:
    """Time attention alone by kernel, batch, context and rows per key head, captured."""
    kinds = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
    kinds["cuDNN"] = SDPBackend.CUDNN_ATTENTION
    config, rows = bench.scale.models[bench.scale.target], []
    groups, size = config.num_kv_heads, config.head_size
    for context in bench.scale.contexts:
        for batch in (1, 16):
            keys, values = (bench.random(batch, groups, context, size) for _ in range(2))
            for count in (4, 20):
                q = bench.random(batch, groups, count, size)
                for name, kind in kinds.items():
                    if bench.is_over or not bench.graphs:
                        return rows

                    def run(q=q, keys=keys, values=values):
                        return tuple(
                            F.scaled_dot_product_attention(q, keys, values) for _ in range(20)
                        )

                    about = {"kernel": name, "batch": batch, "context": context, "rows": count}
                    try:
                        with sdpa_kernel([kind]):
                            seconds = bench.time_captured(run).median / 20
                    except RuntimeError as error:
                        rows.append(about | {"error": str(error)[:120]})
                    else:
                        rows.append(about | {"seconds": seconds})
    return rows


# A trace --------------------------------------------------------------------------------------------


@torch.inference_mode()
def trace(bench: Bench) -> dict:
    """Record a pass of the shipped draft, a whole draft in every mode, and a layer of the target.

    An operation is [kind, start, seconds], as the host calls it and as the GPU runs its kernels.
    """
    rows, names = [], {}
    pair = ShippedPair(bench.device, str(bench.dtype).removeprefix("torch."))
    jobs = {mode: whole_draft(pair.method(mode)[1]) for mode in MODES}
    layer = one_layer(bench)
    jobs["one layer of the target's shape"] = bench.captured(layer)[0] if bench.graphs else layer
    for name, job in jobs.items():
        for lane, record in (("host", profiler.operations), ("GPU", profiler.kernels)):
            synchronize(bench.device)
            operations = record(job)
            if not operations:
                continue
            row = {"mode": name, "lane": lane, "seconds": profiler.span(operations)}
            row["busy"] = row["seconds"] - profiler.idle(operations)
            row["shares"] = profiler.shares(operations)
            row["operations"] = [
                [op.kind, round(op.start, 8), round(op.seconds, 8)] for op in operations
            ]
            rows.append(row)
            if lane == "GPU":
                names[name] = list(dict.fromkeys(op.name[:120] for op in operations))
        bench.keep({"rows": rows, "kernels": names})
    return {"gamma": GAMMA, "rows": rows, "kernels": names}


def one_layer(bench: Bench) -> Callable[[], tuple]:
    """Return a run of one layer and the head of the target's shape."""
    config = bench.scale.models["head, 128k rows"]
    model = random_transformer(config, bench.device, bench.dtype)
    layers = Layers(bench.cache_buffer(), config, 1, bench.scale.contexts[0] + 1)
    return pass_of(model, layers, 1, 1, bench.scale.contexts[0])


def whole_draft(drafter: ModelDrafter) -> Callable[[], object]:
    """Return a job that drafts γ tokens at temperature 1 after a text and discards them."""
    model: CausalLM = drafter.model
    text = torch.arange(64) % model.vocab_size  # on the host, as the text of every context
    context = Context(text, None, Sampling(1.0), SeededRng(0), GAMMA + 1, model.vocab_size, None)
    session = drafter.start(context)
    return lambda: session.propose(context)
