"""Compare training losses and training texts for one small draft of the shipped target.

    python -m benchmarks run training-losses                       # minutes on two quiet cores
    python -m benchmarks run training-losses --texts 512 --epochs 4  # an hour

Every run starts with the same small draft, which was trained on documents and never on the target.
It then trains for the same number of steps with one divergence on one kind of text: documents, the
target's continuations of the same prompts, or the starting draft's continuations. The recording
contains rates and no times, so a busy machine changes nothing. Trained drafts and
written texts are stored in --cache.
"""

import copy
import math
from functools import cached_property
from pathlib import Path

import torch
from scipy.stats import spearmanr
from torch import Tensor

from specdec_lite import CausalLM, corpus, load_pair
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.intervals import estimate
from specdec_lite.training.draft import (
    compare,
    distill,
    small_model,
    target_log_probs,
    text_windows,
)
from specdec_lite.training.loop import Plan
from specdec_lite.training.losses import DIVERGENCES, forward_kl
from specdec_lite.training.own_text import own_text

from .experiment import Experiment

PROMPT = 64
BATCH = 8
RATE = 2e-3
SOURCES = ("documents", "the target's text", "the draft's text")
NEXT_TOKEN = "next token"


def starting_draft(target: CausalLM, tokenizer, options, texts: list[str]) -> Transformer:
    """Return a small draft trained on documents without the target: the start of all runs."""
    rows = text_windows(texts, tokenizer, BATCH * options.start, PROMPT + options.new, seed=1)
    draft = small_model(target, options.hidden)
    plan = Plan(options.start, 3e-3, BATCH, warmup=20)
    path = options.cache / f"start-{options.start}-{options.hidden}-{options.new}.pt"
    distill(draft, None, rows, 1, forward_kl, plan, path)
    return draft


def written(models: dict[str, CausalLM], windows: Tensor, options) -> dict[str, Tensor]:
    """Return texts [N, n] that start with the same prompts: documents, and each model's text."""
    prompts = list(windows[:, :PROMPT])
    folder = options.cache / "own-text"
    return {SOURCES[0]: windows} | {
        name: torch.stack(own_text(model, prompts, options.new, folder, 64, 1.0))
        for name, model in models.items()
    }


def spread(each: Tensor) -> dict:
    """Return a mean over texts with its 95 % interval from resampled texts.

    Shapes: each [texts].
    """
    column = each.double()[:, None]
    return estimate(lambda a, b: a / b, column, torch.ones_like(column))


def measured(draft: Transformer, log_probs, held_out: dict[str, Tensor], tokenizer) -> dict:
    """Return every figure of `compare` by kind of text with its interval, and bits per byte."""
    figures = {}
    for kind, texts in held_out.items():
        values = compare(draft, log_probs, texts, PROMPT)
        nats = values.pop("nats") * (texts.shape[1] - PROMPT)
        size = [len(tokenizer.decode(row[PROMPT:]).encode()) for row in texts]
        figures[kind] = {name: spread(each) for name, each in values.items()}
        figures[kind]["bits per byte"] = nats.sum().item() / math.log(2) / sum(size)
        figures[kind]["texts"] = {name: each.tolist() for name, each in values.items()}
    return figures


def against(row: dict, first: dict, kind: str) -> dict:
    """Return a run's row with its α minus the first run's α on the same texts."""
    alpha, before = (torch.tensor(each[kind]["texts"]["alpha"]) for each in (row, first))
    figures = {name: value for name, value in row[kind].items() if name != "texts"}
    return figures | {"gain": spread(alpha - before)}


def predictors(runs: list[dict], kind: str) -> dict[str, float]:
    """Return Spearman's rank correlation over the runs between α and the other measures."""
    value = lambda run, name: run[kind][name]["value"]
    alpha = [value(run, "alpha") for run in runs]
    others = {name: [value(run, name) for run in runs] for name in ("forward KL", "reverse KL")}
    others["bits per byte"] = [run[kind]["bits per byte"] for run in runs]
    return {name: float(spearmanr(alpha, other).statistic) for name, other in others.items()}


START = "start"
"""The part without training, with which all others are compared."""


class TrainingLosses(Experiment):
    """The parts are the starting draft, and the combinations of a text and a loss."""

    name = "training-losses"
    what = "a small draft after equally many steps by every divergence, on three kinds of text"
    time = "20 minutes"
    quick = (
        "--texts 8 --held-out 4 --new 8 --start 1 --epochs 1 --hidden 64 --cache .work/quick-losses"
    ).split()
    unrelated = ("cache",)

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--texts", type=int, default=128, help="number of training texts, a multiple of 8"
        )
        parser.add_argument("--held-out", type=int, default=48)
        parser.add_argument("--new", type=int, default=128, help="tokens per text after its prompt")
        parser.add_argument(
            "--start", type=int, default=300, help="training steps of the starting draft"
        )
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--hidden", type=int, default=128, help="width of the draft")
        parser.add_argument("--cache", type=Path, default=cache_folder() / "losses")

    def check(self):
        if self.options.texts < 8 or self.options.texts % 8:
            raise ValueError(f"--texts {self.options.texts}: must be a multiple of 8")

    @cached_property
    def pair(self):
        """The shipped pair, whose target is not trained."""
        pair = load_pair(dtype="float32")
        pair.target.model.requires_grad_(False)
        return pair

    @cached_property
    def start(self) -> Transformer:
        """The draft with which every run starts."""
        return starting_draft(self.pair.target, self.pair.tokenizer, self.options, self.readable)

    @cached_property
    def readable(self) -> list[str]:
        """The documents for training."""
        documents = corpus.training_text()
        return documents["library"] + documents["docs"]

    def windows(self, texts: list[str], count: int) -> Tensor:
        """Return pieces of documents [count, n]."""
        return text_windows(texts, self.pair.tokenizer, count, PROMPT + self.options.new)

    @cached_property
    def texts(self) -> dict[str, Tensor]:
        """The training texts by source."""
        writers = {SOURCES[1]: self.pair.target, SOURCES[2]: CausalLM(copy.deepcopy(self.start))}
        windows = self.windows(self.readable, self.options.texts)
        return written(writers, windows, self.options)

    @cached_property
    def held_out(self) -> dict[str, Tensor]:
        """The held-out texts by source."""
        unread = [text for texts in corpus.held_out_text().values() for text in texts]
        windows = self.windows(unread, self.options.held_out)
        return written({SOURCES[1]: self.pair.target}, windows, self.options)

    @cached_property
    def log_probs(self):
        """The function from texts to the target's log-probabilities."""
        return target_log_probs(self.pair.target, self.options.cache / "features")

    @cached_property
    def plan(self) -> Plan:
        """The training of every run."""
        return Plan(self.options.epochs * self.options.texts // BATCH, RATE, BATCH, warmup=10)

    @cached_property
    def planned(self) -> dict[str, tuple[str, str]]:
        """Source and loss of each training run, by the name of the part."""
        runs = [(SOURCES[0], NEXT_TOKEN), *((s, d) for s in SOURCES for d in DIVERGENCES)]
        return {f"{source}, {loss}": (source, loss) for source, loss in runs}

    def parts(self):
        return [START, *self.planned]

    def run(self, part):
        draft, tokenizer = self.start, self.pair.tokenizer
        if part != START:
            source, loss = self.planned[part]
            draft = copy.deepcopy(draft).requires_grad_(True)
            file = f"{source} {loss} {self.plan.steps} {self.options.new}.pt".replace(" ", "-")
            teacher = None if loss == NEXT_TOKEN else self.log_probs
            divergence = DIVERGENCES.get(loss, forward_kl)
            path = self.options.cache / file
            distill(draft, teacher, self.texts[source], PROMPT, divergence, self.plan, path)
        return measured(draft, self.log_probs, self.held_out, tokenizer)

    def summarise(self, rows):
        kinds = list(rows[START])
        names = {START: ("", ""), **self.planned}
        runs = [
            {"source": names[part][0], "loss": names[part][1]}
            | {kind: against(row, rows[START], kind) for kind in kinds}
            for part, row in rows.items()
        ]
        start = sum(weight.numel() for weight in self.start.parameters())
        return {
            "target": fingerprint(self.pair.target),
            "draft": {"parameters": start, "steps": self.options.start},
            "steps": self.plan.steps,
            "tokens": self.plan.steps * BATCH * self.options.new,
            "held_out": self.options.held_out,
            "runs": runs,
            "predicts": {kind: predictors(runs, kind) for kind in kinds},
        }

    def restore(self, data):
        return {}  # the recording has no values by text
