"""Medusa's heads, with the target frozen or trained jointly, and the sparse tree for them."""

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import SHIPPED
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.measure import stamps
from specdec_lite.training.commands import add_device, add_folders, command_line
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, train
from specdec_lite.training.losses import final_states, head_loss, native_model
from specdec_lite.training.medusa_evaluation import held_out_loss, measure
from specdec_lite.training.token_streams import prepare
from specdec_lite.tree import TokenTree

COUNT = 4
DECAY = 0.8
NODES = 16
REGIMES = ("frozen", "joint")
STEPS = {"frozen": 3000, "joint": 150}
RATES = {"frozen": 3e-3, "joint": 3e-4}
WEIGHT = 0.2
"""Weight of the heads' loss in joint training."""


def weighted_loss(
    model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, decay: float = DECAY
) -> Tensor:
    """Return Σ λᵏ · (cross-entropy of head k), k = 1 … K: later heads are less certain, weigh less.

    Head k at the row of token t_j is scored on t_{j+k+1}. Source: Cai et al. 2024, equation 1.

    Shapes: hidden [B, n, d], rows [B, n + 1].
    """
    losses = [
        decay ** (index + 1) * head_loss(model, heads, hidden, rows, index)
        for index in range(heads.count)
    ]
    return torch.stack(losses).sum()


def frozen_loss(
    model: Transformer, heads: Heads, states: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return the loss of Medusa-1: it trains the heads and leaves the target as it is.

    Shapes: states [B, n].
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = states(rows[:, :-1])
        return weighted_loss(model, heads, hidden, rows)

    return loss


def joint_loss(
    model: Transformer, heads: Heads, weight: float = WEIGHT
) -> Callable[[Tensor], Tensor]:
    """Return the loss of Medusa-2: the target's own loss plus the weighted loss of the heads.

    Source: Cai et al. 2024, equation 2.
    """

    def loss(rows: Tensor) -> Tensor:
        hidden = final_states(model, rows[:, :-1])
        own = head_loss(model, heads, hidden, rows, -1)
        return own + weight * weighted_loss(model, heads, hidden, rows)

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training medusa`."""
    regime_help = "frozen trains the heads that ship; joint starts from them and trains the target"
    parser.add_argument("--regime", choices=["all", *REGIMES], default="all", help=regime_help)
    out_help = "folder for the heads, their accuracies and the tree"
    work_help = "folder for checkpoints, token streams and the target's features (2 GB)"
    add_folders(parser, SHIPPED, out_help, Path(".work/medusa"), work_help)
    record = stamps.recording_path("medusa-training", stamps.machine_name())
    parser.add_argument("--record", type=Path, default=record, help="the recording to write")
    add_device(parser)
    nodes_help = "number of nodes of the tree that is stored beside the heads"
    parser.add_argument("--nodes", type=int, default=NODES, help=nodes_help)
    for regime in REGIMES:
        parser.add_argument(f"--{regime}-steps", type=int, default=STEPS[regime])


def run_command(options: argparse.Namespace) -> str:
    """Return the command that repeats a run."""
    always = [*(f"{regime}-steps" for regime in REGIMES), "nodes"]
    return command_line("medusa", add_arguments, options, always)


def regime_plan(regime: str, steps: int) -> Plan:
    """Return the plan of a regime: short steps, because the target's pass costs the most."""
    return Plan(
        steps,
        RATES[regime],
        batch=4,
        context=256,
        long_context=512,
        warmup=50,
        weight_decay=0.0,
        seed=REGIMES.index(regime),
    )


def checkpoint(regime: str, target: CausalLM, options: argparse.Namespace) -> Path:
    """Return the file of a checkpoint; its name contains the steps and the target's fingerprint."""
    steps = getattr(options, f"{regime}_steps")
    return options.work / f"{regime}-{steps}-{fingerprint(target)}.pt"


def recording_entry(
    regime: str, target: CausalLM, heads: Heads, tokenizer, steps: int, seconds: float
) -> dict:
    """Return one run of the recording: how it was trained, and its measures."""
    plan = regime_plan(regime, steps)
    return {
        "regime": regime,
        "steps": steps,
        "seconds": seconds,
        "tokens": steps * plan.batch * plan.context,
        "rate": plan.learning_rate,
        "own_loss": held_out_loss(target, tokenizer),
        "accuracies": measure(target, heads, tokenizer),
    }


def train_frozen(
    target: CausalLM, streams: dict, options: argparse.Namespace
) -> tuple[Heads, float]:
    """Train fresh heads on the target as it is; return the heads and the seconds."""
    torch.manual_seed(0)
    heads = Heads(target.hidden_size, COUNT).to(target.device)
    features = Features(target, options.work / "features")
    loss = frozen_loss(native_model(target), heads, lambda tokens: features(tokens)["final"])
    path = checkpoint("frozen", target, options)
    return heads, train(heads, loss, streams, regime_plan("frozen", options.frozen_steps), path)


def train_joint(
    target: CausalLM, heads: Heads, streams: dict, options: argparse.Namespace
) -> tuple[CausalLM, Heads, float]:
    """Train copies of target and heads together; return both and the seconds."""
    model = copy.deepcopy(native_model(target))
    heads = copy.deepcopy(heads)
    both = nn.ModuleDict({"model": model, "heads": heads}).requires_grad_(True)
    path = checkpoint("joint", target, options)
    loss = joint_loss(model, heads)
    seconds = train(both, loss, streams, regime_plan("joint", options.joint_steps), path)
    return CausalLM(model), heads, seconds


def store(
    folder: Path, target: CausalLM, heads: Heads, measures: dict, options: argparse.Namespace
) -> None:
    """Write the heads, their measures, and the best tree for their accuracies on greedy text."""
    save(folder, heads, target, heads.config)
    tree = TokenTree.best(measures["greedy"], options.nodes)
    report = {
        "accuracies": measures,
        "tree": {"tokens": tree.tokens.tolist(), "parents": list(tree.parents)},
        "target": fingerprint(target),
        "command": run_command(options),
    }
    (folder / "report.json").write_text(json.dumps(report) + "\n", encoding="utf-8")


def run(options: argparse.Namespace) -> None:
    """Train the frozen heads and store them with their tree, then train jointly; record both."""
    TokenTree.best([[0.5]], options.nodes)  # an invalid number of nodes must fail before training
    pair = load_pair(device=options.device, dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    target.model.requires_grad_(False)
    _, streams = prepare(options.work, PAIR)
    heads, seconds = train_frozen(target, streams, options)
    runs = [recording_entry("frozen", target, heads, tokenizer, options.frozen_steps, seconds)]
    store(options.out, target, heads, runs[0]["accuracies"], options)
    if options.regime != "frozen":
        tuned, tuned_heads, seconds = train_joint(target, heads, streams, options)
        steps = options.joint_steps
        runs.append(recording_entry("joint", tuned, tuned_heads, tokenizer, steps, seconds))
    stamp = stamps.stamp(
        "heads for Medusa on the shipped target, trained with the target frozen and with it",
        run_command(options),
        options.device,
    )
    data = {"target": fingerprint(target), "decay": DECAY, "weight": WEIGHT, "runs": runs}
    stamps.save(options.record, stamp, data)
