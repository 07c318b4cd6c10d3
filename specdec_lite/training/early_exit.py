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
from specdec_lite.training import frozen_target
from specdec_lite.training.loop import Plan, train
from specdec_lite.training.losses import native_model

LAYERS = {"pair": (2, 3, 4, 6), "smollm2": (10, 15, 20)}
SHIPPED_EXIT = {"pair": 2, "smollm2": 10}
STEPS = {"pair": 400, "smollm2": 200}
WIDTH = 256
RATE = 2e-3


@torch.no_grad()
def exit_states(model: Transformer, tokens: Tensor, layers: list[int]) -> dict[int, Tensor]:
    """Return the hidden states [B, n, d] after some blocks, each through the model's final norm.

    Shapes: tokens [B, n].
    """
    states: dict = dict.fromkeys(layers)
    model(tokens, layers=max(layers), keep=states, head=False)
    return {layer: model.norm(states[layer]) for layer in layers}


def exit_loss(
    model: Transformer, exits: nn.ModuleDict, vocabulary: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return the loss of all exits: the sum of their mean cross-entropies on the next token.

    Shapes: vocabulary [k].
    """
    layers = sorted(int(name) for name in exits)
    vocabulary = vocabulary.to(model.head.weight.device)
    label_of = vocabulary.new_zeros(model.config.vocab_size)
    label_of[vocabulary] = torch.arange(len(vocabulary), device=vocabulary.device)
    projection = model.head.weight.detach()[vocabulary]

    def loss(rows: Tensor) -> Tensor:
        labels = label_of[rows[:, 1:].flatten()]
        states = exit_states(model, rows[:, :-1], layers)
        losses = []
        for layer in layers:
            logits = exits[str(layer)](states[layer]) @ projection.T
            losses.append(F.cross_entropy(logits.float().flatten(0, 1), labels))
        return torch.stack(losses).sum()

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training early_exit`."""
    frozen_target.add_arguments(parser, "early_exit")
    parser.add_argument("--layers", type=int, nargs="+", help="exits to train, as block numbers")
    parser.add_argument("--ship", type=int, help="exit whose adapter is written to --out")


def run(options: argparse.Namespace) -> None:
    """Train all exits together, save all of them in --work and one of them in --out."""
    target, streams = frozen_target.load_frozen_target(options)
    layers = sorted(options.layers or LAYERS[options.target])
    steps = options.steps or STEPS[options.target]
    torch.manual_seed(0)
    width = min(WIDTH, target.hidden_size)
    adapters = {str(b): ExitHead(target.hidden_size, b, width) for b in layers}
    exits = nn.ModuleDict(adapters).to(target.device)
    plan = Plan(steps, RATE, batch=4, context=128, long_context=256, warmup=10, weight_decay=0.0)
    vocabulary = torch.from_numpy(np.unique(streams["library"]).astype(np.int64))
    loss = exit_loss(native_model(target), exits, vocabulary)
    name = f"{options.target}-{'-'.join(exits)}-{steps}-{fingerprint(target)}.pt"
    seconds = train(exits, loss, streams, plan, options.work / name)
    for layer, adapter in adapters.items():
        save(options.work / options.target / layer, adapter, target, adapter.config)
    adapter = adapters[str(options.ship or SHIPPED_EXIT[options.target])]
    print(save(options.out / options.target, adapter, target, adapter.config), seconds)
