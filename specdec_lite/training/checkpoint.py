"""Checkpoints: the state of a training run in one file, and the identity of the run."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from specdec_lite.loading.files import written_whole


def weights_hash(model: nn.Module) -> str:
    """Return a hash of all weights, which tells one starting point from another."""
    total = hashlib.sha256()
    for _, weight in sorted(model.named_parameters()):
        total.update(weight.detach().float().cpu().numpy().tobytes())
    return total.hexdigest()


class Checkpoint:
    """The state of a run in one file: model, optimizers, step, seconds, and the run's identity.

    The file is replaced as a whole, so an interrupted write leaves the file before it intact.

    Args:
        path: file of the checkpoint.
        model: what is trained.
        optimizers: its optimizers.
        plan: fields of the plan, part of the run's identity.
        streams: what the batches are drawn from; the lengths are part of the run's identity.
    """

    def __init__(
        self,
        path: Path,
        model: nn.Module,
        optimizers: list[torch.optim.Optimizer],
        plan: dict,
        streams: dict,
    ):
        self.path = path
        self.model = model
        self.optimizers = optimizers
        self.run = {
            "plan": plan,
            "start": weights_hash(model),
            "text": {name: len(stream) for name, stream in streams.items()},
        }

    def load(self, device) -> tuple[int, float]:
        """Load the file into model and optimizers; return (steps done, seconds spent)."""
        if not self.path.exists():
            return 0, 0.0
        state = torch.load(self.path, map_location=device, weights_only=True)
        if state.get("run") != self.run:
            raise ValueError(
                f"{self.path} is the checkpoint of another run ({state.get('run', 'unknown')}):"
                f" this one is {self.run}; choose another --work folder, or delete the file"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, its_state in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(its_state)
        return state["step"], state["seconds"]

    def save(self, step: int, seconds: float) -> None:
        """Write the file."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": step,
            "seconds": seconds,
            "run": self.run,
        }
        with written_whole(self.path) as unfinished:
            torch.save(state, unfinished)
