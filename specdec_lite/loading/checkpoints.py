"""Fetch, load and save one model: a folder with config.json, safetensors and a tokenizer.

Weights are read from safetensors only, and code that comes with a model is never run.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from tqdm import tqdm

from specdec_lite.checks import is_whole
from specdec_lite.engine.hf_state import from_hf_state, to_hf_state
from specdec_lite.engine.linear import LIMIT, pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.memory import Size, hugging_face_size, is_out_of_memory, native_size
from specdec_lite.loading.model_config import (
    config_to_hf,
    native_config,
    read_config,
    resolve_dtype,
    stored_dtype,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DESCRIPTION = ["*.json", "*.txt", "*.model", "*.jinja"]
"""Files of a hub repository that describe a model and its tokenizer."""
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 15_000_000
"""Largest size of a file that `save_model` writes."""


def fetch_folder(argument: str, source: str | Path, patterns: list[str]) -> Path:
    """Return a local folder as it is, or download files of a hub repository."""
    allowed = "must be a hub id or a folder that holds config.json and *.safetensors"
    if not isinstance(source, (str, Path)):
        raise TypeError(f"{argument}={source!r}: {allowed}")
    path, named = Path(source).expanduser(), f"{argument}={str(source)!r}"
    if (path / "config.json").is_file():
        return path
    if path.exists() or path.is_absolute() or str(source).startswith("."):
        raise ValueError(f"{named}: {allowed}")
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(
            snapshot_download(str(source), allow_patterns=patterns, ignore_patterns=["*/*"])
        )
    except (ValueError, errors.RepositoryNotFoundError, errors.LocalEntryNotFoundError) as error:
        raise ValueError(f"{named}: not found ({type(error).__name__}); {allowed}") from None


def weight_patterns(folder: Path) -> list[str]:
    """Return the names of the weight files to download.

    Some repositories contain the weights a second time; the index names the files that count.
    """
    return _indexed_files(folder) or ["*.safetensors"]


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the Hugging Face tokenizer of a model's folder."""
    native_config(folder)  # raises if config.json is malformed
    with _readable(folder, "tokenizer"):
        if _is_generic(folder):
            # the class that AutoTokenizer would return, without the 900 modules that it imports
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _readable(folder: Path, part: str) -> Iterator[None]:
    """Turn whatever a damaged file makes transformers raise into a ValueError with the folder's
    name."""
    try:
        yield
    except Exception as error:  # nearly any type, also bare Exceptions of the tokenizers' code
        if isinstance(error, (MemoryError, ImportError)) or is_out_of_memory(error):
            raise
        if "trust_remote_code" in str(error):  # whole files, with code that is not run here
            raise
        raise ValueError(
            f"{folder}: its {part} cannot be read ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:400]}): copy it again from the model's repository"
        ) from error


def _is_generic(folder: Path) -> bool:
    """Return whether a Llama model's tokenizer is described by its tokenizer.json alone."""
    try:
        described = json.loads((folder / "tokenizer_config.json").read_bytes())
        plain = described["tokenizer_class"] == "TokenizersBackend" and "auto_map" not in described
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return plain and read_config(folder).get("model_type") == "llama"


# Sizes ----------------------------------------------------------------------------------------------


def model_size(folder: str | Path) -> Size:
    """Return the size of the model that a folder's config.json describes; read no weights."""
    folder = Path(folder)
    config = native_config(folder)
    if config is None:
        with _readable(folder, "config.json"):
            size = hugging_face_size(folder)
    else:
        size = native_size(config)
    if not read_config(folder).get("quantization_config"):
        return size
    return replace(size, quantized_bytes=_stored_bytes(folder))


def model_dtype(folder: Path, dtype: str, device: str) -> torch.dtype:
    """Return the dtype in which to load the model of a folder."""
    config, shares = native_config(folder), False
    if config is not None and device == "cpu" and dtype == "auto":
        from specdec_lite.engine.int4 import can_share

        widths = config.hidden_size, config.intermediate_size, config.vocab_size, config.head_size
        small = native_size(config).parameters * torch.bfloat16.itemsize <= LIMIT
        shares = small and can_share(*widths)
    return resolve_dtype(dtype, stored_dtype(folder), device, shares)


def _stored_bytes(folder: Path) -> int:
    """Return the bytes of the stored weights: as the index states them before the download, else
    the sum over the files; 0 if there are no files yet.
    """
    index = folder / INDEX
    if index.exists():
        try:
            total = json.loads(index.read_bytes()).get("metadata", {}).get("total_size")
        except (ValueError, AttributeError, RecursionError):
            raise ValueError(f"{index}: is not an index: download or copy it again") from None
        if total is not None and not (is_whole(total) and total >= 0):
            raise ValueError(f"{index}: total_size={total!r}: must be a whole number of bytes")
        if total:
            return total
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


# Loading --------------------------------------------------------------------------------------------


def load_model(
    folder: str | Path,
    device: str = "cpu",
    dtype: str = "auto",
    prepare: Callable[[Transformer], nn.Module] = pack,
    **placement: Any,
) -> CausalLM:
    """Load one model from a folder of config.json and safetensors.

    Models of the Llama family become native transformers, all others run in transformers.

    prepare: gives the layers of a native transformer the products that they multiply by.
    """
    folder = Path(folder)
    config, files = native_config(folder), _weight_files(folder)
    if not files:
        raise ValueError(
            f"{folder}: holds no *.safetensors file; other weight formats are not loaded, because"
            " they can run code"
        )
    kind = model_dtype(folder, dtype, device)
    if config is None or placement:
        model = load_transformers(folder, device, kind, **placement)
    else:
        model = CausalLM(prepare(load_native(folder, config, files, device, kind)))
    model.end_of_text = end_of_text(folder, model.vocab_size)
    if model.native:
        model.model.end_of_text = model.end_of_text  # for whoever wraps the module again
    return model


def end_of_text(folder: Path, vocab_size: int) -> tuple[int, ...]:
    """Return the ids that end a text, from generation_config.json or else config.json."""
    stated: Any = None
    for name in ("generation_config.json", "config.json"):
        try:
            stated = json.loads((folder / name).read_bytes()).get("eos_token_id")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if stated is not None:
            break
    ids: list[Any] = stated if isinstance(stated, list) else [stated]
    return tuple(token for token in ids if is_whole(token) and 0 <= token < vocab_size)


def load_transformers(folder: Path, device: str, dtype: torch.dtype, **placement: Any) -> CausalLM:
    """Load a model that runs in transformers."""
    from transformers import AutoModelForCausalLM

    with _readable(folder, "model"):
        model, report = AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **placement,
        )
    missing = sorted(report["missing_keys"])
    if missing and not read_config(folder).get("quantization_config"):
        raise ValueError(
            f"{folder}: its weights do not fit its config.json: it lacks {missing[0]} and"
            f" {len(missing) - 1} more"
        )
    return CausalLM(model if placement else model.to(device))


def load_native(
    folder: Path, config: TransformerConfig, files: list[Path], device: str, dtype: torch.dtype
) -> Transformer:
    """Load a native transformer.

    The weights move to the device file by file, so that neither the machine nor the GPU ever holds
    a second copy of them.
    """
    is_small = sum(file.stat().st_size for file in files) < 1e9
    state: dict[str, Tensor] = {}
    for file in tqdm(files, desc=f"reading {folder.name}", disable=is_small):
        _join(state, {name: weight.to(device, dtype) for name, weight in _read(file).items()}, file)
    if config.tied and (head := state.pop("lm_head.weight", None)) is not None:
        # One of two names may be stored; transformers, too, keeps two matrices that differ.
        if not head.equal(state.setdefault("model.embed_tokens.weight", head)):
            state["lm_head.weight"], config = head, replace(config, tied=False)
    with torch.device("meta"):
        model = Transformer(config)
    try:
        model.load_state_dict(from_hf_state(state, config), assign=True)
    except (KeyError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        how = "it lacks " * isinstance(error, KeyError)
        raise ValueError(
            f"{folder}: its weights do not fit its config.json: {how}{error}"
        ) from None
    if unused := [name for name in state if not name.endswith("rotary_emb.inv_freq")]:  # computed
        raise ValueError(
            f"{folder}: its weights do not fit its config.json: it holds {unused[0]} and"
            f" {len(unused) - 1} more that the model does not have"
        )
    if config.tied:
        model.head.weight = model.embedding.weight
    return model.to(device, dtype).requires_grad_(False)


def _weight_files(folder: Path) -> list[Path]:
    """Return the weight files that the index names; without one, model.safetensors or all of them."""
    files = [folder / name for name in _indexed_files(folder)]
    for file in files:
        if not file.exists():
            raise ValueError(f"{file}: named by {INDEX} and not there: download or copy it again")
    whole = folder / "model.safetensors"  # what is beside it, such as an adapter, is not its
    if files and whole not in files and whole.exists():
        raise ValueError(f"{whole}: {INDEX} names other files, and engines read either: delete one")
    return files or ([whole] if whole.exists() else sorted(folder.glob("*.safetensors")))


def _indexed_files(folder: Path) -> list[str]:
    """Return the names of the files in the index; none if there is no index."""
    index = folder / INDEX
    if not index.exists():
        return []
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        outside = [name for name in names if Path(name).name != name or name in ("", "..")]
        other = [name for name in names if not name.endswith(".safetensors")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{index}: names no weights: download or copy it again") from None
    if outside:
        raise ValueError(f"{index}: names {outside[0]!r}: must be a file in the same folder")
    if other:
        raise ValueError(
            f"{index}: names {other[0]!r}: must be *.safetensors; other formats can run code"
        )
    return names


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder's safetensors files, on the CPU."""
    files = _weight_files(folder)
    if not files:
        raise ValueError(
            f"{folder}: holds no *.safetensors file: convert its weights; other formats can run code"
        )
    state: dict[str, Tensor] = {}
    for file in files:
        _join(state, _read(file), file)
    return state


def _join(state: dict[str, Tensor], tensors: dict[str, Tensor], file: Path) -> None:
    """Add a file's tensors to those of other files; raise ValueError if two of one name differ."""
    for name in state.keys() & tensors.keys():
        if not state[name].equal(tensors[name]):
            raise ValueError(
                f"{file}: holds another {name} than an earlier file: delete one of them"
            )
    state.update(tensors)


def _read(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, on the CPU."""
    try:
        return load_file(file, device="cpu")
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a whole safetensors file ({error}): download or copy it again"
        ) from None


# Saving ---------------------------------------------------------------------------------------------


def save_model(
    folder: Path, model: Transformer, tokenizer: "PreTrainedTokenizerBase", limit: int = SHARD_BYTES
) -> None:
    """Write a model and its tokenizer so that plain transformers loads them as a Llama.

    A folder that exists is replaced in one step; its other files, such as a README, are kept.
    """
    from huggingface_hub import save_torch_state_dict

    config = model.config
    for name, absent in (("window", None), ("qk_norm", False)):
        if getattr(config, name) != absent:
            raise ValueError(
                f"model has {name}={getattr(config, name)}: must be {absent}, because a Llama's"
                " config.json cannot express it"
            )
    entries = config_to_hf(
        config, "LlamaForCausalLM", mlp_bias=False, bos_token_id=0, eos_token_id=0, dtype="bfloat16"
    )
    weights = {
        name: weight.detach().to("cpu", torch.bfloat16, copy=True)
        for name, weight in to_hf_state(model).items()
    }
    with _replaced(folder) as part:
        (part / "config.json").write_text(json.dumps(entries, indent=1) + "\n")
        save_torch_state_dict(weights, part, max_shard_size=limit)
        tokenizer.save_pretrained(part)


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; what is written into it then replaces the model in `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        part, old = Path(scratch, "new"), Path(scratch, "old")
        part.mkdir()
        yield part
        if not folder.exists():
            part.replace(folder)
            return
        for path in folder.iterdir():
            # An index or a shard of the model before would be read instead of the new weights.
            is_weight = path.name == INDEX or path.match("model*.safetensors")
            if not is_weight and not (part / path.name).exists():
                copy = shutil.copytree if path.is_dir() else shutil.copy2
                copy(path, part / path.name)
        folder.replace(old)
        part.replace(folder)
