"""Where a cascade pays and where the calls eat it: speed of drafts with and without a stage below.

    python -m benchmarks.stages --minutes 15     # on two quiet cores; writes results/stages-<machine>.json

The shipped pair in float32, paired turns in random order, as `speed` measures them: the draft alone,
the draft with a table below it (vertical) and before one (horizontal), Jacobi and Lookahead.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from specdec_lite import load_pair, results, timing
from specdec_lite.drafters import (
    CascadeDrafter,
    Context,
    Drafter,
    JacobiDrafter,
    LookaheadDrafter,
    ModelDrafter,
    RelayDrafter,
    Session,
    draft_chain,
)
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.proposal import Proposal

from .speed import Bench, measure


class RecentDrafter(Drafter, Session):
    """Tokens drawn from what has followed their predecessor in this text, or any."""

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
    first = max(1, gamma - 2)
    return RelayDrafter([(ModelDrafter(pair.draft, first), first), (RecentDrafter(), 2)])


DRAFTERS: dict[str, Callable] = {
    "draft": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "draft_over_table": lambda pair, gamma: CascadeDrafter(pair.draft, RecentDrafter(), gamma),
    "draft_then_table": relay,
    "jacobi": lambda pair, gamma: JacobiDrafter(gamma),
    "lookahead": lambda pair, gamma: LookaheadDrafter(3, 3, 3),
}


def main(arguments: list[str] | None = None, bench: Bench | None = None) -> Path:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stages", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--prompts", type=int, default=6, help="of each domain")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--out", type=Path, help="default: results/stages-<machine>.json")
    options = parser.parse_args(arguments)
    if bench is None:
        pair = load_pair(device="cpu", dtype="float32")
        texts = evaluation_prompts()
        encoded = {
            domain: [
                torch.tensor(pair.tokenizer.encode(item["text"]))
                for item in items[: options.prompts]
            ]
            for domain, items in texts.items()
        }
        bench = Bench(load=lambda dtype: pair, prompts=encoded)
    bench = replace(
        bench, gammas=(4, 8), dtypes=("float32",), new_tokens=options.new_tokens, drafters=DRAFTERS
    )
    share = 60 * options.minutes / len(bench.settings)
    rows = [measure(bench, setting, perf_counter() + share) for setting in bench.settings]
    given = sys.argv[1:] if arguments is None else arguments
    stamp = results.stamp(
        "speed of drafts with a stage below or behind them, over plain decoding",
        " ".join(["python -m benchmarks.stages", *given]),
    )
    machine = results.slug(stamp["machine"])
    out = options.out or results.FOLDER / f"stages-{machine}.json"
    return results.save(out, stamp, {"profile": timing.machine_profile("cpu"), "rows": rows})


if __name__ == "__main__":
    print(main())
