"""Draft with a copy of the target in fewer bits.

Source: Tiwari et al. 2025 (QuantSpec), weights only: the draft has its own cache.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.engine.linear import pack, unpack
from specdec_lite.engine.models import CausalLM

# Rounding the weights of a model ----------------------------------------------------------------

GROUP = 32
"""Weights per scale below 8 bits."""


class Int8Linear(nn.Module):
    """A linear layer with 8-bit integer weights and one scale per row.

    It uses PyTorch's product for CPUs, which reads the weights as they are stored; inputs and
    results are bfloat16. The product reads 16 entries at a time, so rows are padded with zeros.
    """

    rows: Tensor
    scales: Tensor

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach().float()  # bfloat16 quotients may round to 128
        scales = (weight.abs().amax(1).clamp(min=1e-12) / 127).bfloat16()
        rows = (weight / scales[:, None].float()).round().clamp(-127, 127).to(torch.int8)
        self.padding = -rows.shape[1] % 16
        self.register_buffer("rows", F.pad(rows, (0, self.padding)))
        self.register_buffer("scales", scales)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [..., out].

        Shapes: x [..., in].
        """
        flat = F.pad(x.flatten(0, -2).bfloat16(), (0, self.padding))
        product = torch.ops.aten._weight_int8pack_mm(flat, self.rows, self.scales)
        out = product.to(x.dtype)
        out = out if self.bias is None else out + self.bias
        return out.unflatten(0, x.shape[:-1])


def round_weight(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Return a weight rounded to 2^bits − 1 levels around zero, in its own dtype.

    Shapes: weight [out, in].
    """
    most = 2 ** (bits - 1) - 1
    parts = weight.detach().split(group, dim=1)
    scales = [part.abs().amax(1, keepdim=True).clamp(min=1e-12) / most for part in parts]
    return torch.cat([(part / s).round() * s for part, s in zip(parts, scales)], dim=1)


def quantize(target: CausalLM, bits: int = 8) -> CausalLM:
    """Return a copy of a native model with fewer bits per weight in its linear layers.

    8 bits multiply integers. 2 … 7 bits only round the weights and multiply as before. The
    embedding is not changed.
    """
    checks.native("target", target)
    checks.whole("bits", bits, 2, 8)
    if bits == 8 and target.device.type != "cpu":
        raise ValueError(f"bits=8: the target is on {target.device}, the product needs a CPU")
    model = unpack(copy.deepcopy(target.model))  # a copy would not read the rounded weights
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            if bits == 8:
                setattr(part, name, Int8Linear(layer))
            else:
                layer.weight = nn.Parameter(round_weight(layer.weight, bits), requires_grad=False)
    return CausalLM(pack(model))


# The drafter ------------------------------------------------------------------------------------


class QuantizedDrafter(ModelDrafter):
    """Draft γ tokens with a rounded copy of the target, which is another model than the target.

    Args:
        target: a native model.
        bits: bits per weight, 2 … 8.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, target: CausalLM, bits: int = 8, gamma: int | Length = 4):
        super().__init__(quantize(target, bits), gamma)
