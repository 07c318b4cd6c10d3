"""Measure how a draft ages: along a long output, and when its target is trained on.

    python -m benchmarks run draft-ageing             # twenty minutes on one quiet core

"length" decodes long texts at temperature 1 and counts accepted and tested drafts by position.
"target" trains the pair's target on documents that it has never read. After some steps, α of the
shipped draft is measured on held-out windows, beside drafts that were trained along with it by
distillation on the same rows, each at a learning rate of its own. The recording contains no times,
so a busy machine changes nothing.
"""

import copy
from functools import cached_property

import torch
from torch import Tensor

from benchmarks.experiment import Experiment
from benchmarks.losses import spread
from specdec_lite import corpus, generate, load_pair
from specdec_lite.drafters import EagleDrafter, ModelDrafter
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.draft import compare, text_windows
from specdec_lite.training.losses import forward_kl

GAMMA = 4
PROMPT = 32
STAYS = "stays as shipped"


def log_probs_of(model: Transformer):
    """Return a function from tokens [B, n] to the model's log-probabilities [B, n, V]."""

    @torch.no_grad()
    def log_probs(tokens: Tensor) -> Tensor:
        return model(tokens).float().log_softmax(-1)

    return log_probs


def counts_by_position(out, window: int, most: int) -> list[list[int]]:
    """Return [accepted, tested] of the rounds that begin in each window of positions."""
    counts = [[0, 0] for _ in range(most // window)]
    position = 0
    for step in out.steps:
        cell = counts[min(position // window, len(counts) - 1)]
        cell[0] += step.accepted
        cell[1] += step.tested
        position += len(step.tokens)
    return counts


class DraftAgeing(Experiment):
    """The parts are the two ways to age."""

    name = "draft-ageing"
    what = (
        "acceptance of the pair's drafts along a long output, and after its target was trained on"
    )
    time = "20 minutes"
    quick = "--new 32 --window 16 --prompts 1 --marks 0 1 2 --texts 4 --rows 2".split()
    timed = False
    threads = 1

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--new", type=int, default=1536, help="new tokens of a long text")
        parser.add_argument("--window", type=int, default=128, help="tokens per count")
        parser.add_argument("--prompts", type=int, default=4, help="long texts of each kind")
        parser.add_argument(
            "--marks", type=int, nargs="+", default=[0, 5, 10, 20, 40, 80, 160], help="steps"
        )
        parser.add_argument("--texts", type=int, default=24, help="held-out windows of each kind")
        parser.add_argument("--rows", type=int, default=4, help="windows per training step")
        parser.add_argument("--length", type=int, default=160, help="tokens of a window")
        parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of the target")
        parser.add_argument(
            "--draft-rates",
            type=float,
            nargs="*",
            default=[1e-4, 1e-3],
            help="of drafts that learn",
        )

    @cached_property
    def pair(self):
        """The shipped pair."""
        return load_pair(device="cpu", dtype="float32")

    def parts(self):
        return ["length", "target"]

    def run(self, part):
        return self.along_a_text() if part == "length" else self.under_a_changing_target()

    def along_a_text(self) -> dict:
        """Return the counts by position of each drafter, one list per text."""
        options, pair = self.options, self.pair
        drafters = {
            "draft model": ModelDrafter(pair.draft, GAMMA),
            "EAGLE-1": EagleDrafter.from_pretrained(pair.target, draft=GAMMA),
        }
        prompts = [
            pair.tokenizer.encode(row["text"])
            for rows in corpus.evaluation_prompts().values()
            for row in rows[: options.prompts]
        ]
        counts: dict[str, list] = {name: [] for name in drafters}
        for name, drafter in drafters.items():
            for seed, ids in enumerate(prompts):
                out = generate(
                    pair.target, ids, drafter, options.new, 1.0, seed=seed, stop_token_ids=()
                )
                counts[name].append(counts_by_position(out, options.window, options.new))
        return counts

    @cached_property
    def windows(self) -> dict[str, Tensor]:
        """Windows of held-out text: "new" to train on, and two kinds to measure α on."""
        options, texts = self.options, corpus.held_out_text()
        read, measured = texts["prose"][::2], texts["prose"][1::2]
        take = lambda documents, count, seed: text_windows(
            documents, self.pair.tokenizer, count, options.length, seed
        )
        return {
            "train": take(read, options.rows * max(options.marks), 1),
            "prose": take(measured, options.texts, 3),
            "code": take(texts["code"], options.texts, 3),
        }

    def under_a_changing_target(self) -> dict:
        """Return α by mark, of the shipped draft and of those that are trained along."""
        options = self.options
        target = copy.deepcopy(self.pair.target.model).requires_grad_(True)
        shipped = self.pair.draft.model
        learning = {
            rate: copy.deepcopy(shipped).requires_grad_(True) for rate in options.draft_rates
        }
        drafts = {STAYS: shipped} | {trained_at(rate): each for rate, each in learning.items()}
        optimizer = torch.optim.AdamW(target.parameters(), options.rate)
        optimizers = {r: torch.optim.AdamW(each.parameters(), r) for r, each in learning.items()}
        windows, marks = self.windows, []
        batches = windows["train"].split(options.rows)
        for number in range(max(options.marks) + 1):
            if number in options.marks:
                marks.append(self.measured(target, drafts, number))
            if number == max(options.marks):
                break
            rows = batches[number]
            log_p = target(rows[:, :-1]).float().log_softmax(-1)
            train(optimizer, -log_p.gather(-1, rows[:, 1:, None]).mean())
            for rate, each in learning.items():
                log_q = each(rows[:, :-1]).float().log_softmax(-1)
                train(optimizers[rate], forward_kl(log_p.detach(), log_q).mean())
        return {"marks": marks}

    def measured(self, target: Transformer, drafts: dict, step: int) -> dict:
        """Return the mark of one step: the target's bits per token, and α by draft and kind."""
        log_probs, row = log_probs_of(target), {"step": step, "alpha": {}, "nats": {}}
        for kind in ("prose", "code"):
            texts = self.windows[kind]
            log_p = log_probs(texts)[:, PROMPT - 1 : -1]
            row["nats"][kind] = -log_p.gather(-1, texts[:, PROMPT:, None]).mean().item()
            for name, draft in drafts.items():
                alpha = compare(draft, log_probs, texts, PROMPT)["alpha"]
                row["alpha"].setdefault(name, {})[kind] = spread(alpha)
        return row

    def summarise(self, rows):
        options = self.options
        return {
            "target": fingerprint(self.pair.target),
            "gamma": GAMMA,
            "new": options.new,
            "window": options.window,
            "length": rows["length"],
            "marks": rows["target"]["marks"],
            "rows_per_step": options.rows,
            "tokens_per_row": options.length,
            "rate": options.rate,
        }

    def restore(self, data):
        return {"length": data["length"], "target": {"marks": data["marks"]}}


def trained_at(rate: float) -> str:
    """Return the name of a draft that is trained along."""
    return f"trained along at {rate:g}"


def train(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
