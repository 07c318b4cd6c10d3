"""Look-ahead rows (PaSS) for a frozen target, trained on its own text."""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.self_drafts import LookaheadRows
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.training import frozen_target
from specdec_lite.training.loop import Plan, train
from specdec_lite.training.losses import native_model

COUNT = 3
STEPS = {"pair": 300, "smollm2": 80}
RATE = 1e-2
ANCHORS = 24


def lookahead_chains(anchors: Tensor, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Return positions and attention mask of a text with a chain of look-ahead rows per anchor.

    A chain follows its anchor: it attends to the text up to the anchor and to its own rows.

    Shapes: anchors [A].
    """
    device = anchors.device
    text, ahead = torch.arange(length, device=device), torch.arange(1, count + 1, device=device)
    positions = torch.cat((text, (anchors[:, None] + ahead).flatten()))
    owner = torch.arange(len(anchors), device=device).repeat_interleave(count)
    mask = torch.ones(len(positions), len(positions), dtype=torch.bool, device=device).tril()
    mask[length:, :length] = text <= anchors[owner][:, None]
    mask[length:, length:] &= owner[:, None] == owner
    return positions, mask


def rows_loss(model: Transformer, lookahead: LookaheadRows) -> Callable[[Tensor], Tensor]:
    """Return the loss: mean cross-entropy of look-ahead row j on the token j + 1 after its anchor.

    The anchors of a batch are drawn from the batch itself, so an interrupted run can resume.
    """
    count = len(lookahead.rows)

    def loss(rows: Tensor) -> Tensor:
        text = rows[:, : -count - 1]
        length = text.shape[1]
        generator = torch.Generator().manual_seed(int(rows.sum()))
        anchors = torch.randperm(length - 8, generator=generator)[:ANCHORS].sort().values + 8
        anchors = anchors.to(rows.device)
        positions, mask = lookahead_chains(anchors, length, count)
        chains = lookahead.rows.repeat(len(anchors), 1).expand(len(rows), -1, -1)
        embedded = torch.cat((model.embedding(text).detach(), chains), dim=1)
        states: dict = {"final": None}
        ids = rows.new_zeros(embedded.shape[:2])
        model(ids, positions=positions, bias=mask, keep=states, head=False, states=(0, embedded))
        predicted = anchors[:, None] + torch.arange(2, count + 2, device=rows.device)
        logits = model.head(states["final"][:, length:]).float().flatten(0, 1)
        return F.cross_entropy(logits, rows[:, predicted.flatten()].flatten())

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training pass_rows`."""
    frozen_target.add_arguments(parser, "pass_rows")
    parser.add_argument("--count", type=int, default=COUNT, help="number of look-ahead rows")


def run(options: argparse.Namespace) -> None:
    """Train the rows and save them: the gradient crosses the frozen target, and only rows change."""
    target, streams = frozen_target.load_frozen_target(options)
    torch.manual_seed(0)
    lookahead = LookaheadRows(target.hidden_size, options.count).to(target.device)
    model = native_model(target)
    with torch.no_grad():
        lookahead.rows.add_(model.embedding.weight.mean(0))
    steps = options.steps or STEPS[options.target]
    plan = Plan(steps, RATE, batch=2, context=160, long_context=160, warmup=10, weight_decay=0.0)
    loss = rows_loss(model, lookahead)
    name = f"{options.target}-rows-{options.count}-{steps}-{fingerprint(target)}.pt"
    seconds = train(lookahead, loss, streams, plan, options.work / name)
    print(save(options.out / options.target, lookahead, target, lookahead.config), seconds)
