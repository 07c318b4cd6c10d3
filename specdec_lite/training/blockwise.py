"""Heads for blockwise parallel decoding: frozen, fine-tuned and distilled, each measured."""

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specdec_lite.drafters.heads import BLOCKWISE, Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.memory import half_precision
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.measure import stamps
from specdec_lite.training.blockwise_evaluation import block_sizes, evaluate_heads, text_differences
from specdec_lite.training.commands import add_device, add_folders, command_line
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, draw_windows, train
from specdec_lite.training.losses import final_states, head_loss, native_model
from specdec_lite.training.own_text import own_text
from specdec_lite.training.token_streams import prepare

COUNT = 7
REGIMES = ("frozen", "distilled", "finetuned")
LOSSES = ("random", "mean")
STEPS = {"frozen": 1600, "distilled": 400, "finetuned": 300}
BATCH = 4
RATES = {"frozen": 3e-3, "distilled": 1e-3, "finetuned": 3e-4}


def heads_loss(
    model: Transformer,
    heads: Heads,
    hidden: Tensor,
    rows: Tensor,
    kind: str,
    indices: Sequence[int],
) -> Tensor:
    """Return the loss of one random head, as in the paper, or the mean loss of several heads.

    The random head is a function of the batch, so a resumed run makes the same choices. Source:
    Stern et al. 2018, section 6 (the mean did not fit into their memory).

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    if kind == "random":
        rng = np.random.default_rng(rows[0].tolist())
        indices = [int(rng.choice(indices))]
    losses = [head_loss(model, heads, hidden, rows, index) for index in indices]
    return torch.stack(losses).mean()


def frozen_loss(
    model: Transformer, heads: Heads, kind: str, states: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return the loss that trains the heads and leaves the model as it is.

    Shapes: states [B, n].
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = states(rows[:, :-1])
        return heads_loss(model, heads, hidden, rows, kind, range(heads.count))

    return loss


def finetuned_loss(
    model: Transformer, heads: Heads, kind: str, compiled: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return the loss that trains the heads and the model, its own head included."""
    model.rotary(next(model.parameters()).device, torch.float32)
    states = torch.compile(final_states, dynamic=False) if compiled else final_states

    def loss(rows: Tensor) -> Tensor:
        hidden = states(model, rows[:, :-1])
        return heads_loss(model, heads, hidden, rows, kind, range(-1, heads.count))

    return loss


def own_text_streams(
    target: CausalLM,
    streams: dict,
    folder: Path,
    pieces: int = 1024,
    prompt: int = 96,
    new: int = 160,
    batch: int = 256,
) -> dict[str, np.ndarray]:
    """Return streams of the target's greedy continuations, under the names of their prompts'.

    Source: Stern et al. 2018, section 6 (there by beam search, with a teacher trained from another
    seed; Kim and Rush 2016).
    """
    rng = np.random.default_rng(0)
    windows = [draw_windows(streams, rng, batch, prompt) for _ in range(0, pieces, batch)]
    names = [name for part, _ in windows for name in part]
    prompts = torch.cat([rows for _, rows in windows])
    texts = own_text(target, list(prompts), new, folder, batch)
    return {
        name: np.concatenate(
            [text.numpy().astype(np.uint16) for text, its in zip(texts, names) if its == name]
        )
        for name in streams
        if name in names
    }


def train_regime(
    regime: str,
    kind: str,
    target: CausalLM,
    start: Heads | None,
    streams: dict,
    options: argparse.Namespace,
) -> tuple[CausalLM, Heads, dict]:
    """Train in one regime."""
    steps = getattr(options, f"{regime}_steps")
    plan = Plan(steps, RATES[regime], BATCH, warmup=max(1, steps // 10))
    path = options.work / f"{regime}-{kind}-{steps}-{fingerprint(target)}.pt"
    torch.manual_seed(0)
    heads = copy.deepcopy(start) if start else Heads(target.hidden_size, COUNT).to(target.device)
    heads.requires_grad_(True)
    if regime == "finetuned":
        model = copy.deepcopy(native_model(target)).requires_grad_(True)
        trainable = nn.ModuleDict({"backbone": model, "heads": heads})
        loss = finetuned_loss(model, heads, kind, options.compile)
    else:
        model = native_model(target)
        trainable = heads
        features = Features(target, options.work / "features")
        loss = frozen_loss(model, heads, kind, lambda tokens: features(tokens)["final"])
    seconds = train(trainable, loss, streams, plan, path)
    model.requires_grad_(False)
    heads.requires_grad_(False)
    about = {"steps": steps, "batch": BATCH, "learning_rate": plan.learning_rate}
    return CausalLM(model), heads, about | {"seconds": seconds}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training blockwise`."""
    regime_help = "frozen trains the heads alone, and these ship; the others start from them"
    parser.add_argument("--regime", choices=["all", *REGIMES], default="all", help=regime_help)
    loss_help = (
        "one head per batch, or the mean of all heads; default: both for frozen, mean otherwise"
    )
    parser.add_argument("--loss", choices=LOSSES, help=loss_help)
    out_help = "folder for the heads of the frozen regime with the mean loss"
    work_help = "folder for checkpoints, token streams, the target's own text and features (2 GB)"
    add_folders(parser, BLOCKWISE, out_help, Path(".work/blockwise"), work_help)
    record_help = "the recording to write or to update"
    record = stamps.recording_path("blockwise-training", stamps.machine_name())
    parser.add_argument("--record", type=Path, default=record, help=record_help)
    add_device(parser)
    for regime in REGIMES:
        parser.add_argument(f"--{regime}-steps", type=int, default=STEPS[regime])
    compile_help = "compile the target where it is trained: needs a C++ compiler"
    parser.add_argument("--compile", action="store_true", help=compile_help)


def entry_command(options: argparse.Namespace, regime: str, kind: str) -> str:
    """Return the command that trains one entry of the recording again."""
    own = argparse.Namespace(**{**vars(options), "regime": regime, "loss": kind})
    return command_line("blockwise", add_arguments, own, ["regime", "loss"])


def read_recording(path: Path, target: CausalLM) -> dict:
    """Return what a recording contains about a target."""
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = data.get("target") == fingerprint(target)
    return {"untrained": data["untrained"] if same else None, "runs": data["runs"] if same else []}


def add_to_recording(path: Path, target: CausalLM, untrained: dict, entry: dict) -> None:
    """Write an entry into the recording; it replaces an entry of the same regime and loss."""
    runs = [
        run
        for run in read_recording(path, target)["runs"]
        if (run["regime"], run["loss_kind"]) != (entry["regime"], entry["loss_kind"])
    ]
    stamp = stamps.stamp(
        "heads for blockwise parallel decoding on the shipped target",
        "python -m specdec_lite.training blockwise",
        target.device.type,
    )
    data = {"target": fingerprint(target), "untrained": untrained, "runs": [*runs, entry]}
    stamps.save(path, stamp, data)


def training_order(regime: str, loss: str | None) -> list[tuple[str, str]]:
    """Return (regime, loss) of every training in order; all others start from the frozen heads."""
    regimes = [name for name in REGIMES if regime in ("all", name) or name == "frozen"]
    order = [(name, loss or "mean") for name in regimes]
    if loss is None and regime in ("all", "frozen"):
        order.insert(0, ("frozen", "random"))
    return order


def training_streams(regime: str, streams: dict, options: argparse.Namespace) -> dict:
    """Return what a regime trains on: the streams, or the target's continuations of them."""
    if regime != "distilled":
        return streams
    dtype = half_precision(options.device)
    writer = load_pair(device=options.device, dtype=dtype).target
    return own_text_streams(writer, streams, options.work / "own-text")


def run(options: argparse.Namespace) -> None:
    """Train the regimes asked for, measure and record each, and save the shipped heads in --out."""
    pair = load_pair(device=options.device, dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    _, streams = prepare(options.work, PAIR)
    fresh = Heads(target.hidden_size, COUNT).to(target.device)
    recording = read_recording(options.record, target)
    untrained = recording["untrained"] or evaluate_heads(target, fresh, tokenizer)
    _, originals = block_sizes(target, fresh, tokenizer, blocks=(1,))
    frozen = None
    for regime, kind in training_order(options.regime, options.loss):
        text = training_streams(regime, streams, options)
        start = None if regime == "frozen" else frozen
        model, heads, plan = train_regime(regime, kind, target, start, text, options)
        if regime == "frozen":
            frozen = heads
        if (regime, kind) == ("frozen", "mean"):
            save(options.out, heads, target, heads.config)
        if options.regime not in ("all", regime):
            continue
        sizes, texts = block_sizes(model, heads, tokenizer)
        entry = {
            "regime": regime,
            "loss_kind": kind,
            "date": date.today().isoformat(),
            "command": entry_command(options, regime, kind),
            **plan,
            "held_out": evaluate_heads(model, heads, tokenizer),
            "blocks": sizes,
            "change": text_differences(texts, originals),
        }
        add_to_recording(options.record, target, untrained, entry)
        print(json.dumps(entry, indent=1))
