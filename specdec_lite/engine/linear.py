"""Linear layers that keep a copy of their weights in the processor's preferred memory order.

A product with few input rows spends much of its time rearranging the weights for the processor, and
repeats this in every pass. oneDNN can keep the rearranged ("packed") copy instead. `pack` adds such
copies to a model and `unpack` removes them. Packed and plain products agree to within rounding.
"""

import math
import platform
from collections.abc import Callable
from functools import cache
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.engine.compiled import X86
from specdec_lite.engine.int4 import Bfloat16Linear, share_rows, split_rows

ROWS = 8
"""Input rows that the packed order is optimized for. Any other number works too."""
SMALL = 1 << 20
"""Size in bytes from which a float32 matrix is packed. A smaller matrix stays in the cache nearest
the processor, and the plain product with one row, a draft's usual pass, is faster there.
"""
LIMIT = 1 << 30
"""Weight bytes up to which a model is packed. The copies take the same memory again."""
FEW = (1, 2)
"""Numbers of rows for which some processors run a slower kernel than for PADDED rows."""
PADDED = 4
"""Rows to which a product with FEW rows is padded with zeros where that is faster."""
GAIN = 0.96
"""Padding must take at most this part of the time; smaller gains may be noise."""
ALONE = 16
"""Rows up to which `pack` examines whether a row's result depends on the number of rows."""
SWEEP = 1 << 26
"""Bytes of weights, at most, by which a measurement multiplies in turn: those of the whole model, as
in a pass. The weights of one layer alone would stay in the processor's caches.
"""
REPEATS = 4
"""Runs of each sweep that the choice is made from; the shortest of them counts."""
OPERATORS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
"""The operators that PyTorch's own compiler calls for packing. They are not public API: if one is
missing, nothing is packed.
"""
ATTRIBUTES = ("packed", "source", "version", "padded")
"""The attributes that `pack` adds to a layer and `unpack` removes."""


class PackedLinear(nn.Linear):
    """A frozen `nn.Linear` that multiplies by a packed copy of its weights in inference mode.

    `pack` turns an `nn.Linear` into this class in place, as PyTorch does with its lazy layers, so
    the layer and its `weight` stay the same objects. The packed copy is used in inference mode
    only: elsewhere the plain product runs, so gradients reach the input, and compilers and
    operation counters see operations they know.

    When the weights have changed since packing (edited, loaded, replaced or moved), the layer turns
    back into an `nn.Linear`. PyTorch does not count in-place changes through `weight.data` or
    `weight.numpy()`, so these two are not noticed. Deep copies and pickles are plain layers.

    Attributes:
        packed: the weights in the processor's order.
        source: the weights that were packed. The reference keeps their memory from being reused.
        version: PyTorch's change counter of the weights when they were packed.
        padded: numbers of input rows that are padded to PADDED rows, because that is faster here, or
            because their results differ by rounding from those of the same rows among others.
    """

    packed: Tensor
    source: Tensor
    version: int
    padded: frozenset[int]

    def is_current(self) -> bool:
        """Return whether the weights are still the ones that were packed."""
        weight = self.weight
        return (
            not (weight.requires_grad or weight.is_inference())
            and weight.device == self.source.device
            and weight._version == self.version
            and self.source.is_set_to(weight)
        )

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the product with the weights, plus the bias.

        Shapes: x [..., in_features].
        """
        if torch.is_grad_enabled() and self.weight.requires_grad:
            raise RuntimeError(
                "the weights of this layer are packed: call specdec_lite.engine.linear.unpack(model)"
                " before you train the model"
            )
        if (
            torch.compiler.is_compiling()  # checked first: compilers cannot trace the other checks
            or not torch.is_inference_mode_enabled()
            or torch.is_autocast_enabled("cpu")
            or x.dtype != self.weight.dtype
            or x.shape[-1] != self.in_features
        ):
            return super().forward(x)
        if not self.is_current():
            unpack(self)
            return self.forward(x)
        count = x.numel() // self.in_features
        if count in self.padded:
            return padded_product(x, self.packed, self.bias, count)
        return product(x, self.packed, self.bias)

    def __reduce__(self) -> tuple:
        """Return what `copy` and `pickle` rebuild: a plain `nn.Linear`."""
        state = {name: value for name, value in self.__dict__.items() if name not in ATTRIBUTES}
        return object.__new__, (nn.Linear,), state


def product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product with packed weights.

    Shapes: x [..., in_features], bias [out_features].
    """
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def padded_product(x: Tensor, packed: Tensor, bias: Tensor | None, count: int) -> Tensor:
    """Return the same product, computed with PADDED rows of which the last are zeros.

    Shapes: x [..., in_features], bias [out_features].
    """
    rows = F.pad(x.reshape(count, -1), (0, 0, 0, PADDED - count))
    return product(rows, packed, bias)[:count].view(*x.shape[:-1], -1)


@torch.inference_mode()
def rows_agree(layer: PackedLinear) -> bool:
    """Return whether the result of a row has the same bits with any number of other rows."""
    count = ALONE if layer.weight.nbytes > SWEEP // 4 else 4 * ALONE  # differences are rare
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, count, layer.in_features, generator=generator).to(layer.weight.dtype)
    results = (torch.cat([layer(rows) for rows in x.split(n, 1)], 1) for n in range(1, ALONE + 1))
    first = next(results)
    return all(result.equal(first) for result in results)


def agreeing_rows(layer: PackedLinear) -> tuple[frozenset[int], bool]:
    """Return the numbers of rows to pad so that rows agree, and whether they do."""
    measured = layer.padded
    for layer.padded in (measured, frozenset(FEW)):
        if rows_agree(layer):
            return layer.padded, True
    return measured, False


@cache
def rows_to_pad(
    outputs: int, inputs: int, dtype: torch.dtype, threads: int, size: int
) -> frozenset[int]:
    """Return which of FEW rows are multiplied faster if they are padded, by measurement.

    Each shape is measured once per process, so that all its layers make the same choice. Sweeps
    over several layers of this shape, with and without padding, alternate.
    """
    weight = torch.zeros(outputs, inputs, dtype=dtype)
    layers = [
        torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        for _ in range(math.ceil(min(size, SWEEP) / weight.nbytes))
    ]
    chosen = set()
    for count in FEW:
        x = torch.zeros(1, count, inputs, dtype=dtype)

        def sweep(multiply: Callable, *arguments, x=x) -> None:
            for packed in layers:
                multiply(x, packed, None, *arguments)

        plain, padded = math.inf, math.inf
        for _ in range(REPEATS):
            plain = min(plain, seconds(lambda: sweep(product)))
            padded = min(padded, seconds(lambda n=count: sweep(padded_product, n)))
        if padded < GAIN * plain:
            chosen.add(count)
    return frozenset(chosen)


def seconds(run: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = perf_counter()
    run()
    return perf_counter() - began


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

    The model itself is changed: its layers of class `nn.Linear` become `PackedLinear`. Models above
    LIMIT bytes and machines without oneDNN are left unchanged. Copies that are still current are
    reused.

    Layers in bfloat16 get our own product (`int4.share_rows`) where there is a C compiler and their
    sizes allow it: a row's result does not depend on the number of rows there, so greedy text with
    a chain of drafts is plain text. Elsewhere few rows in bfloat16, where two logits are often
    equal to within rounding, are also padded if that has the same effect for every layer. If all
    layers of a `Transformer` are so, its attention rounds rows alike as well (`rows_alike`), and
    greedy text with a chain of drafts is then plain text nearly always.
    """
    size = sum(weight.nbytes for weight in model.parameters())
    if size > LIMIT:
        return model
    share_rows(model)
    threads = torch.get_num_threads()
    agreeing: dict[tuple[int, ...], tuple[frozenset[int], bool]] = {}
    for layer in model.modules():
        if type(layer) is PackedLinear and not layer.is_current():
            unpack(layer)
        if type(layer) is nn.Linear and worth_packing(layer.weight):
            layer.source = layer.weight.detach()
            layer.version = layer.weight._version  # pyright: ignore[reportArgumentType]
            layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.source, ROWS)
            outputs, inputs = layer.weight.shape
            padded = rows_to_pad(outputs, inputs, layer.weight.dtype, threads, size)
            layer.padded = padded  # pyright: ignore[reportArgumentType]
            layer.__class__ = PackedLinear
        if type(layer) is PackedLinear and layer.weight.dtype == torch.bfloat16:
            shape = layer.weight.shape
            if shape not in agreeing:
                agreeing[shape] = agreeing_rows(layer)
            layer.padded = agreeing[shape][0]
    if hasattr(model, "rows_alike") and agreeing:
        products = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        alike = all(type(layer) is PackedLinear for layer in products)
        alike = alike and all(same for _, same in agreeing.values())
        model.rows_alike = ALONE if alike else 0  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    return model


def unpack(model: nn.Module) -> nn.Module:
    """Remove the packed copies: every layer becomes the `nn.Linear` that it was."""
    split_rows(model)
    layers = [layer for layer in model.modules() if type(layer) is PackedLinear]
    for layer in layers:
        layer.__class__ = nn.Linear  # pyright: ignore[reportAttributeAccessIssue]
        for name in ATTRIBUTES:
            delattr(layer, name)
    if layers and hasattr(model, "rows_alike"):
        model.rows_alike = 0  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    return model


def is_packed(model: nn.Module) -> bool:
    """Return whether any layer of a model has a current packed copy of its weights."""
    kinds = (PackedLinear, Bfloat16Linear)
    return any(isinstance(layer, kinds) and layer.is_current() for layer in model.modules())
