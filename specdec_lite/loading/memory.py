"""Will it fit: what a pair needs in a device's memory, what is free there, and advice where it is
not enough.

What lives here: sizes, from shapes alone, and what a device has and computes. What does not:
loading (`pairs`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from specdec_lite.engine.hugging_face import context_length
from specdec_lite.engine.transformer import TransformerConfig

MARGIN = 1.1
"""Beyond weights and caches: activations, the libraries' workspaces, fragmentation. (The packed
copies that models keep on a processor, at most `linear.LIMIT` each, are not counted.)
"""

ADVICE = (
    "choose a smaller pair (specdec_lite.hub lists some by memory), a dtype of two bytes"
    " (dtype='bfloat16'), a shorter context, or spread the target over several cards"
    " (device_map='auto')"
)


@dataclass(frozen=True, slots=True)
class Size:
    """One model. parameters: their number; cache: keys and values per token of text, likewise in
    numbers, not bytes; positions: the longest text it can read, prompt and answer together.
    quantised: bytes of its weights where these keep a format of their own, whatever dtype is asked
    for; None elsewhere.
    """

    parameters: int
    cache: int
    positions: int
    quantised: int | None = None

    def bytes(self, dtype: torch.dtype, context: int) -> int:
        """Weights, and the cache of one text of `context` tokens."""
        weights = self.parameters * dtype.itemsize if self.quantised is None else self.quantised
        return weights + self.cache * context * dtype.itemsize


def native_size(config: TransformerConfig) -> Size:
    """The size of one of our own transformers, added up from its shape."""
    hidden = config.hidden_size
    queries = config.num_heads * config.head_size
    keys = config.num_kv_heads * config.head_size
    block = hidden * (2 * queries + 2 * keys + 3 * config.intermediate_size + 2)
    block += config.qkv_bias * (queries + 2 * keys) + config.qk_norm * 2 * config.head_size
    tables = (1 if config.tied else 2) * config.vocab_size * hidden
    return Size(
        tables + config.num_layers * block + hidden,
        2 * config.num_layers * keys,
        config.max_positions,
    )


def hugging_face_size(folder: Path) -> Size:
    """The size of any Hugging Face causal LM, from its config.json. ValueError for one that needs
    code of its own.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    described = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        parameters = sum(
            weight.numel() for weight in AutoModelForCausalLM.from_config(described).parameters()
        )
    config = described.get_text_config()
    queries = getattr(config, "num_attention_heads", None) or 1
    heads = getattr(config, "num_key_value_heads", None) or queries
    head = getattr(config, "head_dim", None) or config.hidden_size // queries
    return Size(parameters, 2 * config.num_hidden_layers * heads * head, context_length(config))


def device_named(asked: str | torch.device) -> torch.device:
    """The device to compute on; "auto": a GPU if there is one. ValueError for what is no device, or
    is not there.
    """
    try:
        device = torch.device(
            ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked
        )
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={asked!r}: must be 'auto', or what torch.device takes, such as 'cpu' or"
            f" 'cuda:0' ({str(error).splitlines()[0]})"
        ) from None
    if (
        device.type == "meta"
        or device.type == "cuda"
        and (device.index or 0) >= torch.cuda.device_count()
    ):
        raise ValueError(
            f"device={asked!r}: there is no such device on this machine; 'auto' takes what there is"
        )
    return device


def has_bfloat16(device: str | torch.device) -> bool:
    """Whether the device computes in bfloat16 itself, not by emulation: of GPUs those of compute
    capability 8.0 and above.
    """
    return torch.device(device).type != "cuda" or torch.cuda.is_bf16_supported(
        including_emulation=False
    )


def free_bytes(device: str | torch.device) -> int | None:
    """Memory that is free on a GPU, or available on this machine; None for other devices, which do
    not say.
    """
    where = torch.device(device)
    if where.type == "cuda":
        return _free_on_gpu(where)
    return psutil.virtual_memory().available if where.type == "cpu" else None


def _free_on_gpu(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0]


def gigabytes(count: float) -> str:
    """Bytes in GB (10⁹), or MB where that reads better."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def check_room(needs: dict[str, int], device: str | torch.device, context: int) -> None:
    """Raise MemoryError, saying how much is needed and how much is free, where the models would not
    fit.

    needs: bytes by model (`Size.bytes`).
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
def advise(doing: str) -> Iterator[None]:
    """Turn a device's out-of-memory error into one sentence of advice. doing: what was being done,
    such as "loading the target".
    """
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        raise MemoryError(f"memory ran out while {doing}: {ADVICE}") from None
