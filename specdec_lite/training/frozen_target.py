"""A frozen target and a stream of its own text, for modules that are trained on both.

The products `early_exit` and `pass_rows` share the options declared here.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from specdec_lite.checks import whole
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import SHIPPED as PAIR
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.loading.weights import SHIPPED
from specdec_lite.training import draft
from specdec_lite.training.commands import add_device, add_folders
from specdec_lite.training.loop import draw_windows
from specdec_lite.training.own_text import own_text
from specdec_lite.training.smollm2_text import plan_batches, read_answers, write_answers
from specdec_lite.training.token_streams import prepare

TARGETS = ("pair", "smollm2")
PROMPT, NEW_TOKENS, ROWS, MAX_BATCHES = 64, 192, 64, 8


def load_target(name: str, device: str = "cpu") -> CausalLM:
    """Return a target in float32."""
    if name not in TARGETS:
        raise ValueError(f"name={name!r}: must be one of {TARGETS}")
    return draft.load_target(name, device)[0]


def own_stream(name: str, target: CausalLM, work: Path, batches: int) -> dict[str, np.ndarray]:
    """Return text that the target wrote, as the one stream that `loop.batches` draws windows from.

    The pair's target continues windows of its training text at temperature 1. SmolLM2 answers the
    first batches of its prompts that are not held out.
    """
    whole("batches", batches, 1, MAX_BATCHES)
    if name == "pair":
        _, streams = prepare(work, PAIR)
        prompts = draw_windows(streams, np.random.default_rng(9), MAX_BATCHES * ROWS, PROMPT)[1]
        prompts = prompts[: batches * ROWS]
        texts = own_text(target, list(prompts), NEW_TOKENS, work / "own", ROWS, 1.0)
    else:
        folder = cache_folder() / "smollm2-own-text"
        plan = plan_batches(folder, load_smollm2("cpu", "float32")[1])
        first = next(number for number, batch in enumerate(plan) if not batch.held_out)
        write_answers(target, folder, plan[: first + batches])
        texts = [text.ids for text in read_answers(folder, plan) if not text.held_out]
    return {"library": torch.cat(texts).numpy().astype(np.uint16)}


def add_arguments(parser: argparse.ArgumentParser, product: str) -> None:
    """Add the options that all products trained on a frozen target share."""
    parser.add_argument("--target", choices=TARGETS, default="pair")
    add_folders(
        parser,
        SHIPPED / product,
        "folder for the weights, one subfolder per target",
        Path(".work/early_exit"),
        "folder for text and checkpoints, which a resumed run reads",
    )
    parser.add_argument("--steps", type=int, help="optimizer steps; default: depends on the target")
    add_device(parser)
    batches_help = "batches of 64 texts to train on; the target writes those that are missing"
    parser.add_argument("--batches", type=int, default=4, help=batches_help)


def load_frozen_target(options: argparse.Namespace) -> tuple[CausalLM, dict[str, np.ndarray]]:
    """Return the target without gradients, and the stream of its own text."""
    target = load_target(options.target, options.device)
    target.model.requires_grad_(False)
    return target, own_stream(options.target, target, options.work, options.batches)
