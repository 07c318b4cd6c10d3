"""A linear layer whose weights can be laid out once for the processor that multiplies by them.

A product with few rows of input spends much of its time on bringing the weights into an order that
suits the processor, anew in every pass. oneDNN can keep a copy in that order. What lives here: the
copy, and when it may be used. What does not: the models that are made of such layers
(`transformer`). Packed and plain products agree to within rounding.
"""

import platform
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 8
"""Rows of input that the order is chosen for; fewer and more are multiplied as well."""
SMALL = 1 << 20
"""Bytes from which a float32 matrix is packed. A smaller one stays in the cache nearest the
processor, where a single row, a draft's usual pass, is multiplied by it faster as it is.
"""
LIMIT = 1 << 30
"""Bytes of weights up to which a model is packed: the copies take as much memory again."""
OPERATORS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
"""What PyTorch's own compiler calls for the same purpose. Their names are no promise of PyTorch's:
where one is missing, nothing is packed.
"""


class Linear(nn.Linear):
    """`nn.Linear` that multiplies by a packed copy of its weights once `pack` has made one.

    The copy serves inference mode only, and only while the weights are those it was made of:
    weights that are trained (`requires_grad`), changed or loaded, autocast and a move to another
    device or dtype take the plain product. Changes that PyTorch does not count, through
    `weight.data` or `weight.numpy()`, go unnoticed: `pack` again after `unpack`.
    """

    packed: Tensor | None = None
    source: Tensor | None = (
        None  # held while the copy is, so that no other weights can come to lie at its address
    )
    version: int = -1
    trained: bool = False

    def pack(self) -> None:
        """Copy the weights into oneDNN's order where that can be done and is worth it; do nothing
        elsewhere.
        """
        if worth_packing(self.weight) and not self._is_current():
            self.source = self.weight.detach()
            self.version = self.weight._version
            self.trained = False
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.source, ROWS)

    def unpack(self) -> None:
        """Give the copy up."""
        self.packed = self.source = None

    def _is_current(self) -> bool:
        weight = self.weight
        return (
            self.packed is not None
            and not (self.trained or weight.requires_grad or weight.is_inference())
            and self.version == weight._version
            and self.source.is_set_to(weight)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] → [..., out]."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            self.trained = (
                True  # told here, since fused optimisers change weights without counting it
            )
        elif (
            not torch.compiler.is_compiling()
            and torch.is_inference_mode_enabled()
            and self._is_current()
            and x.shape[-1:] == self.weight.shape[1:]
            and x.dtype == self.weight.dtype
            and not torch.is_autocast_enabled("cpu")
        ):
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)

    def _apply(self, fn, recurse: bool = True) -> "Linear":
        super()._apply(fn, recurse)
        if self.weight.device.type != "cpu" or not self._is_current():  # another device or dtype
            self.unpack()
        return self

    def __getstate__(self) -> dict:
        return self.__dict__ | {
            "packed": None,
            "source": None,
        }  # a copy and a pickle are packed where they are wrapped


@cache
def can_pack() -> bool:
    """Whether this is an x86 processor and a PyTorch with oneDNN."""
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in OPERATORS)
    )


def worth_packing(weight: Tensor) -> bool:
    """Where packing is possible: bfloat16 weights if the processor has that format, and large
    float32 ones.
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


def layers(model: nn.Module) -> list[Linear]:
    return [layer for layer in model.modules() if isinstance(layer, Linear)]


def pack(model: nn.Module) -> None:
    """Pack every layer of a model that takes no more than LIMIT."""
    if sum(weight.nbytes for weight in model.parameters()) <= LIMIT:
        for layer in layers(model):
            layer.pack()


def is_packed(model: nn.Module) -> bool:
    """Whether any layer has a packed copy."""
    return any(layer.packed is not None for layer in layers(model))


def unpack(model: nn.Module) -> None:
    """Give the copies up: every product is the plain one again."""
    for layer in layers(model):
        layer.unpack()
