"""The shipped pair, trained from scratch: the target on text, the draft on text and the target."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.memory import resolve_device
from specdec_lite.loading.pairs import save_pair
from specdec_lite.measure import stamps
from specdec_lite.training.evaluation import measure
from specdec_lite.training.loop import Plan, initialize, next_token_loss, train, weights_hash
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


def run(options: argparse.Namespace) -> None:
    """Train the target on text, then the draft on text and on the target; measure and store both."""
    resolve_device(options.device)
    tokenizer, streams = prepare(options.work)
    torch.manual_seed(0)
    target, draft = (initialize(Transformer(c)).to(options.device) for c in (TARGET, DRAFT))
    report, seconds = {}, 0.0
    for seed, (stage, (rate, _)) in enumerate(STAGES.items()):
        steps = report[f"{stage}_steps"] = getattr(options, f"{stage}_steps")
        model, path = target if stage == "target" else draft, options.work / f"{stage}.pt"
        loss = next_token_loss(model)
        if stage == "distil":
            # The name identifies the target: another target's draft must not resume here.
            path = options.work / f"distilled-{weights_hash(target)[:16]}.pt"
            loss = distillation_loss(draft, target)
        seconds += train(model, loss, streams, Plan(steps, rate, seed=seed), path)
    tokens = {name: len(stream) for name, stream in streams.items()}
    stamp = stamps.stamp("training of the shipped pair", options.command, options.device)
    training = stamp | report | {"seconds": seconds, "stream_tokens": tokens}
    whole = measure(target.cpu(), tokenizer, draft.cpu()) | {"training": training}
    save_pair(options.out or Path("pair"), target, draft, tokenizer, whole)
    print(json.dumps(whole, indent=1))
