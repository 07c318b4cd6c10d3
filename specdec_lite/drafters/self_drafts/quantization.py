"""Round the weights of a model to fewer bits."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.engine.int4 import Int4Linear, detach
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM

GROUP = 32
"""Weights per scale below 8 bits."""


class Int8Linear(nn.Module):
    """A linear layer with 8-bit integer weights and one scale per row.

    It uses PyTorch's product for CPUs, which reads the weights as they are stored; inputs and
    results are bfloat16. The product reads 16 entries at a time, so rows are padded with zeros.

    Args:
        layer: the layer to round.
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


class DynamicInt8Linear(nn.Module):
    """A linear layer that multiplies 8-bit weights by 8-bit inputs, as oneDNN does on a CPU.

    Weights have one scale per row. The inputs of a pass share one scale and one zero, computed from
    their smallest and largest entry. So the result for a token depends on the other tokens of the
    same pass: a model of such layers can draft, but it cannot verify.

    Args:
        layer: the layer to round.
    """

    scales: Tensor
    zeros: Tensor

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=1e-12) / 127
        rows = (weight / scales[:, None]).round().to(torch.int8)
        self.rows = rows
        self.packed = torch.ops.onednn.qlinear_prepack(rows, None)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(len(rows), dtype=torch.int32))
        self.bias = layer.bias

    def __getstate__(self) -> dict:
        """Return what a copy or a pickle holds: oneDNN's own order cannot be stored."""
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict) -> None:
        """Rebuild a copy, and pack its weights again."""
        super().__setstate__(state)
        self.packed = torch.ops.onednn.qlinear_prepack(self.rows, None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [..., out].

        Shapes: x [..., in].
        """
        flat = x.flatten(0, -2).float()
        low, high = torch.stack(flat.aminmax()).tolist()
        if not math.isfinite(high - low):
            return x.new_full((*x.shape[:-1], len(self.scales)), math.nan)
        low, high = min(low, 0.0), max(high, 0.0)  # so that 0 stays 0
        scale = max(high - low, 1e-12) / 255
        zero = round(-low / scale)
        whole = (flat / scale + zero).round().clamp(0, 255).to(torch.uint8)
        product = torch.ops.onednn.qlinear_pointwise(
            *(whole, scale, zero, self.packed, self.scales, self.zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),  # no bias, and results in float32
        )
        out = product.to(x.dtype)
        out = out if self.bias is None else out + self.bias
        return out.unflatten(0, x.shape[:-1])


def multiplies_8_bits() -> bool:
    """Return whether this build of PyTorch has oneDNN's product of 8-bit integers."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")


def round_weight(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Return a weight rounded to 2^bits − 1 levels around zero, in its own dtype.

    Shapes: weight [out, in].
    """
    most = 2 ** (bits - 1) - 1
    parts = weight.detach().split(group, dim=1)
    scales = [part.abs().amax(1, keepdim=True).clamp(min=1e-12) / most for part in parts]
    return torch.cat([(part / s).round() * s for part, s in zip(parts, scales)], dim=1)


def quantize(target: CausalLM, bits: int = 8, dynamic: bool = False) -> CausalLM:
    """Return a copy of a native model with fewer bits per weight in its linear layers.

    8 bits multiply integers. 2 … 7 bits only round the weights and multiply as before. The
    embedding is not changed.
    """
    checks.native("target", target)
    checks.whole("bits", bits, 2, 8)
    if bits == 8 and target.device.type != "cpu":
        raise ValueError(f"bits=8: the target is on {target.device}, the product needs a CPU")
    if dynamic and bits != 8:
        raise ValueError(f"dynamic=True with bits={bits}: inputs are rounded only with bits=8")
    if dynamic and not multiplies_8_bits():
        raise ValueError("dynamic=True: this build of PyTorch lacks oneDNN's 8-bit product")
    model = copy.deepcopy(target.model)
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            if isinstance(layer, Int4Linear):  # its product would not read the rounded weights
                detach(layer)
            if bits == 8:
                setattr(part, name, DynamicInt8Linear(layer) if dynamic else Int8Linear(layer))
            else:
                layer.weight = nn.Parameter(round_weight(layer.weight, bits), requires_grad=False)
    if dynamic:  # of the module, so that every wrapper of it has the mark
        model.draft_only = (
            "rounds its inputs to 8 bits with one scale per pass, so a token's logits depend on the"
            " other tokens of the pass, and verification would not be lossless"
        )
    return CausalLM(pack(model))


def stored_bytes(target: CausalLM, bits: int) -> int:
    """Return the bytes of the linear layers: what one pass has to read.

    Scales of 2 bytes are included: one per row at 8 bits, one per group below.
    """
    weights = [m.weight for m in target.model.modules() if isinstance(m, nn.Linear)]
    scales = [len(w) * (1 if bits == 8 else -(-w.shape[1] // GROUP)) for w in weights]
    return sum(w.numel() * bits // 8 + 2 * s for w, s in zip(weights, scales))
