"""Write the live page's weights, kernel and scripts while the book is built.

The shipped pair's weights are quantized to int8 with one scale per row and described in a manifest.
The kernel is compiled to WebAssembly, and the ES modules of site/live are joined into two classic
scripts.
"""

import base64
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from itertools import product
from pathlib import Path

import torch
from sphinx.errors import ExtensionError
from sphinx.util import logging
from torch import Tensor

from specdec_book import recordings
from specdec_book.viz import interactive
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.pairs import SHIPPED, load_model
from specdec_lite.texts.corpus import evaluation_prompts

from . import chapter_inputs, live_smollm2

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parent.parent / "live"
FILES = (
    "site/live/*",
    "site/specdec_site/live*.py",
    "specdec_book/viz/static/kit.js",
    "specdec_lite/loading/*.py",
    "specdec_lite/texts/*.json",
    "specdec_lite/weights/**/*",
    "results/answers/*.json",
    "package-lock.json",
)
"""What the live page's files are made from."""
WORKER = "worker.js"
PANELS = ("live", "ask", "room")
"""Interactives whose panels are modules of the same name."""
IMPORT = re.compile(r"""^import [^;]*? from "[\w./]*/([\w.]+)";\n""", re.M)
KERNELS = {"relaxed": ("--enable", "relaxed-simd"), "simd": ()}
"""Kernel → options of its compiler, the fastest kernel first."""
THREADS = ("--enable", "threads", "--sharedMemory", "--maximumMemory", "4096")
"""Options of the compiler for a kernel whose memory several threads share."""
QUESTION_TOKENS = 40
"""Tokens of the shortest answer that the page offers."""
PIECE = 500_000
"""Bytes of weights per script; a page opened from a folder loads scripts instead of weights.bin."""
PRESETS = {"code": (0, 5, 9), "data": (1, 4, 10), "prose": (0, 5, 10)}
"""Kind of text → indices of the evaluation prompts that the page offers."""


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to int8 with one scale per row.

    Shapes: weight [rows, cols].
    """
    weight = weight.float()
    scales = weight.abs().amax(-1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def dequantize(model: Transformer) -> Transformer:
    """Return the float32 model with exactly the live page's weights: the reference of its tests."""
    rounded = copy.deepcopy(model).requires_grad_(False)
    for weight in rounded.parameters():
        if weight.dim() > 1:
            small, scales = quantize(weight)
            weight.copy_(small.float() * scales[:, None])
    return rounded


def panels(matrix: Tensor) -> bytes:
    """Return a matrix [rows, cols] as [rows / lanes, cols, lanes], the kernel's reading order."""
    lanes = matrix.unflatten(0, (-1, live_smollm2.LANES)).transpose(1, 2)
    return lanes.contiguous().numpy().tobytes()


def add_model(file: live_smollm2.PackedFile, model: Transformer) -> dict:
    """Append a model, its matrices in panels, and return its manifest entry."""
    tensors = {}
    for name, weight in model.named_parameters():
        weight = weight.detach().float()
        if weight.dim() == 1:
            entry = file.vector(weight.numpy())
        else:
            small, scales = quantize(weight)
            rows, cols = weight.shape
            entry = {"offset": file.add(panels(small)), "rows": rows, "cols": cols}
            entry["scales"] = file.add(scales.numpy().tobytes())
        tensors[name.removesuffix(".weight")] = entry
    c = model.config  # without biases, norms of q and k, and windows, in sizes of 16
    config = {
        "hidden": c.hidden_size,
        "inner": c.intermediate_size,
        "layers": c.num_layers,
        "heads": c.num_heads,
        "kvHeads": c.num_kv_heads,
        "headSize": c.head_size,
        "vocab": c.vocab_size,
        "theta": c.rope_theta,
        "eps": c.norm_eps,
        "tied": c.tied,
    }
    return {"config": config, "tensors": tensors}


def export(
    target: CausalLM | Transformer, draft: CausalLM | Transformer, tokenizer: Path
) -> tuple[bytes, dict]:
    """Return the weights file and its manifest."""
    file = live_smollm2.PackedFile()
    models = {
        name: add_model(file, getattr(model, "model", model))
        for name, model in (("target", target), ("draft", draft))
    }
    data = bytes(file.data)
    return data, {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "models": models,
        "tokenizer": live_smollm2.tokenizer_data(tokenizer),
    }


def presets() -> list[dict]:
    """Return some evaluation prompts, on which no model was trained: [{"kind", "source", "text"}]."""
    prompts = evaluation_prompts()
    return [
        {"kind": kind, **prompts[kind][i]} for kind, indices in PRESETS.items() for i in indices
    ]


def questions() -> list[dict]:
    """Return one request per kind of text that SmolLM2 answers well: [{"kind", "text", "gains"}].

    They are sorted by the tokens of a target pass, the most first; only the first has `gains`.
    """
    answers = recordings.load("answers").data["answers"]
    first = {
        row["kind"]: row
        for row in reversed(answers)
        if row["passes"] and row["tokens"] >= QUESTION_TOKENS
    }
    rows = sorted(first.values(), key=lambda row: row["target_passes"] / row["tokens"])
    return [{"kind": row["kind"], "text": row["request"], "gains": row is rows[0]} for row in rows]


def compile_kernels(node_modules: Path, folder: Path) -> dict[str, bytes]:
    """Compile kernel.ts to WebAssembly once for each entry of KERNELS, and again for threads."""
    options = "-O3 --noAssert --runtime stub --importMemory --initialMemory 1 --enable simd".split()
    compiler = ["node", node_modules / "assemblyscript" / "bin" / "asc.js", SOURCE / "kernel.ts"]
    compiled = {}
    for (name, own), shared in product(KERNELS.items(), ((), THREADS)):
        target = folder / f"kernel-{name}{'-threads' if shared else ''}.wasm"
        command = [*compiler, *options, *own, *shared, "--outFile", target]
        process = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if process.returncode:
            raise ExtensionError(f"kernel.ts does not compile: {process.stdout}{process.stderr}")
        compiled.setdefault(name, target.read_bytes())
    return compiled


def without_comments(script: str) -> str:
    """Return a script without indentation and comments on lines of their own; the page loads less."""
    script = re.sub(r"^ */\*\*.*?\*/\n", "", script, flags=re.M | re.S)
    return re.sub(r"^\s+", "", re.sub(r"^ *//.*\n", "", script, flags=re.M), flags=re.M)


def modules(name: str) -> dict[str, str]:
    """Return {name: source} of a module of site/live after all that it imports, the kit included."""
    source = interactive.kit() if name == "kit.js" else (SOURCE / name).read_text("utf-8")
    needed: dict[str, str] = {}
    for imported in IMPORT.findall(source):
        needed |= modules(imported)
    return needed | {name: source}


def bundle(name: str) -> str:
    """Return a module and all that it imports as the body of one classic script."""
    text = IMPORT.sub("", "\n".join(modules(name).values()))
    return re.sub(r"^export (?=async |function|const|let|class)", "", text, flags=re.M)


def inputs(root: Path) -> str:
    """Return a digest of everything that the live page's files are made from."""
    smollm2 = ""
    with suppress(ConnectionError, ValueError, OSError):  # then the page has no SmolLM2
        folder = live_smollm2.smollm2_folder()
        smollm2 = chapter_inputs.digest(folder, [live_smollm2.GGUF])
    own = chapter_inputs.digest(root, FILES)
    return hashlib.sha256(f"{own} {smollm2}".encode()).hexdigest()


def stored(root: Path) -> Path:
    """Return a folder with the live page's files, which are made again if their inputs changed.

    All builds and tests share it, as builds share the chapters' results.
    """
    folder = root / "_build" / ".live" / inputs(root)
    if not folder.exists():
        for older in folder.parent.glob("[0-9a-f]*"):
            shutil.rmtree(older)
        unfinished = folder.parent / f"unfinished-{os.getpid()}"
        write(unfinished, root / "node_modules")
        with suppress(OSError):  # another process was quicker
            unfinished.rename(folder)
    return folder


def publish(static: Path, root: Path) -> None:
    """Put the live page's files into a book."""
    shutil.rmtree(static / "live", ignore_errors=True)  # an earlier build may have left more pieces
    shutil.copytree(stored(root), static, dirs_exist_ok=True)


def write(static: Path, node_modules: Path) -> None:
    """Write what the live page loads to live, and its interface to interactives, below `static`."""
    folder = static / "live"
    folder.mkdir(parents=True)
    (static / "interactives").mkdir()
    kernels = {
        name: base64.b64encode(wasm).decode()
        for name, wasm in compile_kernels(node_modules, folder).items()
    }
    models = [load_model(SHIPPED / name, "cpu", "float32") for name in ("target", "draft")]
    data, manifest = export(*models, SHIPPED / "target" / "tokenizer.json")
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    (folder / "weights.bin").write_bytes(data)
    for number, piece in enumerate(pieces):
        text = base64.b64encode(piece).decode()
        (folder / f"weights-{number}.js").write_text(f'globalThis.sdlWeights("{text}");\n', "utf-8")
    worker = f'"use strict";\n{bundle(WORKER)}'
    engine = {
        "manifest": manifest | {"pieces": len(pieces)},
        "presets": presets(),
        "kernels": kernels,
        "worker": worker,
        "smollm2": live_smollm2.write(folder, logger.info),
        "questions": questions(),
    }
    (folder / "engine.js").write_text(f"globalThis.sdlLive = {json.dumps(engine)};\n", "utf-8")
    for name in PANELS:
        export_name = f'globalThis.sdlInteractives["{name}"] = '
        panel = bundle(f"{name}.js").replace("export default ", export_name)
        script = f"globalThis.sdlInteractives ??= {{}};\n(() => {{\n{panel}\n}})();\n"
        path = static / "interactives" / f"{name}.js"
        path.write_text(without_comments(script), "utf-8")
    shutil.copy2(SOURCE / "live.css", static / "interactives" / "live.css")
