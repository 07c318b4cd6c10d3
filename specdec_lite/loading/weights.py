"""Files that belong to one target: how it is told from another, and how tensors are written whole.

What lives here: the target's fingerprint and safetensors files. What does not: the modules that
are stored (`drafters`), training them (`training`).
"""

import hashlib
import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdec_lite.engine.models import CausalLM


def fingerprint(target: CausalLM) -> str:
    """Sixteen hexadecimal digits that tell one trained target from another, whatever the dtype it
    was loaded in.

    A hash of the shape and of the first 4,096 entries of every weight, rounded to bfloat16 and then
    to 1/1024. (A target stored in float32 and loaded in float16 is rounded twice, and may then pass
    for another one.)
    """
    digest = hashlib.sha256(
        f"{target.vocab_size} {target.hidden_size} {target.num_layers}".encode()
    )
    for _, weight in sorted(target.model.named_parameters()):
        few = weight.detach().flatten()[:4096].bfloat16().float() * 1024
        digest.update(few.round().to(torch.int32).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Path:
    """Write a safetensors file whole or not at all: interrupted, it leaves the file that was there.

    Args:
        path: the file; its folder is made where it is missing.
        tensors: what to store, by name, on any device.
        metadata: texts that are stored with it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(stored, part, {"format": "pt"} | metadata)
    part.replace(path)
    return path
