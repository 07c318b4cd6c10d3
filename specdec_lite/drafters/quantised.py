"""The target in fewer bits as its own draft.

Source: Tiwari et al. 2025 (QuantSpec), its weights only: the draft has a cache of its own.
What lives here: the rounded copy, and a drafter of it. What does not: drafting (`model`).
"""

import copy

import torch
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.model import ModelDrafter
from specdec_lite.engine.models import CausalLM

GROUP = 32
"""Weights of a row that share one scale, below 8 bits."""


class Int8Linear(nn.Module):
    """A linear layer of whole numbers, 8 bits a weight and one scale a row. Its product is torch's
    own for a CPU: weights are read as they are stored, inputs and results are bfloat16.
    """

    def __init__(self, layer: nn.Linear):
        super().__init__()
        scales = layer.weight.detach().abs().amax(1).clamp(min=1e-12) / 127
        rows = (layer.weight.detach() / scales[:, None]).round().to(torch.int8)
        self.register_buffer("rows", rows)
        self.register_buffer("scales", scales.bfloat16())
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] → [..., out]."""
        flat = x.flatten(0, -2).bfloat16()
        made = torch._weight_int8pack_mm(flat, self.rows, self.scales).to(x.dtype)
        made = made if self.bias is None else made + self.bias
        return made.unflatten(0, x.shape[:-1])


def rounded(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """weight [out, in] rounded to 2^bits − 1 levels around zero, one scale for every `group` of a
    row: what a product of so many bits would compute with, in the weight's own dtype.
    """
    most = 2 ** (bits - 1) - 1
    parts = weight.detach().split(group, dim=1)
    scales = [part.abs().amax(1, keepdim=True).clamp(min=1e-12) / most for part in parts]
    return torch.cat([(part / s).round() * s for part, s in zip(parts, scales)], dim=1)


def quantised(target: CausalLM, bits: int = 8) -> CausalLM:
    """A copy of a native target whose linear layers, the head among them, have `bits` a weight: 8
    multiply in 8 bits, 2 … 7 are only rounded to their levels, and multiply as before. The
    embedding stays as it is. ValueError for 8 bits elsewhere than on a CPU.
    """
    checks.native("target", target)
    checks.whole("bits", bits, 2, 8)
    if bits == 8 and target.device.type != "cpu":
        raise ValueError(f"bits=8: the target is on {target.device}, the product needs a CPU")
    model = copy.deepcopy(target.model)
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            if bits == 8:
                setattr(part, name, Int8Linear(layer))
            else:
                layer.weight = nn.Parameter(rounded(layer.weight, bits), requires_grad=False)
    return CausalLM(model)


def stored_bytes(target: CausalLM, bits: int) -> int:
    """Bytes that the linear layers take with `bits` a weight, scales (2 bytes; one a row at 8 bits,
    else one a group) included: what one pass has to read.
    """
    weights = [m.weight for m in target.model.modules() if isinstance(m, nn.Linear)]
    scales = [len(w) * (1 if bits == 8 else -(-w.shape[1] // GROUP)) for w in weights]
    return sum(w.numel() * bits // 8 + 2 * s for w, s in zip(weights, scales))


class QuantisedDrafter(ModelDrafter):
    """Draft γ tokens with a rounded copy of the target: another model, and never the target.

    Args:
        target: a native model.
        bits: of a weight, 2 … 8.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, target: CausalLM, bits: int = 8, gamma: int | Length = 4):
        super().__init__(quantised(target, bits), gamma)
