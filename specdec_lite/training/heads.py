"""Trained drafts of chapter 10: an MLP speculator, PARD, block diffusion, a Markov correction.

All learn the target's laws behind the same anchors of the same text, its own (`anchored`,
`shared_text`); its states are stored once, and an interrupted run goes on.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from specdec_lite.checks import whole
from specdec_lite.drafters.block_head import BlockHead
from specdec_lite.drafters.feature_head import Eagle3Head
from specdec_lite.drafters.heads import HydraHeads, PlainHeads, stored_heads
from specdec_lite.drafters.medusa import SHIPPED as MEDUSA
from specdec_lite.drafters.mlp_state import MlpSpeculator
from specdec_lite.drafters.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import results
from specdec_lite.training.loop import given
from specdec_lite.training.shared_text import Material

USUAL = {"texts": None, "epochs": 2.0, "rate": None}
TEXTS = 512
"""Of the shipped target, that its heads are trained on."""
WORDS = 8192
"""Of SmolLM2's 49,152 tokens, those that its heads say."""


def initialise(module: nn.Module) -> nn.Module:
    """Normal(0, .02) matrices, the same in every run: what is interrupted begins as it began."""
    torch.manual_seed(0)
    for weight in module.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)
    return module


def speculator(material: Material) -> nn.Module:
    """State and embeddings 256 wide; embeddings as large as its scales expect."""
    target = material.target
    made = initialise(MlpSpeculator(target.hidden_size, target.vocab_size, 256, 4))
    nn.init.normal_(made.embedding.weight, std=256**-0.5)
    return made


def pard(material: Material) -> nn.Module:
    """The pair's draft and one row more, which begins as the mean of the others. (The paper drops a
    part of the masks, which saves time at 8 of them; here all are trained.)
    """
    draft = material.draft
    config = replace(draft.model.config, vocab_size=draft.vocab_size + 1)
    made = Transformer(config)
    known = {name: weight.clone() for name, weight in draft.model.state_dict().items()}
    for name in ("embedding.weight", "head.weight"):
        known[name] = torch.cat((known[name], known[name].mean(0, keepdim=True)))
    made.load_state_dict(known)
    return made


def blocks(material: Material, rank: int = 0) -> nn.Module:
    """Two narrow layers; a correction begins as nothing, and takes its bytes from the layers."""
    shape = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 160 if rank else 224}
    made = initialise(BlockHead.beside(material.target, 8, rank, **shape))
    if rank:
        nn.init.normal_(made.correction.before.weight)
        nn.init.zeros_(made.correction.after.weight)
    return made


def corrected(material: Material) -> nn.Module:
    """Medusa's shipped heads, which stay as they are, with a fresh correction: nothing, and nothing
    for tokens that are never heard.
    """
    folder = MEDUSA.parent / ("pair" if material.draft else "smollm2")
    heads = load(folder, material.target, stored_heads).requires_grad_(False)
    torch.manual_seed(0)
    if heads.words is None:
        correction = Correction(material.target.vocab_size)
    else:
        correction = Correction(len(heads.words.ids), others=True)
        nn.init.normal_(correction.after.weight, std=0.1)
        nn.init.zeros_(correction.before.weight)
    return nn.ModuleDict({"rows": heads, "correction": correction})


def hydra(material: Material) -> nn.Module:
    """Four heads in sequence."""
    return HydraHeads(material.target.hidden_size, 4)


def plain(material: Material) -> nn.Module:
    """Four of Medusa's heads with one matrix each."""
    made = PlainHeads(material.target.hidden_size, 4, WORDS)
    made.words.ids.copy_(material.frequent(WORDS))
    return made


def wide_blocks(material: Material) -> nn.Module:
    """Blocks of five on EAGLE-3's layers, with normed queries and keys, as engines serve them."""
    target = material.target
    shape = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 288, "qk_norm": True}
    layers = Eagle3Head.reads(target.num_layers)
    made = initialise(BlockHead.beside(target, 5, 0, WORDS, layers, **shape))
    made.words.ids.copy_(material.frequent(WORDS))
    return made


Kinds = dict[str, tuple[Callable[..., nn.Module], int, float]]
KINDS: dict[str, Kinds] = {
    "pair": {
        "mlp_speculator": (speculator, 4, 5e-3),
        "pard": (pard, 4, 5e-4),
        "block_diffusion": (lambda material: blocks(material, 32), 7, 2e-3),
        "markov": (corrected, 4, 1e-2),
        "hydra": (hydra, 4, 1e-3),
    },
    "smollm2": {
        "medusa": (plain, 4, 2e-3),
        "block_diffusion": (wide_blocks, 4, 1e-3),
        "markov": (corrected, 4, 3e-3),
    },
}
"""What is trained for a target: its beginning, the depths that it drafts, and its learning rate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training heads`."""
    kinds = dict.fromkeys(kind for kinds in KINDS.values() for kind in kinds)
    parser.add_argument("--target", choices=list(KINDS), default="pair")
    parser.add_argument("--kind", choices=list(kinds), required=True)
    parser.add_argument(
        "--texts", type=int, help="texts to train on; default: 512 of the pair, all of SmolLM2's"
    )
    parser.add_argument("--epochs", type=float, default=USUAL["epochs"])
    parser.add_argument("--rate", type=float, help="default: the kind's own")
    parser.add_argument("--out", type=Path, help="folder for the weights")
    parser.add_argument(
        "--work",
        type=Path,
        help="checkpoints, text and features; default: .work/heads, for SmolLM2 those of its EAGLE",
    )


def checkpoint(chosen: argparse.Namespace, name: str, target: CausalLM) -> Path:
    """Where the run of this name lies."""
    return chosen.work / f"{name}-{fingerprint(target)}-{chosen.texts}-{chosen.epochs:g}.pt"


def gathered(chosen: argparse.Namespace) -> Material:
    """What this run is trained with; the states that EAGLE's training stored serve all heads."""
    if chosen.target == "pair":
        chosen.texts = TEXTS if chosen.texts is None else chosen.texts
        chosen.work = chosen.work or Path(".work/heads")
        return Material.gather(chosen.work, whole("texts", chosen.texts, 16))
    chosen.work = chosen.work or cache_folder() / "eagle"
    made = Material.smollm2(chosen.work, chosen.texts)
    chosen.texts = whole("texts", len(made.texts.training), 16)
    return made


def run(chosen: argparse.Namespace) -> None:
    """Train one head, judge it on held-out text, and store both."""
    if chosen.kind not in KINDS[chosen.target]:
        raise ValueError(
            f"kind={chosen.kind!r}: for {chosen.target} it must be one of"
            f" {', '.join(KINDS[chosen.target])}"
        )
    build, depths, rate = KINDS[chosen.target][chosen.kind]
    asked = given(chosen, {"target": "pair", **USUAL})
    material = gathered(chosen)
    target = material.target
    head = build(material)
    path = checkpoint(chosen, chosen.kind, target)
    report = material.learn(head, depths, chosen.epochs, chosen.rate or rate, path)
    out = chosen.out or SHIPPED / chosen.kind / chosen.target
    stored = head["correction"] if chosen.kind == "markov" else head
    save(out, stored, target, described(stored), torch.float16, bits=8)
    words = [f"python -m specdec_lite.training heads --kind {chosen.kind}", *asked]
    stamp = results.stamp(f"{chosen.kind} for {chosen.target}", " ".join(words))
    report = {"target": fingerprint(target), "texts": chosen.texts, **report}
    results.save(out / "report.json", stamp, report)
    print(json.dumps(report["held_out"]))


def described(head: nn.Module) -> dict:
    """What a stored head is built with again."""
    if isinstance(head, BlockHead):
        return head.sizes
    return asdict(head.config) if isinstance(head, Transformer) else head.config
