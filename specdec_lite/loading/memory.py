"""Compare the memory that models need with the memory that a device has free."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec_lite.engine.processor import computes_bfloat16
from specdec_lite.engine.transformer import Transformer, TransformerConfig

MARGIN = 1.1
"""Factor for activations, library workspaces and fragmentation. It does not include the packed
copies of weights that models may keep on a CPU, at most `linear.LIMIT` bytes each.
"""

ADVICE = (
    "choose a smaller pair (specdec_lite.hub lists some by memory), dtype='bfloat16' if theirs has four"
    " bytes, a shorter context, or spread the target over several cards (device_map='auto')"
)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one model.

    Attributes:
        parameters: number of weights.
        cache: number of key and value entries per token of text.
        positions: longest text that the model can read, prompt and answer together.
        quantized_bytes: bytes of quantized weights, which keep their own format whatever the
            dtype; None if the weights are not quantized.
    """

    parameters: int
    cache: int
    positions: int
    quantized_bytes: int | None = None

    def bytes(self, dtype: torch.dtype, context: int) -> int:
        """Return the bytes of the weights and of the cache of one text.

        Args:
            dtype: of weights and cache.
            context: tokens in the cache.
        """
        weights = self.quantized_bytes
        if weights is None:
            weights = self.parameters * dtype.itemsize
        return weights + self.cache * context * dtype.itemsize


def native_size(config: TransformerConfig) -> Size:
    """Compute the size of a native transformer.

    Args:
        config: the model's configuration.
    """
    with torch.device("meta"):
        weights = Transformer(config).parameters()
    entries = 2 * config.num_layers * config.num_kv_heads * config.head_size
    return Size(sum(weight.numel() for weight in weights), entries, config.max_positions)


def hugging_face_size(folder: Path) -> Size:
    """Compute the size of a Hugging Face causal LM from its config.json.

    Args:
        folder: the model's folder.

    Raises:
        ValueError: the model needs code of its own.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    from specdec_lite.engine.hugging_face import context_length

    model_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config)
    parameters = sum(weight.numel() for weight in model.parameters())
    config = model_config.get_text_config()
    queries = getattr(config, "num_attention_heads", None) or 1
    heads = getattr(config, "num_key_value_heads", None) or queries
    head_size = getattr(config, "head_dim", None) or config.hidden_size // queries
    entries = 2 * config.num_hidden_layers * heads * head_size
    return Size(parameters, entries, context_length(config))


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device to compute on.

    Args:
        device: "auto" (a GPU if there is one), or anything `torch.device` takes.

    Raises:
        ValueError: the name is not a device, or this machine does not have the device.
    """
    name = device
    if device == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r}: must be 'auto', or what torch.device takes, such as 'cpu' or"
            f" 'cuda:0' ({str(error).splitlines()[0]})"
        ) from None
    is_absent_gpu = resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count()
    if resolved.type == "meta" or is_absent_gpu:
        raise ValueError(
            f"device={device!r}: there is no such device on this machine; device='auto' takes a"
            " GPU if there is one, else the CPU"
        )
    return resolved


def has_bfloat16(device: str | torch.device) -> bool:
    """Return whether a device computes in bfloat16 without emulation.

    Among GPUs these are the ones of compute capability 8.0 and above, among x86 processors those
    with AVX512_BF16, unless oneDNN or PyTorch is limited to less by the environment.

    Args:
        device: anything `torch.device` takes.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        return computes_bfloat16()
    return kind != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def half_precision(device: str | torch.device) -> str:
    """Return the 16-bit dtype to compute in: "bfloat16", or "float16" on a GPU without it.

    Args:
        device: anything `torch.device` takes.
    """
    is_cuda = torch.device(device).type == "cuda"
    return "float16" if is_cuda and not has_bfloat16(device) else "bfloat16"


def free_bytes(device: str | torch.device) -> int | None:
    """Return the bytes that are free on a GPU or available to the CPU.

    Args:
        device: anything `torch.device` takes.

    Returns:
        Bytes, or None if the device does not report them or psutil is not installed.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        import psutil
    except ModuleNotFoundError:  # the extra `book` installs it
        return None
    return psutil.virtual_memory().available


def gigabytes(count: float) -> str:
    """Return a number of bytes as text, in GB (10⁹ bytes) or MB (10⁶ bytes).

    Args:
        count: bytes.
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def check_room(needs: dict[str, int], device: str | torch.device, context: int) -> None:
    """Check that models fit in the free memory of a device.

    Args:
        needs: {model: bytes}, from `Size.bytes`.
        device: device that will hold the models.
        context: tokens in each cache, for the message.

    Raises:
        MemoryError: the models do not fit; the message states needed and free memory.
    """
    free, total = free_bytes(device), MARGIN * sum(needs.values())
    if free is None or total <= free:
        return
    parts = ", ".join(f"{name} {gigabytes(count)}" for name, count in needs.items())
    raise MemoryError(
        f"{gigabytes(total)} are needed on {device} and {gigabytes(free)} are free: {parts}, with"
        f" caches for {context} tokens, and {MARGIN - 1:.0%} for working memory. To make it fit,"
        f" {ADVICE}"
    )


@contextmanager
def advise(action: str) -> Iterator[None]:
    """Replace an out-of-memory error by one sentence of advice.

    Args:
        action: what the block does, such as "loading the target".

    Raises:
        MemoryError: memory ran out in the block.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(f"memory ran out while {action}: {ADVICE}") from None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether PyTorch or safetensors ran out of memory, by the words of their errors."""
    words = re.search(r"can(no|')t allocate memory", str(error), re.IGNORECASE)
    return isinstance(error, torch.OutOfMemoryError) or words is not None
