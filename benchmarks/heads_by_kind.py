"""Count what the trained EAGLE heads of SmolLM2 draft in every kind of text; nothing is timed.

    python -m benchmarks run heads-by-kind-smollm2      # an hour on one busy core

A part is one kind of text at one temperature. Each prompt is decoded alone in int4, plainly and with
every drafter; no prompt resembles the heads' training text. The counts depend on the weights, the
prompts, the seed and the processor, so a run may share the machine with other work.
"""

import hashlib
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from specdec_lite import generate
from specdec_lite.decoding import Output
from specdec_lite.drafters import ConfidenceTree, EagleDrafter, MtpDrafter
from specdec_lite.loading.weights import FILE, SHIPPED, fingerprint
from specdec_lite.measure.intervals import ratio
from specdec_lite.speculation import Drafter
from specdec_lite.texts.benchmark_prompts import KINDS, SHA256, load_benchmark_prompts

from .smollm2 import STOP, OnSmolLM2

TREE = ConfidenceTree(3, 4, 8)
"""Levels, candidates of a level, and nodes of the trees."""


def eagle(version: int, draft) -> Callable[..., Drafter]:
    """Return a function from SmolLM2 to an EAGLE drafter."""
    return lambda target: EagleDrafter.from_pretrained(target, version, draft=draft)


def mtp(draft) -> Callable[..., Drafter]:
    """Return a function from SmolLM2 to a drafter with multi-token prediction."""
    return lambda target: MtpDrafter.from_pretrained(target, draft=draft)


DRAFTERS = {
    **{f"EAGLE-1, chain of {gamma}": eagle(1, gamma) for gamma in (3, 4, 5)},
    "EAGLE-1, tree of 8": eagle(1, TREE),
    "MTP, chain of 4": mtp(4),
    "MTP, tree of 8": mtp(TREE),
    "EAGLE-3, chain of 4": eagle(3, 4),
    "EAGLE-3, tree of 8": eagle(3, TREE),
}


class HeadsByKind(OnSmolLM2):
    """The parts are kinds of text at a temperature."""

    name = "heads-by-kind-smollm2"
    what = "tokens per round and acceptance of SmolLM2's EAGLE heads by kind of text"
    time = "an hour, not timed"
    quick = "--prompts 1 --new-tokens 4 --kinds json".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--prompts", type=int, default=8, help="prompts per kind")
        parser.add_argument("--new-tokens", type=int, default=64)
        parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
        parser.add_argument("--dtype", default="int4", choices=("int4", "float32"))

    def check(self):
        self.check_least(prompts=1, new_tokens=2)

    def parts(self):
        return [f"{kind}, T = {T}" for kind in self.options.kinds for T in (0, 1)]

    @cached_property
    def drafters(self) -> dict[str, Drafter]:
        """The drafters, made once."""
        return {name: make(self.model[0]) for name, make in DRAFTERS.items()}

    def run(self, part):
        kind, _, temperature = part.partition(", T = ")
        target, tokenizer = self.model
        prompts = load_benchmark_prompts([kind], count=self.options.prompts)[kind]
        ids = [torch.tensor(prompt.encode(tokenizer)) for prompt in prompts]

        def decode(drafter: Drafter | None) -> list[Output]:
            return [
                generate(
                    target,
                    row,
                    drafter,
                    self.options.new_tokens,
                    float(temperature),
                    stop_token_ids=(STOP,),
                    seed=seed,
                )
                for seed, row in enumerate(ids)
            ]

        plain = decode(None)
        return {name: count(decode(made), plain) for name, made in self.drafters.items()}

    def summarise(self, rows):
        files = {name: SHIPPED / name / "smollm2" / FILE for name in ("eagle1", "eagle3", "mtp")}
        return {
            "target": fingerprint(self.model[0]),
            "dtype": self.options.dtype,
            "new_tokens": self.options.new_tokens,
            "prompts": self.options.prompts,
            "prompts_sha256": SHA256,
            "heads": {
                name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
                for name, file in files.items()
            },
            "counts": dict(rows),
        }

    def restore(self, data):
        return data["counts"]


def count(outputs: list[Output], plain: list[Output]) -> dict:
    """Return tokens per round and acceptance with intervals over prompts; `same` counts texts equal
    to plain decoding.
    """
    stats = [output.stats for output in outputs]
    sums = lambda of: np.array([[of(each)] for each in stats], float)
    return {
        "tau": ratio(sums(lambda s: s.tokens), sums(lambda s: s.target_passes)),
        "acceptance": ratio(sums(lambda s: s.accepted), sums(lambda s: s.tested)),
        "tokens": sum(each.tokens for each in stats),
        "same": sum(a.tokens.equal(b.tokens) for a, b in zip(outputs, plain)),
    }
