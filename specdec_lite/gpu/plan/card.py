"""Measure the card itself: clocks, memory, products, launches, and a trace."""

from collections.abc import Callable
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.contract import Context, Drafter
from specdec_lite.gpu.plan.bench import Bench, random_transformer
from specdec_lite.gpu.plan.forward import Layers, pass_of
from specdec_lite.gpu.plan.rounds import GAMMA, MODES, shipped
from specdec_lite.measure import profiler
from specdec_lite.measure.clocks import synchronize
from specdec_lite.measure.machine import machine_state, read_bandwidth
from specdec_lite.sampling import Sampling, SeededRng

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Rows of the product with one weight matrix."""


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
    result["read_bandwidth"] = read_bandwidth(size, bench.device)
    n = bench.scale.square
    a, b = bench.random(n, n), bench.random(n, n)
    result["peak"] = {"size": n, "flops": 2 * n**3 / bench.time(lambda: a @ b).median}
    bench.keep(result)
    result["products"] = products(bench)
    result["launches"] = launches(bench)
    result["warm_state"] = machine_state(bench.device)
    return result


def products(bench: Bench) -> dict:
    """Time a product with the widest matrix of the target's block, by format and number of rows.

    Each run multiplies with several copies of the matrix, so that no copy is read from a cache.
    """
    config = bench.scale.models[bench.scale.target]
    shape = (2 * config.intermediate_size, config.hidden_size)
    result: dict = {"matrix": list(shape)}
    for name, make in (("rows", weight), ("FP8", weight_fp8), ("4 bits", weight_4_bits)):
        try:
            result[name] = product_rows(bench, [make(bench, *shape) for _ in range(4)], shape)
        except (AttributeError, NotImplementedError, RuntimeError) as error:  # no such kernel here
            result[name] = {"skipped": str(error)[:120]}
    return result


def product_rows(bench: Bench, products: list, shape: tuple[int, int]) -> list[dict]:
    """Return the seconds of one product, captured, for every number of rows."""
    rows = []
    for count in ROWS:
        x = bench.random(count, shape[1])
        run = lambda x=x: tuple(product(x) for product in products)
        seconds = bench.time_captured(run).median / len(products)
        flops = 2 * count * shape[0] * shape[1] / seconds
        rows.append({"rows": count, "seconds": seconds, "flops": flops})
    return rows


Product = Callable[[Tensor], Tensor]


def weight(bench: Bench, out: int, width: int) -> Product:
    """Return the product with a random matrix in the dtype of the bench."""
    matrix = bench.random(out, width, std=0.02)
    return lambda x: F.linear(x, matrix)


def weight_fp8(bench: Bench, out: int, width: int) -> Product:
    """Return the product with a matrix of 8 bits; the rows are rounded to 8 bits in each pass."""
    matrix, one = bench.random(out, width).to(torch.float8_e4m3fn).t(), bench.random(1).float()
    return lambda x: torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
        x.to(torch.float8_e4m3fn), matrix, scale_a=one, scale_b=one, out_dtype=x.dtype
    )


def weight_4_bits(bench: Bench, out: int, width: int, group: int = 128) -> Product:
    """Return the product with a matrix of 4 bits, a scale and a zero for each group."""
    codes = torch.randint(256, (out, width // 2), device=bench.device).to(torch.uint8)
    packed = torch.ops.aten._convert_weight_to_int4pack(codes, 8)
    scales = bench.random(width // group, out, 2)
    return lambda x: torch.ops.aten._weight_int4pack_mm(x, packed, group, scales)


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


# A trace --------------------------------------------------------------------------------------------


@torch.inference_mode()
def trace(bench: Bench) -> dict:
    """Record a pass of the shipped draft, a whole draft in every mode, and a layer of the target.

    An operation is [kind, start, seconds], as the host calls it and as the GPU runs its kernels.
    """
    rows, names = [], {}
    pair = shipped(bench.device, str(bench.dtype).removeprefix("torch."))
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


def whole_draft(drafter: Drafter) -> Callable[[], object]:
    """Return a job that drafts γ tokens at temperature 1 after a text and discards them."""
    model = drafter.draft_model()
    assert model is not None
    text = torch.arange(64) % model.vocab_size  # on the host, as the text of every context
    context = Context(text, None, Sampling(1.0), SeededRng(0), GAMMA + 1, model.vocab_size, None)
    session = drafter.start(context)
    return lambda: session.propose(context)
