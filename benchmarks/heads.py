"""Heads of every kind at equal bytes, trained on the same text: who drafts what, and at what cost.

Rates by depth are read behind the target's own held-out text; tokens a round, drafting cost and
speed-up come of decoding, in turns, with every head. Costs are seconds of the processor, not of the
wall: other programs may run beside it.
"""

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import numpy as np
import torch
from torch import nn

from specdec_lite import stream
from specdec_lite.checks import whole
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
from specdec_lite.drafters.feature_head import Eagle1Head
from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import SHIPPED as MEDUSA
from specdec_lite.drafters.parallel import Correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.pairs import load_pair
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, fingerprint, load, where
from specdec_lite.measure import results
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.speculation import Drafter
from specdec_lite.training import heads as product
from specdec_lite.training.eagle import initialise as initialise_block
from specdec_lite.training.loop import given
from specdec_lite.training.shared_text import Material

DEPTHS = 4
RANK = 32


def medusa(width: int) -> Callable:
    """Four heads of this width, which begin as copies of the target's own."""

    def build(material: Material) -> nn.Module:
        torch.manual_seed(0)
        return Heads(material.target.hidden_size, DEPTHS, width)

    return build


def medusa_corrected(material: Material) -> nn.Module:
    """The same, narrower by the bytes of the correction that is trained with them."""
    correction = Correction(material.target.vocab_size, RANK)
    return nn.ModuleDict({"rows": medusa(429)(material), "correction": correction})


def eagle(material: Material) -> nn.Module:
    """EAGLE's block, narrower, trained for the target's law alone."""
    target = material.target
    return initialise_block(Eagle1Head.beside(target, intermediate_size=640), target)


def shipped_medusa(material: Material) -> nn.Module:
    """Medusa's heads as they ship, of other bytes and another training."""
    return load(MEDUSA, material.target, Heads)


def shipped_eagle(material: Material) -> nn.Module:
    """EAGLE's head as it ships, likewise."""
    target = material.target
    return load(where("eagle1", target), target, Eagle1Head)


Made = Callable[[CausalLM, nn.Module], Drafter]
HEADS: dict[str, tuple[Callable, int, float, Made]] = {
    "Medusa": (medusa(480), DEPTHS, 3e-3, lambda target, head: BlockwiseDrafter(target, head, 5)),
    "Medusa, corrected": (
        medusa_corrected,
        DEPTHS,
        3e-3,
        lambda target, head: MarkovDrafter(target, head["rows"], head["correction"]),
    ),
    "MLP speculator": (product.speculator, DEPTHS, 5e-3, MlpSpeculatorDrafter),
    "block diffusion": (
        product.blocks,
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
    "PARD": (product.pard, DEPTHS, 5e-4, lambda target, head: PardDrafter(CausalLM(head), DEPTHS)),
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
        product.corrected,
        DEPTHS,
        1e-2,
        lambda target, head: MarkovDrafter(target, head["rows"], head["correction"]),
    ),
    "shipped Hydra": (product.hydra, DEPTHS, 1e-3, HydraDrafter),
    "EAGLE": (eagle, DEPTHS, 1e-3, lambda target, head: EagleDrafter(target, head, DEPTHS)),
}
"""How each begins, the depths it is trained for, its learning rate (0: it stays as it ships), and the
drafter it becomes.
"""
SHIPPED = {
    "MLP speculator": "mlp_speculator",
    "block diffusion, corrected": "block_diffusion",
    "PARD": "pard",
    "shipped Medusa, corrected": "markov",
    "shipped Hydra": "hydra",
}
"""What `training heads` trains in the same way and ships: it is measured as it ships."""
PAIRS = {
    "Medusa": "Medusa, corrected",
    "block diffusion": "block diffusion, corrected",
    "shipped Medusa": "shipped Medusa, corrected",
}
"""Without and with a correction: what is held against each other, text by text."""


def as_shipped(kind: str, head: nn.Module, target: CausalLM) -> tuple[nn.Module, dict]:
    """The head with the weights that ship, and how long these were trained."""
    folder = WEIGHTS / kind / "pair"
    part = head["correction"] if kind == "markov" else head
    made = load(folder, target, lambda **config: copy.deepcopy(part))
    part.load_state_dict(made.state_dict())
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return head.requires_grad_(False), {key: report[key] for key in ("texts", "steps", "seconds")}


class Clocked(Drafter):
    """A drafter whose drafting is clocked, in seconds of the processor."""

    def __init__(self, drafter: Drafter):
        self.drafter = drafter
        self.hidden_layers = drafter.hidden_layers
        self.seconds = 0.0

    def start(self, context):
        session = self.drafter.start(context)
        propose = session.propose

        def clocked(context):
            began = process_time()
            proposal = propose(context)
            self.seconds += process_time() - began
            return proposal

        session.propose = clocked
        return session


def decode(
    target: CausalLM,
    drafter: Drafter | None,
    prompt,
    new_tokens: int,
    temperature: float,
    seed: int,
) -> dict:
    """One text, and behind its first round: tokens, rounds, the seconds of all and of drafting."""
    clocked = None if drafter is None else Clocked(drafter)
    steps = stream(target, prompt, clocked, new_tokens, temperature, seed=seed)
    first = next(steps).tokens
    before = 0.0 if clocked is None else clocked.seconds
    began = process_time()
    rounds = [step.tokens for step in steps]
    return {
        "seconds": process_time() - began,
        "tokens": sum(map(len, rounds)),
        "rounds": len(rounds),
        "drafting": 0.0 if clocked is None else clocked.seconds - before,
        "text": [token for tokens in (first, *rounds) for token in tokens],
    }


def decoded(
    target: CausalLM,
    drafters: dict[str, Drafter],
    prompts: Sequence,
    new_tokens: int,
    temperatures: Sequence[float] = (0.0, 1.0),
    turns: int = 1,
) -> dict[str, dict]:
    """By drafter and temperature, plain decoding among them: τ, the drafting of a round in plain
    passes, the speed-up, each with its interval over prompts, which all take in turns in an order
    that chance gives; and how many greedy texts, on average over turns, are plain decoding's.
    """
    rng = np.random.default_rng(0)
    every: dict[str, Drafter | None] = {"plain": None, **drafters}
    table: dict[str, dict] = {name: {} for name in every}
    for drafter in every.values():  # warms up
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
    """The shipped pair's."""
    return load_pair(dtype="float32").tokenizer


def gained(without: np.ndarray, with_it: np.ndarray) -> list[dict]:
    """By depth, how much α rises with the correction: over texts, with its interval; [texts, K]."""
    ones = np.ones((len(without), 1))
    return [
        estimate(lambda a, b, n: (a - b) / n, with_it[:, k, None], without[:, k, None], ones)
        for k in range(min(without.shape[1], with_it.shape[1]))
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads")
    parser.add_argument("--texts", type=int, default=product.TEXTS)
    parser.add_argument("--epochs", type=float, default=product.USUAL["epochs"])
    parser.add_argument("--prompts", type=int, default=12, help="to decode")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--anew", action="store_true", help="train anew what is shipped, too")
    parser.add_argument("--only", nargs="*", choices=list(HEADS), help="some heads; default: all")
    parser.add_argument("--work", type=Path, default=Path(".work/heads"))
    parser.add_argument("--out", type=Path, default=Path("results/heads.json"))
    options = parser.parse_args(arguments)
    whole("prompts", options.prompts, 2)
    material = Material.gather(options.work, options.texts)
    target = material.target
    draft = material.draft
    own = {"parameters": sum(weight.numel() for weight in draft.model.parameters())}
    own["held_out"] = material.judge(draft, DEPTHS)
    data: dict = {"target": fingerprint(target), "heads": {"the pair's draft": own}}
    rates = {}
    drafters: dict[str, Drafter] = {"the pair's draft": ModelDrafter(draft, DEPTHS)}
    for name in options.only or HEADS:
        build, depths, rate, made = HEADS[name]
        head = build(material)
        entry = {"parameters": sum(weight.numel() for weight in head.parameters())}
        if name in SHIPPED and not options.anew:
            head, trained = as_shipped(SHIPPED[name], head, target)
            entry |= trained
        elif rate:
            path = product.checkpoint(options, f"study-{name}", target)
            entry |= material.learn(head, depths, options.epochs, rate, path)
        entry["held_out"] = material.judge(head, depths)
        data["heads"][name] = entry
        rates[name] = material.by_text(head, depths, 1.0)
        drafters[name] = made(target, head)
        print(name, entry, flush=True)
    data["gained"] = {
        PAIRS[name]: gained(rates[name].numpy(), rates[PAIRS[name]].numpy())
        for name in PAIRS
        if name in rates and PAIRS[name] in rates
    }
    texts = [item["text"] for items in evaluation_prompts().values() for item in items]
    chosen = texts[:: max(1, len(texts) // options.prompts)][: options.prompts]
    prompts = [tokenizer().encode(text) for text in chosen]
    found = decoded(target, drafters, prompts, options.new_tokens)
    for name in drafters:
        data["heads"][name]["decoded"] = found[name]
    usual = {
        **product.USUAL,
        "texts": product.TEXTS,
        "prompts": 12,
        "new-tokens": 48,
        "anew": False,
    }
    del usual["rate"]
    words = ["python -m benchmarks.heads", *given(options, usual)]
    if options.only:
        words.append("--only " + " ".join(f'"{name}"' for name in options.only))
    stamp = results.stamp(
        "heads at equal bytes and equal training, on the shipped target", " ".join(words)
    )
    results.save(options.out, stamp, data)


if __name__ == "__main__":
    main()
