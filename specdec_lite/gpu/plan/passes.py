"""Time passes: targets by batch, tokens and context; drafts beside them; a stack of experts."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Transformer, TransformerConfig
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.plan.bench import Bench, CannotRun, NoRoom, random_transformer, spread_row
from specdec_lite.gpu.plan.forward import Layers, forward, pass_of
from specdec_lite.gpu.plan.shapes import Experts
from specdec_lite.measure.timing import pass_job
from specdec_lite.tree import TokenTree


def timed_cells(
    bench: Bench,
    jobs: Iterator[tuple[dict, Callable[[], Any]]],
    measure: Callable[[Any], dict] | None = None,
    **more,
) -> dict:
    """Measure one job after the other, and keep every result; cells without room are listed.

    jobs: (what a row says, a function that makes the job).
    measure: a job's results; default: its seconds, captured unless the row's mode is eager.
    """
    rows: list[dict] = []
    left_out: list[dict] = []
    result = {"weights": "random", "rows": rows, "left_out": left_out, "complete": False} | more
    for about, make in jobs:
        if bench.is_over:
            return result
        try:
            clock = bench.time if about.get("mode") == "eager" else bench.time_captured
            # No name for the job: its memory must be free before the next one is made.
            rows.append(about | (measure(make()) if measure else spread_row(clock(make()))))
        except (NoRoom, torch.OutOfMemoryError) as error:
            left_out.append(about | {"why": str(error)[:200]})
        bench.keep(result)
    return result | {"complete": True}


@torch.inference_mode()
def target_passes(bench: Bench, name: str, depths: tuple[int, ...] = ()) -> dict:
    """Time T(B, k) of a shape, captured, for each context; with depths also of its first layers."""
    model, buffer = bench.model(name), bench.cache_buffer()
    config = model.config

    def jobs():
        scale = bench.scale
        orders = scale.ks, scale.contexts, scale.batches, depths or (None,)
        for k, context, batch, depth in product(*orders):
            about = {"batch": batch, "k": k, "context": context}
            if depth is not None:
                about["layers"] = depth

            def make(about=about, context=context, k=k, batch=batch, depth=depth):
                layers = Layers(buffer, config, batch, context + k)
                about["own_layers"] = len(layers.pairs)  # fewer: the whole cache does not fit here
                return pass_of(model, layers, batch, k, context, depth)

            yield about, make

    return timed_cells(bench, jobs(), model=name, **described(model))


TREES = (16, 32, 64)
"""Drafted nodes of the trees that are timed."""


@torch.inference_mode()
def tree_passes(bench: Bench) -> dict:
    """Time passes of the target at batch 1 over trees and chains of n nodes, in graphs.

    Both read the whole cache under a mask, as `StaticLM` does; a tree is as wide as it is deep.
    """
    context, config = bench.scale.contexts[0], bench.scale.models[bench.scale.target]
    sizes = (1, *(1 + nodes for nodes in TREES))
    capacity = context + 2 * sizes[-1]
    model = StaticLM(CausalLM(bench.model(bench.scale.target)), capacity, sizes)
    text = torch.randint(config.vocab_size, (context,)).to(bench.device)

    def jobs():
        yield {"kind": "one token", "nodes": 0}, lambda: pass_job(model, text, 1)
        for nodes in TREES:
            width = round(nodes**0.5)
            parents = [-1 if i < width else i - width for i in range(nodes)]
            tree = TokenTree(torch.arange(nodes) % config.vocab_size, parents)
            for kind, count in (("chain", 1 + nodes), ("tree", tree)):
                job = lambda count=count: pass_job(model, text, count)
                yield {"kind": kind, "nodes": nodes}, job

    about = {"model": bench.scale.target, "context": context, "capacity": capacity}
    return timed_cells(bench, jobs(), lambda job: spread_row(bench.time(job)), **about)


def described(model: Transformer) -> dict:
    """Return the sizes of a model as a recording states them."""
    config, parameters = model.config, sum(weight.numel() for weight in model.parameters())
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads")
    sizes = {name: getattr(config, name) for name in (*names, "num_kv_heads", "head_size", "tied")}
    return {"parameters": parameters, "shape": sizes}


# Drafts ---------------------------------------------------------------------------------------------

DRAFTS = ("head, 32k rows", "head, 128k rows", "Qwen3-0.6B", "Llama-3.2-1B")
GAMMA = 4
"""Draft length of the chains that are timed whole."""
BLOCK = 8
"""Tokens that a block draft proposes in one pass."""


def chain_of(
    draft: Transformer, layers: Layers, fed: Tensor, start: int, gamma: int
) -> tuple[Tensor, ...]:
    """Return γ tokens [B, 1] each, drafted one by one, the likeliest each time."""
    tokens = []
    for i in range(gamma):
        logits = forward(draft, fed.remainder(draft.config.vocab_size), layers, start + i)
        fed = logits[:, -1:].argmax(-1)
        tokens.append(fed)
    return tuple(tokens)


@torch.inference_mode()
def draft_passes(bench: Bench) -> dict:
    """Time whole drafts of γ tokens, eager and captured: seconds per round by batch size.

    A block draft is one pass. A head has the fused input of EAGLE-3 left out: one product of three
    hidden states, below a tenth of its layer's bytes.
    """
    buffer, context = bench.cache_buffer(), bench.scale.contexts[0]
    drafts: dict[str, dict] = {}

    def jobs():
        for name in (*DRAFTS, "block"):
            model = bench.model(name)
            drafts[name] = described(model)
            for batch, mode in product(bench.scale.batches, ("captured", "eager")):
                count = BLOCK if name == "block" else GAMMA

                def make(model=model, batch=batch, count=count, name=name):
                    layers = Layers(buffer, model.config, batch, context + count)
                    if name == "block":
                        return pass_of(model, layers, batch, count, context)
                    fed = torch.zeros(batch, 1, dtype=torch.long, device=bench.device)
                    return lambda: chain_of(model, layers, fed, context, count)

                yield {"draft": name, "mode": mode, "batch": batch, "drafted": count}, make

    return timed_cells(bench, jobs(), context=context, drafts=drafts)


# Experts --------------------------------------------------------------------------------------------


class ExpertLayers:
    """The experts of a stack of layers, and the experts that every token of a pass is sent to.

    The choices are drawn in advance, so that the routing is known. The router is computed too.
    """

    def __init__(self, bench: Bench, sizes: Experts):
        hidden, layers = sizes.attention.hidden_size, sizes.attention.num_layers
        self.sizes = sizes
        make = lambda *shape: bench.random(*shape, std=0.02)
        self.router = [make(sizes.experts, hidden) for _ in range(layers)]
        up, down = (sizes.experts, 2 * sizes.width, hidden), (sizes.experts, hidden, sizes.width)
        self.up = [make(*up).transpose(1, 2) for _ in range(layers)]
        self.down = [make(*down).transpose(1, 2) for _ in range(layers)]

    def mlp(self, chosen: Tensor) -> Callable[[int, Block, Tensor], Tensor]:
        """Return the MLP of a pass whose tokens go to the experts `chosen` [layers, rows, chosen]."""
        experts, each = self.sizes.experts, self.sizes.chosen

        def run(layer: int, block: Block, x: Tensor) -> Tensor:
            rows = block.norm2(x).flatten(0, 1)
            weights = F.linear(rows, self.router[layer]).softmax(-1).topk(each).values
            flat = chosen[layer].flatten()
            order = flat.argsort()
            counts = torch.zeros(experts, dtype=torch.int32, device=x.device)
            counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
            ends, source = counts.cumsum(0, dtype=torch.int32), order // each
            gate, up = grouped(rows[source], self.up[layer], ends).chunk(2, dim=-1)
            mixed = grouped(F.silu(gate) * up, self.down[layer], ends)
            mixed = mixed * weights.flatten()[order, None].to(mixed.dtype)
            return torch.zeros_like(rows).index_add_(0, source, mixed).view_as(x)

        return run


def has_grouped_products(bench: Bench) -> bool:
    """Return whether a graph can capture PyTorch's grouped product on this device."""
    if bench.device.type != "cuda" or not hasattr(torch, "_grouped_mm"):
        return hasattr(torch, "_grouped_mm")
    # Elsewhere PyTorch's own replacement reads the ends back, which no graph can capture.
    is_built_for = torch.cuda.get_device_capability(bench.device)[0] in (9, 10)
    return bench.dtype == torch.bfloat16 and is_built_for


def grouped(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Return the products of sorted rows with their experts, in one kernel.

    Shapes: rows [m, d], weights [experts, d, n], ends [experts]; result [m, n].
    """
    return torch._grouped_mm(rows, weights, offs=ends)  # pyright: ignore[reportPrivateImportUsage]


def routing(kind: str, sizes: Experts, rows: int) -> Tensor:
    """Return the experts [layers, rows, chosen] of every token, drawn without replacement.

    kind: "uniform", or "Zipf", where the expert of rank r is chosen in proportion to 1/r.
    """
    generator = torch.Generator().manual_seed(0)
    layers, experts = sizes.attention.num_layers, sizes.experts
    weights = torch.ones(experts)
    if kind == "Zipf":
        weights = 1 / torch.arange(1, experts + 1)
    drawn = [
        torch.multinomial(weights.expand(rows, -1), sizes.chosen, generator=generator)
        for _ in range(layers)
    ]
    ranks = [torch.randperm(experts, generator=generator) for _ in range(layers)]
    return torch.stack([rank[choice] for rank, choice in zip(ranks, drawn)])


@torch.inference_mode()
def expert_passes(bench: Bench) -> dict:
    """Time T(B, k) of a stack of mixture-of-experts layers, by routing."""
    if not has_grouped_products(bench):
        raise CannotRun("PyTorch has no grouped product for this card and dtype")
    sizes, context = bench.scale.experts, bench.scale.contexts[0]
    config: TransformerConfig = sizes.attention
    model = random_transformer(config, bench.device, bench.dtype)
    experts, buffer = ExpertLayers(bench, sizes), bench.cache_buffer()
    ks = [k for k in bench.scale.ks if k <= 8]

    def jobs():
        for kind, k, batch in product(("uniform", "Zipf"), ks, bench.scale.batches):
            chosen = routing(kind, sizes, batch * k)
            used = sum(len(layer.unique()) for layer in chosen) / len(chosen)
            about = {"routing": kind, "batch": batch, "k": k, "experts_used": used}

            def make(chosen=chosen, k=k, batch=batch):
                layers = Layers(buffer, config, batch, context + k)
                mlp = experts.mlp(chosen.to(bench.device))
                return pass_of(model, layers, batch, k, context, mlp=mlp)

            yield about, make

    about: dict = {
        "experts": sizes.experts,
        "chosen": sizes.chosen,
        "layers": config.num_layers,
        "layers_of_the_whole": sizes.whole,
        "bytes_per_expert": 3 * config.hidden_size * sizes.width * bench.dtype.itemsize,
        "context": context,
    }
    return timed_cells(bench, jobs(), **described(model) | about)
