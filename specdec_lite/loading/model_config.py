"""Read and write a model's config.json, and choose the dtype to load the model in."""

import json
import sys
from functools import cache
from pathlib import Path

import torch

from specdec_lite.checks import is_number, is_whole
from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.loading.files import check_counts, check_files
from specdec_lite.loading.memory import has_bfloat16

FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
"""Values of `model_type` for which a native transformer exists."""
REQUIRED = (
    *("num_attention_heads", "vocab_size", "hidden_size"),
    *("intermediate_size", "num_hidden_layers"),
)
COUNTS = ("num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window")
MOST_POSITIONS = 10**8
"""The longest context that is read; the tables of its angles are computed as a whole."""
PART = "partial_rotary_factor"
NUMBERS = ("rms_norm_eps", "rope_theta", PART)
ROPE_NUMBERS = ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", PART, "beta_fast")
ROPE_NUMBERS += ("beta_slow", "attention_factor", "original_max_position_embeddings")
SCALED = {"llama3": {"factor", "low_freq_factor", "high_freq_factor"}, "yarn": {"factor"}}
"""`rope_type` of an extended context → the entries of `rope_parameters` that it must have."""
MOST_NUMBER = 1e15
"""Bound of such a number: products of larger ones are no numbers."""
KINDS = {dict: "object", list: "array"}
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def read_config(folder: Path) -> dict:
    """Return the contents of a folder's config.json."""
    path = Path(folder) / "config.json"
    check_files(Path(folder))
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: must describe a model, and holds a {type(config).__name__}")
    try:
        check_counts(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return config


def native_config(folder: Path) -> TransformerConfig | None:
    """Return the native configuration of the model in a folder, or None if only transformers
    can run the model.
    """
    return config_in(Path(folder) / "config.json", read_config(folder))


def config_in(file: Path, config: dict) -> TransformerConfig | None:
    """Return `config_from_hf(config)`; errors name the file."""
    try:
        return config_from_hf(config)
    except KeyError as error:
        raise ValueError(f"{file}: lacks {error}") from None
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{file}: {error}") from None


def shortened(value: object) -> str:
    """Return a value as an error quotes it, of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def config_from_hf(config: dict) -> TransformerConfig | None:
    """Translate a Hugging Face config.json of the Llama family.

    Models with quantized weights are left to transformers: the native loader would ignore the
    scales and produce noise.
    """
    if config.get("quantization_config") or config.get("model_type") not in FAMILIES:
        return None
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}  # as transformers
    _check_entries(config, rope)
    family = config.get("model_type")
    kinds = _layer_types(config) if family in ("qwen2", "qwen3") else set()
    windowed = (
        family == "mistral" or config.get("use_sliding_window") and kinds == {"sliding_attention"}
    )
    scaling = _scaling(config, rope)
    plain = (
        (scaling or rope.get("rope_type", rope.get("type", "default")) == "default")
        and not any(isinstance(value, dict) for value in rope.values())  # of each type of layer
        and {rope.get(PART), config.get(PART)} <= {None, 1}
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("mlp_bias")
        and not (family in ("llama", "qwen3") and config.get("attention_bias"))
    )
    if not plain or kinds not in (set(), {"full_attention"}, {"sliding_attention"}):
        return None
    heads = config["num_attention_heads"]
    return TransformerConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        norm_eps=config.get("rms_norm_eps") or 1e-6,
        rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        max_positions=config.get("max_position_embeddings") or 2048,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied=config.get("tie_word_embeddings", False),
        window=config.get("sliding_window", 4096) if windowed else None,
        rope_scaling=scaling,
    )


def _check_entries(config: dict, rope: dict) -> None:
    """Raise KeyError for a required entry that is missing, ValueError for a value of a wrong kind."""
    for name in (*REQUIRED, *COUNTS):
        value = config[name] if name in REQUIRED else config.get(name)
        if value is None and name in COUNTS:
            continue
        if value is None or not is_whole(value) or value < 1:
            raise ValueError(f"{name}={shortened(value)}: must be a whole number ≥ 1")
        if value > MOST_POSITIONS:
            raise ValueError(f"{name}={shortened(value)}: must be ≤ {MOST_POSITIONS}")
    for name, kind in (("rope_parameters", dict), ("rope_scaling", dict), ("layer_types", list)):
        value = config.get(name)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name}={shortened(value)}: must be a JSON {KINDS[kind]}")
    for entries, name in [*((config, n) for n in NUMBERS), *((rope, n) for n in ROPE_NUMBERS)]:
        value = entries.get(name)
        if value is not None and not (is_number(value) and 0 < value < MOST_NUMBER):
            raise ValueError(f"{name}={shortened(value)}: must be a number > 0")


def _scaling(config: dict, rope: dict) -> dict | None:
    """Return the `rope_scaling` of a `TransformerConfig`, or None if it cannot be run natively."""
    kind = rope.get("rope_type", rope.get("type"))
    given = {name for name, value in rope.items() if value is not None}
    if kind not in SCALED or not SCALED[kind] <= given:
        return None
    original = (
        config.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or config.get("max_position_embeddings", 2048)
    )
    parts = {name: rope[name] for name in given - {"type", "rope_theta"}}
    return parts | {"rope_type": kind, "original_max_position_embeddings": original}


def _layer_types(config: dict) -> set[str]:
    """Return the kinds of attention in a Qwen config.

    Older configs have no list of layer types; they state the first layer with a window.
    """
    if config.get("layer_types") or not config.get("use_sliding_window"):
        return set(config.get("layer_types") or ())
    first, count = config.get("max_window_layers", 28), config["num_hidden_layers"]
    windowed = {"sliding_attention"} if count > first else set()
    return windowed | ({"full_attention"} if first > 0 else set())


def config_to_hf(config: TransformerConfig, architecture: str, **entries) -> dict:
    """Return the contents of a Hugging Face config.json of the Llama family."""
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "rope_theta": config.rope_theta,
        "rope_parameters": (config.rope_scaling or {"rope_type": "default"})
        | {"rope_theta": config.rope_theta},
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tied,
        "attention_bias": False,
    } | entries


def stored_dtype(folder: Path) -> str:
    """Return the name of the dtype in which the weights in a folder are stored."""
    config = read_config(folder)
    return config.get("dtype") or config.get("torch_dtype") or "float32"


@cache
def announce(line: str) -> None:
    """Print a line once per process: what an automatic choice took, and why."""
    print(line, file=sys.stderr)


def resolve_dtype(
    dtype: str, stored: str, device: str = "cpu", shares: bool = False
) -> torch.dtype:
    """Return the dtype in which to load a model.

    shares: whether the model would decode with a product that needs no instructions for bfloat16.
    """
    name = str(stored if dtype == "auto" else dtype).removeprefix("torch.")
    if name not in DTYPES:
        origin = f", where the model is stored in {stored}" if dtype == "auto" else ""
        raise ValueError(f"dtype={dtype!r}{origin}: must be 'auto' or one of {', '.join(DTYPES)}")
    on_gpu = torch.device(device).type == "cuda"
    replaced = name == "bfloat16" and (on_gpu or dtype == "auto") and not shares
    if replaced and not has_bfloat16(device):
        if dtype != "auto":
            raise ValueError(
                f"dtype={dtype!r}: device {device!r} cannot compute in bfloat16; use dtype='auto'"
                " or dtype='float16'"
            )
        name = "float16" if on_gpu else "float32"
        announce(f"dtype='auto' loads {name}: bfloat16 is emulated here, and slower with a draft")
    return DTYPES[name]
