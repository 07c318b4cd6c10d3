"""Measure where a cascade of drafters pays: speed of drafts with and without lower stages.

    python -m benchmarks run cascade-speed       # half an hour on two quiet cores
    python -m benchmarks run cascade-speed --only smollm2 --gammas 4 --new-tokens 48

The paired turns are those of `speed`. The contenders are the draft alone; with one stage below it
(a table); with two stages (a trigram model, for which prompt lookup drafts); with a table after it;
Jacobi and Lookahead. SmolLM2's draft is SmolLM2 without some blocks, which costs more than the
pair's draft.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import ClassVar

import torch

from specdec_lite import load_pair, load_smollm2, timing
from specdec_lite.drafters import (
    CascadeDrafter,
    Context,
    Drafter,
    JacobiDrafter,
    LookaheadDrafter,
    ModelDrafter,
    NgramModel,
    PromptLookupDrafter,
    RelayDrafter,
    Session,
    draft_chain,
)
from specdec_lite.drafters.copying.indexes import Counts
from specdec_lite.loading.pairs import Pair
from specdec_lite.proposal import Proposal
from specdec_lite.texts.corpus import evaluation_prompts, training_text
from specdec_lite.texts.smollm2_tasks import TASKS, chat

from .experiment import Experiment
from .smollm2 import SKIPPED, without_blocks
from .speed import Bench, measure


class RecentDrafter(Drafter, Session):
    """A drafter that draws from the tokens that followed the last token earlier in this text.

    Args:
        gamma: Draft length.
    """

    def __init__(self, gamma: int = 2):
        self.gamma = gamma

    def start(self, context: Context) -> Session:
        return self

    def propose(self, context: Context) -> Proposal:
        text = context.tokens

        def follow(token):
            last = text[-1] if token is None else token
            seen = text[1:][text[:-1] == last]
            return (torch.bincount(seen, minlength=context.vocab_size) + 1e-3).log()

        return draft_chain(context, follow, self.gamma)


def relay(pair, gamma: int) -> Drafter:
    """Return the draft model followed by a table for the last two tokens."""
    first = max(1, gamma - 2)
    return RelayDrafter([(ModelDrafter(pair.draft, first), first), (RecentDrafter(), 2)])


@cache
def trigram(tokenizer) -> Counts:
    """Return trigram counts of the reference topics."""
    ids = [
        token for text in training_text()["docs"] for token in tokenizer.encode(text, verbose=False)
    ]
    return Counts(ids, len(tokenizer), 3)


def four_levels(pair: Pair, gamma: int) -> Drafter:
    """Return the cascade target ← draft ← trigram ← lookup."""
    below = CascadeDrafter(NgramModel(trigram(pair.tokenizer)), PromptLookupDrafter(4), gamma)
    return CascadeDrafter(pair.draft, below, gamma)


DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "draft": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "draft_over_table": lambda pair, gamma: CascadeDrafter(pair.draft, RecentDrafter(), gamma),
    "draft_over_lookup": lambda pair, gamma: CascadeDrafter(
        pair.draft, PromptLookupDrafter(4), gamma
    ),
    "four_levels": four_levels,
    "draft_then_table": relay,
    "jacobi": lambda pair, gamma: JacobiDrafter(gamma),
    "lookahead": lambda pair, gamma: LookaheadDrafter(3, 3, 3),
}


def shipped(options: argparse.Namespace) -> tuple[Bench, str]:
    """Return the bench of the shipped pair and the name of its draft."""
    pair = load_pair(device="cpu", dtype="float32")
    prompts = {
        domain: [
            torch.tensor(pair.tokenizer.encode(row["text"])) for row in rows[: options.prompts]
        ]
        for domain, rows in evaluation_prompts().items()
    }
    return Bench(load=lambda dtype: pair, prompts=prompts), "the shipped draft"


def smollm2(options: argparse.Namespace) -> tuple[Bench, str]:
    """Return the bench of SmolLM2 and the name of its draft."""
    target, tokenizer = load_smollm2("cpu", "float32")
    pair = Pair(target, without_blocks(target, SKIPPED), tokenizer)
    prompts = {
        kind: [torch.tensor(chat(tokenizer, task.text)) for task in TASKS[kind][: options.prompts]]
        for kind in ("edit", "story")
    }
    bench = Bench(load=lambda dtype: pair, prompts=prompts, temperatures=(0.0,), stops=(2,))
    return bench, f"itself without blocks {', '.join(map(str, SKIPPED))}"


MODELS: dict[str, Callable] = {"pair": shipped, "smollm2": smollm2}


class CascadeSpeed(Experiment):
    """The parts are the models."""

    name = "cascade-speed"
    what = "speed of drafts with stages below or behind them, over plain decoding"
    time = "30 minutes"
    quick = (
        "--models pair --minutes 0.1 --gammas 2 --prompts 2 --least 1 --new-tokens 6"
        " --drafters draft draft_over_table"
    ).split()
    unrelated = ("models",)
    make: ClassVar[dict[str, Callable]] = MODELS
    """Functions from the options to a bench and the name of its draft, by model."""

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--models", nargs="+", choices=cls.make, default=list(cls.make))
        parser.add_argument("--minutes", type=float, default=15.0, help="time per model")
        parser.add_argument("--gammas", type=int, nargs="+", default=[4, 8])
        parser.add_argument("--prompts", type=int, default=6, help="prompts per domain")
        parser.add_argument("--least", type=int, default=20, help="fewest turns under --minutes")
        parser.add_argument("--new-tokens", type=int, default=96)
        parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))

    def parts(self):
        return list(self.options.models)

    def run(self, part):
        options = self.options
        bench, draft = self.make[part](options)
        bench = replace(
            bench,
            gammas=options.gammas,
            dtypes=("float32",),
            new_tokens=options.new_tokens,
            least=options.least,
            drafters={each: DRAFTERS[each] for each in options.drafters},
        )
        share = 60 * options.minutes / len(bench.settings)
        rows = [measure(bench, setting, perf_counter() + share) for setting in bench.settings]
        return {"draft": draft, "rows": rows}

    def summarise(self, rows):
        return {"profile": timing.machine_profile("cpu"), "targets": dict(rows)}

    def restore(self, data):
        return data["targets"]
