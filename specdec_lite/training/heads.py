"""Trained heads: one table of what is built, from which text, with which loss, and for how long.

    python -m specdec_lite.training heads --kind hydra

A row of `HEADS` is a `Method`, and `Trainer` runs it. The texts are the target's own or its corpus,
the target's hidden states are stored once, and an interrupted run resumes. Heads that learn from
whole texts are evaluated after the same anchors, so their rates can be compared.
"""

import argparse
import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from specdec_lite.drafters.block_diffusion import BlockHead
from specdec_lite.drafters.eagle import Eagle1Head, Eagle3Head, FeatureHead, MtpHead
from specdec_lite.drafters.heads import (
    MEDUSA,
    ExitHead,
    Heads,
    HydraHeads,
    MlpSpeculator,
    ReducedHeads,
    stored_heads,
)
from specdec_lite.drafters.parallel import Correction
from specdec_lite.drafters.self_drafts import LookaheadRows
from specdec_lite.engine.transformer import Norm, Transformer
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import stamps
from specdec_lite.training.anchors import anchor_acceptance, anchor_loss, counted_predictions
from specdec_lite.training.evaluation import medusa_report
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, train
from specdec_lite.training.losses import (
    exit_loss,
    mean_loss,
    native_model,
    rows_loss,
    weighted_loss,
)
from specdec_lite.training.texts import (
    Texts,
    batch_by_length,
    batch_order,
    own_stream,
    pair_texts,
    smollm2_texts,
)
from specdec_lite.training.token_streams import prepare
from specdec_lite.training.unroll import RECIPES, Recipe, unrolled_loss

Module = TypeVar("Module", bound=nn.Module)
BLOCKWISE_HEADS = 7
DRAFT_VOCABULARY = 8192
"""Number of SmolLM2's 49,152 tokens that its parallel heads draft."""
ANCHORS = 32
DECAY = 0.8
BATCH = 8
"""Texts per step."""
EVERY = 3
"""Heads are evaluated at one anchor in this many."""
TEXTS = {"pair": pair_texts, "smollm2": smollm2_texts}
"""Target → function that returns its texts."""


class Batch(NamedTuple):
    """What a loss is computed on.

    Attributes:
        tokens: [B, n].
        counted: [B, n] tokens that are scored; None: all.
        step: number of the step.
        steps: number of steps of the run.
    """

    tokens: Tensor
    counted: Tensor | None = None
    step: int = 0
    steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How one kind of head is trained for one target.

    Attributes:
        build: trainer → a fresh module; its parameters with a gradient are updated.
        loss: (trainer, batch) → a scalar.
        stream: trainer → the streams of which windows are drawn; None: whole texts.
        windows: the plan for windows.
        rate: peak learning rate for whole texts.
        epochs: how often whole texts are read.
        texts: number of texts, at most; None: all.
        padding: tokens added to the longest text of a batch.
        depths: number of drafted tokens that are evaluated; 0: none.
        bits: bits per number of the stored matrices.
        report: (target, head, tokenizer) → what is written beside the weights; None: the rates.
    """

    build: Callable[["Trainer"], nn.Module]
    loss: Callable[["Trainer", Batch], Tensor]
    stream: Callable[["Trainer"], dict[str, np.ndarray]] | None = None
    windows: Plan | None = None
    rate: float = 0.0
    epochs: float = 0.0
    texts: int | None = None
    padding: int = 0
    depths: int = 0
    bits: int = 8
    report: Callable[..., dict] | None = None


# What is built ------------------------------------------------------------------------------------


def initialize(module: Module) -> Module:
    """Draw all matrices from Normal(0, .02), with the same seed in every run."""
    torch.manual_seed(0)
    for weight in module.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)
    return module


def lookahead_rows(trainer: "Trainer") -> LookaheadRows:
    """Return three look-ahead rows (PaSS) near the mean embedding."""
    rows = LookaheadRows(trainer.target.hidden_size, 3)
    with torch.no_grad():
        rows.rows.add_(native_model(trainer.target).embedding.weight.mean(0).to(rows.rows.device))
    return rows


def mlp_speculator(trainer: "Trainer") -> MlpSpeculator:
    """Return an MLP speculator: state and embeddings 256 wide, embeddings at the expected scale."""
    target = trainer.target
    head = initialize(MlpSpeculator(target.hidden_size, target.vocab_size, 256, 4))
    nn.init.normal_(head.embedding.weight, std=256**-0.5)
    return head


def pard_draft(trainer: "Trainer") -> nn.Module:
    """Return a PARD draft: the pair's draft with one more row, the mask's, the mean of the others.

    The paper drops some of the masks, which saves time with 8 masks. Here all masks are trained.
    """
    assert trainer.draft is not None
    draft = native_model(trainer.draft)
    model = Transformer(replace(draft.config, vocab_size=trainer.draft.vocab_size + 1))
    weights = {name: weight.clone() for name, weight in draft.state_dict().items()}
    for name in ("embedding.weight", "head.weight"):
        weights[name] = torch.cat((weights[name], weights[name].mean(0, keepdim=True)))
    model.load_state_dict(weights)
    return model


def block_head(trainer: "Trainer") -> nn.Module:
    """Return a block diffusion head of two narrow layers with a correction, for blocks of eight."""
    sizes: dict[str, Any] = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 160}
    head = initialize(BlockHead.for_target(trainer.target, 8, 32, **sizes))
    assert head.correction is not None
    nn.init.normal_(head.correction.before.weight)
    nn.init.zeros_(head.correction.after.weight)
    return head


def served_block_head(trainer: "Trainer") -> nn.Module:
    """Return a block diffusion head as engines serve it: EAGLE-3's layers, normed queries and keys."""
    target = trainer.target
    sizes = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 288, "qk_norm": True}
    layers = Eagle3Head.default_layers(target.num_layers)
    head = initialize(BlockHead.for_target(target, 5, 0, DRAFT_VOCABULARY, layers, **sizes))
    assert head.words is not None
    head.words.ids.copy_(trainer.most_frequent_tokens(DRAFT_VOCABULARY))
    return head


def corrected_medusa_heads(trainer: "Trainer") -> nn.Module:
    """Return Medusa's shipped heads, frozen, with a fresh Markov correction that starts at zero."""
    folder = MEDUSA.parent / ("pair" if trainer.draft else "smollm2")
    heads = load(folder, trainer.target, stored_heads).requires_grad_(False)
    torch.manual_seed(0)
    if heads.words is None:
        correction = Correction(trainer.target.vocab_size)
    else:
        correction = Correction(len(heads.words.ids), others=True)
        nn.init.normal_(correction.after.weight, std=0.1)
        nn.init.zeros_(correction.before.weight)
    return nn.ModuleDict({"rows": heads, "correction": correction})


def reduced_medusa_heads(trainer: "Trainer") -> nn.Module:
    """Return four of Medusa's heads, with one matrix each and a draft vocabulary."""
    heads = ReducedHeads(trainer.target.hidden_size, 4, DRAFT_VOCABULARY)
    heads.words.ids.copy_(trainer.most_frequent_tokens(DRAFT_VOCABULARY))
    return heads


def feature_head(
    kind: type[FeatureHead], vocabulary: int, sizes: Mapping[str, Any], trainer: "Trainer"
) -> FeatureHead:
    """Return a block on the target's features (EAGLE, multi-token prediction).

    Matrices are drawn from Normal(0, .02); those that write to the residual stream have half this
    width. A vocabulary projection of the head's own starts as a copy of the target's, and so does
    the norm before a projection.
    """
    target = trainer.target
    head = kind.for_target(target, trainer.most_frequent_tokens(vocabulary), **sizes)
    generator = torch.Generator().manual_seed(0)
    for name, weight in head.named_parameters():
        if weight.dim() == 2:
            scale = 0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
            nn.init.normal_(weight, std=0.02 * scale, generator=generator)
    with torch.no_grad():
        if isinstance(head.norm, Norm) and target.native:
            head.norm.weight.copy_(target.model.norm.weight)
        if head.head is not None:
            head.head.weight.copy_(target.projection[head.ids.to(target.device)])
    return head


# With which loss ----------------------------------------------------------------------------------


def on_windows(loss: Callable[..., Tensor], trainer: "Trainer", batch: Batch) -> Tensor:
    """Return a loss of residual heads on the stored states of windows."""
    hidden = trainer.features(batch.tokens[:, :-1])["final"]
    return loss(native_model(trainer.target), trainer.head, hidden, batch.tokens)


def usable_anchors(counted: Tensor, depths: int) -> Tensor:
    """Return the anchors after which, in at least one text, all predicted tokens count.

    Shapes: counted [B, n].
    """
    anchors = torch.arange(1, counted.shape[1] - depths, device=counted.device)
    return anchors[counted_predictions(counted, anchors, depths).all(-1).any(0)]


def after_anchors(trainer: "Trainer", batch: Batch) -> Tensor:
    """Return the loss after random anchors, new ones at every step."""
    tokens, counted, step, _ = batch
    assert counted is not None
    depths = trainer.method.depths
    generator = torch.Generator().manual_seed(step)
    usable = usable_anchors(counted, depths)
    order = torch.randperm(len(usable), generator=generator)
    anchors = usable[order[:ANCHORS].to(usable.device)].sort().values
    states = trainer.states(tokens)
    target, head = trainer.target, trainer.head
    return anchor_loss(head, target, tokens, states, anchors, depths, DECAY, counted)


def unrolled(recipe: Recipe, trainer: "Trainer", batch: Batch) -> Tensor:
    """Return the loss of a head that runs on its own outputs, as when it drafts."""
    tokens, counted, step, steps = batch
    assert counted is not None
    passes = recipe.steps if step >= int(recipe.late * steps) else 1
    states = trainer.states(tokens)
    return unrolled_loss(trainer.head, trainer.target, tokens, states, counted, recipe, passes)


# The table ----------------------------------------------------------------------------------------


def corpus(trainer: "Trainer") -> dict[str, np.ndarray]:
    """Return the pair's training text."""
    return prepare(trainer.work, PAIR)[1]


def own(trainer: "Trainer") -> dict[str, np.ndarray]:
    """Return what the target wrote, as one stream."""
    return trainer.own_stream


def exit_row(layer: int, steps: int) -> Method:
    """Return the row of an adapter for an early exit."""
    windows = Plan(steps, 2e-3, 4, 128, 256, warmup=10, weight_decay=0.0)
    loss = lambda t, batch: exit_loss(native_model(t.target), t.head, t.own_tokens, batch.tokens)
    build = lambda t: ExitHead(t.target.hidden_size, layer, min(256, t.target.hidden_size))
    return Method(build=build, loss=loss, windows=windows, stream=own, bits=16)


def pass_row(steps: int) -> Method:
    """Return the row of look-ahead rows."""
    windows = Plan(steps, 1e-2, 2, 160, 160, warmup=10, weight_decay=0.0)
    loss = lambda t, batch: rows_loss(native_model(t.target), t.head, batch.tokens)
    return Method(build=lookahead_rows, loss=loss, windows=windows, stream=own, bits=16)


def feature_row(
    kind: type[FeatureHead],
    recipe: str,
    epochs: float,
    words: int,
    texts: int | None = None,
    **sizes: int,
) -> Method:
    """Return the row of a block on the target's features."""
    build, loss = partial(feature_head, kind, words, sizes), partial(unrolled, RECIPES[recipe])
    options: dict[str, Any] = {"rate": 1e-3, "epochs": epochs, "texts": texts}
    return Method(build=build, loss=loss, padding=5, depths=4, **options)


def anchor_row(
    build: Callable[["Trainer"], nn.Module], rate: float, depths: int = 4, **options: Any
) -> Method:
    """Return the row of a head that is trained after anchors."""
    usual = {"epochs": 2.0, "texts": 512}
    return Method(build=build, loss=after_anchors, rate=rate, depths=depths, **usual | options)


SMOLLM2 = {"epochs": 4.0, "texts": None, "padding": 5}
HEADS: dict[str, dict[str, Method]] = {
    "pair": {
        "blockwise": Method(
            build=lambda t: Heads(t.target.hidden_size, BLOCKWISE_HEADS),
            loss=partial(on_windows, mean_loss),
            windows=Plan(1600, 3e-3, 4, warmup=160),
            stream=corpus,
            bits=16,
        ),
        "medusa": Method(
            build=lambda t: Heads(t.target.hidden_size, 4),
            loss=partial(on_windows, weighted_loss),
            windows=Plan(3000, 3e-3, 4, 256, 512, warmup=50, weight_decay=0.0),
            stream=corpus,
            bits=16,
            report=medusa_report,
        ),
        "early_exit": exit_row(2, 400),
        "pass_rows": pass_row(300),
        "eagle1": feature_row(Eagle1Head, "1", epochs=1.5, words=2048, texts=2048),
        "hass": feature_row(Eagle1Head, "hass", epochs=1.5, words=2048, texts=2048),
        "eagle3": feature_row(Eagle3Head, "3", epochs=0.7, words=512, texts=2048),
        "mtp": feature_row(MtpHead, "mtp", epochs=1.0, words=2048, texts=2048),
        "mlp_speculator": anchor_row(mlp_speculator, 5e-3),
        "pard": anchor_row(pard_draft, 5e-4),
        "block_diffusion": anchor_row(block_head, 2e-3, depths=7),
        "markov": anchor_row(corrected_medusa_heads, 1e-2),
        "hydra": anchor_row(lambda t: HydraHeads(t.target.hidden_size, 4), 1e-3),
    },
    "smollm2": {
        "early_exit": exit_row(10, 200),
        "pass_rows": pass_row(80),
        "eagle1": feature_row(Eagle1Head, "1", epochs=1.5, words=12_000),
        "eagle3": feature_row(
            Eagle3Head, "3", epochs=1.5, words=4096, texts=5056, intermediate_size=768
        ),
        "mtp": feature_row(MtpHead, "mtp", epochs=1.5, words=12_000),
        "medusa": anchor_row(reduced_medusa_heads, 2e-3, **SMOLLM2),
        "block_diffusion": anchor_row(served_block_head, 1e-3, **SMOLLM2),
        "markov": anchor_row(corrected_medusa_heads, 3e-3, **SMOLLM2),
    },
}
"""Target → kind of head → how it is trained."""


# The run ------------------------------------------------------------------------------------------


class Trainer:
    """One head and what it is trained and evaluated on.

    Args:
        target_name: a key of `HEADS`.
        method: a row of `HEADS`.
        work: folder of texts, hidden states and checkpoints.
        texts: number of training texts, at most; None: the method's.
        device: torch device.
        start: folder with the weights to begin with; None: fresh ones.
    """

    def __init__(
        self,
        target_name: str,
        method: Method,
        work: Path,
        texts: int | None = None,
        device: str = "cpu",
        start: Path | None = None,
    ):
        self.name, self.method, self.work = target_name, method, work
        self.count = texts or method.texts
        if target_name == "pair":
            pair = load_pair(device=device, dtype="float32")
            self.target, self.draft, self.tokenizer = pair.target, pair.draft, pair.tokenizer
        else:
            dtype = "bfloat16" if has_bfloat16(device) and not method.windows else "float32"
            self.draft, (self.target, self.tokenizer) = None, load_smollm2(device, dtype)
        self.target.model.requires_grad_(False)
        torch.manual_seed(0)
        self.head: Any = method.build(self).to(self.target.device)
        if start is not None:
            part, _ = self.stored()
            trained = load(start, self.target, lambda **config: copy.deepcopy(part))
            part.load_state_dict(trained.state_dict())
        reads = self.head.layers if isinstance(self.head, FeatureHead | BlockHead) else ()
        layers = tuple(dict.fromkeys((*reads, "final")))
        self.features = Features(self.target, work / "features", layers)

    @cached_property
    def texts(self) -> Texts:
        """Texts that the target wrote."""
        return TEXTS[self.name](self.target, self.tokenizer, self.work, self.count)

    @cached_property
    def own_stream(self) -> dict[str, np.ndarray]:
        """Text that the target wrote, as one stream: short for the pair, the texts of SmolLM2."""
        if self.name == "pair":
            return own_stream(self.target, self.work)
        ids = torch.cat([text.ids for text in self.texts.training])
        return {"library": ids.numpy().astype(np.uint16)}

    @cached_property
    def own_tokens(self) -> Tensor:
        """The ids of all tokens that occur in the stream, in rising order."""
        return torch.from_numpy(np.unique(self.own_stream["library"]).astype(np.int64))

    def most_frequent_tokens(self, count: int) -> Tensor:
        """Return the ids [count] that the target writes most often, in rising order."""
        written = torch.cat([text.ids[text.start :] for text in self.texts.training])
        counts = torch.bincount(written, minlength=self.target.vocab_size)
        return counts.topk(min(count, len(counts))).indices.sort().values

    def states(self, tokens: Tensor) -> dict:
        """Return the target's hidden states [B, n, d] by layer, in float32."""
        return {layer: rows.float() for layer, rows in self.features(tokens).items()}

    def train(
        self, path: Path, steps: int | None = None, rate: float | None = None, **more
    ) -> dict:
        """Train the head; return the numbers of steps and of seconds, earlier runs included."""
        method, data, numbers = self.method, [], []
        if method.stream and method.windows:
            plan, streams = method.windows, method.stream(self)
            plan = replace(plan, steps=steps or plan.steps)
        else:
            data = batch_by_length(self.texts.training, BATCH, method.padding)
            steps = steps or max(1, round(method.epochs * len(data)))
            warmup = max(1, steps // 20)
            plan = Plan(steps, method.rate, BATCH, warmup=warmup, weight_decay=0.0)
            numbers = batch_order(len(data), steps)
            streams = {"batches": numbers}
        plan = replace(plan, learning_rate=rate or plan.learning_rate)

        def source(first: int) -> Iterator[Tensor]:
            return (torch.tensor([step, numbers[step]]) for step in range(first, plan.steps))

        def loss(rows: Tensor) -> Tensor:
            if not data:
                return method.loss(self, Batch(rows))
            step, number = rows.tolist()
            tokens, counted = (part.to(self.target.device) for part in data[number])
            return method.loss(self, Batch(tokens, counted, step, plan.steps))

        more["source"] = source if data else None
        seconds = train(self.head, loss, streams, plan, path, **more)
        self.head.requires_grad_(False)
        done = torch.load(path, "cpu", weights_only=True)["step"]
        return {"steps": done, "planned": plan.steps, "seconds": seconds}

    def report(self) -> dict:
        """Return the measures of the head on held-out text."""
        if self.method.report:
            return self.method.report(self.target, self.head, self.tokenizer)
        return {"held_out": self.evaluate()} if self.method.depths else {}

    def evaluate(self) -> dict[str, dict]:
        """Return acceptance and agreement by depth on the held-out texts, with standard errors."""
        table = {}
        for name, temperature in (("alpha", 1.0), ("agrees", 0.0)):
            rows = self.rates_by_text(name, temperature)
            error = rows.std(0) / len(rows) ** 0.5
            table[name] = {"mean": rows.mean(0).tolist(), "error": error.tolist()}
        return table

    def rates_by_text(self, name: str, temperature: float) -> Tensor:
        """Return the rates [texts, depths] of the held-out texts of one temperature."""
        chosen = [text for text in self.texts.held_out if text.temperature == temperature]
        target, depths, rates = self.target, self.method.depths, []
        for tokens, counted in batch_by_length(chosen, BATCH, self.method.padding):
            tokens, counted = tokens.to(target.device), counted.to(target.device)
            anchors = usable_anchors(counted, depths)[::EVERY]
            states = self.features(tokens)
            half = target.dtype == torch.bfloat16
            with torch.autocast(target.device.type, torch.bfloat16, half):
                measures = anchor_acceptance(self.head, target, tokens, states, anchors, depths)
            usable = counted_predictions(counted, anchors, depths).all(-1, keepdim=True)
            means = (measures[name] * usable).sum(1) / usable.sum(1)
            rates.append(means[usable.any(1)[:, 0]])
        return torch.cat(rates).double().cpu()

    def stored(self) -> tuple[nn.Module, Any]:
        """Return the part of the head that is stored, and the arguments that rebuild it."""
        part = self.head
        if isinstance(part, nn.ModuleDict):
            part = part["correction"]
        if isinstance(part, BlockHead):
            return part, part.sizes
        return part, asdict(part.config) if isinstance(part, Transformer) else part.config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training heads`."""
    kinds = dict.fromkeys(kind for kinds in HEADS.values() for kind in kinds)
    parser.add_argument("--target", choices=list(HEADS), default="pair")
    parser.add_argument("--kind", choices=list(kinds), required=True)
    for name, kind, text in (
        ("steps", int, "number of steps; default: the kind's"),
        ("rate", float, "peak learning rate; default: the kind's"),
        ("texts", int, "number of training texts; default: the kind's"),
        ("start", Path, "folder with the weights to train on; default: fresh ones"),
    ):
        parser.add_argument(f"--{name}", type=kind, help=text)
    limit_help = "seconds of training in this run; the same command continues from there"
    parser.add_argument("--limit", type=float, default=math.inf, help=limit_help)


def run(options: argparse.Namespace) -> None:
    """Train one head, evaluate it on held-out texts, and save weights and report."""
    kind, name = options.kind, options.target
    method = HEADS[name].get(kind)
    if method is None:
        raise ValueError(f"kind={kind!r}: for {name} it must be one of {', '.join(HEADS[name])}")
    trainer = Trainer(name, method, options.work, options.texts, options.device, options.start)
    owner = fingerprint(trainer.target)
    path = options.work / f"{kind}-{owner}-{trainer.count}-{options.steps}.pt"
    report = {"target": owner, "texts": trainer.count}
    report |= trainer.train(path, options.steps, options.rate, limit=options.limit)
    report |= trainer.report()
    part, config = trainer.stored()
    folder = SHIPPED / kind / name
    dtype = torch.float16 if method.bits == 8 else torch.bfloat16
    save(options.out or folder, part, trainer.target, config, dtype, method.bits)
    stamp = stamps.stamp(f"{kind} for {name}", options.command, options.device)
    stamps.save((options.out or folder) / "report.json", stamp, report)
    print(json.dumps(report.get("held_out", report)))
