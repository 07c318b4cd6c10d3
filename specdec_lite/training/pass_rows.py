"""Look-ahead rows (PaSS) for a frozen target, trained on its own text."""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.pass_rows import LookaheadRows
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.training import self_text
from specdec_lite.training.loop import Plan, train

COUNT = 3
STEPS = {"pair": 300, "smollm2": 80}
RATE = 1e-2
ANCHORS = 24


def chains(anchors: Tensor, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Positions [length + a·count] and mask [the same, squared] of a text with a chain of look-ahead
    rows behind each anchor: a chain sees the text up to its anchor, and its own rows before it.

    anchors: [a] places in the text of `length` tokens.
    """
    ahead = torch.arange(1, count + 1)
    positions = torch.cat((torch.arange(length), (anchors[:, None] + ahead).flatten()))
    owner = torch.arange(len(anchors)).repeat_interleave(count)
    mask = torch.ones(len(positions), len(positions), dtype=torch.bool).tril()
    mask[length:, :length] = torch.arange(length) <= anchors[owner][:, None]
    mask[length:, length:] &= owner[:, None] == owner
    return positions, mask


def rows_loss(model: Transformer, ahead: LookaheadRows) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy of look-ahead row j behind an anchor on the token j + 1 places after it.

    The anchors are drawn anew for every batch, from the batch itself, so that a run can resume.
    """
    count = len(ahead.rows)

    def loss(rows: Tensor) -> Tensor:
        text = rows[:, : -count - 1]
        length = text.shape[1]
        generator = torch.Generator().manual_seed(int(rows.sum()))
        anchors = torch.randperm(length - 8, generator=generator)[:ANCHORS].sort().values + 8
        positions, mask = chains(anchors, length, count)
        drawn = ahead.rows.repeat(len(anchors), 1).expand(len(rows), -1, -1)
        states = torch.cat((model.embedding(text).detach(), drawn), dim=1)
        kept: dict = {"final": None}
        ids = torch.zeros(states.shape[:2], dtype=torch.long)
        model(ids, positions=positions, bias=mask, keep=kept, head=False, states=(0, states))
        places = anchors[:, None] + torch.arange(2, count + 2)
        logits = model.head(kept["final"][:, length:]).float().flatten(0, 1)
        return F.cross_entropy(logits, rows[:, places.flatten()].flatten())

    return loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training pass_rows`."""
    self_text.add_arguments(parser, "pass_rows")
    parser.add_argument("--count", type=int, default=COUNT, help="look-ahead rows")


def run(chosen: argparse.Namespace) -> None:
    """Train the rows: the gradient crosses the whole frozen target, and only they learn."""
    target, streams = self_text.frozen(chosen)
    torch.manual_seed(0)
    ahead = LookaheadRows(target.hidden_size, chosen.count)
    with torch.no_grad():
        ahead.rows += target.model.embedding.weight.mean(0)
    steps = chosen.steps or STEPS[chosen.target]
    plan = Plan(steps, RATE, batch=2, context=160, long_context=160, warmup=10, weight_decay=0.0)
    name = f"{chosen.target}-rows-{chosen.count}-{steps}-{fingerprint(target)}.pt"
    seconds = train(ahead, rows_loss(target.model, ahead), streams, plan, chosen.work / name)
    print(save(chosen.out / chosen.target, ahead, target, ahead.config), seconds)
