"""Adapters for early exits of a frozen target, trained on its own text."""

import argparse
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.drafters.heads import ExitHead
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.training import self_text
from specdec_lite.training.loop import Plan, train

LAYERS = {"pair": (2, 3, 4, 6), "smollm2": (10, 15, 20)}
SHIP = {"pair": 2, "smollm2": 10}
STEPS = {"pair": 400, "smollm2": 200}
WIDTH = 256
RATE = 2e-3


@torch.no_grad()
def exit_states(model: Transformer, tokens: Tensor, layers: list[int]) -> dict[int, Tensor]:
    """tokens [B, n] → the states after each of these layers, normed as the last one is: [B, n, d]
    each.
    """
    kept: dict = dict.fromkeys(layers)
    model(tokens, layers=max(layers), keep=kept, head=False)
    return {layer: model.norm(kept[layer]) for layer in layers}


def exit_loss(
    model: Transformer, exits: nn.ModuleDict, known: Tensor
) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy of every exit on the next token of the target's own text, their sum.

    known: [k] the ids that the text is made of; only their rows of the head are computed, for the
    others never are the label.
    """
    layers = sorted(int(name) for name in exits)
    place = torch.zeros(model.config.vocab_size, dtype=torch.long)
    place[known] = torch.arange(len(known))
    head = model.head.weight.detach()[known]

    def loss(rows: Tensor) -> Tensor:
        labels = place[rows[:, 1:].flatten()]
        states = exit_states(model, rows[:, :-1], layers)
        losses = [
            F.cross_entropy((exits[str(b)](states[b]) @ head.T).float().flatten(0, 1), labels)
            for b in layers
        ]
        return torch.stack(losses).sum()

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training early_exit`."""
    self_text.add_arguments(parser, "early_exit")
    parser.add_argument("--layers", type=int, nargs="+", help="exits to train for")
    parser.add_argument("--ship", type=int, help="the exit whose adapter is written to --out")


def run(chosen: argparse.Namespace) -> None:
    """Train all exits together; keep all in --work, and write one to --out."""
    target, streams = self_text.frozen(chosen)
    layers = sorted(chosen.layers or LAYERS[chosen.target])
    steps = chosen.steps or STEPS[chosen.target]
    torch.manual_seed(0)
    width = min(WIDTH, target.hidden_size)
    exits = nn.ModuleDict({str(b): ExitHead(target.hidden_size, b, width) for b in layers})
    plan = Plan(steps, RATE, batch=4, context=128, long_context=256, warmup=10, weight_decay=0.0)
    known = torch.from_numpy(np.unique(streams["library"]).astype(np.int64))
    name = f"{chosen.target}-{'-'.join(exits)}-{steps}-{fingerprint(target)}.pt"
    seconds = train(exits, exit_loss(target.model, exits, known), streams, plan, chosen.work / name)
    for layer, adapter in exits.items():
        save(chosen.work / chosen.target / layer, adapter, target, adapter.config)
    ship = str(chosen.ship or SHIP[chosen.target])
    print(save(chosen.out / chosen.target, exits[ship], target, exits[ship].config), seconds)
