"""The live page's parts: weights, kernel and scripts, made from the shipped pair and site/live when
the book is built.

Lives here: quantisation to int8 with a scale for each row, the manifest, the compiler of the
kernel, the bundle of readable ES modules into two classic scripts. Not here: anything that runs in
the browser (`site/live/*.js`).
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import torch
from sphinx.errors import ExtensionError
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import SHIPPED, load_model
from specdec_lite.viz import interactive

SOURCE = Path(__file__).resolve().parent.parent / "live"
WORKER = ("scalar.js", "kernel.js", "llama.js", "bpe.js", "speculate.js", "weights.js", "worker.js")
PAGE = ("download.js", "explain.js", "charts.js", "replay.js", "tour.js", "live.js")
LANES = 8  # rows of a matrix that the kernel reads together
KERNELS = {
    "relaxed": ("--enable", "relaxed-simd"),
    "simd": (),
}  # the compiler's options for each, the fastest first
# bytes of weights in each script that a page opened from a folder reads instead of weights.bin
PIECE = 500_000
PRESETS = {"code": (0, 5, 9), "data": (1, 4, 10), "prose": (0, 5, 10)}


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix [rows, cols] → int8 [rows, cols] and float32 scales [rows]: row r of the matrix is
    about scale[r] · int8[r].
    """
    weight = weight.float()
    scales = weight.abs().amax(-1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def dequantised(model: Transformer) -> Transformer:
    """The float32 model whose weights are exactly those of the live page: the reference of its
    tests.
    """
    state = {
        name: (
            weight
            if weight.dim() == 1
            else (lambda q, s: q.float() * s[:, None])(*quantise(weight))
        )
        for name, weight in model.state_dict().items()
    }
    copy = Transformer(model.config)
    copy.load_state_dict(state)
    return copy.requires_grad_(False)


def panels(matrix: Tensor) -> Tensor:
    """[rows, cols] → [rows / LANES, cols, LANES]: the order in which the kernel meets the weights."""
    return matrix.unflatten(0, (-1, LANES)).transpose(1, 2).contiguous()


class Pack:
    """Tensors one after another in one file, each at a multiple of 16 bytes; matrices in panels."""

    def __init__(self):
        self.data = bytearray()

    def add(self, tensor: Tensor) -> int:
        self.data += bytes(-len(self.data) % 16)
        offset = len(self.data)
        self.data += tensor.contiguous().numpy().tobytes()
        return offset

    def model(self, model: Transformer) -> dict:
        """Adds a model; returns its manifest entry, {"config", "tensors": {name: {"offset", "rows",
        "cols", "scales"}}}.
        """
        c = model.config
        if (
            c.qkv_bias
            or c.qk_norm
            or c.window
            or c.hidden_size % 16
            or c.intermediate_size % 8
            or c.head_size % 16
            or c.vocab_size % 16
        ):
            raise ValueError(
                f"the live page cannot run {asdict(c)}: no bias, no q/k norm, no window; sizes in"
                " multiples of 16 (inside the MLP of 8)"
            )
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
        tensors = {}
        for name, weight in model.state_dict().items():
            if name == "head.weight" and c.tied:
                continue
            weight = weight.float()
            if weight.dim() == 1:
                entry = {"offset": self.add(weight), "rows": 1, "cols": len(weight)}
            else:
                small, scales = quantise(weight)
                entry = {
                    "offset": self.add(panels(small)),
                    "rows": weight.shape[0],
                    "cols": weight.shape[1],
                    "scales": self.add(scales),
                }
            tensors[name.removesuffix(".weight")] = entry
        return {"config": config, "tensors": tensors}


def tokenizer_data(path: Path) -> dict:
    """pieces, merges and special tokens of a byte-level BPE tokenizer.json. Raises ValueError for
    any other kind.
    """
    described = json.loads(path.read_text("utf-8"))
    model = described["model"]
    if (
        model["type"] != "BPE"
        or described["pre_tokenizer"]["type"] != "ByteLevel"
        or described["normalizer"] is not None
    ):
        raise ValueError(f"{path}: the live page reads byte-level BPE without a normaliser")
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "pieces": pieces,
        "merges": model["merges"],
        "special": {t["content"]: t["id"] for t in described["added_tokens"]},
    }


def export(
    target: CausalLM | Transformer, draft: CausalLM | Transformer, tokenizer: Path
) -> tuple[bytes, dict]:
    """The weights file and its manifest, with the SHA-256 by which the page knows that it arrived
    whole.
    """
    pack = Pack()
    models = {
        name: pack.model(getattr(model, "model", model))
        for name, model in (("target", target), ("draft", draft))
    }
    data = bytes(pack.data)
    return data, {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "models": models,
        "tokenizer": tokenizer_data(tokenizer),
    }


def presets() -> list[dict]:
    """A few of the evaluation prompts: [{"kind", "source", "text"}]. No model was trained on any of
    them.
    """
    prompts = evaluation_prompts()
    return [{"kind": kind, **prompts[kind][i]} for kind, chosen in PRESETS.items() for i in chosen]


def compile_kernels(node_modules: Path, folder: Path) -> dict[str, bytes]:
    """kernel.ts as WebAssembly, once for every entry of KERNELS, also written to `folder` as
    kernel-<name>.wasm.

    Raises ExtensionError with what the compiler said.
    """
    compiler = node_modules / "assemblyscript" / "bin" / "asc.js"
    if not compiler.exists():
        raise ExtensionError(f"{compiler} is missing: run `npm ci` first (`make book` does)")
    compiled = {}
    for name, options in KERNELS.items():
        into = folder / f"kernel-{name}.wasm"
        command = [
            "node",
            compiler,
            SOURCE / "kernel.ts",
            "--outFile",
            into,
            "-O3",
            "--noAssert",
            "--runtime",
            "stub",
            "--importMemory",
            "--initialMemory",
            "1",
            "--enable",
            "simd",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            raise ExtensionError(f"kernel.ts does not compile: {done.stdout}{done.stderr}")
        compiled[name] = into.read_bytes()
    return compiled


def bundle(names: tuple[str, ...]) -> str:
    """Modules of site/live as the body of one classic script: their imports of each other and their
    exports go.

    Raises ExtensionError where one imports a module that is not bundled before it, or where two
    declare the same name.
    """
    parts, seen = [], {}
    for position, name in enumerate(names):
        source = (SOURCE / name).read_text("utf-8")
        for wanted in re.findall(r"""^import .*? from "\./([\w.]+)";$""", source, flags=re.M):
            if wanted not in names[:position]:
                raise ExtensionError(f"{name} imports {wanted}, which is not bundled before it")
        for declared in re.findall(
            r"^(?:export )?(?:async )?(?:const|let|class|function\*?) (\w+)", source, flags=re.M
        ):
            if declared in seen:
                raise ExtensionError(f"{name} and {seen[declared]} both declare {declared}")
            seen[declared] = name
        source = re.sub(r"^import .*\n", "", source, flags=re.M)
        parts.append(re.sub(r"^export (?=async |function|const|let|class)", "", source, flags=re.M))
    return "\n".join(parts)


def write(static: Path, node_modules: Path) -> None:
    """Everything the live page fetches, under _static/live; its interface, which the page mounts,
    under _static/interactives.
    """
    folder = static / "live"
    shutil.rmtree(folder, ignore_errors=True)  # an earlier build's may hold more pieces
    folder.mkdir(parents=True)
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
    }
    (folder / "engine.js").write_text(f"globalThis.sdlLive = {json.dumps(engine)};\n", "utf-8")
    face = bundle(PAGE).replace("export default ", 'globalThis.sdlInteractives["live"] = ')
    kit = (interactive.STATIC / "kit.js").read_text("utf-8")
    (static / "interactives" / "live.js").write_text(
        "globalThis.sdlInteractives ??= {};\n"
        f"globalThis.sdlShare = (() => {{\n{kit}\nreturn share;\n}})();\n"
        f"(() => {{\n{face}\n}})();\n",
        "utf-8",
    )
    shutil.copy2(SOURCE / "live.css", static / "interactives" / "live.css")
