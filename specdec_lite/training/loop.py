"""The training loop: a plan, batches, a loss and AdamW; an interrupted run resumes exactly.

Nothing here depends on which model is trained.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from specdec_lite.checks import whole
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.files import written_whole
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.training.token_streams import MIXTURE

DECAY_FROM = 0.3
"""Share of the steps after which the learning rate falls linearly to zero."""
SAVE_EVERY = 120
"""Seconds between two checkpoints."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Length, batch sizes and learning rates of a run.

    The last tenth of the steps uses rows of `long_context` tokens, with the same number of tokens
    per step.

    Attributes:
        steps: number of optimizer steps.
        learning_rate: peak learning rate.
        batch: rows per step.
        context: tokens per row.
        long_context: tokens per row in the last tenth of the steps.
        warmup: number of steps in which the learning rate rises linearly to its peak.
        weight_decay: weight decay of the matrices.
        seed: seed of the batches.
    """

    steps: int
    learning_rate: float
    batch: int = 8
    context: int = 512
    long_context: int = 1024
    warmup: int = 200
    weight_decay: float = 0.1
    seed: int = 0

    def __post_init__(self):
        whole("steps", self.steps, 0)
        whole("warmup", self.warmup, 1)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, constant, then linear to zero.

        Args:
            step: number of the step, from 0.
        """
        remaining = (self.steps - step) / (self.steps * (1 - DECAY_FROM))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup, remaining)

    def window(self, step: int) -> tuple[int, int]:
        """Return the number of rows and the tokens per row of a step.

        Args:
            step: number of the step, from 0.
        """
        if step < 0.9 * self.steps:
            return self.batch, self.context
        return max(1, self.batch * self.context // self.long_context), self.long_context


def batches(streams: dict[str, np.ndarray], plan: Plan, first: int = 0) -> Iterator[Tensor]:
    """Yield batches [rows, context + 1] of random windows.

    The batch of step i depends on (seed, i) alone, so an interrupted run can resume.

    Args:
        streams: name → token ids [n].
        plan: numbers of rows and tokens, and the seed.
        first: step of the first batch.
    """
    for step in range(first, plan.steps):
        rows, context = plan.window(step)
        rng = np.random.default_rng((plan.seed, step))
        yield draw_windows(streams, rng, rows, context + 1)[1]


def draw_windows(
    streams: dict[str, np.ndarray], rng: np.random.Generator, rows: int, length: int
) -> tuple[list[str], Tensor]:
    """Return the streams' names and the tokens [rows, length] of random windows."""
    weights = np.array([MIXTURE[name] for name in streams])
    numbers = rng.choice(len(streams), size=rows, p=weights / weights.sum())
    names = [list(streams)[number] for number in numbers]
    pieces = []
    for name in names:
        start = rng.integers(len(streams[name]) - length)
        pieces.append(streams[name][start : start + length])
    return names, torch.from_numpy(np.stack(pieces).astype(np.int64))


def next_token_loss(model: Transformer) -> Callable[[Tensor], Tensor]:
    """Return the loss of a language model: mean cross-entropy over windows, in nats per token.

    Args:
        model: what is trained.
    """

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())

    return loss


def initialize(model: Transformer, seed: int = 0) -> Transformer:
    """Draw all matrices from Normal(0, .02) and return the model.

    The two matrices of each layer that write to the residual stream are divided by √(2 · layers).

    Args:
        model: changed in place.
        seed: seed of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    residual_scale = math.sqrt(2 * model.config.num_layers)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            scale = residual_scale if name.endswith(("out.weight", "down.weight")) else 1.0
            torch.nn.init.normal_(weight, std=0.02 / scale, generator=generator)
    return model


def adamw(model: nn.Module, plan: Plan) -> torch.optim.AdamW:
    """Return AdamW for the parameters with `requires_grad`; only matrices decay.

    Source: Loshchilov and Hutter 2019.

    Args:
        model: what is trained.
        plan: learning rate and weight decay.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    matrices, vectors = ([w for w in weights if (w.dim() >= 2) == many] for many in (True, False))
    decays = ((matrices, plan.weight_decay), (vectors, 0.0))
    groups = [{"params": each, "weight_decay": decay} for each, decay in decays if each]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, 0.98), fused=True)


def weights_hash(model: nn.Module) -> str:
    """Return a hash of all weights, which tells one starting point from another."""
    total = hashlib.sha256()
    for _, weight in sorted(model.named_parameters()):
        total.update(weight.detach().float().cpu().numpy().tobytes())
    return total.hexdigest()


def resume(
    path: Path, run: dict, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, float]:
    """Load a checkpoint, if there is one, and return (steps done, seconds spent).

    Raises:
        ValueError: the file is of another run.
    """
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, map_location=next(model.parameters()).device, weights_only=True)
    if state.get("run") != run:
        raise ValueError(
            f"{path} is the checkpoint of another run ({state.get('run', 'unknown')}):"
            f" this one is {run}; choose another --work folder, or delete the file"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"], state["seconds"]


def train(
    model: nn.Module,
    loss: Callable[[Tensor], Tensor],
    streams: dict,
    plan: Plan,
    path: Path,
    source: Callable[[int], Iterator[Tensor]] | None = None,
    limit: float = math.inf,
) -> float:
    """Run a plan, resuming from the checkpoint if there is one; return the seconds spent.

    Weights are float32; the loss runs under bf16 autocast, or in float32 on a device that does not
    compute in bf16. Gradients are clipped at norm 1. The model is in eval mode afterwards.

    Args:
        model: its parameters with `requires_grad` are trained.
        loss: batch of windows [rows, context + 1] → a scalar.
        streams: name → token ids [n]; the batches are drawn from them unless `source` is given.
        plan: length, batch sizes and learning rates.
        path: file of the checkpoint.
        source: source(step) yields the batches from that step on.
        limit: seconds after which this call stops, with a checkpoint; the next call continues.

    Returns:
        Seconds of training, earlier runs included.
    """
    device = next(model.parameters()).device
    optimizer = adamw(model, plan)
    text = {name: len(stream) for name, stream in streams.items()}
    run = {"plan": asdict(plan), "start": weights_hash(model), "text": text}
    first, spent = resume(path, run, model, optimizer)
    for part in model.modules():
        if isinstance(part, Transformer):
            part.rotary(device, torch.float32)
    remaining = batches(streams, plan, first) if source is None else source(first)
    bar = tqdm(remaining, initial=first, total=plan.steps, mininterval=5, desc=path.stem)
    smooth = None
    last_save = time.monotonic()
    start, end = last_save - spent, last_save + limit
    for step, rows in enumerate(bar, start=first):
        value = one_step(model, loss, rows.to(device), optimizer, plan.rate(step))
        smooth = value if smooth is None else 0.98 * smooth + 0.02 * value
        bar.set_postfix(loss=f"{smooth:.3f}", refresh=False)
        now = time.monotonic()
        if step + 1 == plan.steps or now > min(end, last_save + SAVE_EVERY):
            last_save = now
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "run": run}
            with written_whole(path) as unfinished:  # or an interruption would cut the file short
                torch.save(state | {"step": step + 1, "seconds": now - start}, unfinished)
        if now > end:
            break
    model.eval()
    return time.monotonic() - start


def one_step(
    model: nn.Module,
    loss: Callable[[Tensor], Tensor],
    rows: Tensor,
    optimizer: torch.optim.Optimizer,
    rate: float,
) -> float:
    """Train on one batch and return its loss."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=has_bfloat16(rows.device)):
        value = loss(rows)
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return value.item()
