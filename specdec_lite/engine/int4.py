"""Linear layers that multiply by 4-bit weights, as a 4-bit file stores them.

A weight of 4 bits is (code − 8) · scale + zero, with codes from 0 to 15; one of 8 bits is
code · scale, with codes from −128 to 127. GROUP weights of a row share a scale and a zero point, in
bfloat16. Inputs and results are bfloat16, and sums are taken in float32. Every row of the input is
added up in the same order, whatever the number of rows.

There are two products. `int4.c` is compiled at the first use where there is a C compiler:
up to eight rows share the unpacking of a weight, so that a pass over eight tokens takes little
longer than one over a single token. PyTorch's operator shares it between four rows. Our file also
multiplies by bfloat16 weights, and runs whole decoder blocks, on chains of up to ROWS tokens.
"""

import platform
from ctypes import CDLL, Structure, byref, c_float, c_int, c_int64, c_void_p, cast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite.engine.compiled import library
from specdec_lite.engine.frozen import FrozenLinear, freeze
from specdec_lite.engine.processor import computes_bfloat16, processor
from specdec_lite.engine.transformer import Block, Norm, Transformer

GROUP = 32
"""Weights of a row that share a scale and a zero point."""
OUTPUTS = 16
"""Outputs whose codes lie next to each other in our product."""
ROWS = 16
"""Rows of a pass up to which a model of such layers computes each row as if it were the only one."""
OPERATORS = ("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
"""PyTorch's operators. They are not public API: `can_multiply` says whether this version has them."""
TINY = 1e-30
"""Least scale of a group, so that zeros can be divided by it."""
SIZES = (32, 64, 96, 128)
"""Head sizes of `decode`."""
SOURCE = Path(__file__).with_name("int4.c")


@dataclass(frozen=True, slots=True)
class Codes:
    """The weights of a linear layer in 4 or 8 bits, or of several layers on top of each other.

    Attributes:
        codes: [out, in], uint8 0 … 15 in 4 bits, int8 in 8 bits.
        scales: [out, in / GROUP].
        zeros: [out, in / GROUP] in 4 bits; None in 8 bits.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None

    @classmethod
    def of_4_bits(cls, codes: Tensor, scales: Tensor, minima: Tensor) -> "Codes":
        """Return weights code · scale + minimum (GGUF's Q4_1).

        Shapes: codes [out, in], scales [out, in / GROUP], minima [out, in / GROUP].
        """
        return cls(codes, scales, minima + 8 * scales)

    @classmethod
    def rounded(cls, weight: Tensor) -> "Codes":
        """Return weights [out, in] rounded to the nearest codes in 4 bits."""
        groups = weight.detach().float().unflatten(1, (-1, GROUP))
        low, high = groups.aminmax(dim=-1)
        scales = ((high - low) / 15).clamp(min=TINY)
        codes = ((groups - low[..., None]) / scales[..., None]).round().clamp(0, 15)
        return cls.of_4_bits(codes.to(torch.uint8).flatten(1), scales, low)

    @property
    def bits(self) -> int:
        """4 or 8."""
        return 8 if self.zeros is None else 4

    @property
    def parts(self) -> list[Tensor]:
        """The tensors."""
        return [part for part in (self.codes, self.scales, self.zeros) if part is not None]

    @classmethod
    def stack(cls, layers: "list[Codes]") -> "Codes":
        """Return the weights of several layers with the same input as those of one layer."""
        return cls(*(torch.cat(each) for each in zip(*(layer.parts for layer in layers))))

    def blocks(self) -> Tensor:
        """Return the bytes [out / OUTPUTS, in / GROUP, n] that our product reads.

        A block has the codes of OUTPUTS rows and one group, in quads: the codes of four inputs for
        every output. In 4 bits, quads q and q + 4 share bytes. The scales come last, with the zero
        points in 4 bits and in float32 in 8 bits.
        """
        rows, columns = len(self.codes) // OUTPUTS, self.codes.shape[1] // GROUP
        codes = self.codes if self.bits == 4 else self.codes ^ -128  # without a sign: code + 128
        quads = codes.view(torch.uint8).view(rows, OUTPUTS, columns, GROUP // 4, 4).transpose(1, 2)
        quads = quads.transpose(2, 3)
        if self.bits == 4:
            quads = quads[:, :, :4] | quads[:, :, 4:] << 4
        numbers = torch.bfloat16 if self.bits == 4 else torch.float32
        scales = [
            part.bfloat16().to(numbers).view(rows, OUTPUTS, columns).transpose(1, 2).contiguous()
            for part in self.parts[1:]
        ]
        parts = [quads.reshape(rows, columns, -1), *(part.view(torch.uint8) for part in scales)]
        return torch.cat(parts, -1)

    def as_4_bits(self) -> "Codes":
        """Return weights of 8 bits as the sum of two weights of 4 bits, for the input [x, x].

        A code is 16 · high + low, with high from −8 to 7 and low from 0 to 15.
        """
        if self.zeros is not None:
            return self
        high = self.codes >> 4
        low = self.codes - (high << 4)
        return Codes(
            torch.cat((high + 8, low), 1).to(torch.uint8),
            torch.cat((16 * self.scales, self.scales), 1),
            torch.cat((torch.zeros_like(self.scales), 8 * self.scales), 1),
        )


class Int4Linear(FrozenLinear):
    """Multiplies by 4-bit or 8-bit weights; `attach` gives them to a layer.

    `weight` remains, in bfloat16, for everything that reads weights and for passes outside
    inference mode, which use it.

    Attributes:
        bits: 4 or 8 (16: `Bfloat16Linear`), if our product is used; None for PyTorch's.
        scales_and_zeros: [n·in / GROUP, out, 2] bfloat16, for PyTorch's product by n copies of the
            input; empty for ours.
    """

    bits: int | None = None
    scales_and_zeros: Tensor = torch.empty(0)

    def multiply(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        out = self.shared_product(rows) if self.bits else self.operator(rows)
        out = out if self.bias is None else out + self.bias
        return out.view(*x.shape[:-1], -1)

    def operator(self, rows: Tensor) -> Tensor:
        """Return PyTorch's product [n, out] of rows [n, in]."""
        copies = len(self.scales_and_zeros) * GROUP // self.in_features
        return torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows if copies == 1 else rows.repeat(1, copies),
            self.packed,
            GROUP,
            self.scales_and_zeros,
        )

    def matrix(self) -> "Matrix":
        """Return what our product reads."""
        return Matrix(self.packed.data_ptr(), self.bits, self.in_features, self.out_features)

    def shared_product(self, rows: Tensor) -> Tensor:
        """Return our product [n, out] of rows [n, in]."""
        loaded = product()
        many = self.bits == 16 and len(rows) > ROWS
        if loaded is None or many and computes_bfloat16():  # None: a copy on another machine
            return nn.functional.linear(rows, self.weight)
        rows = rows.contiguous()
        out = rows.new_empty(len(rows), self.out_features)
        check(
            loaded.multiply(
                byref(self.matrix()), rows.data_ptr(), len(rows), out.data_ptr(), byref(team())
            )
        )
        return out


class Matrix(Structure):
    """The arguments of `multiply` in C, of the same name there."""

    _fields_ = (("blocks", c_void_p), ("bits", c_int), ("inputs", c_int64), ("outputs", c_int64))


class BlockArguments(Structure):
    """The struct `Block` in C."""

    _fields_ = (
        *((name, Matrix) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("norm1", "norm2")),
        *((name, c_int64) for name in ("heads", "kv_heads", "size")),
        ("eps", c_float),
    )


class Team(Structure):
    """Number of threads, and OpenMP's function that starts them."""

    _fields_ = (("threads", c_int), ("parallel", c_void_p))


@cache
def starter() -> int | None:
    """Return the address of the OpenMP function through which PyTorch runs its threads."""
    try:
        return cast(CDLL(None).GOMP_parallel, c_void_p).value
    except (AttributeError, OSError, TypeError):
        return None


def team() -> Team:
    """Return the threads that PyTorch uses now."""
    return Team(torch.get_num_threads(), starter())


def check(failed: int) -> None:
    """Raise an error if a function of ours had no memory."""
    if failed:
        raise MemoryError("no memory for a product with 4-bit weights")


@cache
def product() -> CDLL | None:
    """Return our compiled functions.

    None if they cannot be compiled, and for processors without vectors of bytes and systems on which
    PyTorch's threads are not reachable: PyTorch's operator is faster there.
    """
    vectors = "avx2" in processor().split() or platform.machine() in ("aarch64", "arm64")
    loaded = library(SOURCE) if vectors and starter() else None
    if loaded is not None:
        loaded.multiply.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_void_p]
        loaded.decode.argtypes = [
            *(c_void_p, c_void_p, c_int64, c_void_p, c_void_p),
            *(c_void_p, c_void_p, c_int64, c_int64, c_void_p),
        ]
    return loaded


def can_decode(block: Block) -> bool:
    """Return whether our product has all layers of a block, and `decode` has its options."""
    layers = (block.qkv, block.out, block.gate_up, block.down)
    norms = [norm for norm in (block.norm1, block.norm2) if not isinstance(norm, nn.Identity)]
    return (
        product() is not None
        and type(block) is Block
        and all(
            isinstance(layer, Int4Linear) and layer.bits and layer.bias is None for layer in layers
        )
        and all(type(norm) is Norm and norm.weight.dtype == torch.bfloat16 for norm in norms)
        and not isinstance(block.norm2, nn.Identity)
        and block.q_norm is None
        and block.head_size in SIZES
    )


def decode(
    block: Block, x: Tensor, rotary: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor], start: int
) -> Tensor | None:
    """Run a block on a chain of rows, each computed as if it were the only one.

    Returns None for inputs that it does not take.

    Shapes: x [1, n, d], rotary [n, h] contiguous, past [1, G, capacity, h]; the rows' keys and
    values become the entries from `start` on.
    """
    loaded = product()
    if loaded is None or not torch.is_inference_mode_enabled() or x.dtype != torch.bfloat16:
        return None
    matrices = []
    for layer in (block.qkv, block.out, block.gate_up, block.down):
        # A layer whose weights have changed is an `nn.Linear` again, or becomes one in its own pass.
        if not isinstance(layer, Int4Linear) or not layer.is_current():
            return None
        matrices.append(layer.matrix())
    x = x.clone(memory_format=torch.contiguous_format)
    cos, sin = rotary
    keys, values = past
    arguments = BlockArguments(
        *matrices,
        None if isinstance(block.norm1, nn.Identity) else block.norm1.weight.data_ptr(),
        block.norm2.weight.data_ptr(),
        *(block.heads, block.kv_heads, block.head_size),
        block.norm2.eps,
    )
    check(
        loaded.decode(
            *(byref(arguments), x.data_ptr(), x.shape[1], cos.data_ptr(), sin.data_ptr()),
            *(keys.data_ptr(), values.data_ptr(), keys.shape[2], start, byref(team())),
        )
    )
    return x


def can_multiply() -> bool:
    """Return whether this version of PyTorch has the product."""
    return all(hasattr(torch.ops.aten, name) for name in OPERATORS)


def attach(layer: nn.Linear, codes: Codes) -> None:
    """Turn a frozen linear layer in bfloat16 on a CPU into an `Int4Linear`, in place."""
    with torch.inference_mode(False), torch.no_grad():
        if product() is None:
            codes = codes.as_4_bits()
            scales = [part.t().bfloat16() for part in codes.parts[1:]]
            numbers = torch.stack(scales, -1).contiguous()
            whole = codes.codes.to(torch.int32)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
            freeze(layer, Int4Linear, packed, scales_and_zeros=numbers)
        else:
            freeze(layer, Int4Linear, codes.blocks(), bits=codes.bits)


class Bfloat16Linear(Int4Linear):
    """A frozen `nn.Linear` in bfloat16 whose rows share the conversion of a weight to float32.

    `packed` has the weights in the order that our product reads. It takes up to ROWS rows, and more
    where PyTorch would convert the weights for every row: on a processor without instructions for
    bfloat16.
    """

    bits = 16


def can_share(*sizes: int) -> bool:
    """Return whether our product takes bfloat16 weights of these inputs and outputs."""
    return product() is not None and not any(size % GROUP for size in sizes)


def share_rows(model: nn.Module) -> None:
    """Turn a model's frozen layers in bfloat16 on a CPU into `Bfloat16Linear`, where sizes allow it.

    A `Transformer` with no other layers computes each row of a chain as if it were the only one.
    """
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    for layer in linear:
        weight = layer.weight
        if type(layer) is not nn.Linear or weight.requires_grad or weight.device.type != "cpu":
            continue
        if weight.dtype == torch.bfloat16 and can_share(*weight.shape):
            panels = weight.unflatten(0, (-1, OUTPUTS)).transpose(1, 2).contiguous()
            freeze(layer, Bfloat16Linear, panels)
    if isinstance(model, Transformer) and all(type(layer) is Bfloat16Linear for layer in linear):
        let_rows_alone(model)


def let_rows_alone(model: Transformer) -> None:
    """Let a model of such layers compute each row of a chain as if it were the only one."""
    model.decoder = decode if all(map(can_decode, model.blocks)) else None  # pyright: ignore
    model.rows_alone = ROWS


def round_layers(model: nn.Module) -> None:
    """Round the linear layers of a draft to 4 bits, where their sizes allow it, in place."""
    for layer in model.modules():
        if not isinstance(layer, nn.Linear):
            continue
        if not (layer.in_features % GROUP or layer.out_features % OUTPUTS):
            attach(layer, Codes.rounded(layer.weight))


def is_int4(model: nn.Module) -> bool:
    """Return whether any layer of a model multiplies by 4-bit weights."""
    return any(type(layer) is Int4Linear for layer in model.modules())


def int4_bytes(model: nn.Module) -> int:
    """Return the bytes of 4-bit weights, scales and zero points that a pass reads."""
    layers = [layer for layer in model.modules() if type(layer) is Int4Linear]
    return sum(layer.packed.nbytes + layer.scales_and_zeros.nbytes for layer in layers)
