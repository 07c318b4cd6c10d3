"""Linear layers that keep a copy of their weights in the processor's preferred memory order.

A product with few input rows spends much of its time rearranging the weights for the processor, and
repeats this in every pass. oneDNN can keep the rearranged ("packed") copy instead. `pack` adds such
copies to a model and `unpack` removes them. Packed and plain products agree to within rounding.
"""

import platform
from functools import cache

import torch
from torch import Tensor, nn

from specdec_lite.engine.frozen import FrozenLinear, freeze, thaw
from specdec_lite.engine.processor import X86
from specdec_lite.engine.transformer import Transformer

ROWS = 8
"""Input rows that the packed order is optimized for. Any other number works too."""
SMALL = 1 << 20
"""Size in bytes from which a float32 matrix is packed. A smaller matrix stays in the cache nearest
the processor, and the plain product with one row, a draft's usual pass, is faster there.
"""
LIMIT = 1 << 30
"""Weight bytes up to which a model is packed. The copies take the same memory again."""
OPERATORS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
"""The operators that PyTorch's own compiler calls for packing. They are not public API: if one is
missing, nothing is packed.
"""


class PackedLinear(FrozenLinear):
    """Multiplies by weights in the processor's order."""

    stays = False

    def multiply(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


@cache
def can_pack() -> bool:
    """Return whether this is an x86 processor and PyTorch was built with oneDNN."""
    return (
        platform.machine() in X86
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in OPERATORS)
    )


def worth_packing(weight: Tensor) -> bool:
    """Return whether `pack` packs a layer with these weights.

    It packs float32 matrices of at least SMALL bytes, and bfloat16 matrices if the processor
    supports bfloat16; both on a CPU and frozen.
    """
    if (
        not can_pack()
        or weight.device.type != "cpu"
        or weight.requires_grad
        or weight.is_inference()
        or not weight.numel()
    ):
        return False
    if weight.dtype == torch.float32:
        return weight.nbytes >= SMALL
    return weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def pack(model: nn.Module) -> nn.Module:
    """Give a model's frozen linear layers packed copies of their weights, where it pays.

    The model itself is changed: its layers of class `nn.Linear` become `FrozenLinear`. Models above
    LIMIT bytes and machines without oneDNN are left unchanged. Copies that are still current are
    reused.

    Layers in bfloat16 get our own product (`int4.share_rows`) where there is a C compiler and their
    sizes allow it: a row's result does not depend on the number of rows there, so greedy text with
    a chain of drafts is plain text. Elsewhere two logits in bfloat16 are often equal to within
    rounding, and greedy text with a draft may then be another one.
    """
    if sum(weight.nbytes for weight in model.parameters()) > LIMIT:
        return model
    for layer in model.modules():
        if isinstance(layer, FrozenLinear) and not layer.is_current():
            thaw(layer)
    if any(weight.dtype == torch.bfloat16 for weight in model.parameters()):
        from specdec_lite.engine.int4 import share_rows

        share_rows(model)
    for layer in model.modules():
        if type(layer) is nn.Linear and worth_packing(layer.weight):
            packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
            freeze(layer, PackedLinear, packed)
    return model


def unpack(model: nn.Module) -> nn.Module:
    """Remove the copies: every layer becomes an `nn.Linear`."""
    for layer in model.modules():
        if isinstance(layer, FrozenLinear):
            thaw(layer)
    if isinstance(model, Transformer):
        model.decoder, model.rows_alone = None, 0
    return model


def is_packed(model: nn.Module) -> bool:
    """Return whether any layer of a model has a current copy of its weights."""
    return any(isinstance(layer, FrozenLinear) and layer.is_current() for layer in model.modules())
