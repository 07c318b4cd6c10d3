"""The training loop: a plan, batches, a loss, an optimiser; interrupted at any time, it resumes
step for step.

What lives here: everything that does not care which model is trained. What does not: the text
(`text`), and the losses of the drafts and heads, which stand with what they train.
"""

import argparse
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

from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.training.text import MIXTURE

OPTIMIZERS = ("adamw", "muon")
DECAY_FROM = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast: the last tenth of the steps runs at `long_context`, with as many
    tokens per step.

    warmup: steps in which the rate rises. decay_from: the share of the steps after which it falls
    to zero.
    """

    steps: int
    learning_rate: float
    batch: int = 8
    context: int = 512
    long_context: int = 1024
    warmup: int = 200
    decay_from: float = DECAY_FROM
    weight_decay: float = 0.1
    seed: int = 0
    optimizer: str = "adamw"

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"steps={self.steps}: must be 0 or more")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer={self.optimizer!r}: must be one of {', '.join(OPTIMIZERS)}"
            )
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more")
        if not 0 <= self.decay_from < 1:
            raise ValueError(f"decay_from={self.decay_from}: must be at least 0 and below 1")
        if self.warmup < 1:
            raise ValueError(f"warmup={self.warmup}: must be 1 or more")

    def rate(self, step: int) -> float:
        """Learning rate: linear warm-up, constant, linear to zero."""
        left = (self.steps - step) / (self.steps * (1 - self.decay_from))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup, left)

    def window(self, step: int) -> tuple[int, int]:
        """Rows and tokens per row at this step."""
        if step < 0.9 * self.steps:
            return self.batch, self.context
        return max(1, self.batch * self.context // self.long_context), self.long_context


def batches(streams: dict[str, np.ndarray], plan: Plan, first: int = 0) -> Iterator[Tensor]:
    """Batches [rows, context + 1] of random windows; step i is a function of (seed, i) alone, so a
    run can resume.
    """
    for step in range(first, plan.steps):
        rows, context = plan.window(step)
        yield windows(streams, np.random.default_rng((plan.seed, step)), rows, context + 1)[1]


def windows(
    streams: dict[str, np.ndarray], rng: np.random.Generator, rows: int, length: int
) -> tuple[list[str], Tensor]:
    """Random windows [rows, length], each of a stream drawn by MIXTURE, and the names of these
    streams.
    """
    weights = np.array([MIXTURE[name] for name in streams])
    drawn = rng.choice(len(streams), size=rows, p=weights / weights.sum())
    names = [list(streams)[number] for number in drawn]
    pieces = []
    for name in names:
        start = rng.integers(len(streams[name]) - length)
        pieces.append(streams[name][start : start + length])
    return names, torch.from_numpy(np.stack(pieces).astype(np.int64))


def next_token_loss(model: Transformer) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy in nats per token over a batch of windows."""

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())

    return loss


def initialise(model: Transformer, seed: int = 0) -> Transformer:
    """Normal(0, .02) weights, the two matrices that write to the residual stream scaled down by √(2
    · layers).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            scale = (
                math.sqrt(2 * model.config.num_layers)
                if name.endswith(("out.weight", "down.weight"))
                else 1.0
            )
            torch.nn.init.normal_(weight, std=0.02 / scale, generator=generator)
    return model


def optimizers(model: nn.Module, plan: Plan) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the hidden matrices and AdamW for embeddings, heads and
    vectors.

    Only matrices decay. Muon's step is scaled to the size of AdamW's, so that one learning rate
    serves both. Source: Loshchilov and Hutter 2019; Jordan et al. 2024 (Muon), with the scale of
    Liu et al. 2025.
    """
    by_muon = []
    matrices = []
    vectors = []
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        inner = weight.dim() == 2 and not {"embedding", "head"} & set(name.split("."))
        if plan.optimizer == "muon" and inner:
            by_muon.append(weight)
        elif weight.dim() >= 2:
            matrices.append(weight)
        else:
            vectors.append(weight)
    if by_muon and not hasattr(torch.optim, "Muon"):
        raise ValueError(
            f"optimizer='muon' needs torch 2.9 or later, this is {torch.__version__}: use 'adamw'"
        )
    groups = [
        {"params": weights, "weight_decay": decay}
        for weights, decay in ((matrices, plan.weight_decay), (vectors, 0.0))
        if weights
    ]
    rate = plan.learning_rate
    made: list[torch.optim.Optimizer] = []
    if groups:
        made.append(torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True))
    if by_muon:
        decay = plan.weight_decay
        made.append(
            torch.optim.Muon(by_muon, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
        )
    return made


def digest(model: nn.Module) -> str:
    """A hash of all weights, to tell one starting point from another."""
    found = hashlib.sha256()
    for _, weight in sorted(model.named_parameters()):
        found.update(weight.detach().float().cpu().numpy().tobytes())
    return found.hexdigest()


def given(chosen: argparse.Namespace, usual: dict) -> list[str]:
    """The options of a command that are not as `usual`, as they are typed; True stands for a flag."""
    words = []
    for name, value in usual.items():
        own = getattr(chosen, name.replace("-", "_"))
        if own != value:
            words.append(f"--{name}" if own is True else f"--{name} {own}")
    return words


class Checkpoint:
    """The state of a run, written whole or not at all: model, optimisers, step, seconds spent, and
    what the run set out to do.
    """

    def __init__(
        self,
        path: Path,
        model: nn.Module,
        optimisers: list[torch.optim.Optimizer],
        plan: Plan,
        streams: dict,
    ):
        self.path = path
        self.model = model
        self.optimisers = optimisers
        self.run = {
            "plan": asdict(plan),
            "start": digest(model),
            "text": {name: len(stream) for name, stream in streams.items()},
        }

    def load(self, device) -> tuple[int, float]:
        """Steps done and seconds spent so far: (0, 0.0) where nothing was saved. ValueError where
        another run was.
        """
        if not self.path.exists():
            return 0, 0.0
        saved = torch.load(self.path, map_location=device, weights_only=True)
        if saved.get("run") != self.run:
            raise ValueError(
                f"{self.path} is the checkpoint of another run"
                f" ({saved.get('run', 'not told which')}): this one is {self.run}; choose another"
                " --work folder, or delete it"
            )
        self.model.load_state_dict(saved["model"])
        for optimizer, state in zip(self.optimisers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        return saved["step"], saved["seconds"]

    def save(self, step: int, seconds: float) -> None:
        part = self.path.with_suffix(".part")
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimisers],
                "step": step,
                "seconds": seconds,
                "run": self.run,
            },
            part,
        )
        part.replace(self.path)


def train(
    model: nn.Module,
    loss: Callable[[Tensor], Tensor],
    streams: dict,
    plan: Plan,
    path: Path,
    compiled: bool = False,
    source: Callable[[int], Iterator[Tensor]] | None = None,
) -> float:
    """Run `plan`, saving to and resuming from the checkpoint at `path`. bf16 autocast (float32 on a
    card that does not compute in bf16), float32 weights, clipping at 1.

    model: what is trained, its parameters with `requires_grad`. loss: a batch of windows [rows,
    context + 1] → one number. source: source(step) → the batches from that step on, where they are
    not windows of the streams. Leaves the model in eval mode and returns the seconds spent on it,
    earlier runs included.
    """
    device = next(model.parameters()).device
    optimisers = optimizers(model, plan)
    checkpoint = Checkpoint(path, model, optimisers, plan, streams)
    first, spent = checkpoint.load(device)
    for part in model.modules():
        if isinstance(part, Transformer):
            part.rotary(device, torch.float32)
    step_loss = torch.compile(loss, dynamic=False) if compiled else loss
    windows_left = batches(streams, plan, first) if source is None else source(first)
    bar = tqdm(windows_left, initial=first, total=plan.steps, mininterval=5, desc=path.stem)
    smooth = None
    saved_at = time.monotonic()
    began = saved_at - spent
    for step, rows in enumerate(bar, start=first):
        value = one_step(model, step_loss, rows.to(device), optimisers, plan.rate(step))
        smooth = value if smooth is None else 0.98 * smooth + 0.02 * value
        bar.set_postfix(loss=f"{smooth:.3f}", refresh=False)
        if step + 1 == plan.steps or time.monotonic() - saved_at > 120:
            saved_at = time.monotonic()
            checkpoint.save(step + 1, saved_at - began)
    model.eval()
    return time.monotonic() - began


def one_step(
    model: nn.Module,
    loss: Callable[[Tensor], Tensor],
    rows: Tensor,
    optimisers: list[torch.optim.Optimizer],
    rate: float,
) -> float:
    """One batch: loss, gradients, clipping, one step of every optimiser. Returns the loss."""
    for optimizer in optimisers:
        for group in optimizer.param_groups:
            group["lr"] = rate
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=has_bfloat16(rows.device)):
        value = loss(rows)
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimisers:
        optimizer.step()
        optimizer.zero_grad()
    return value.item()
