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
from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import SHIPPED as MEDUSA
from specdec_lite.drafters.mlp_state import MlpSpeculator
from specdec_lite.drafters.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import results
from specdec_lite.training.loop import given
from specdec_lite.training.shared_text import Material

USUAL = {"texts": 512, "epochs": 2.0, "rate": None}


def initialise(module: nn.Module) -> nn.Module:
    """Normal(0, .02) matrices, the same in every run: what is interrupted begins as it began."""
    torch.manual_seed(0)
    for weight in module.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)
    return module


def speculator(target: CausalLM, draft: CausalLM) -> nn.Module:
    """State and embeddings 256 wide; embeddings as large as its scales expect."""
    made = initialise(MlpSpeculator(target.hidden_size, target.vocab_size, 256, 4))
    nn.init.normal_(made.embedding.weight, std=256**-0.5)
    return made


def pard(target: CausalLM, draft: CausalLM) -> nn.Module:
    """The pair's draft and one row more, which begins as the mean of the others. (The paper drops a
    part of the masks, which saves time at 8 of them; here all are trained.)
    """
    config = replace(draft.model.config, vocab_size=draft.vocab_size + 1)
    made = Transformer(config)
    known = {name: weight.clone() for name, weight in draft.model.state_dict().items()}
    for name in ("embedding.weight", "head.weight"):
        known[name] = torch.cat((known[name], known[name].mean(0, keepdim=True)))
    made.load_state_dict(known)
    return made


def blocks(target: CausalLM, draft: CausalLM, rank: int = 0) -> nn.Module:
    """Two narrow layers; a correction begins as nothing, and takes its bytes from the layers."""
    shape = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 160 if rank else 224}
    made = initialise(BlockHead.beside(target, 8, rank, **shape))
    if rank:
        nn.init.normal_(made.correction.before.weight)
        nn.init.zeros_(made.correction.after.weight)
    return made


def corrected(target: CausalLM, draft: CausalLM) -> nn.Module:
    """Medusa's shipped heads, which stay as they are, with a fresh correction."""
    heads = load(MEDUSA, target, Heads).requires_grad_(False)
    torch.manual_seed(0)
    return nn.ModuleDict({"rows": heads, "correction": Correction(target.vocab_size)})


KINDS: dict[str, tuple[Callable[..., nn.Module], int, float]] = {
    "mlp_speculator": (speculator, 4, 5e-3),
    "pard": (pard, 4, 5e-4),
    "block_diffusion": (lambda target, draft: blocks(target, draft, 32), 7, 2e-3),
    "markov": (corrected, 4, 1e-2),
}
"""What is trained: its beginning, the depths that it drafts, and its learning rate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training heads`."""
    parser.add_argument("--kind", choices=list(KINDS), required=True)
    parser.add_argument("--texts", type=int, default=USUAL["texts"], help="texts to train on")
    parser.add_argument("--epochs", type=float, default=USUAL["epochs"])
    parser.add_argument("--rate", type=float, help="default: the kind's own")
    parser.add_argument("--out", type=Path, help="folder for the weights")
    parser.add_argument(
        "--work", type=Path, default=Path(".work/heads"), help="checkpoints, text and features"
    )


def checkpoint(chosen: argparse.Namespace, name: str, target: CausalLM) -> Path:
    """Where the run of this name lies."""
    return chosen.work / f"{name}-{fingerprint(target)}-{chosen.texts}-{chosen.epochs:g}.pt"


def run(chosen: argparse.Namespace) -> None:
    """Train one head, judge it on held-out text, and store both."""
    whole("texts", chosen.texts, 16)
    build, depths, rate = KINDS[chosen.kind]
    material = Material.gather(chosen.work, chosen.texts)
    target = material.target
    head = build(target, material.draft)
    path = checkpoint(chosen, chosen.kind, target)
    report = material.learn(head, depths, chosen.epochs, chosen.rate or rate, path)
    out = chosen.out or SHIPPED / chosen.kind / "pair"
    stored = head["correction"] if chosen.kind == "markov" else head
    save(out, stored, target, described(stored), torch.float16)
    words = [f"python -m specdec_lite.training heads --kind {chosen.kind}", *given(chosen, USUAL)]
    stamp = results.stamp(f"{chosen.kind} on the shipped target", " ".join(words))
    report = {"target": fingerprint(target), "texts": chosen.texts, **report}
    results.save(out / "report.json", stamp, report)
    print(json.dumps(report["held_out"]))


def described(head: nn.Module) -> dict:
    """What a stored head is built with again."""
    if isinstance(head, BlockHead):
        return head.sizes
    return asdict(head.config) if isinstance(head, Transformer) else head.config
