"""The card of the virtual GPU (`virtual_gpu`): its tensors, what it refuses, what it counts."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("specdec_lite", "benchmarks"))
INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"}
READS |= {"unique_consecutive", "is_nonzero", "bincount", "histc", "_linalg_eigh", "_linalg_svd"}
"""Operators whose result, or its shape, the host needs before it can go on."""
WHOLE = {"linear", "matmul", "scaled_dot_product_attention", "rms_norm", "layer_norm"}
"""Composite operators that run as one: their parts are checked no differently."""
SCALARS = {"fill", "fill_", "masked_fill", "masked_fill_", "index_fill", "index_fill_", "where"}
"""Operators beside the pointwise ones that take a CPU tensor with one number."""
METADATA = {"resize_", "set_", "squeeze_", "unsqueeze_", "t_", "transpose_"}


CARD: "Card | None" = None
"""The one card of this process, once it is installed."""


def leaves(value, found: list | None = None) -> list:
    """Return what nested lists, tuples and dicts hold (PyTorch's own way is ten times slower)."""
    found = [] if found is None else found
    if type(value) in (tuple, list):
        for part in value:
            leaves(part, found)
    elif type(value) is dict:
        leaves(list(value.values()), found)
    else:
        found.append(value)
    return found


def mapped(function: Callable, value):
    """Return nested lists, tuples and dicts with a function applied to what they hold."""
    if type(value) in (tuple, list):
        return type(value)([mapped(function, part) for part in value])
    if type(value) is dict:
        return {name: mapped(function, part) for name, part in value.items()}
    return function(value)


class CaptureError(RuntimeError):
    """An operation that CUDA does not permit while a graph is captured."""


class Block:
    """Memory of one storage on the card, freed with the last tensor that uses it."""

    def __init__(self, card: "Card", nbytes: int):
        self.card, self.nbytes = card, nbytes
        card.allocated += nbytes

    def __del__(self):
        self.card.allocated -= self.nbytes


class GpuTensor(Tensor):
    """A tensor on the virtual card. data_: the same tensor on the CPU; block: its memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data: Tensor, card: "Card") -> "GpuTensor":
        with torch.inference_mode(data.is_inference()):
            self = Tensor._make_wrapper_subclass(
                cls,
                data.size(),
                strides=data.stride(),
                storage_offset=data.storage_offset(),
                dtype=data.dtype,
                device=card.device,
            )
        self.data_, self.card, self.block = data, card, card.block(data)
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return CARD.dispatch(func, args, kwargs or {})

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self.data_.data_ptr()

    def untyped_storage(self):
        return self.data_.untyped_storage()

    def is_set_to(self, other: Tensor) -> bool:
        return isinstance(other, GpuTensor) and self.data_.is_set_to(other.data_)

    def tolist(self) -> list:
        CARD.wait("read", "tolist")
        return self.data_.tolist()

    def numpy(self, *, force: bool = False):
        if not force:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the"
                " tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"GpuTensor({self.data_!r}, device='cuda:0')"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __deepcopy__(self, memo: dict) -> "GpuTensor":
        if id(self) not in memo:
            memo[id(self)] = _made(self.data_.detach().clone(), *self._kind())
        return memo[id(self)]

    def _kind(self) -> tuple[bool, bool]:
        return self.requires_grad, getattr(self, "_is_param", False)

    def __reduce_ex__(self, protocol: int):
        CARD.wait("read", "pickle")
        return _unpickled, (self.data_.detach().clone(), *self._kind())


def _made(data: Tensor, requires_grad: bool, parameter: bool) -> GpuTensor:
    tensor = GpuTensor(data, CARD).requires_grad_(requires_grad)
    if parameter:
        tensor._is_param = True
    return tensor


def _unpickled(data: Tensor, requires_grad: bool, parameter: bool) -> Tensor:
    """Return a tensor on the device that `torch.load` was asked for."""
    if CARD.load_device == "cpu":
        return data.requires_grad_(requires_grad)
    return _made(data, requires_grad, parameter)


def data_of(value):
    return value.data_ if type(value) is GpuTensor else value


class Card(TorchDispatchMode):
    """The state of the virtual card, and the operators that reach it.

    Attributes:
        counts: events since `reset`: "read" and "upload" and "sync" make the host wait; "async
            upload", "pinned", "capture", "replay" do not. "copied mask" and "cudnn" count
            attention that is slow on a real card.
        sites: the waits by (kind, operator, "file:line" of the project).
        launched, finished: operations in the queue, and those that the host has waited for.
        allocated: bytes on the card.
    """

    def __init__(self, capability: tuple[int, int], total: int = 16 << 30):
        super().__init__()
        self.device = torch.device("vgpu", 0)
        self.capability, self.total = capability, total
        self.name = "Virtual H200" if capability >= (9, 0) else "Virtual T4"
        self.counts, self.sites = Counter(), Counter()
        self.launched = self.finished = self.allocated = 0
        self.blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()
        self.pinned: dict[int, Tensor] = {}
        self.recording = None
        self.load_device: str | None = None
        self.composite: dict = {}

    def block(self, data: Tensor) -> Block:
        """Return the memory of a tensor's storage."""
        storage = data.untyped_storage()
        found = self.blocks.get(storage._cdata)
        if found is None:
            found = self.blocks[storage._cdata] = Block(self, storage.nbytes())
        return found

    def site(self) -> str:
        """Return the innermost line of the project, "?" if there is none."""
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(OURS) or file.startswith("<cell"):
                return f"{file.removeprefix(str(ROOT) + '/')}:{frame.f_lineno}"
            frame = frame.f_back
        return "?"

    def reset(self) -> None:
        self.counts.clear()
        self.sites.clear()

    def wait(self, kind: str, operator: str) -> None:
        """Count a wait of the host until all operations are done."""
        self.refuse_in_capture(operator)
        self.counts[kind] += 1
        self.sites[kind, operator, self.site()] += 1
        self.finished = self.launched

    def refuse_in_capture(self, operator: str) -> None:
        if self.recording is not None:
            raise CaptureError(
                "CUDA error: operation not permitted when stream is capturing"
                f" ({operator} at {self.site()})"
            )

    def upload(self, source: Tensor, non_blocking: bool, operator: str) -> None:
        """Count a copy to the card: it blocks unless it is asynchronous from pinned memory."""
        if not source.numel():
            return
        if non_blocking and source.untyped_storage()._cdata in self.pinned:
            self.counts["async upload"] += 1
        else:
            self.wait("upload", operator)

    def pin(self, source: Tensor) -> Tensor:
        """Return a copy in pinned memory, which stays for the life of the process."""
        if isinstance(source, GpuTensor):
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be")
        self.refuse_in_capture("pin_memory")
        copied = source.clone()
        self.pinned[copied.untyped_storage()._cdata] = copied
        self.counts["pinned"] += 1
        return copied

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func, args: tuple, kwargs: dict):
        """Run an operator if the real card would, and count what it makes the host wait for."""
        name = func._schema.name.split("::")[1]
        tensors = [x for x in leaves((args, kwargs)) if isinstance(x, Tensor)]
        ours = any(type(x) is GpuTensor for x in tensors)
        places = [x for x in (kwargs.get("device"), *args) if isinstance(x, torch.device)]
        device = places[0] if places else None
        to_card = device is not None and device.type == self.device.type
        if not ours and not to_card:
            return func(*args, **kwargs)
        if self.is_composite(func, name):
            with self:
                return func.decompose(*args, **kwargs)
        if name in METADATA:
            raise NotImplementedError(f"{name} changes a shape in place: not on the virtual GPU")
        if name == "_fused_sdp_choice":
            return 0  # attention as plain operators
        if name == "scaled_dot_product_attention":
            self.count_attention(args, kwargs)
        if name in ("_to_copy", "copy_"):
            self.count_copy(name, args, kwargs)
        else:
            self.check_devices(func, name, args, tensors)
            self.count_waits(name, args, kwargs)
        return self.run(func, args, kwargs)

    def is_composite(self, func, name: str) -> bool:
        if func not in self.composite:
            self.composite[func] = (
                name not in WHOLE
                and torch._C._dispatch_has_kernel_for_dispatch_key(
                    func.name(), "CompositeImplicitAutograd"
                )
            )
        return self.composite[func]

    def check_devices(self, func, name: str, args: tuple, tensors: list[Tensor]) -> None:
        """Raise CUDA's error for operands on two devices, where it allows none."""
        on_cpu = [x for x in tensors if not isinstance(x, GpuTensor) and x.device == CPU]
        if len(on_cpu) == len(tensors):
            return  # a factory such as zeros_like(x, device="cuda")
        if name in INDEXING:
            if not isinstance(args[0], GpuTensor):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor"
                    " (cpu)"
                )
            on_cpu = [x for x in on_cpu if x is args[2]] if len(args) > 2 else []
        pointwise = torch.Tag.pointwise in func.tags or name.startswith("_foreach_")
        scalars = pointwise or name in SCALARS | INDEXING
        if func._schema.is_mutable and any(x is args[0] for x in on_cpu):
            scalars = False
        if not (scalars and all(x.dim() == 0 for x in on_cpu)) and on_cpu:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" cuda:0 and cpu! (when running {func})"
            )

    def count_copy(self, name: str, args: tuple, kwargs: dict) -> None:
        if name == "copy_":
            target, source = isinstance(args[0], GpuTensor), args[1]
        else:
            source, device = args[0], kwargs.get("device")
            target = isinstance(source, GpuTensor) if device is None else device.type != "cpu"
        if isinstance(source, GpuTensor) and not target:
            self.wait("read", name)
        elif target and not isinstance(source, GpuTensor):
            self.upload(source, kwargs.get("non_blocking", args[2:3] == (True,)), name)

    def count_attention(self, args: tuple, kwargs: dict) -> None:
        """Count masks that a fused kernel would copy, and attention that cuDNN would plan."""
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        if mask is not None and any(stride % 8 for stride in mask.stride()[:-1]):
            self.counts["copied mask"] += 1
            self.sites["copied mask", "attention", self.site()] += 1
        if torch.backends.cuda.cudnn_sdp_enabled():
            self.counts["cudnn"] += 1
            self.sites["cudnn", "attention", self.site()] += 1

    def count_waits(self, name: str, args: tuple, kwargs: dict) -> None:
        if name in READS:
            self.wait("read", name)
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            self.wait("read", name)
        if name not in INDEXING:
            return
        value = args[2] if len(args) > 2 else None
        for index in (x for x in args[1] if x is not None):
            if not isinstance(index, GpuTensor):
                self.upload(index, False, name)
            filled = value is not None and value.numel() == 1  # then a mask is never counted
            if index.dtype in (torch.bool, torch.uint8) and not filled:
                self.wait("read", name)

    def run(self, func, args: tuple, kwargs: dict):
        """Run an operator on the data, and return its results as tensors of the card."""
        originals = {id(x.data_): x for x in leaves((args, kwargs)) if type(x) is GpuTensor}
        args, kwargs = mapped(data_of, (args, kwargs))
        device = kwargs.get("device")
        to_host = device is not None and device.type == "cpu"
        if device is not None and device.type == self.device.type:
            kwargs = kwargs | {"device": CPU}
        if func._schema.name == "aten::copy_" and id(args[0]) not in originals:
            return func(*args, **kwargs)
        self.launched += 1
        if self.recording is not None:
            self.recording.before(func, args)
        try:
            out = func(*args, **kwargs)
        except IndexError as error:
            raise RuntimeError(f"CUDA error: device-side assert triggered ({error})") from None
        if self.recording is not None:
            self.recording.after(func, args, kwargs, out)

        def wrapped(x):
            if not isinstance(x, Tensor) or to_host or x.device.type == "meta":
                return x
            return originals[id(x)] if id(x) in originals else GpuTensor(x, self)

        return mapped(wrapped, out)
