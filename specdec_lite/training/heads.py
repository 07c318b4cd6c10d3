"""Parallel and sequential heads: MLP speculator, PARD, block diffusion, Hydra, Medusa, corrections.

All kinds learn the target's distributions after the same anchors of the same texts, which the
target wrote itself. Its hidden states are stored once; an interrupted run resumes.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from specdec_lite.checks import whole
from specdec_lite.drafters.block_head import BlockHead, Correction
from specdec_lite.drafters.eagle_head import Eagle3Head
from specdec_lite.drafters.heads import HydraHeads, MlpSpeculator, ReducedHeads, stored_heads
from specdec_lite.drafters.medusa import SHIPPED as MEDUSA
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import stamps
from specdec_lite.training.commands import add_device, add_folders, command_line
from specdec_lite.training.head_trainer import HeadTrainer
from specdec_lite.training.losses import native_model

Module = TypeVar("Module", bound=nn.Module)
EPOCHS = 2.0
TEXTS = 512
"""Number of training texts of the shipped pair."""
DRAFT_VOCABULARY = 8192
"""Number of SmolLM2's 49,152 tokens that its heads draft."""


def initialize(module: Module) -> Module:
    """Draw all matrices from Normal(0, .02), with the same seed in every run."""
    torch.manual_seed(0)
    for weight in module.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)
    return module


def mlp_speculator(trainer: HeadTrainer) -> MlpSpeculator:
    """Return an MLP speculator: state and embeddings 256 wide, embeddings at the expected scale."""
    target = trainer.target
    head = initialize(MlpSpeculator(target.hidden_size, target.vocab_size, 256, 4))
    nn.init.normal_(head.embedding.weight, std=256**-0.5)
    return head


def pard_draft(trainer: HeadTrainer) -> nn.Module:
    """Return a PARD draft: the pair's draft with one more row, the mask's, the mean of the others.

    The paper drops some of the masks, which saves time with 8 masks. Here all masks are trained.
    """
    if trainer.draft is None:
        raise ValueError("trainer: has no draft, must be the trainer of the shipped pair")
    draft = native_model(trainer.draft)
    model = Transformer(replace(draft.config, vocab_size=trainer.draft.vocab_size + 1))
    weights = {name: weight.clone() for name, weight in draft.state_dict().items()}
    for name in ("embedding.weight", "head.weight"):
        weights[name] = torch.cat((weights[name], weights[name].mean(0, keepdim=True)))
    model.load_state_dict(weights)
    return model


def block_head(trainer: HeadTrainer, rank: int = 0) -> nn.Module:
    """Return a block diffusion head of two narrow layers, for blocks of eight."""
    sizes: dict[str, Any] = {"num_heads": 3, "num_kv_heads": 3}
    sizes["intermediate_size"] = 160 if rank else 224
    head = initialize(BlockHead.for_target(trainer.target, 8, rank, **sizes))
    if head.correction is not None:
        nn.init.normal_(head.correction.before.weight)
        nn.init.zeros_(head.correction.after.weight)
    return head


def corrected_medusa_heads(trainer: HeadTrainer) -> nn.Module:
    """Return Medusa's shipped heads, frozen, with a fresh Markov correction that starts at zero."""
    folder = MEDUSA.parent / ("pair" if trainer.draft else "smollm2")
    heads = load(folder, trainer.target, stored_heads).requires_grad_(False)
    torch.manual_seed(0)
    if heads.words is None:
        correction = Correction(trainer.target.vocab_size)
    else:
        correction = Correction(len(heads.words.ids), others=True)
        nn.init.normal_(correction.after.weight, std=0.1)
        nn.init.zeros_(correction.before.weight)
    return nn.ModuleDict({"rows": heads, "correction": correction})


def hydra_heads(trainer: HeadTrainer) -> nn.Module:
    """Return four sequential heads."""
    return HydraHeads(trainer.target.hidden_size, 4)


def reduced_medusa_heads(trainer: HeadTrainer) -> nn.Module:
    """Return four of Medusa's heads, with one matrix each and a draft vocabulary."""
    heads = ReducedHeads(trainer.target.hidden_size, 4, DRAFT_VOCABULARY)
    heads.words.ids.copy_(trainer.most_frequent_tokens(DRAFT_VOCABULARY))
    return heads


def served_block_head(trainer: HeadTrainer) -> nn.Module:
    """Return a block diffusion head as engines serve it: EAGLE-3's layers, normed queries and keys."""
    target = trainer.target
    sizes = {"num_heads": 3, "num_kv_heads": 3, "intermediate_size": 288, "qk_norm": True}
    layers = Eagle3Head.default_layers(target.num_layers)
    head = initialize(BlockHead.for_target(target, 5, 0, DRAFT_VOCABULARY, layers, **sizes))
    assert head.words is not None
    head.words.ids.copy_(trainer.most_frequent_tokens(DRAFT_VOCABULARY))
    return head


Kinds = dict[str, tuple[Callable[..., nn.Module], int, float]]
KINDS: dict[str, Kinds] = {
    "pair": {
        "mlp_speculator": (mlp_speculator, 4, 5e-3),
        "pard": (pard_draft, 4, 5e-4),
        "block_diffusion": (lambda trainer: block_head(trainer, 32), 7, 2e-3),
        "markov": (corrected_medusa_heads, 4, 1e-2),
        "hydra": (hydra_heads, 4, 1e-3),
    },
    "smollm2": {
        "medusa": (reduced_medusa_heads, 4, 2e-3),
        "block_diffusion": (served_block_head, 4, 1e-3),
        "markov": (corrected_medusa_heads, 4, 3e-3),
    },
}
"""Target → kind → (function that builds the fresh head, depths that it drafts, learning rate)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training heads`."""
    kinds = dict.fromkeys(kind for kinds in KINDS.values() for kind in kinds)
    parser.add_argument("--target", choices=list(KINDS), default="pair")
    parser.add_argument("--kind", choices=list(kinds), required=True)
    texts_help = "number of training texts; default: 512 of the pair, all of SmolLM2's"
    parser.add_argument("--texts", type=int, help=texts_help)
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--rate", type=float, help="peak learning rate; default: depends on kind")
    work_help = (
        "folder for checkpoints, texts and hidden states; default: .work/heads for the pair,"
        " EAGLE's folder for SmolLM2"
    )
    add_folders(parser, None, "folder for the weights", None, work_help)
    add_device(parser)


def checkpoint(options: argparse.Namespace, name: str, target: CausalLM) -> Path:
    """Return the file of a run's checkpoint."""
    return options.work / f"{name}-{fingerprint(target)}-{options.texts}-{options.epochs:g}.pt"


def load_trainer(options: argparse.Namespace) -> HeadTrainer:
    """Return the trainer of the target, and set the options `texts` and `work` to what it uses."""
    if options.target == "pair":
        options.texts = TEXTS if options.texts is None else options.texts
        options.work = options.work or Path(".work/heads")
        return HeadTrainer.for_pair(options.work, whole("texts", options.texts, 16), options.device)
    options.work = options.work or cache_folder() / "eagle"
    trainer = HeadTrainer.for_smollm2(options.work, options.texts, options.device)
    options.texts = whole("texts", len(trainer.texts.training), 16)
    return trainer


def run(options: argparse.Namespace) -> None:
    """Train one head, evaluate it on held-out texts, and save weights and report."""
    kinds = KINDS[options.target]
    if options.kind not in kinds:
        raise ValueError(
            f"kind={options.kind!r}: for {options.target} it must be one of {', '.join(kinds)}"
        )
    build, depths, rate = kinds[options.kind]
    command = command_line("heads", add_arguments, options, ["kind"])
    trainer = load_trainer(options)
    target = trainer.target
    head = build(trainer).to(target.device)
    path = checkpoint(options, options.kind, target)
    report = trainer.train(head, depths, options.epochs, options.rate or rate, path)
    out = options.out or SHIPPED / options.kind / options.target
    stored = head["correction"] if isinstance(head, nn.ModuleDict) else head
    save(out, stored, target, stored_config(stored), torch.float16, bits=8)
    stamp = stamps.stamp(f"{options.kind} for {options.target}", command)
    report = {"target": fingerprint(target), "texts": options.texts, **report}
    stamps.save(out / "report.json", stamp, report)
    print(json.dumps(report["held_out"]))


def stored_config(head) -> dict:
    """Return the arguments that rebuild a stored head."""
    if isinstance(head, BlockHead):
        return head.sizes
    return asdict(head.config) if isinstance(head, Transformer) else head.config
