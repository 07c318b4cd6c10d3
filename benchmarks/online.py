"""Measure a draft that learns while it serves: one topic, another topic, the first topic again.

    python -m benchmarks run online-learning             # ten minutes on two quiet cores

The same requests with the same seeds go to a constant draft and to drafts that train between
requests at several learning rates. All start as the small draft of `benchmarks.losses`, which was
trained on text and never on the target. After every few requests, α is measured on windows of the
same held-out documents of both topics. The recording contains no times, so a busy machine changes
nothing.
"""

import argparse
from functools import cached_property
from pathlib import Path

import torch

from benchmarks.experiment import Experiment
from benchmarks.losses import spread, starting_draft
from specdec_lite import CausalLM, corpus, generate, load_pair
from specdec_lite.drafters import ModelDrafter, OnlineDrafter
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.draft import compare, target_log_probs, text_windows

GAMMA = 4
STAYS = "stays"
PROMPT = 64
WINDOW = 192


def requests(tokenizer, each: int) -> list[tuple[str, list[int]]]:
    """Return (topic, prompt) of the requests, from held-out text: code, prose, code again."""
    texts = corpus.held_out_text()
    code = text_windows(texts["code"], tokenizer, 2 * each, PROMPT, seed=2).tolist()
    prose = text_windows(texts["prose"], tokenizer, each, PROMPT, seed=2).tolist()
    rows = [("code", row) for row in code[:each]] + [("prose", row) for row in prose]
    return rows + [("code", row) for row in code[each:]]


def served(drafter, target: CausalLM, stream, new: int, evaluate, every: int) -> tuple[list, list]:
    """Serve requests and evaluate the draft after every few of them."""
    rows = []
    evaluations = []
    for seed, (topic, prompt) in enumerate(stream):
        out = generate(target, prompt, drafter, new, temperature=1.0, stop_token_ids=(), seed=seed)
        drafter.learn([*prompt, *out.tokens.tolist()])
        tested = sum(step.tested for step in out.steps)
        accepted = sum(step.accepted for step in out.steps)
        rows.append({"topic": topic, "accepted": accepted, "tested": tested})
        if (seed + 1) % every == 0:
            evaluations.append(evaluate(drafter.model.model))
    return rows, evaluations


def curves(evaluations: dict[str, list[dict]], each: int, every: int) -> dict:
    """Return α after every few requests and the gain over the constant draft, by drafter and topic.

    The gain is measured at the end of each topic's requests, with its interval over texts.
    """
    ends = [(phase + 1) * each // every - 1 for phase in range(3)]
    table = {}
    for name, marks in evaluations.items():
        table[name] = {
            topic: {
                "alpha": [mark[topic].mean().item() for mark in marks],
                "gain": [
                    spread(marks[end][topic] - evaluations[STAYS][end][topic]) for end in ends
                ],
            }
            for topic in marks[0]
        }
    return table


class OnlineLearning(Experiment):
    """The parts are the drafters, the constant one first."""

    name = "online-learning"
    what = "a draft that learns between requests beside one that does not, while the topic changes"
    time = "10 minutes"
    quick = (
        "--each 4 --new 6 --every 2 --start 1 --hidden 64 --rates 0.01 --texts 8"
        " --cache .work/quick-losses"
    ).split()
    unrelated = ("cache",)

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--each", type=int, default=16, help="requests per topic")
        parser.add_argument("--new", type=int, default=40, help="new tokens per request")
        parser.add_argument("--every", type=int, default=2, help="requests per training step")
        parser.add_argument("--rates", type=float, nargs="*", default=[1e-4, 1e-3])
        parser.add_argument(
            "--texts", type=int, default=16, help="held-out texts per topic, to measure α"
        )
        parser.add_argument(
            "--start", type=int, default=300, help="training steps of the starting draft"
        )
        parser.add_argument("--hidden", type=int, default=128)
        parser.add_argument("--cache", type=Path, default=cache_folder() / "losses")

    def check(self):
        if self.options.each < 4:
            raise ValueError(f"--each {self.options.each}: must be at least 4")

    @cached_property
    def pair(self):
        """The shipped pair."""
        return load_pair(dtype="float32")

    @cached_property
    def mark(self) -> int:
        """Requests between two evaluations."""
        return self.options.each // 4

    def drafter(self, name: str) -> ModelDrafter:
        """Return a drafter."""
        options = argparse.Namespace(**vars(self.options) | {"new": 128})
        documents = corpus.training_text()
        texts = documents["library"] + documents["docs"]
        start = starting_draft(self.pair.target, self.pair.tokenizer, options, texts)
        if name == STAYS:
            return ModelDrafter(CausalLM(start), GAMMA)
        rate = float(name.split()[-1])
        return OnlineDrafter(CausalLM(start), GAMMA, self.options.every, rate)

    def parts(self):
        return [STAYS, *(f"learns at {rate:g}" for rate in self.options.rates)]

    def run(self, part):
        options, pair = self.options, self.pair
        log_probs = target_log_probs(pair.target, options.cache / "features")
        texts = corpus.held_out_text()
        held_out = {
            topic: text_windows(texts[topic], pair.tokenizer, options.texts, WINDOW, seed=3)
            for topic in ("code", "prose")
        }

        def evaluate(model) -> dict:
            return {
                name: compare(model, log_probs, rows, PROMPT)["alpha"].tolist()
                for name, rows in held_out.items()
            }

        stream = requests(pair.tokenizer, options.each)
        drafter = self.drafter(part)
        rows, marks = served(drafter, pair.target, stream, options.new, evaluate, self.mark)
        return {"requests": rows, "marks": marks}

    def summarise(self, rows):
        marks = {
            name: [{t: torch.tensor(values) for t, values in mark.items()} for mark in row["marks"]]
            for name, row in rows.items()
        }
        return {
            "target": fingerprint(self.pair.target),
            "gamma": GAMMA,
            "every": self.options.every,
            "each": self.options.each,
            "new": self.options.new,
            "mark": self.mark,
            "requests": {name: row["requests"] for name, row in rows.items()},
            "curves": curves(marks, self.options.each, self.mark),
        }

    def restore(self, data):
        return {}  # the recording has no values by text
