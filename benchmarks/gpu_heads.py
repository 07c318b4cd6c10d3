"""Train SmolLM2's heads on a GPU in five minutes, on text that it writes there first.

    python -m benchmarks.gpu_heads --seconds 290 --out OUT         # an A100, an H100 or the like
    python -m benchmarks.gpu_heads --compare OUT                   # anywhere: what fewer bits cost
    python -m benchmarks.gpu_heads --install OUT --bits 5          # anywhere: stored
    python -m benchmarks.gpu_heads --prepare PARTS                 # for a machine without network

SmolLM2 answers the training requests of `smollm2_prompts`, and requests that it writes itself
after the beginning of the chat template, greedily and at temperature 1. An answer ends with the
first eight tokens in a row that repeat eight of its own. No request shares 50 tokens with a
held-out or evaluation prompt. `--seconds` limits everything; each result is written when it is
there: the text (`text/`), then one folder per head, and after each of them `recording.json` with
the held-out acceptance over the tokens seen. `--parts` reads the model from the files of
`--prepare`, which `benchmarks.carried` describes.
"""

import argparse
import copy
import itertools
import json
import lzma
import os
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from specdec_lite import CausalLM
from specdec_lite.drafters.eagle.feature_head import Eagle3Head, FeatureHead
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.checkpoints import load_model, load_tokenizer
from specdec_lite.loading.memory import free_bytes, half_precision, resolve_device
from specdec_lite.loading.smollm2 import load_smollm2, smollm2_folder
from specdec_lite.loading.weights import SHIPPED, fingerprint, load, save
from specdec_lite.measure import stamps
from specdec_lite.texts.benchmark_prompts import EXTRA_KINDS, KINDS, load_benchmark_prompts
from specdec_lite.texts.smollm2_tasks import TASKS
from specdec_lite.training import eagle
from specdec_lite.training.head_texts import (
    Sample,
    batch_by_length,
    batch_order,
    most_frequent_tokens,
    pad,
)
from specdec_lite.training.loop import DECAY_FROM, Plan, one_step, optimizers
from specdec_lite.training.packed_text import (
    IDS,
    Text,
    piece_paths,
    read_about,
    read_pieces,
    write_piece,
)
from specdec_lite.training.smollm2_prompts import draw_prompts, token_grams, without_overlap
from specdec_lite.training.smollm2_text import MODEL, PIECES, STOPS
from specdec_lite.training.static_text import Order, Writer, first_repetitions
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unrolled_loss

from . import carried

WHAT = "EAGLE heads for SmolLM2 trained on a GPU: held-out acceptance over the tokens seen"
EXPERIMENT = "gpu-heads-smollm2"
BITS_EXPERIMENT = "head-bits-smollm2"
COMPARED = (16, 8, 5, 4)
"""Bits that `--compare` measures."""
FINE = ("fuse.weight",)
"""Matrices that are stored with one bit more: they read the target's features, of unequal sizes."""
EVALUATION = "evaluation"
"""Kind of the prompts that no request may resemble."""
OWN = "own"
"""Kind of the requests that the model wrote itself."""
TEMPERATURES = (0.0, 1.0)
WAVE = 8192
"""Requests that are sorted by length together; every wave is a fair sample of all."""
SHORTEST = 16
"""Tokens of an answer, at least."""
FILES, SAMPLE = 2, 4096
"""Files of the stored text, and the number of texts that tell how many bytes a token takes."""
CURVE = (0.05, 0.1, 0.2, 0.4, 0.7)
"""Parts of a head's time after which it is measured."""
WARMUP = 0.03
FREE_BYTES = 24e9
"""Memory of a GPU to leave for training when the target's states are kept."""


@dataclass(frozen=True, slots=True)
class Arm:
    """How one head is trained.

    Attributes:
        version: key of `eagle.KINDS`.
        recipe: the loss.
        share: part of the time that is left for heads.
        vocabulary: size of the draft vocabulary.
        sizes: fields of the head's config that differ from the target's.
    """

    version: str
    recipe: Recipe
    share: float
    vocabulary: int = 12_000
    sizes: dict[str, int] = field(default_factory=dict)


UNROLLED = Recipe(distillation=1.0, steps=3, late=0.3)
ARMS = {
    "eagle1": Arm("1", Recipe(feature=0.1, distillation=1.0, steps=3, late=0.3), 0.36),
    "eagle3": Arm("3", RECIPES["3"], 0.29, 4096, {"intermediate_size": 768}),
    "mtp": Arm("mtp", UNROLLED, 0.35),
}
"""Heads in the order of training; vocabulary and sizes are those of the shipped ones."""


def say(text: str) -> None:
    """Print a line with the time since the program began."""
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


BEGAN = time.monotonic()

# Requests -------------------------------------------------------------------------------------------


def drawn_requests(tokenizer, each: int = 6000) -> list[Text]:
    """Return the evaluation prompts, and training requests of six kinds, all without answers."""
    held_out = draw_prompts(tokenizer, 48, held_out=True)
    prompts = without_overlap(draw_prompts(tokenizer, each), held_out, tokenizer)
    requests = [Text(row.kind, False, 0.0, len(row.ids), torch.tensor(row.ids)) for row in prompts]
    return evaluation_messages(tokenizer) + requests


def frame(requests: Sequence[Text]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids before and after the user's message, which all requests share."""
    rows = [tuple(text.ids[: text.start].tolist()) for text in requests]
    after = os.path.commonprefix([row[::-1] for row in rows])[::-1]
    return tuple(os.path.commonprefix(rows)), tuple(after)


def evaluation_messages(tokenizer) -> list[Text]:
    """Return the users' messages of all prompts of the measurements, without chat template."""
    messages = [task.text for tasks in TASKS.values() for task in tasks]
    for prompts in load_benchmark_prompts(KINDS + EXTRA_KINDS).values():
        messages += [message for prompt in prompts for message in prompt.messages]
    rows = [torch.tensor(tokenizer.encode(message)) for message in messages]
    return [Text(EVALUATION, True, 0.0, len(row), row) for row in rows]


def excluded_grams(messages: Sequence[Text], held_out: Sequence[Text], around: tuple) -> set:
    """Return the grams of all held-out and evaluation prompts."""
    before, after = map(len, around)
    rows = [text.ids.tolist() for text in messages]
    rows += [text.ids[before : text.start - after].tolist() for text in held_out]
    return {gram for row in rows for gram in token_grams(row)}


def in_waves(orders: list[Order], seed: int = 0) -> list[Order]:
    """Return orders in random waves, each sorted by length."""
    random.Random(seed).shuffle(orders)
    size = lambda order: len(order.prompt)
    waves = [orders[first : first + WAVE] for first in range(0, len(orders), WAVE)]
    return [order for wave in waves for order in sorted(wave, key=size)]


def own_requests(
    writer: Writer, requests: Sequence[Text], count: int, excluded: set, seconds: float
) -> list[tuple[int, ...]]:
    """Return distinct requests, chat template included, that the model writes as a user."""
    before, after = frame(requests)
    orders = [Order(before, 1.0, OWN)] * count
    rows: dict[tuple[int, ...], None] = {}
    for _, text in writer.write(orders, 96, seconds):
        message = text[len(before) :].tolist()
        if message[-1] in STOPS and excluded.isdisjoint(token_grams(message[:-1])):
            rows[(*before, *message[:-1], *after)] = None
    return [row for row in rows if len(row) > len(before) + len(after) + 2]


def answers(
    writer: Writer,
    requests: Sequence[Text],
    own: Sequence[tuple[int, ...]],
    options,
    seconds: float,
) -> list[Text]:
    """Return the answers to all requests that are finished in time, without repetitions."""
    prompts = [(tuple(text.ids.tolist()), text.kind) for text in requests]
    prompts += [(row, OWN) for row in own]
    orders = [Order(row, warm, kind) for row, kind in prompts for warm in TEMPERATURES]
    written, tokens, told = [], 0, time.monotonic()
    for order, ids in writer.write(in_waves(orders), options.new_tokens, seconds):
        written.append((order, ids))
        tokens += len(ids) - len(order.prompt)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"{len(written)} of {len(orders)} answers, {tokens} tokens")
    starts = [len(order.prompt) for order, _ in written]
    ends = first_repetitions([ids for _, ids in written], starts, writer.device)
    return [
        Text(order.kind, False, order.temperature, start, ids[:end])
        for (order, ids), start, end in zip(written, starts, ends)
        if end - start >= SHORTEST
    ]


def store(folder: Path, texts: Sequence[Text], about: dict[str, str], limit: int) -> None:
    """Write texts in `FILES` pieces: the first ones, about as many as the limit in bytes allows."""
    sample = torch.cat([text.ids for text in texts[:SAMPLE]])
    rate = len(lzma.compress(sample.numpy().astype(IDS).tobytes(), preset=9)) / len(sample)
    ends = torch.tensor([len(text.ids) for text in texts]).cumsum(0)
    count = int((rate * ends < limit).sum())
    size = max(1, -(-count // FILES))
    for first in range(0, count, size):
        write_piece(folder, texts[first : min(count, first + size)], about)
    used = sum(path.stat().st_size for path in piece_paths(folder))
    say(f"stored {count} of {len(texts)} answers in {folder.name}/, {used:,} bytes")


# Training -------------------------------------------------------------------------------------------


def batches(texts: Sequence[Sample], tokens: int, padding: int) -> list[tuple[Tensor, Tensor]]:
    """Group texts of similar length into batches of a number of tokens at most, padding included.

    Returns:
        For each batch, tokens [B, n] and a mask [B, n] of the tokens that the target wrote.
    """
    ordered = sorted(texts, key=lambda text: len(text.ids))
    rounded = lambda text: -(-(len(text.ids) + padding) // 16) * 16
    parts, part = [], []
    for text in ordered:
        if part and (len(part) + 1) * rounded(text) > tokens:
            parts.append(part)
            part = []
        part.append(text)
    parts += [part] if part else []
    result = []
    for part in parts:
        length = rounded(part[-1])
        positions = torch.arange(length)
        start = torch.tensor([text.start for text in part])[:, None]
        end = torch.tensor([len(text.ids) for text in part])[:, None]
        rows = torch.stack([pad(text.ids, length) for text in part])
        result.append((rows, (positions >= start) & (positions < end)))
    return result


class States:
    """The target's hidden states at batches: computed once, and kept while memory is free.

    Args:
        target: a native model.
        data: the batches.
        layers: the states to keep.
    """

    def __init__(self, target: CausalLM, data: Sequence[tuple[Tensor, Tensor]], layers: Sequence):
        self.target, self.data, self.layers = target, data, layers
        self.kept: dict[int, dict] = {}
        self.full = False

    def __call__(self, number: int) -> dict:
        """Return the states [B, n, d] of a batch by layer, in the target's dtype."""
        if number in self.kept:
            return self.kept[number]
        states = dict.fromkeys(self.layers)
        with torch.no_grad():
            self.target.model(self.data[number][0], keep=states, head=False)
        free = free_bytes(self.target.device) or 0
        self.full = self.full or free < FREE_BYTES
        if not self.full:
            self.kept[number] = states
        return states

    def fill(self) -> None:
        """Compute the states of all batches while memory is free, before training divides it."""
        for number in range(len(self.data)):
            self(number)
            if self.full:
                return

    def clear(self) -> None:
        """Free the states and keep none from now on."""
        self.kept.clear()
        self.full = True


def train_for(
    head: FeatureHead,
    loss: Callable[[int, float], Tensor],
    counts: Sequence[int],
    rate: float,
    seconds: float,
    at: Callable[[float, int], None],
) -> tuple[int, int]:
    """Train a head for some seconds; a GPU that runs out of memory skips the batch.

    Args:
        head: what is trained.
        loss: loss(batch, fraction of the time that is spent) → a scalar.
        counts: tokens of each batch that count.
        rate: peak learning rate; it rises at first and falls to zero at the end.
        seconds: time, measurements included.
        at: at(fraction, tokens seen), called at the points of `CURVE`.

    Returns:
        Steps made, and tokens seen.
    """
    chosen = optimizers(head, Plan(1, rate, weight_decay=0.0))
    began = told = time.monotonic()
    steps = seen = 0
    points = list(CURVE)
    for batch in endless(len(counts)):
        spent = (time.monotonic() - began) / seconds
        if spent >= 1:
            break
        if points and spent >= points[0]:
            points = [point for point in points if point > spent]
            at(spent, seen)
        now = rate * min(1.0, spent / WARMUP + 0.02, (1 - spent) / (1 - DECAY_FROM))
        row = torch.tensor(batch, device=head.ids.device)
        try:
            value = one_step(head, lambda _, spent=spent: loss(batch, spent), row, chosen, now)
        except torch.OutOfMemoryError:
            say("out of memory: the step is left out")
            head.zero_grad()
            at(-1.0, seen)
            continue
        steps, seen = steps + 1, seen + counts[batch]
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"step {steps}, {seen} tokens, loss {value:.3f}")
    head.eval()
    return steps, seen


def endless(count: int) -> Iterator[int]:
    """Yield the numbers of batches without end, in a new random order for every epoch."""
    for epoch in itertools.count():
        yield from batch_order(count, count, epoch)


def frozen(head: FeatureHead, target: CausalLM) -> FeatureHead:
    """Return a copy of a head as `load` returns it."""
    return copy.deepcopy(head).to(target.dtype).requires_grad_(False).eval()


@dataclass
class Training:
    """What all heads of a run share.

    Attributes:
        target: SmolLM2, without gradients.
        texts: to train on.
        held_out: to measure on.
        options: of the command.
        deadline: `time.monotonic()` at which everything must be finished.
        record: record(name, entry) writes the recording anew with a head's entry.
    """

    target: CausalLM
    texts: list[Sample]
    held_out: list[Sample]
    options: argparse.Namespace
    deadline: float
    record: Callable[[str, dict], None]

    def __post_init__(self):
        place = lambda part: part.to(self.target.device)
        data = batches(self.texts, self.options.batch_tokens, eagle.DEPTHS + 1)
        self.data = [(place(tokens), place(counted)) for tokens, counted in data]
        self.counts = [int(counted.sum()) for _, counted in data]
        layers = dict.fromkeys((*Eagle3Head.default_layers(self.target.num_layers), "final"))
        self.states = States(self.target, self.data, tuple(layers))
        say(f"{len(self.data)} batches, {sum(self.counts)} tokens of answers")
        self.states.fill()
        say(f"kept the states of {len(self.states.kept)} batches")

    def measure(self, head: FeatureHead) -> dict:
        """Return the held-out acceptance of a head, by kind and for "all"."""
        size = 32 if self.target.device.type == "cuda" else 4
        return eagle.measure(frozen(head, self.target), self.target, self.held_out, size)

    def head(self, name: str, arm: Arm, seconds: float) -> None:
        """Train one head, save and measure it."""
        target, recipe = self.target, arm.recipe
        count = min(arm.vocabulary, self.options.vocabulary or arm.vocabulary)
        ids = most_frequent_tokens(self.texts, count, target.vocab_size)
        head = eagle.KINDS[arm.version].for_target(target, ids, **arm.sizes)
        head = eagle.initialize_head(head, target).to(target.device)
        entry: dict = {
            "tokens": sum(self.counts),
            "recipe": asdict(recipe),
            "parameters": sum(weight.numel() for weight in head.parameters()),
            "curve": [],
        }

        def loss(batch: int, spent: float) -> Tensor:
            tokens, counted = self.data[batch]
            stored = self.states(batch)
            states = {layer: stored[layer].float() for layer in {*head.layers, "final"}}
            steps = recipe.steps if spent >= recipe.late else 1
            return unrolled_loss(head, target, tokens, states, counted, recipe, steps)

        def at(spent: float, seen: int) -> None:
            if spent < 0:  # a step failed: give its memory back
                self.states.clear()
                torch.cuda.empty_cache()
                return
            rates = self.measure(head)["all"]
            entry["curve"].append({"spent": spent, "seen": seen, **rates})
            first = {rate: round(row["mean"][0], 4) for rate, row in rates.items()}
            say(f"{name}: after {seen} tokens {first}")
            save(self.options.out / name, head, target, head.config)

        began = time.monotonic()
        steps, seen = train_for(head, loss, self.counts, self.options.rate, seconds, at)
        seconds = time.monotonic() - began
        entry |= {"steps": steps, "seen": seen, "seconds": seconds}
        save(self.options.out / name, head, target, head.config)
        entry["held_out"] = self.measure(head)
        self.record(name, entry)
        say(f"{name}: {json.dumps(entry['held_out']['all'])}")

    def heads(self) -> None:
        """Train the heads one after the other; the time that is left is divided by their shares."""
        names = [name for name in ARMS if name in self.options.heads]
        for number, name in enumerate(names):
            left = self.deadline - time.monotonic() - 2 * (len(names) - number)
            shares = [ARMS[other].share for other in names[number:]]
            seconds = left * shares[0] / sum(shares)
            if seconds < self.options.least:
                say(f"{name}: {seconds:.0f} s are left, too few")
                return
            say(f"{name}: {seconds:.0f} s")
            try:
                self.head(name, ARMS[name], seconds)
            except RuntimeError:  # the other heads may still succeed
                traceback.print_exc()


# The command ----------------------------------------------------------------------------------------


def write_texts(target: CausalLM, drawn, held_out, options) -> list[Text]:
    """Return what the model writes within its part of the time."""
    requests = [text for text in drawn if text.kind != EVALUATION]
    requests = requests[:: max(1, len(requests) // options.most)]
    until = BEGAN + options.text_share * options.seconds
    writer = Writer(target, options.rows, options.longest + options.new_tokens, STOPS)
    began = time.monotonic()
    writer.capture_steps()
    writer.check_graphs([tuple(text.ids.tolist()) for text in requests[:: len(requests) // 8 or 1]])
    say(f"{len(writer.graphs)} graphs in {time.monotonic() - began:.1f} s")
    messages = [text for text in drawn if text.kind == EVALUATION]
    excluded = excluded_grams(messages, held_out, frame(requests))
    say(f"{len(requests)} drawn requests; {len(messages)} + {len(held_out)} prompts are excluded")
    left = lambda share: max(1.0, share * (until - time.monotonic()))
    own = own_requests(writer, requests, options.own, excluded, left(0.15)) if options.own else []
    say(f"{len(own)} requests of its own")
    short = [text for text in requests if text.start <= options.longest]
    own = [row for row in own if len(row) <= options.longest]
    texts = answers(writer, short, own, options, left(1.0))
    random.Random(0).shuffle(texts)
    return texts


def run(options: argparse.Namespace) -> None:
    """Write the text, train the heads, and write everything to `--out`."""
    device = resolve_device(options.device)
    torch.manual_seed(options.seed)
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape
        torch.set_float32_matmul_precision("high")
    if options.parts is None:
        folder = smollm2_folder()
    else:
        folder = carried.unpack(options.parts, Path(tempfile.mkdtemp(), "smollm2"))
    target = load_model(folder, str(device), options.dtype or half_precision(device))
    target.model.requires_grad_(False)
    say(f"{MODEL} on {stamps.machine_name(device)}")
    requests = options.requests or (options.parts and options.parts / "requests")
    drawn = read_pieces(requests) if requests else drawn_requests(load_tokenizer(folder))
    held_out = [text for text in read_pieces(PIECES) if text.held_out][:: options.held_out_every]
    texts = write_texts(target, drawn, held_out, options)
    about = {"model": MODEL, "weights": fingerprint(target), "dtype": str(target.dtype)}
    limit = int(options.megabytes * 1e6)
    writing = Thread(target=store, args=(options.out / "text", texts, about, limit))
    writing.start()
    data = {"target": fingerprint(target), "texts": summary(texts), "heads": {}}
    stamp = stamps.stamp(
        WHAT, f"python -m benchmarks.gpu_heads --seconds {options.seconds:g}", str(device)
    )

    def record(name: str, entry: dict) -> None:
        data["heads"][name] = entry
        stamps.save(options.out / "recording.json", stamp, data)

    stamps.save(options.out / "recording.json", stamp, data)
    say(f"text: {json.dumps(data['texts'])}")
    if device.type == "cuda":
        torch.cuda.empty_cache()
    sample = lambda text: Sample(text.ids, text.start, text.kind, text.temperature)
    samples, unseen = [sample(text) for text in texts], [sample(text) for text in held_out]
    deadline = BEGAN + options.seconds
    Training(target, samples, unseen, options, deadline, record).heads()
    writing.join()
    say("finished")


def summary(texts: Sequence[Text]) -> dict:
    """Return numbers of answers and tokens, by kind and temperature."""
    table: dict[str, dict] = {}
    for text in texts:
        row = table.setdefault(f"{text.kind}, T = {text.temperature:g}", {"texts": 0, "tokens": 0})
        row["texts"] += 1
        row["tokens"] += len(text.ids) - text.start
    total = {key: sum(row[key] for row in table.values()) for key in ("texts", "tokens")}
    return {"all": total, **dict(sorted(table.items()))}


def prepare(folder: Path) -> None:
    """Write the parts of the model and the requests, for a machine without network."""
    requests = drawn_requests(load_tokenizer(smollm2_folder()))
    for path in (*carried.pack(folder), write_requests(folder, requests)):
        print(path, f"{path.stat().st_size:,} bytes")


def write_requests(folder: Path, requests: Sequence[Text]) -> Path:
    """Write the requests as a piece of text, in place of an earlier one."""
    for path in (folder / "requests").glob("*.xz"):
        path.unlink()
    return write_piece(folder / "requests", requests, {"model": MODEL, "what": "requests"})


def append_pieces(source: Path, pieces: Path, limit: int) -> None:
    """Append answers to a folder of pieces, about as many as a limit in bytes allows.

    Prompts with two answers come first: a file needs hardly more room for the second copy of a
    prompt.
    """
    groups: dict[tuple, list[Text]] = {}
    for text in read_pieces(source):
        groups.setdefault(text.prompt()[1], []).append(text)
    texts = [text for group in sorted(groups.values(), key=len, reverse=True) for text in group]
    about = read_about(piece_paths(source)[0])
    store(pieces, texts, about, limit)


def in_bits(source: Path, target: CausalLM, kind: type[FeatureHead], bits: int) -> FeatureHead:
    """Return a head as it loads after it was stored."""
    head = load(source, target, kind)
    with tempfile.TemporaryDirectory() as folder:
        save(folder, head, target, head.config, bits=bits, fine=FINE)
        return load(folder, target, kind)


def compare_bits(source: Path, names: Sequence[str], weights: Path, every: int = 1) -> Path:
    """Measure the heads in 16 and in fewer bits on the same held-out texts, and record it.

    The target reads each text once for all heads, so their differences are those of the weights.
    """
    target, _ = load_smollm2("cpu", "float32")
    texts = held_out_samples(every)
    heads = {
        (name, bits): in_bits(source / name, target, eagle.KINDS[ARMS[name].version], bits)
        for name in names
        for bits in COMPARED
    }
    layers = tuple({layer for head in heads.values() for layer in head.layers})
    sums: dict[tuple, Tensor] = {}
    for rate, temperature in (("alpha", 1.0), ("agrees", 0.0)):
        chosen = sorted(
            (t for t in texts if t.temperature == temperature), key=lambda t: len(t.ids)
        )
        for number, (tokens, counted) in enumerate(batch_by_length(chosen, 4, eagle.DEPTHS + 1)):
            scores = target.score(tokens, target.new_cache(*tokens.shape), hidden_layers=layers)
            once: Any = ReadOnce(target, scores)
            for key, head in heads.items():
                rows = acceptance_by_depth(head, once, tokens, counted, eagle.DEPTHS)
                each = [[float(row[rate].double().sum()), len(row[rate])] for row in rows]
                sums[*key, rate] = sums.get((*key, rate), 0) + torch.tensor(each)
            say(f"{rate}, batch {number}")
    table: dict[str, dict] = {}
    for (name, bits, rate), total in sums.items():
        mean = [round(value, 5) for value in (total[:, 0] / total[:, 1]).tolist()]
        table.setdefault(name, {}).setdefault(str(bits), {})[rate] = mean
        say(f"{name} in {bits} bits, {rate}: {mean}")
    command = f"python -m benchmarks.gpu_heads --compare OUT --held-out-every {every}"
    stamp = stamps.stamp("EAGLE heads for SmolLM2 in fewer bits: held-out acceptance", command)
    path = stamps.recording_path(BITS_EXPERIMENT, stamps.machine_name(), results_beside(weights))
    return stamps.save(path, stamp, {"texts": len(texts), "heads": table})


class ReadOnce:
    """A target that returns the scores of the one text that it has read.

    Args:
        target: a model.
        scores: its scores of the text.
    """

    def __init__(self, target: CausalLM, scores: Scores):
        self.target, self.scores = target, scores

    def __getattr__(self, name: str):
        return getattr(self.target, name)

    def score(self, *args, **options) -> Scores:
        """Return the scores."""
        return self.scores


def results_beside(weights: Path) -> Path:
    """Return the folder of the recordings of the repository whose weights these are."""
    return weights.parents[1] / "results"


def held_out_samples(every: int) -> list[Sample]:
    """Return every n-th held-out answer."""
    texts = [text for text in read_pieces(PIECES) if text.held_out][::every]
    return [Sample(text.ids, text.start, text.kind, text.temperature) for text in texts]


def install(source: Path, names: Sequence[str], weights: Path, bits: int = 8) -> None:
    """Store the heads among the shipped weights, each with a report of how it was made.

    The report has the acceptance that the run measured in 16 bits; `compare_bits` measures what
    fewer bits cost. The recording goes to results/.
    """
    recording = json.loads((source / "recording.json").read_text("utf-8"))
    path = stamps.recording_path(EXPERIMENT, recording["machine"], results_beside(weights))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "recording.json", path)
    target, _ = load_smollm2("cpu", "float32")
    for name in [name for name in names if name in recording["heads"]]:
        kind, out = eagle.KINDS[ARMS[name].version], weights / name / "smollm2"
        head = load(source / name, target, kind)
        file = save(out, head, target, head.config, bits=bits, fine=FINE)
        entry = {key: row for key, row in recording["heads"][name].items() if key != "curve"}
        stamp = {key: recording[key] for key in stamps.STAMP}
        stamp["what"] = "a block on the target's features"
        about = {key: recording["texts"]["all"][key] for key in ("texts", "tokens")}
        report = {"target": recording["target"], "bits": bits, **about, **entry}
        stamps.save(out / "report.json", stamp, report)
        print(f"{name}: {file.stat().st_size:,} bytes")


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_heads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--prepare", type=Path, help="write model and requests to this folder, and end")
    add("--install", type=Path, help="store the heads of this folder in the repository, and end")
    add(
        "--compare",
        type=Path,
        help="measure what fewer bits cost the heads of this folder, and end",
    )
    add(
        "--bits",
        type=int,
        default=8,
        choices=(4, 5, 6, 7, 8),
        help="of the heads that --install stores",
    )
    add("--weights", type=Path, default=SHIPPED, help="where --install stores them")
    add("--pieces", type=Path, help="folder to which --install appends the text")
    add("--out", type=Path, default=Path(".work/gpu-heads"), help="folder of the results")
    add("--seconds", type=float, default=290.0, help="time for everything")
    add("--text-share", type=float, default=0.3, help="part of the time until the text is written")
    add("--parts", type=Path, help="folder with the model's parts; default: load_smollm2's model")
    add("--requests", type=Path, help="folder of requests; default: the parts' or drawn here")
    add("--heads", nargs="+", default=list(ARMS), choices=list(ARMS))
    add("--rows", type=int, default=1024, help="texts at a time")
    add("--own", type=int, default=24_576, help="requests for the model to write")
    add("--most", type=int, default=10**9, help="drawn requests, at most")
    add("--new-tokens", type=int, default=192, help="tokens of an answer, at most")
    add("--longest", type=int, default=320, help="tokens of a request, at most")
    add("--batch-tokens", type=int, default=16_384, help="tokens per step, prompts included")
    add("--rate", type=float, default=2e-3, help="peak learning rate")
    add("--vocabulary", type=int, help="draft vocabulary, at most")
    add("--least", type=float, default=15.0, help="seconds below which a head is not begun")
    add("--held-out-every", type=int, default=1, help="measure on every n-th held-out text")
    add("--megabytes", type=float, default=7.8, help="size of the stored or appended text, at most")
    add("--seed", type=int, default=0)
    add("--device", default="auto")
    add("--dtype", help="of the target; default: 16 bits")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    if options.prepare is not None:
        prepare(options.prepare)
    elif options.compare is not None:
        compare_bits(options.compare, options.heads, options.weights, options.held_out_every)
    elif options.install is not None:
        install(options.install, options.heads, options.weights, options.bits)
        if options.pieces is not None:
            append_pieces(options.install / "text", options.pieces, int(1e6 * options.megabytes))
    else:
        run(options)


if __name__ == "__main__":
    main()
