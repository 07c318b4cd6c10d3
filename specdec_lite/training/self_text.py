"""The target's own text, for what is trained on a frozen target: one stream of ids for each of the
two models.

What lives here: which text, how much of it, and the options for that. What does not: how it is
made (`own_text`, `smollm2_text`), and what is trained on it.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from specdec_lite.checks import whole
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.loading.weights import SHIPPED
from specdec_lite.training.loop import windows
from specdec_lite.training.own_text import own_text
from specdec_lite.training.smollm2_text import answer, answers, planned
from specdec_lite.training.text import prepare

TARGETS = ("pair", "smollm2")
PROMPT, NEW, ROWS, MOST = 64, 192, 64, 8


def load_target(name: str) -> CausalLM:
    """The shipped pair's target, or SmolLM2, in float32 on the CPU."""
    if name not in TARGETS:
        raise ValueError(f"name={name!r}: must be one of {TARGETS}")
    if name == "pair":
        return load_pair(device="cpu", dtype="float32").target
    return load_smollm2("cpu", "float32")[0]


def own_stream(name: str, target: CausalLM, work: Path, batches: int) -> dict[str, np.ndarray]:
    """The stream that `loop.batches` draws windows from, under one of its names.

    The pair's target goes on from windows of its training text at temperature 1, `batches` (at most
    MOST) × ROWS of them; SmolLM2 answers the first batches of its prompts that are not held out.
    """
    whole("batches", batches, 1, MOST)
    if name == "pair":
        _, streams = prepare(work, PAIR)
        prompts = windows(streams, np.random.default_rng(9), MOST * ROWS, PROMPT)[1]
        texts = own_text(target, prompts[: batches * ROWS], NEW, work / "own", ROWS, 1.0)
    else:
        folder = cache_folder() / "smollm2-own-text"
        plan = planned(folder, load_smollm2("cpu", "float32")[1])
        first = next(number for number, batch in enumerate(plan) if not batch.held_out)
        answer(target, folder, plan[: first + batches])
        texts = [text.ids for text in answers(folder, plan) if not text.held_out]
    return {"library": torch.cat(texts).numpy().astype(np.uint16)}


def add_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    """The options that all training on it shares. kind: of what is trained, a folder of weights."""
    parser.add_argument("--target", choices=TARGETS, default="pair")
    parser.add_argument("--out", type=Path, default=SHIPPED / kind, help="gets one folder a target")
    parser.add_argument(
        "--work", type=Path, default=Path(".work/early_exit"), help="text, states, what is resumed"
    )
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batches", type=int, default=4, help="of 64 texts, made where missing")


def frozen(chosen: argparse.Namespace) -> tuple[CausalLM, dict[str, np.ndarray]]:
    """The chosen target, which does not learn, and the stream of its own text."""
    target = load_target(chosen.target)
    target.model.requires_grad_(False)
    return target, own_stream(chosen.target, target, chosen.work, chosen.batches)
