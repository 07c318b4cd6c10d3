"""Linear layers whose weights are laid out once for the processor that multiplies by them.

A product with few rows of input spends much of its time on bringing the weights into an order that
suits the processor, anew in every pass. oneDNN can keep a copy in that order. What lives here: the
layer that holds such a copy, and `pack` and `unpack`, which put it in and out of a model. What does
not: the models (`transformer`). Packed and plain products agree to within rounding.
"""

import platform
from functools import cache

import torch
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
COPY = ("packed", "source", "version")


class PackedLinear(nn.Linear):
    """A frozen `nn.Linear` that multiplies by a packed copy of its weights in inference mode.

    Elsewhere the product is the plain one: gradients reach the input, and compilers and counters of
    operations see what they know. `pack` makes such a layer of an `nn.Linear` in place, as PyTorch's
    lazy layers become plain ones, so `weight` and whatever refers to the layer stay what they are.
    Once the weights are others than those packed (changed, loaded, replaced, moved), the layer is
    the plain one again. Deep copies and pickles are plain too. Changes through `weight.data` in
    place and `weight.numpy()`, which PyTorch does not count, go unnoticed. RuntimeError where the
    weights are to be trained: some optimisers change them without counting it either.
    """

    packed: Tensor
    source: Tensor  # holds the memory that was packed: no other weights can come to lie there
    version: int

    def is_current(self) -> bool:
        """Whether the weights are those that were packed."""
        weight = self.weight
        return (
            not (weight.requires_grad or weight.is_inference())
            and weight.device == self.source.device
            and weight._version == self.version
            and self.source.is_set_to(weight)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] → [..., out]."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            raise RuntimeError(
                "the weights of this layer are packed: call specdec_lite.engine.linear.unpack(model)"
                " before the model is trained"
            )
        if (
            torch.compiler.is_compiling()  # first: compilers do not know what is asked next
            or not torch.is_inference_mode_enabled()
            or torch.is_autocast_enabled("cpu")
            or x.dtype != self.weight.dtype
            or x.shape[-1] != self.in_features
        ):
            return super().forward(x)
        if not self.is_current():
            unpack(self)
            return self.forward(x)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def __reduce__(self) -> tuple:
        state = {name: value for name, value in self.__dict__.items() if name not in COPY}
        return object.__new__, (nn.Linear,), state


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


def pack(model: nn.Module) -> None:
    """Pack the frozen linear layers of a model that takes no more than LIMIT, where that can be
    done and is worth it; do nothing elsewhere. Copies that still hold are kept.
    """
    if sum(weight.nbytes for weight in model.parameters()) > LIMIT:
        return
    for layer in model.modules():
        if type(layer) is PackedLinear and not layer.is_current():
            unpack(layer)
        if type(layer) is nn.Linear and worth_packing(layer.weight):
            layer.source = layer.weight.detach()
            layer.version = layer.weight._version
            layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.source, ROWS)
            layer.__class__ = PackedLinear


def is_packed(model: nn.Module) -> bool:
    """Whether any layer has a packed copy of its weights."""
    return any(type(layer) is PackedLinear and layer.is_current() for layer in model.modules())


def unpack(model: nn.Module) -> None:
    """Give the copies up: every layer is the `nn.Linear` that it was."""
    for layer in model.modules():
        if type(layer) is PackedLinear:
            layer.__class__ = nn.Linear
            for name in COPY:
                delattr(layer, name)
