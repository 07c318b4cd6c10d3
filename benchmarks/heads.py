"""Compare heads of every kind with equal bytes and equal training text: acceptance and cost.

Rates by depth are measured on the target's own held-out text. Tokens per round, drafting cost and
speedup come from decoding, in which all heads alternate. Costs are processor seconds, so other
programs may run at the same time.
"""

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from torch import nn

from specdec_lite import stream
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    BlockwiseDrafter,
    EagleDrafter,
    HydraDrafter,
    MarkovDrafter,
    MlpSpeculatorDrafter,
    ModelDrafter,
    PardDrafter,
)
from specdec_lite.drafters.eagle.feature_head import Eagle1Head
from specdec_lite.drafters.heads.heads import Heads
from specdec_lite.drafters.heads.medusa import SHIPPED as MEDUSA
from specdec_lite.drafters.parallel.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, find_weights, fingerprint, load
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.speculation import Drafter
from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.training import heads as product
from specdec_lite.training.eagle import initialize_head
from specdec_lite.training.features import Features
from specdec_lite.training.head_trainer import LAYERS, HeadTrainer

from .eagle import short_texts
from .experiment import Experiment

DEPTHS = 4
RANK = 32


def medusa(width: int) -> Callable:
    """Return the function that builds four heads, which start as copies of the target's own."""

    def build(trainer: HeadTrainer) -> nn.Module:
        torch.manual_seed(0)
        return Heads(trainer.target.hidden_size, DEPTHS, width)

    return build


def medusa_corrected(trainer: HeadTrainer) -> nn.Module:
    """Build the same heads, narrower by the bytes of the correction trained with them."""
    correction = Correction(trainer.target.vocab_size, RANK)
    return nn.ModuleDict({"rows": medusa(429)(trainer), "correction": correction})


def eagle(trainer: HeadTrainer) -> nn.Module:
    """Build a narrower EAGLE block, trained on the target's distribution alone."""
    target = trainer.target
    return initialize_head(Eagle1Head.for_target(target, intermediate_size=640), target)


def shipped_medusa(trainer: HeadTrainer) -> nn.Module:
    """Load the shipped Medusa heads, which have another size and another training."""
    return load(MEDUSA, trainer.target, Heads)


def shipped_eagle(trainer: HeadTrainer) -> nn.Module:
    """Load the shipped EAGLE head, which has another size and another training."""
    target = trainer.target
    return load(find_weights("eagle1", target), target, Eagle1Head)


MakeDrafter = Callable[[CausalLM, nn.Module], Drafter]
HEADS: dict[str, tuple[Callable, int, float, MakeDrafter]] = {
    "Medusa": (medusa(480), DEPTHS, 3e-3, lambda target, head: BlockwiseDrafter(target, head, 5)),
    "Medusa, corrected": (
        medusa_corrected,
        DEPTHS,
        3e-3,
        lambda target, head: MarkovDrafter(target, head["rows"], head["correction"]),
    ),
    "MLP speculator": (product.mlp_speculator, DEPTHS, 5e-3, MlpSpeculatorDrafter),
    "block diffusion": (
        product.block_head,
        7,
        2e-3,
        lambda target, head: BlockDiffusionDrafter(target, head, DEPTHS),
    ),
    "block diffusion, corrected": (
        product.KINDS["pair"]["block_diffusion"][0],
        7,
        2e-3,
        lambda target, head: BlockDiffusionDrafter(target, head, DEPTHS),
    ),
    "PARD": (
        product.pard_draft,
        DEPTHS,
        5e-4,
        lambda target, head: PardDrafter(CausalLM(head), DEPTHS),
    ),
    "shipped Medusa": (
        shipped_medusa,
        DEPTHS,
        0.0,
        lambda target, head: BlockwiseDrafter(target, head, 5),
    ),
    "shipped EAGLE": (
        shipped_eagle,
        DEPTHS,
        0.0,
        lambda target, head: EagleDrafter(target, head, DEPTHS),
    ),
    "shipped Medusa, corrected": (
        product.corrected_medusa_heads,
        DEPTHS,
        1e-2,
        lambda target, head: MarkovDrafter(target, head["rows"], head["correction"]),
    ),
    "shipped Hydra": (product.hydra_heads, DEPTHS, 1e-3, HydraDrafter),
    "EAGLE": (eagle, DEPTHS, 1e-3, lambda target, head: EagleDrafter(target, head, DEPTHS)),
}
"""For each head: the function that builds it, its trained depths, its learning rate (0 retains the
shipped weights), and the function that makes its drafter.
"""
SHIPPED = {
    "MLP speculator": "mlp_speculator",
    "block diffusion, corrected": "block_diffusion",
    "PARD": "pard",
    "shipped Medusa, corrected": "markov",
    "shipped Hydra": "hydra",
}
"""Heads that `training heads` trains in the same way. They are measured with the shipped weights."""
PAIRS = {
    "Medusa": "Medusa, corrected",
    "block diffusion": "block diffusion, corrected",
    "shipped Medusa": "shipped Medusa, corrected",
}
"""Heads without and with a correction, which are compared text by text."""


def as_shipped(kind: str, head: nn.Module, target: CausalLM) -> tuple[nn.Module, dict]:
    """Return a head with the shipped weights, and facts about their training."""
    folder = WEIGHTS / kind / "pair"
    part = head["correction"] if kind == "markov" else head
    stored = load(folder, target, lambda **config: copy.deepcopy(part))
    part.load_state_dict(stored.state_dict())
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return head.requires_grad_(False), {key: report[key] for key in ("texts", "steps", "seconds")}


def clock() -> float:
    """Return processor seconds on one thread, which other programs lengthen little.

    With several threads these are elapsed seconds: processor seconds would add the threads up.
    """
    return process_time() if torch.get_num_threads() == 1 else perf_counter()


class TimedDrafter(Drafter):
    """A drafter that measures its drafting time, in seconds of `clock`.

    Args:
        drafter: Drafter to time.
    """

    def __init__(self, drafter: Drafter):
        self.drafter = drafter
        self.hidden_layers = drafter.hidden_layers
        self.seconds = 0.0

    def start(self, context):
        session = self.drafter.start(context)
        propose = session.propose

        def timed(context):
            began = clock()
            proposal = propose(context)
            self.seconds += clock() - began
            return proposal

        session.propose = timed
        return session


def decode(
    target: CausalLM,
    drafter: Drafter | None,
    prompt,
    new_tokens: int,
    temperature: float,
    seed: int,
) -> dict:
    """Decode one text; tokens, rounds and seconds are counted after its first round."""
    timed = None if drafter is None else TimedDrafter(drafter)
    steps = stream(target, prompt, timed, new_tokens, temperature, stop_token_ids=(), seed=seed)
    first = next(steps).tokens
    before = 0.0 if timed is None else timed.seconds
    began = clock()
    rounds = [step.tokens for step in steps]
    return {
        "seconds": clock() - began,
        "tokens": sum(map(len, rounds)),
        "rounds": len(rounds),
        "drafting": 0.0 if timed is None else timed.seconds - before,
        "text": [token for tokens in (first, *rounds) for token in tokens],
    }


def compare_decoding(
    target: CausalLM,
    drafters: dict[str, Drafter],
    prompts: Sequence,
    new_tokens: int,
    temperatures: Sequence[float] = (0.0, 1.0),
    turns: int = 1,
) -> dict[str, dict]:
    """Measure τ, drafting cost and speedup of each drafter at each temperature.

    The drafting cost of a round is in units of a plain pass. Each number has its interval over
    prompts. All drafters and plain decoding alternate in random order. "same" is the number of
    greedy texts that equal plain decoding's, averaged over turns.
    """
    rng = np.random.default_rng(0)
    every: dict[str, Drafter | None] = {"plain": None, **drafters}
    table: dict[str, dict] = {name: {} for name in every}
    for drafter in every.values():  # warm up
        decode(target, drafter, prompts[0], 4, 0.0, 0)
    for temperature in temperatures:
        runs: dict[str, list[dict]] = {name: [] for name in every}
        for seed, prompt in enumerate([*prompts] * turns):
            for name in rng.permutation([*every]):
                run = decode(target, every[name], prompt, new_tokens, temperature, seed)
                runs[name].append(run)
        column = lambda name, key: np.reshape([run[key] for run in runs[name]], (turns, -1)).T
        plain = column("plain", "seconds") / column("plain", "tokens")
        for name in every:
            each = column(name, "seconds") / column(name, "tokens")
            drafting = column(name, "drafting") / column(name, "rounds")
            row = table[name][f"T = {temperature:g}"] = {
                "tau": ratio(column(name, "tokens"), column(name, "rounds")),
                "drafting": ratio(drafting, plain),
                "speedup": ratio(plain, each),
            }
            if temperature == 0:
                pairs = zip(runs[name], runs["plain"])
                row["same"] = sum(one["text"] == other["text"] for one, other in pairs) / turns
    return table


def tokenizer():
    """Return the shipped pair's tokenizer."""
    return load_pair(dtype="float32").tokenizer


def correction_gain(without: np.ndarray, corrected: np.ndarray) -> list[dict]:
    """Return by how much the correction raises α at each depth, with intervals over texts."""
    ones = np.ones((len(without), 1))
    return [
        estimate(lambda a, b, n: (a - b) / n, corrected[:, k, None], without[:, k, None], ones)
        for k in range(min(without.shape[1], corrected.shape[1]))
    ]


OWN = "the pair's draft"
DECODED = "decoded"


class HeadsAtEqualBytes(Experiment):
    """The parts are the pair's draft, the heads, and the decoding in which all alternate."""

    name = "heads-at-equal-bytes"
    what = "heads at equal bytes and equal training, on the shipped target"
    time = "3 hours"
    quick = (
        *"--epochs 0.5 --prompts 2 --new-tokens 12 --cache .work/quick-heads".split(),
        "--heads",
        "shipped Medusa",
        "shipped Medusa, corrected",
    )
    unrelated = ("cache",)

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--texts", type=int, default=product.TEXTS)
        parser.add_argument("--epochs", type=float, default=product.EPOCHS)
        parser.add_argument("--prompts", type=int, default=12, help="number of prompts to decode")
        parser.add_argument("--new-tokens", type=int, default=48)
        parser.add_argument(
            "--anew", action="store_true", help="also retrain the heads that are shipped"
        )
        parser.add_argument(
            "--heads", nargs="*", choices=list(HEADS), default=list(HEADS), help="default: all"
        )
        parser.add_argument("--cache", type=Path, default=Path(".work/heads"))

    def check(self):
        if self.options.prompts < 2:
            raise ValueError(f"--prompts {self.options.prompts}: must be at least 2")

    @cached_property
    def trainer(self) -> HeadTrainer:
        """The target with its training text."""
        cache = self.options.cache
        if not self.options.quick:
            return HeadTrainer.for_pair(cache, self.options.texts)
        pair = load_pair(dtype="float32")
        pair.target.model.requires_grad_(False)
        features = Features(pair.target, cache / "features", LAYERS)
        return HeadTrainer(pair.target, pair.draft, short_texts(pair.tokenizer), features)

    def head(self, name: str) -> tuple[nn.Module, dict]:
        """Return a head, trained or from its checkpoint, and facts about its training."""
        options, target = self.options, self.trainer.target
        build, depths, rate, _ = HEADS[name]
        head = build(self.trainer)
        entry = {"parameters": sum(weight.numel() for weight in head.parameters())}
        if name in SHIPPED and not options.anew:
            head, trained = as_shipped(SHIPPED[name], head, target)
            return head, entry | trained
        if rate:
            about = argparse.Namespace(**vars(options) | {"work": options.cache})
            path = product.checkpoint(about, f"study-{name}", target)
            entry |= self.trainer.train(head, depths, options.epochs, rate, path)
        return head, entry

    def parts(self):
        return [OWN, *self.options.heads, DECODED]

    def run(self, part):
        trainer, options = self.trainer, self.options
        if part == OWN:
            parameters = sum(weight.numel() for weight in trainer.draft.model.parameters())
            held_out = trainer.evaluate(trainer.draft, DEPTHS)
            return {"entry": {"parameters": parameters, "held_out": held_out}}
        if part != DECODED:
            head, entry = self.head(part)
            entry["held_out"] = trainer.evaluate(head, HEADS[part][1])
            rates = trainer.rates_by_text(head, HEADS[part][1], 1.0)
            return {"entry": entry, "rates": rates.tolist()}
        drafters: dict[str, Drafter] = {OWN: ModelDrafter(trainer.draft, DEPTHS)}
        for name in options.heads:
            drafters[name] = HEADS[name][3](trainer.target, self.head(name)[0])
        texts = [item["text"] for items in evaluation_prompts().values() for item in items]
        chosen = texts[:: max(1, len(texts) // options.prompts)][: options.prompts]
        prompts = [tokenizer().encode(text) for text in chosen]
        return compare_decoding(trainer.target, drafters, prompts, options.new_tokens)

    def summarise(self, rows):
        rates = {name: np.array(rows[name]["rates"]) for name in self.options.heads}
        decoded = rows[DECODED]
        return {
            "target": fingerprint(self.trainer.target),
            "heads": {
                name: rows[name]["entry"] | {"decoded": decoded[name]}
                for name in [OWN, *self.options.heads]
            },
            "gained": {
                PAIRS[name]: correction_gain(rates[name], rates[PAIRS[name]])
                for name in PAIRS
                if name in rates and PAIRS[name] in rates
            },
        }

    def restore(self, data):
        return {}  # the recording has no rates by text
