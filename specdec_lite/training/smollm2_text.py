"""SmolLM2's answers to many chat prompts: the text that a draft for it is trained on.

`python -m specdec_lite.training.smollm2_text` makes it, batch by batch, and goes on where it was
stopped. What lives here: the order of the batches, and their files. What does not: the prompts
(`smollm2_prompts`), and how a batch is continued (`own_text`).
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.training.own_text import own_text, up_to_stop
from specdec_lite.training.smollm2_prompts import Prompt, apart, equal, prompts

TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
"""Of the batches, in turn: half of the answers are greedy."""
STOPS = (2,)


@dataclass(frozen=True, slots=True)
class Text:
    """One answer. kind, held_out: of its prompt. start: where the answer begins in ids [n]."""

    kind: str
    held_out: bool
    temperature: float
    start: int
    ids: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts of equal length that are answered together."""

    held_out: bool
    temperature: float
    prompts: list[Prompt]


def planned(
    folder: Path, tokenizer, each: int = 6000, held_out: int = 48, rows: int = 64
) -> list[Batch]:
    """The batches in their order; the first call writes them to folder/prompts.json.

    Args:
        folder: for this text alone.
        tokenizer: SmolLM2's.
        each: prompts of a kind to choose from, about five sixths of which fill batches.
        held_out: held-out prompts of a kind, all of which are answered, and first.
        rows: prompts of a batch.
    """
    path = folder / "prompts.json"
    if not path.exists():
        apart_from = prompts(tokenizer, held_out, held_out=True)
        rest = apart(prompts(tokenizer, each), apart_from, tokenizer)
        halves = [(True, equal(apart_from, rows)), (False, equal(rest, rows, least=rows))]
        plan = [
            asdict(Batch(kept_apart, TEMPERATURES[number % len(TEMPERATURES)], part))
            for kept_apart, parts in halves
            for number, part in enumerate(parts)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps(plan), "utf-8")
        unfinished.replace(path)
    return [
        Batch(
            batch["held_out"],
            batch["temperature"],
            [Prompt(row["kind"], row["text"], tuple(row["ids"])) for row in batch["prompts"]],
        )
        for batch in json.loads(path.read_text("utf-8"))
    ]


def place(folder: Path, number: int) -> Path:
    """The folder of one batch."""
    return folder / f"{number:05d}"


def answer(target: CausalLM, folder: Path, plan: Sequence[Batch], new_tokens: int = 128) -> None:
    """Let the target answer every batch that is not answered yet.

    Args:
        target: SmolLM2; in bfloat16 it is quicker.
        folder: where the answers are kept, one folder a batch.
        plan: from `planned`.
        new_tokens: at most so many an answer.
    """
    for number, batch in enumerate(plan):
        if any(place(folder, number).glob("*.safetensors")):
            continue
        ids = [prompt.ids for prompt in batch.prompts]
        own_text(
            target,
            ids,
            new_tokens,
            place(folder, number),
            len(ids),
            batch.temperature,
            number,
            STOPS,
        )


def answers(folder: Path, plan: Sequence[Batch]) -> list[Text]:
    """The answers that are there, prompts before them, each up to its end."""
    texts = []
    for number, batch in enumerate(plan):
        for path in place(folder, number).glob("*.safetensors"):
            for prompt, row in zip(batch.prompts, load_file(path)["text"].long()):
                start = len(prompt.ids)
                ids = up_to_stop(row, start, STOPS)
                texts.append(Text(prompt.kind, batch.held_out, batch.temperature, start, ids))
    return texts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m specdec_lite.training.smollm2_text")
    parser.add_argument("--folder", type=Path, default=cache_folder() / "smollm2-own-text")
    parser.add_argument("--each", type=int, default=6000, help="prompts of a kind")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--batches", type=int, help="answer so many at most")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--count", action="store_true", help="say what is there, and make nothing")
    args = parser.parse_args(arguments)
    target, tokenizer = load_smollm2(args.device, "bfloat16")
    plan = planned(args.folder, tokenizer, args.each)
    if not args.count:
        answer(target, args.folder, plan[: args.batches], args.new_tokens)
    texts = answers(args.folder, plan)
    tokens = sum(len(text.ids) - text.start for text in texts)
    print(f"{len(texts)} answers to {sum(len(b.prompts) for b in plan)} prompts, {tokens} tokens")


if __name__ == "__main__":
    main()
