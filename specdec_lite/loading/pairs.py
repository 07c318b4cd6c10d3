"""Target and draft together: the shipped pair, pairs from the hub or a folder, and the checks that
they fit.

What lives here: loading, saving, compatibility. What does not: how the shipped pair was trained
(`training`). Weights are safetensors only; remote code is never run.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from specdec_lite.checks import is_whole
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import (
    Transformer,
    TransformerConfig,
    from_hf_state,
    to_hf_state,
)
from specdec_lite.loading.memory import (
    Size,
    advise,
    check_room,
    device_named,
    has_bfloat16,
    hugging_face_size,
    native_size,
)

SHIPPED = Path(__file__).parents[1] / "weights" / "pair"
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
DESCRIPTION = ["*.json", "*.txt", "*.model"]
INDEX = "model.safetensors.index.json"
PROBES = (
    "def f(x):\n    return x",
    "It was 25 °C in Zürich – 東京 🙂",
    "   spaces\tand\r\nlines ",
    "0123456789",
    "<|endoftext|>",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, its draft and their common Hugging Face tokenizer."""

    target: CausalLM
    draft: CausalLM
    tokenizer: object


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    context: int | None = None,
    device_map: str | dict | None = None,
    tp_plan: str | None = None,
) -> Pair:
    """Load a target and a draft: the shipped trained pair, or two hub ids or local folders.

    device: "auto" (a GPU if there is one), or anything `torch.device` takes. dtype: "float32",
    "bfloat16", "float16", "float64", or "auto": each model's stored dtype, but float32 for the
    shipped draft on a CPU, where it is faster, and float16 for bfloat16 on a card without it.
    context: tokens of prompt and answer to leave room for (default: 4096, or what the models can
    read). For a target larger than one card, device_map="auto" spreads its layers over the cards
    (needs accelerate), and tp_plan="auto" splits every layer over the processes of `torchrun` (give
    all of them one seed); both are passed on to transformers, and the draft stands where the
    target's input is. Vocabularies, context lengths and memory are checked before any weight is
    fetched or loaded; quantised weights that no index tells the size of, once they are fetched.
    Raises ValueError for models that cannot work together or a folder that is not a model,
    MemoryError for models that do not fit.
    """
    if (target is None) != (draft is None):
        raise ValueError(
            f"target={target!r}, draft={draft!r}: give both, or neither for the shipped pair"
        )
    device = str(device_named(device))
    sources = (
        {"target": target, "draft": draft}
        if target is not None
        else {name: SHIPPED / name for name in ("target", "draft")}
    )
    folders = {name: _folder(name, source, DESCRIPTION) for name, source in sources.items()}
    tokenizers = {name: _tokenizer(folder) for name, folder in folders.items()}
    _check_tokenizers(*tokenizers.values())
    asked = {
        "target": dtype,
        "draft": "float32" if target is None and device == "cpu" and dtype == "auto" else dtype,
    }
    split = {"device_map": device_map, "tp_plan": tp_plan} if device_map or tp_plan else {}
    placed = {"draft"} if split else {"target", "draft"}
    told = _check_fit(folders, device, asked, context, placed)
    folders = {
        name: _folder(name, source, [*DESCRIPTION, *(_shards(folders[name]) or ["*.safetensors"])])
        for name, source in sources.items()
    }
    if not told:
        _check_fit(folders, device, asked, context, placed)
    with advise("loading the target"):
        large = load_model(folders["target"], device, asked["target"], **split)
    with advise("loading the draft"):
        small = load_model(folders["draft"], str(large.device) if split else device, asked["draft"])
    return Pair(large, small, tokenizers["target"])


def _folder(name: str, source: str | Path, files: list[str]) -> Path:
    """A local folder as it is, or a hub repository's files of these kinds (none of its folders'),
    fetched with a progress bar.
    """
    if not isinstance(source, (str, Path)):
        raise TypeError(
            f"{name}={source!r}: must be a hub id or a folder that holds config.json and"
            " *.safetensors"
        )
    path = Path(source)
    if (path / "config.json").is_file():
        return path
    if path.exists() or path.is_absolute():
        raise ValueError(
            f"{name}={str(source)!r}: must be a hub id or a folder that holds config.json and"
            " *.safetensors"
        )
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(source), allow_patterns=files, ignore_patterns=["*/*"]))


def _check_fit(
    folders: dict[str, Path],
    device: str,
    dtypes: dict[str, str],
    context: int | None,
    loaded: set[str],
) -> bool:
    """The context length against both models, and what is loaded onto `device` against its free
    memory. False where a size is not known yet.
    """
    sizes = {name: model_size(folder) for name, folder in folders.items()}
    limit = min(size.positions for size in sizes.values())
    if context is not None and not (is_whole(context) and 1 <= context <= limit):
        reach = ", ".join(f"{name} {size.positions}" for name, size in sizes.items())
        raise ValueError(
            f"context={context!r}: must be a whole number from 1 to what both models can read"
            f" ({reach} tokens)"
        )
    room = context or min(4096, limit)
    kinds = {
        name: _dtype(dtypes[name], _stored(folder), device) for name, folder in folders.items()
    }
    check_room(
        {name: size.bytes(kinds[name], room) for name, size in sizes.items() if name in loaded},
        device,
        room,
    )
    return all(size.quantised != 0 for size in sizes.values())


def model_size(folder: str | Path) -> Size:
    """Parameters, cache and context length of the model that a folder's config.json describes; no
    weight is read.
    """
    folder = Path(folder)
    described = _described(folder)
    config = _config(folder)
    size = hugging_face_size(folder) if config is None else native_size(config)
    return (
        replace(size, quantised=_stored_bytes(folder))
        if described.get("quantization_config")
        else size
    )


def _stored_bytes(folder: Path) -> int:
    """What the weights take on disk, told by their index where they are not fetched yet; 0 where
    nothing tells it.
    """
    index = folder / INDEX
    told = (
        json.loads(index.read_text()).get("metadata", {}).get("total_size")
        if index.exists()
        else None
    )
    return told or sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _described(folder: Path) -> dict:
    """A folder's config.json. ValueError where it is none."""
    try:
        described = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: cannot be read ({error})") from None
    if not isinstance(described, dict):
        raise ValueError(
            f"{folder / 'config.json'}: must describe a model, and holds a"
            f" {type(described).__name__}"
        )
    return described


def _config(folder: Path) -> TransformerConfig | None:
    try:
        return config_from_hf(_described(folder))
    except KeyError as error:
        raise ValueError(f"{folder / 'config.json'}: lacks {error}") from None


def _tokenizer(folder: Path):
    from transformers import AutoTokenizer

    _config(folder)
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _check_tokenizers(target, draft) -> None:
    """One vocabulary is not enough: two tokenizers may hold the same pieces and cut text
    differently.
    """
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours != theirs:
        differing = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: item[1])
        raise ValueError(
            f"target and draft have different vocabularies ({len(ours)} and {len(theirs)} entries;"
            f" the first that differs is {differing[0]}): speculative decoding compares token ids,"
            " so both must use one tokenizer"
        )
    for text in PROBES:
        if target.encode(text) != draft.encode(text):
            raise ValueError(
                f"target and draft cut the text {text!r} into different tokens although their"
                " vocabularies agree"
            )


def _layer_types(config: dict) -> set[str]:
    """The kinds of attention in a Hugging Face config; Qwen's older ones give the first windowed
    layer in place of a list.
    """
    if config.get("layer_types") or not config.get("use_sliding_window"):
        return set(config.get("layer_types") or ())
    first = config.get("max_window_layers", 28)
    return {
        "sliding_attention" if layer >= first else "full_attention"
        for layer in range(config["num_hidden_layers"])
    }


def config_from_hf(config: dict) -> TransformerConfig | None:
    """Our shape for a Hugging Face config.json of the Llama family, or None where only transformers
    itself can run it.

    Quantised weights are left to transformers too: without their scales they would load, and be
    noise.
    """
    if config.get("quantization_config"):
        return None
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    family = config.get("model_type")
    kinds = _layer_types(config) if family in ("qwen2", "qwen3") else set()
    windowed = (
        family == "mistral" or config.get("use_sliding_window") and kinds == {"sliding_attention"}
    )
    plain = (
        rope.get("rope_type", rope.get("type", "default")) == "default"
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("mlp_bias")
        and not (family in ("llama", "qwen3") and config.get("attention_bias"))
    )
    if family not in FAMILIES or not plain or len(kinds) > 1:
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
        norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        max_positions=config.get("max_position_embeddings", 2048),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied=config.get("tie_word_embeddings", False),
        window=config.get("sliding_window", 4096) if windowed else None,
    )


def config_to_hf(config: TransformerConfig, architecture: str, **others) -> dict:
    """The entries of a Hugging Face config.json of the Llama family, for our shape.

    others: further entries, or in place of these.
    """
    described = {
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
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tied,
        "attention_bias": False,
    }
    return described | others


def load_model(folder: str | Path, device: str = "cpu", dtype: str = "auto", **split) -> CausalLM:
    """One model from a folder of config.json and safetensors: native for the Llama family, else
    through transformers.

    split: device_map or tp_plan, which transformers then applies. Weights of a native model go to
    the device shard by shard, so that neither the machine nor the card ever holds a second copy of
    them.
    """
    folder = Path(folder)
    config, files = _config(folder), _weight_files(folder)
    if not files:
        raise ValueError(
            f"{folder}: holds no *.safetensors file; other weight formats are not loaded, because"
            " they can run code"
        )
    kind = _dtype(dtype, _stored(folder), device)
    if config is None or split:
        from transformers import AutoModelForCausalLM

        try:
            model, told = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=kind,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **split,
            )
        except SafetensorError as error:
            raise ValueError(
                f"{folder}: holds a file that is not whole safetensors ({error}): download or copy"
                " it again"
            ) from None
        if told["missing_keys"] and not _described(folder).get("quantization_config"):
            raise ValueError(
                f"{folder}: its weights do not fit its config.json: it lacks"
                f" {sorted(told['missing_keys'])[0]} and {len(told['missing_keys']) - 1} more"
            )
        return CausalLM(model if split else model.to(device))
    state: dict = {}
    for file in tqdm(
        files,
        desc=f"reading {folder.name}",
        disable=sum(file.stat().st_size for file in files) < 1e9,
    ):
        state |= {name: weight.to(device, kind) for name, weight in _read(file).items()}
    with torch.device("meta"):
        model = Transformer(config)
    try:
        ours = from_hf_state(state, config)
        model.load_state_dict(ours, assign=True)
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"{folder}: its weights do not fit its config.json: {error}") from None
    if unread := [
        name
        for name in state
        if not name.endswith("rotary_emb.inv_freq")
        and not (config.tied and name == "lm_head.weight")
    ]:
        raise ValueError(
            f"{folder}: its weights do not fit its config.json: it holds {unread[0]} and"
            f" {len(unread) - 1} more that the model has no place for"
        )
    if config.tied:
        model.head.weight = model.embedding.weight
    return CausalLM(model.to(device, kind).requires_grad_(False))


def _weight_files(folder: Path) -> list[Path]:
    """The shards that the index names, since some repositories hold the weights a second time;
    without an index, all there are.
    """
    files = [folder / name for name in _shards(folder)] or sorted(folder.glob("*.safetensors"))
    for file in files:
        if not file.exists():
            raise ValueError(f"{file}: named by {INDEX} and not there: download or copy it again")
    return files


def _shards(folder: Path) -> list[str]:
    """The files that the index in a folder names: none where there is no index."""
    index = folder / INDEX
    try:
        return (
            sorted(set(json.loads(index.read_text())["weight_map"].values()))
            if index.exists()
            else []
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{index}: names no weights: download or copy it again") from None


def _read(file: Path) -> dict:
    try:
        return load_file(file, device="cpu")
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a whole safetensors file ({error}): download or copy it again"
        ) from None


def _stored(folder: Path) -> str:
    described = _described(Path(folder))
    return described.get("dtype") or described.get("torch_dtype") or "float32"


def _dtype(asked: str, stored: str, device: str = "cpu") -> torch.dtype:
    allowed = {
        "float64": torch.float64,
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    name = str(stored if asked == "auto" else asked).removeprefix("torch.")
    if name not in allowed:
        found = f", where the model is stored in {stored}" if asked == "auto" else ""
        raise ValueError(f"dtype={asked!r}{found}: must be 'auto' or one of {', '.join(allowed)}")
    if name == "bfloat16" and not has_bfloat16(device):
        if asked != "auto":
            raise ValueError(
                "dtype='bfloat16': this card computes no bfloat16; use dtype='auto' or 'float16'"
            )
        name = "float16"
    return allowed[name]


def save_model(folder: Path, model: Transformer, tokenizer, limit: int = 15_000_000) -> None:
    """Write a Llama-type model (no q/k norm, no bias) and its tokenizer so that plain transformers
    loads them: bf16 safetensors in shards ≤ limit bytes.
    """
    config = model.config
    for name, none in (("window", None), ("qk_norm", False)):
        if getattr(config, name) != none:
            raise ValueError(
                f"model has {name}={getattr(config, name)}, for which a Llama's config.json has no"
                " word"
            )
    folder.mkdir(parents=True, exist_ok=True)
    described = config_to_hf(
        config, "LlamaForCausalLM", mlp_bias=False, bos_token_id=0, eos_token_id=0, dtype="bfloat16"
    )
    (folder / "config.json").write_text(json.dumps(described, indent=1) + "\n")
    shards: list[dict] = [{}]
    for name, weight in to_hf_state(model).items():
        weight = weight.detach().cpu().to(torch.bfloat16).contiguous()
        if sum(w.nbytes for w in shards[-1].values()) + weight.nbytes > limit:
            shards.append({})
        shards[-1][name] = weight
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors", {"format": "pt"})
    else:
        names = [
            f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)
        ]
        for name, shard in zip(names, shards):
            save_file(shard, folder / name, {"format": "pt"})
        index = {
            "metadata": {"total_size": sum(w.nbytes for s in shards for w in s.values())},
            "weight_map": {key: name for name, shard in zip(names, shards) for key in shard},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    tokenizer.save_pretrained(folder)


def save_pair(
    folder: Path, target: Transformer, draft: Transformer, tokenizer, report: dict
) -> None:
    """Write both models in the shipped layout, and what was measured of them to report.json."""
    save_model(folder / "target", target, tokenizer)
    save_model(folder / "draft", draft, tokenizer)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
