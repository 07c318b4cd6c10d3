"""Linear layers that multiply by 4-bit weights, as a 4-bit file stores them.

PyTorch's product for CPUs reads 4 bits per weight, and for every group of 32 weights of a row a
scale and a zero point in bfloat16. A weight is (code − 8) · scale + zero, with codes from 0 to 15.
The product takes this value in float32 and adds up in float32; inputs and results are bfloat16. It
adds up every row of the input in the same order, whatever their number.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

GROUP = 32
"""Weights of a row that share a scale and a zero point."""
ROWS = 16
"""Rows of a pass up to which a model of 4-bit layers computes each row as if it were the only one."""
OPERATORS = ("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
"""PyTorch's operators. They are not public API: `can_multiply` says whether this version has them."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The weights of a linear layer in 4 bits, or of several layers on top of each other.

    Attributes:
        codes: [out, n·in] uint8, 0 … 15. With n = 2 the layer multiplies [x, x].
        scales: [out, n·in / GROUP].
        zeros: [out, n·in / GROUP].
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor

    @classmethod
    def of_4_bits(cls, codes: Tensor, scales: Tensor, minima: Tensor) -> "Codes":
        """Return weights code · scale + minimum (GGUF's Q4_1).

        Shapes: codes [out, in], scales [out, in / GROUP], minima [out, in / GROUP].
        """
        return cls(codes, scales, minima + 8 * scales)

    @classmethod
    def of_8_bits(cls, codes: Tensor, scales: Tensor) -> "Codes":
        """Return weights code · scale (GGUF's Q8_0) as the sum of two weights of 4 bits.

        A code is 16 · high + low, with high from −8 to 7 and low from 0 to 15.

        Shapes: codes [out, in], scales [out, in / GROUP].
        """
        high = codes >> 4
        low = codes - (high << 4)
        return cls(
            torch.cat((high + 8, low), 1).to(torch.uint8),
            torch.cat((16 * scales, scales), 1),
            torch.cat((torch.zeros_like(scales), 8 * scales), 1),
        )

    @classmethod
    def stack(cls, parts: "list[Codes]") -> "Codes":
        """Return the weights of several layers with the same input as those of one layer."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def weight(self) -> Tensor:
        """Return the weights [out, n·in] in float32 as the product computes them.

        Scales and zero points are rounded to bfloat16. In the sum over the n copies of the input,
        the weights of one input add up.
        """
        scales, zeros = (part.bfloat16().float() for part in (self.scales, self.zeros))
        groups = self.codes.float().unflatten(1, (-1, GROUP)) - 8
        return (groups * scales[..., None] + zeros[..., None]).flatten(1)


class Int4Linear(nn.Linear):
    """A frozen `nn.Linear` that multiplies by 4-bit weights in inference mode.

    `attach` turns an `nn.Linear` into this class in place. `weight` remains, in bfloat16, for
    everything that reads weights and for passes outside inference mode, which use it.

    Attributes:
        packed: the codes in the order that the product reads.
        scales_and_zeros: [n·in / GROUP, out, 2] bfloat16.
        copies: n, how many copies of the input the codes are multiplied by.
    """

    packed: Tensor
    scales_and_zeros: Tensor
    copies: int

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the product with the 4-bit weights, plus the bias.

        Shapes: x [..., in_features].
        """
        if not torch.is_inference_mode_enabled():
            return super().forward(x)
        rows = x.reshape(-1, x.shape[-1])
        if self.copies > 1:
            rows = rows.repeat(1, self.copies)
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, self.packed, GROUP, self.scales_and_zeros
        )
        out = out if self.bias is None else out + self.bias
        return out.view(*x.shape[:-1], -1)


def can_multiply() -> bool:
    """Return whether this version of PyTorch has the product."""
    return all(hasattr(torch.ops.aten, name) for name in OPERATORS)


def attach(layer: nn.Linear, codes: Codes) -> None:
    """Turn a linear layer into an `Int4Linear`, in place."""
    weight = layer.weight
    if weight.requires_grad or weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        raise ValueError(
            f"layer has {weight.dtype} weights on {weight.device}, requires_grad="
            f"{weight.requires_grad}: must be frozen, bfloat16 and on a CPU"
        )
    outputs, inputs = codes.codes.shape
    if outputs != layer.out_features or inputs % layer.in_features or inputs % GROUP:
        raise ValueError(
            f"codes has shape {tuple(codes.codes.shape)}: must be that of the layer's weights,"
            f" {tuple(weight.shape)}, with whole groups of {GROUP}"
        )
    parts = (part.t().bfloat16() for part in (codes.scales, codes.zeros))
    with torch.inference_mode(False), torch.no_grad():
        whole = codes.codes.to(torch.int32)
        layer.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
        layer.scales_and_zeros = torch.stack([*parts], -1).contiguous()
    layer.copies = inputs // layer.in_features  # pyright: ignore[reportArgumentType]
    layer.__class__ = Int4Linear


def is_int4(model: nn.Module) -> bool:
    """Return whether any layer of a model multiplies by 4-bit weights."""
    return any(type(layer) is Int4Linear for layer in model.modules())


def int4_bytes(model: nn.Module) -> int:
    """Return the bytes of 4-bit weights, scales and zero points that a pass reads."""
    layers = [layer for layer in model.modules() if type(layer) is Int4Linear]
    return sum(layer.packed.nbytes + layer.scales_and_zeros.nbytes for layer in layers)
