"""SmolLM2's answers to many chat prompts, the text that heads for it are trained on.

`python -m specdec_lite.training.smollm2_text` writes the answers batch by batch and resumes where
it stopped. `smollm2_prompts` makes the prompts, `own_text` continues a batch, and `packed_text`
keeps the answers in the repository.
"""

import argparse
import json
import signal
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import load_file

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.files import written_whole
from specdec_lite.loading.memory import half_precision, resolve_device
from specdec_lite.loading.smollm2 import cache_folder, load_smollm2
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.commands import add_device, run_product
from specdec_lite.training.own_text import cut_after_stop, own_text
from specdec_lite.training.packed_text import Text, read_pieces, write_piece
from specdec_lite.training.smollm2_prompts import (
    Prompt,
    draw_prompts,
    equal_length_batches,
    without_overlap,
)

TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
"""Temperatures of the batches, repeated: half of the answers are greedy."""
STOPS = (2,)
MODEL = "SmolLM2-135M-Instruct"
PIECES = Path("training_text/smollm2")
"""Folder of the answers in the repository, relative to its root."""
PIECE_TOKENS = 100_000
"""Tokens of answers after which a piece is written."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts of equal length that are answered together.

    Attributes:
        held_out: whether the prompts are held out from training.
        temperature: temperature of the answers.
        prompts: the prompts.
    """

    held_out: bool
    temperature: float
    prompts: list[Prompt]

    def is_in(self, answered: Collection[tuple[float, tuple[int, ...]]]) -> bool:
        """Return whether all prompts are answered at this temperature."""
        return all((self.temperature, prompt.ids) in answered for prompt in self.prompts)


def plan_batches(
    folder: Path, tokenizer, each: int = 6000, held_out: int = 48, rows: int = 64
) -> list[Batch]:
    """Return the batches in their order; the first call writes them to folder/prompts.json."""
    path = folder / "prompts.json"
    if not path.exists():
        held_out_prompts = draw_prompts(tokenizer, held_out, held_out=True)
        training = without_overlap(draw_prompts(tokenizer, each), held_out_prompts, tokenizer)
        halves = [
            (True, equal_length_batches(held_out_prompts, rows)),
            (False, equal_length_batches(training, rows, least=rows)),
        ]
        plan = [
            asdict(Batch(is_held_out, TEMPERATURES[number % len(TEMPERATURES)], part))
            for is_held_out, parts in halves
            for number, part in enumerate(parts)
        ]
        with written_whole(path) as unfinished:
            unfinished.write_text(json.dumps(plan), "utf-8")
    return [
        Batch(
            batch["held_out"],
            batch["temperature"],
            [Prompt(row["kind"], row["text"], tuple(row["ids"])) for row in batch["prompts"]],
        )
        for batch in json.loads(path.read_text("utf-8"))
    ]


def batch_folder(folder: Path, number: int) -> Path:
    """Return the folder of one batch."""
    return folder / f"{number:05d}"


def write_answers(
    target: CausalLM,
    folder: Path,
    plan: Sequence[Batch],
    new_tokens: int = 128,
    pieces: Path = PIECES,
    write: bool = False,
) -> None:
    """Let the target answer every batch that is answered neither in `folder` nor in `pieces`."""
    answered = {text.prompt() for text in read_pieces(pieces)}
    waiting: list[Text] = []
    try:
        for number, batch in enumerate(plan):
            if batch.is_in(answered):
                continue
            subfolder = batch_folder(folder, number)
            if not any(subfolder.glob("*.safetensors")):
                ids = [prompt.ids for prompt in batch.prompts]
                temperature = batch.temperature
                own_text(target, ids, new_tokens, subfolder, len(ids), temperature, number, STOPS)
            waiting += read_batch(folder, number, batch)
            if write and count_tokens(waiting) >= PIECE_TOKENS:
                pack(pieces, waiting, target)
                waiting = []
    finally:
        if write and waiting:
            pack(pieces, waiting, target)


def pack(pieces: Path, texts: Sequence[Text], target: CausalLM) -> None:
    """Write the next piece and print its size."""
    about = {"model": MODEL, "weights": fingerprint(target), "dtype": str(target.dtype)}
    path = write_piece(pieces, texts, about)
    tokens, size = count_tokens(texts), path.stat().st_size
    print(f"{path}: {len(texts)} answers, {tokens} tokens, {size} bytes")


def read_answers(folder: Path, plan: Sequence[Batch], pieces: Path = PIECES) -> list[Text]:
    """Return all answers that exist, each up to its end, its prompt before it."""
    texts = read_pieces(pieces)
    answered = {text.prompt() for text in texts}
    for number, batch in enumerate(plan):
        if not batch.is_in(answered):
            texts += read_batch(folder, number, batch)
    return texts


def read_batch(folder: Path, number: int, batch: Batch) -> list[Text]:
    """Return the answers to one batch; none if it is not answered yet."""
    texts = []
    for path in batch_folder(folder, number).glob("*.safetensors"):
        for prompt, row in zip(batch.prompts, load_file(path)["text"].long()):
            start = len(prompt.ids)
            ids = cut_after_stop(row, start, STOPS)
            texts.append(Text(prompt.kind, batch.held_out, batch.temperature, start, ids))
    return texts


def count_tokens(texts: Sequence[Text]) -> int:
    """Return the number of tokens of the answers, without their prompts."""
    return sum(len(text.ids) - text.start for text in texts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m specdec_lite.training.smollm2_text`."""
    folder = cache_folder() / "smollm2-own-text"
    parser.add_argument("--folder", type=Path, default=folder, help="folder of the answers")
    parser.add_argument("--each", type=int, default=6000, help="prompts per kind to choose from")
    parser.add_argument("--new-tokens", type=int, default=128, help="tokens per answer, at most")
    parser.add_argument("--batches", type=int, help="number of batches to answer, from the first")
    add_device(parser, "auto")
    dtype_help = (
        "default: bfloat16, or float16 on a GPU without it; float32 is faster on processors without"
        " bfloat16"
    )
    parser.add_argument("--dtype", help=dtype_help)
    pieces_help = f"folder to write the answers to in compact files as well, such as {PIECES}"
    parser.add_argument("--pieces", type=Path, help=pieces_help)
    count_help = "only print the numbers of answers and tokens"
    parser.add_argument("--count", action="store_true", help=count_help)


def run(options: argparse.Namespace) -> None:
    """Answer the prompts and print the numbers of answers and tokens."""
    device = resolve_device(options.device)
    target, tokenizer = load_smollm2(str(device), options.dtype or half_precision(device))
    plan = plan_batches(options.folder, tokenizer, options.each)
    pieces = options.pieces or PIECES
    if not options.count:
        first = plan[: options.batches]
        write = options.pieces is not None
        write_answers(target, options.folder, first, options.new_tokens, pieces, write)
    texts = read_answers(options.folder, plan, pieces)
    prompts = sum(len(batch.prompts) for batch in plan)
    print(f"{len(texts)} answers to {prompts} prompts, {count_tokens(texts)} tokens")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    program = "python -m specdec_lite.training.smollm2_text"
    run_product(program, "Let SmolLM2 answer chat prompts.", add_arguments, run, arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` writes the last piece too
    main()
