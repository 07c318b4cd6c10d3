"""The shipped pair, trained from scratch: the target on text, the draft on text and the target."""

import argparse
import json
import platform
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.memory import resolve_device
from specdec_lite.loading.pairs import load_model, save_pair
from specdec_lite.measure.timing import machine_name
from specdec_lite.texts.corpus import make_prompts
from specdec_lite.training.checkpoint import weights_hash
from specdec_lite.training.commands import add_device, add_folders, command_line
from specdec_lite.training.loop import (
    DECAY_FROM,
    OPTIMIZERS,
    Plan,
    initialize,
    next_token_loss,
    train,
)
from specdec_lite.training.losses import forward_kl, total_variation
from specdec_lite.training.pair_card import write_card
from specdec_lite.training.pair_evaluation import measure
from specdec_lite.training.pair_models import DRAFT, TARGET
from specdec_lite.training.token_streams import prepare

RATES = {"target": 3e-3, "draft": 4e-3, "distil": 3e-3}
STEPS = {"target": 3000, "draft": 600, "distil": 2000}


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
    add_device(parser)
    for stage in STEPS:
        parser.add_argument(f"--{stage}-steps", type=int, default=STEPS[stage])
    out_help = "folder for the finished weights"
    work_help = "folder for checkpoints and token streams"
    add_folders(parser, Path("pair"), out_help, Path(".work/pair"), work_help)
    start_help = "a saved pair to continue training, such as specdec_lite/weights/pair; default: from scratch"
    parser.add_argument("--start", type=Path, help=start_help)
    packages_help = (
        "train on the source of installed packages too (corpus.PACKAGES), as much as on all other"
        " text together"
    )
    parser.add_argument("--packages", action="store_true", help=packages_help)
    decay_help = "fraction of this stage's steps after which the learning rate falls"
    for stage, rate in RATES.items():
        rate_help = "peak learning rate of this stage"
        parser.add_argument(f"--{stage}-rate", type=float, default=rate, help=rate_help)
        decay = f"--{stage}-decay-from"
        parser.add_argument(decay, type=float, default=DECAY_FROM, help=decay_help)
    optimizer_help = "optimizer of the hidden matrices; muon needs torch 2.9"
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help=optimizer_help)
    seed_help = (
        "seed of the windows; the three stages use this seed and the next two, so a run that"
        " continues a pair sees other text with a seed at least 3 away"
    )
    parser.add_argument("--seed", type=int, default=0, help=seed_help)
    note_help = "a remark for the model card, such as a schedule that changed during the run"
    parser.add_argument("--note", default="", help=note_help)
    compile_help = "compile the loss: needs a C++ compiler, about 1.7 times faster"
    parser.add_argument("--compile", action="store_true", help=compile_help)


def run_command(options: argparse.Namespace) -> str:
    """Return the command that repeats a run, without folders of this machine."""
    always = ["device", *(f"{stage}-steps" for stage in STEPS)]
    command = command_line("pair", add_arguments, options, always, ["start", "note"])
    return f"{command} --start PAIR" if options.start else command


def stage_plans(options: argparse.Namespace) -> list[Plan]:
    """Return the plans of the three stages.

    All plans are built before the first stage, so invalid options fail before the training.
    """
    return [
        Plan(
            getattr(options, f"{stage}_steps"),
            getattr(options, f"{stage}_rate"),
            optimizer=options.optimizer,
            decay_from=getattr(options, f"{stage}_decay_from"),
            seed=options.seed + number,
        )
        for number, stage in enumerate(STEPS)
    ]


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
    target_plan, draft_plan, distillation_plan = stage_plans(options)
    work = options.work
    compiled = options.compile
    loss = next_token_loss(target)
    seconds = train(target, loss, streams, target_plan, work / "target.pt", compiled)
    loss = next_token_loss(draft)
    seconds += train(draft, loss, streams, draft_plan, work / "draft.pt", compiled)
    # The name identifies the target: another target's draft must not resume here.
    path = work / f"distilled-{weights_hash(target)[:16]}.pt"
    loss = distillation_loss(draft, target)
    return seconds + train(draft, loss, streams, distillation_plan, path, compiled)


def run(options: argparse.Namespace) -> None:
    """Train target and draft, measure them, and write weights, report, card and prompts to --out."""
    stage_plans(options)
    resolve_device(options.device)
    tokenizer, streams = prepare(options.work, options.start, options.packages)
    target, draft = build_models(options)
    seconds = train_stages(target, draft, streams, options)
    report: dict[str, dict] = dict(measure(target.cpu(), tokenizer, draft.cpu()))
    report["training"] = {
        "target_steps": options.target_steps,
        "draft_steps": options.draft_steps,
        "distil_steps": options.distil_steps,
        "seconds": seconds,
        "stream_tokens": {name: len(stream) for name, stream in streams.items()},
        "date": date.today().isoformat(),
        "machine": machine_name(options.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "command": run_command(options),
        "note": options.note,
    }
    save_pair(options.out, target, draft, tokenizer, report)
    write_card(options.out, report)
    prompts = json.dumps(make_prompts(), indent=1, ensure_ascii=False)
    (options.out.parent / "prompts.json").write_text(prompts + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
