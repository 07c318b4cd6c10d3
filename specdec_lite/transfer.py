"""Copies between the host and a device. Only a download makes the host wait for the device.

A round therefore gathers what the host must know and downloads it once.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


def upload(
    numbers: Tensor | Sequence, device: torch.device | str, dtype: torch.dtype | None = None
) -> Tensor:
    """Return a tensor, or a list of any depth, as a tensor on a device."""
    tensor = torch.as_tensor(numbers, dtype=dtype)
    if torch.device(device).type != "cuda" or tensor.device.type == "cuda" or not tensor.numel():
        return tensor.to(device)
    # Only a copy from pinned memory is asynchronous; any other one blocks the host.
    return tensor.pin_memory().to(device, non_blocking=True)


def download(**parts: Tensor) -> dict[str, list[float]]:
    """Copy tensors [n_i] of one device to the host in one transfer, as lists of floats by name."""
    # float64 holds every float32, and every token id, exactly.
    numbers = torch.cat([part.double() for part in parts.values()]).tolist()
    ends = list(accumulate(len(part) for part in parts.values()))
    return {name: numbers[end - len(part) : end] for (name, part), end in zip(parts.items(), ends)}
