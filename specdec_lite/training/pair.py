"""The shipped pair, trained from scratch: the target on text, the draft on text and the target."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.memory import resolve_device
from specdec_lite.loading.pairs import load_model, save_pair
from specdec_lite.measure import stamps
from specdec_lite.training.commands import add_folders, command_line
from specdec_lite.training.evaluation import measure
from specdec_lite.training.loop import (
    OPTIMIZERS,
    Plan,
    initialize,
    next_token_loss,
    train,
    weights_hash,
)
from specdec_lite.training.losses import forward_kl, total_variation
from specdec_lite.training.token_streams import VOCABULARY, prepare

TARGET = TransformerConfig(
    VOCABULARY,
    hidden_size=320,
    intermediate_size=896,
    num_layers=8,
    num_heads=5,
    num_kv_heads=5,
    head_size=64,
)
DRAFT = TransformerConfig(
    VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    head_size=64,
)
STAGES = {"target": (3e-3, 3000), "draft": (4e-3, 600), "distil": (3e-3, 2000)}
"""Stage → (peak learning rate, default number of steps), in their order."""


def distillation_loss(draft: Transformer, target: Transformer) -> Callable[[Tensor], Tensor]:
    """Return the loss of the draft: total variation to the target's distribution plus some KL(p‖q).

    Total variation is the rate of rejection 1 − Σ min(p, q), which the draft should minimize. Its
    gradient vanishes where q is far from p, and there KL helps. Source: Zhou et al. 2023
    (DistillSpec), equation 2 and the TVD objective.

    Args:
        draft: what is trained.
        target: not trained.
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            log_p = target(rows[:, :-1]).float().log_softmax(-1)
        log_q = draft(rows[:, :-1]).float().log_softmax(-1)
        return (total_variation(log_p, log_q) + 0.1 * forward_kl(log_p, log_q)).mean()

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training pair`."""
    for stage, (_, steps) in STAGES.items():
        parser.add_argument(f"--{stage}-steps", type=int, default=steps)
    work_help = "folder for checkpoints and token streams"
    add_folders(parser, Path("pair"), "folder for the weights", Path(".work/pair"), work_help)
    start_help = "a saved pair to continue training, such as specdec_lite/weights/pair; default: from scratch"
    parser.add_argument("--start", type=Path, help=start_help)
    packages_help = (
        "train on the source of installed packages too (corpus.PACKAGES), as much as on all other"
        " text together"
    )
    parser.add_argument("--packages", action="store_true", help=packages_help)
    optimizer_help = "optimizer of the hidden matrices; muon needs torch 2.9"
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help=optimizer_help)
    seed_help = (
        "seed of the windows; the three stages use this seed and the next two, so a run that"
        " continues a pair sees other text with a seed at least 3 away"
    )
    parser.add_argument("--seed", type=int, default=0, help=seed_help)
    compile_help = "compile the loss: needs a C++ compiler, about 1.7 times faster"
    parser.add_argument("--compile", action="store_true", help=compile_help)


def run_command(options: argparse.Namespace) -> str:
    """Return the command that repeats a run, without folders of this machine."""
    always = ["device", *(f"{stage}_steps" for stage in STAGES)]
    command = command_line("pair", add_arguments, options, always, ["start"])
    return f"{command} --start PAIR" if options.start else command


def build_models(options: argparse.Namespace) -> tuple[Transformer, Transformer]:
    """Return target and draft, fresh or with the weights of the saved pair to start from."""
    torch.manual_seed(0)
    models = {}
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        models[name] = initialize(Transformer(config)).to(options.device)
        if options.start:
            start = load_model(options.start / name, options.device, "float32").model
            models[name].load_state_dict(start.state_dict())
    return models["target"], models["draft"]


def train_stages(
    target: Transformer, draft: Transformer, streams: dict, options: argparse.Namespace
) -> float:
    """Train the target on text, then the draft on text and on the target; return the seconds."""
    models = {"target": target, "draft": draft, "distil": draft}
    seconds = 0.0
    for number, (stage, (rate, _)) in enumerate(STAGES.items()):
        steps, seed = getattr(options, f"{stage}_steps"), options.seed + number
        plan = Plan(steps, rate, optimizer=options.optimizer, seed=seed)
        loss, path = next_token_loss(models[stage]), options.work / f"{stage}.pt"
        if stage == "distil":
            # The name identifies the target: another target's draft must not resume here.
            path = options.work / f"distilled-{weights_hash(target)[:16]}.pt"
            loss = distillation_loss(draft, target)
        seconds += train(models[stage], loss, streams, plan, path, options.compile)
    return seconds


def run(options: argparse.Namespace) -> None:
    """Train target and draft, measure them, and write weights and report to --out."""
    resolve_device(options.device)
    tokenizer, streams = prepare(options.work, options.start, options.packages)
    target, draft = build_models(options)
    seconds = train_stages(target, draft, streams, options)
    report: dict[str, dict] = dict(measure(target.cpu(), tokenizer, draft.cpu()))
    stamp = stamps.stamp("training of the shipped pair", run_command(options), options.device)
    report["training"] = stamp | {
        **{f"{stage}_steps": getattr(options, f"{stage}_steps") for stage in STAGES},
        "seconds": seconds,
        "stream_tokens": {name: len(stream) for name, stream in streams.items()},
    }
    save_pair(options.out, target, draft, tokenizer, report)
    print(json.dumps(report, indent=1))
