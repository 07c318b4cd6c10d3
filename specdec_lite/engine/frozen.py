"""A frozen linear layer that multiplies by a copy of its weights in another order or format."""

from typing import Any

import torch
from torch import Tensor, nn


class FrozenLinear(nn.Linear):
    """A frozen `nn.Linear` that multiplies by a copy of its weights in inference mode.

    `freeze` turns an `nn.Linear` into a subclass of this one in place, as PyTorch does with its
    lazy layers, so the layer and its `weight` stay the same objects, and `thaw` turns it back. The
    copy is used in inference mode only: elsewhere the plain product runs, so gradients reach the
    input, and compilers and operation counters see operations they know.

    When the weights have changed since (edited, loaded, replaced, moved, cast or trained), the
    layer turns back into an `nn.Linear`, which uses them. PyTorch does not count in-place changes
    through `weight.data` or `weight.numpy()`, so these two are not noticed.

    Attributes:
        stays: whether deep copies and pickles of the layer keep the copy; else they are plain.
        packed: the copy.
        source: the weights that were copied. The reference keeps their memory from being reused.
        version: PyTorch's change counter of the weights when they were copied.
    """

    stays = True
    packed: Tensor
    source: Tensor
    version: int

    def multiply(self, x: Tensor) -> Tensor:
        """Return the product with the copy, plus the bias.

        Shapes: x [..., in_features].
        """
        raise NotImplementedError

    def is_current(self) -> bool:
        """Return whether the weights are still the ones that were copied."""
        weight = self.weight
        return (
            weight.is_cpu
            and not weight.requires_grad
            and (weight.is_inference() or weight._version == self.version)
            and self.source.is_set_to(weight)
        )

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the product with the weights, plus the bias.

        Shapes: x [..., in_features].
        """
        weight = self.weight  # once: a module looks its parameters up slowly
        if torch.is_grad_enabled() and weight.requires_grad:
            thaw(self)  # a fused optimizer changes weights and does not count it
            return self(x)
        if (
            torch.compiler.is_compiling()  # checked first: compilers cannot trace the other checks
            or not torch.is_inference_mode_enabled()
            or torch.is_autocast_enabled("cpu")
            or x.dtype != weight.dtype
            or x.is_cpu != weight.is_cpu
            or x.shape[-1] != self.in_features
        ):
            return super().forward(x)
        if not self.is_current():
            thaw(self)
            return self(x)
        return self.multiply(x)

    def __reduce__(self) -> tuple:
        """Return what `copy` and `pickle` rebuild."""
        stays = self.stays and self.is_current()
        left_out = ("source",) if stays else ADDED
        state = {name: value for name, value in vars(self).items() if name not in left_out}
        return object.__new__, (type(self) if stays else nn.Linear,), state

    def __setstate__(self, state: dict) -> None:
        """Rebuild a copy or a pickle, whose weights begin to count their changes anew."""
        super().__setstate__(state)
        vars(self).update(source=self.weight.detach(), version=changes_of(self.weight))


ADDED = ("packed", "source", "version", "bits", "scales_and_zeros")
"""The attributes that `freeze` may add to a layer and `thaw` removes."""


def freeze(layer: nn.Linear, kind: type[FrozenLinear], packed: Tensor, **more: Any) -> None:
    """Turn a linear layer into one of another kind with a copy of its weights, in place."""
    weight = layer.weight
    added = {"packed": packed, "source": weight.detach(), "version": changes_of(weight)}
    vars(layer).update(added | more)
    layer.__class__ = kind


def thaw(layer: FrozenLinear) -> None:
    """Turn a layer back into an `nn.Linear` with the weights that it has now, in place."""
    for name in ADDED:
        vars(layer).pop(name, None)
    layer.__class__ = nn.Linear  # pyright: ignore[reportAttributeAccessIssue]


def changes_of(weight: Tensor) -> int:
    """Return PyTorch's counter of a tensor's changes; those made in inference mode count none."""
    return 0 if weight.is_inference() else weight._version
