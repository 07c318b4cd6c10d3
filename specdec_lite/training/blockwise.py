"""Heads for blockwise parallel decoding: frozen, fine-tuned and distilled, each measured."""

import argparse
import copy
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from specdec_lite.decoding import Output, generate
from specdec_lite.drafters.blockwise import SHIPPED, BlockwiseDrafter
from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.corpus import DOMAINS, evaluation_prompts, held_out_text
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.measure import results
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, given, train, windows
from specdec_lite.training.losses import final_states, head_logits, head_loss
from specdec_lite.training.own_text import own_text
from specdec_lite.training.text import prepare

COUNT = 7
BLOCKS = (1, 2, 4, 6, 8)
REGIMES = ("frozen", "distilled", "finetuned")
LOSSES = ("random", "mean")
STEPS = {"frozen": 1600, "distilled": 400, "finetuned": 300}
BATCH = 4
RATES = {"frozen": 3e-3, "distilled": 1e-3, "finetuned": 3e-4}


def chosen_loss(
    model: Transformer,
    heads: Heads,
    hidden: Tensor,
    rows: Tensor,
    kind: str,
    indices: Sequence[int],
) -> Tensor:
    """The loss of one head of `indices`, drawn at random ("random", the paper's), or the mean over
    all of them ("mean").

    The draw is a function of the batch, so that a resumed run draws alike. Source: Stern et al.
    2018, section 6 (the mean did not fit into their memory).
    """
    if kind == "random":
        rng = np.random.default_rng(rows[0].tolist())
        indices = [int(rng.choice(indices))]
    losses = [head_loss(model, heads, hidden, rows, index) for index in indices]
    return torch.stack(losses).mean()


def frozen_loss(
    model: Transformer, heads: Heads, kind: str, states: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """The heads learn, the model does not: its hidden states are those of `states`, tokens [B, n] →
    [B, n, d].
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = states(rows[:, :-1])
        return chosen_loss(model, heads, hidden, rows, kind, range(heads.count))

    return loss


def finetuned_loss(
    model: Transformer, heads: Heads, kind: str, compiled: bool = False
) -> Callable[[Tensor], Tensor]:
    """Model and heads learn, and the model's own head is one of the heads."""
    model.rotary(next(model.parameters()).device, torch.float32)
    states = torch.compile(final_states, dynamic=False) if compiled else final_states

    def loss(rows: Tensor) -> Tensor:
        hidden = states(model, rows[:, :-1])
        return chosen_loss(model, heads, hidden, rows, kind, range(-1, heads.count))

    return loss


def own_words(
    target: CausalLM,
    streams: dict,
    folder: Path,
    pieces: int = 1024,
    prompt: int = 96,
    new: int = 160,
    batch: int = 256,
) -> dict[str, np.ndarray]:
    """Streams of the same names, made of the target's own greedy continuations: `pieces` times
    `prompt` tokens of text and `new` of its own, kept in `folder` as far as they were made.

    Source: Stern et al. 2018, section 6 (there by beam search, with a teacher of another seed; Kim
    and Rush 2016).
    """
    rng = np.random.default_rng(0)
    drawn = [windows(streams, rng, batch, prompt) for _ in range(0, pieces, batch)]
    names = [name for part, _ in drawn for name in part]
    texts = own_text(target, torch.cat([rows for _, rows in drawn]), new, folder, batch)
    return {
        name: np.concatenate(
            [text.numpy().astype(np.uint16) for text, its in zip(texts, names) if its == name]
        )
        for name in streams
        if name in names
    }


def held_out_windows(tokenizer, window: int, longest: int, beyond: int) -> Iterator[Tensor]:
    """The first `longest` tokens of each held-out text, in rows [1, ≤ window + 1] that share one
    token; rests that are too short for a head that looks `beyond` tokens ahead are left out.
    """
    for text in (text for domain in DOMAINS for text in held_out_text()[domain]):
        tokens = torch.tensor(tokenizer.encode(text)[:longest])
        for start in range(0, len(tokens) - beyond, window):
            yield tokens[None, start : start + window + 1]


@torch.no_grad()
def held_out(
    target: CausalLM, heads: Heads, tokenizer, window: int = 512, longest: int = 4096
) -> dict[str, list[float]]:
    """Loss in nats and accuracy of the target's own head and of every extra one on held-out text."""
    loss = torch.zeros(heads.count + 1, dtype=torch.float64)
    right = torch.zeros_like(loss)
    count = torch.zeros_like(loss)
    for rows in held_out_windows(tokenizer, window, longest, heads.count + 2):
        rows = rows.to(target.device)
        hidden = final_states(target.model, rows[:, :-1])[0]
        for index in range(-1, heads.count):
            following = rows[0, index + 2 :]
            read = hidden[: len(following)]
            logits = head_logits(target.model, heads, read, index).float()
            loss[index + 1] += F.cross_entropy(logits, following, reduction="sum").item()
            right[index + 1] += (logits.argmax(-1) == following).sum().item()
            count[index + 1] += len(following)
    return {
        "loss": (loss / count).tolist(),
        "accuracy": (right / count).tolist(),
        "tokens": int(count[0]),
    }


def block_sizes(
    target: CausalLM,
    heads: Heads,
    tokenizer,
    blocks: tuple[int, ...] = BLOCKS,
    new_tokens: int = 48,
) -> tuple[dict, list[list[int]]]:
    """Mean accepted block size τ by k, greedy, over all evaluation prompts and by domain; and the
    texts that k = 1 writes.
    """
    prompts = [
        (domain, tokenizer.encode(item["text"]))
        for domain, items in evaluation_prompts().items()
        for item in items
    ]
    runs = {}
    for k in tqdm(blocks, desc="block sizes"):
        drafter = BlockwiseDrafter(target, heads, k)
        runs[k] = [generate(target, ids, drafter, new_tokens) for _, ids in prompts]
    texts = {k: [run.tokens.tolist() for run in of_k] for k, of_k in runs.items()}
    sizes: dict = {"k": list(blocks), "new_tokens": new_tokens, "prompts": len(prompts)}
    for name in ("all", *DOMAINS):
        rows = [row for row, (domain, _) in enumerate(prompts) if name in ("all", domain)]
        sizes[name] = [mean_block([runs[k][row] for row in rows]) for k in blocks]
    sizes["identical_to_greedy"] = [
        sum(text == plain for text, plain in zip(texts[k], texts[1])) for k in blocks
    ]
    return sizes, texts[1]


def mean_block(runs: Sequence[Output]) -> float:
    """Tokens ÷ target passes, 1 at k = 1: a block is the target's own token and the drafts accepted
    with it.
    """
    tokens = sum(run.stats.tokens for run in runs)
    return tokens / sum(run.stats.target_passes for run in runs)


def same_share(text: list[int], original: list[int]) -> float:
    """The share of a text's tokens before its first difference from the original."""
    for place, (token, before) in enumerate(zip(text, original)):
        if token != before:
            return place / len(text)
    return 1.0


def differences(texts: list[list[int]], originals: list[list[int]]) -> dict[str, float]:
    """How greedy texts changed: share of prompts whose text differs at all, and mean share of
    tokens before the first difference.
    """
    shares = [same_share(text, original) for text, original in zip(texts, originals)]
    return {
        "texts_changed": sum(share < 1 for share in shares) / len(shares),
        "tokens_before_the_change": sum(shares) / len(shares),
    }


def train_regime(
    regime: str,
    kind: str,
    target: CausalLM,
    start: Heads | None,
    streams: dict,
    chosen: argparse.Namespace,
) -> tuple[CausalLM, Heads, dict]:
    """Train in one regime, from `start` where given. Returns the target (a copy, if its backbone
    was trained), the heads, and the plan.
    """
    steps = getattr(chosen, f"{regime}_steps")
    plan = Plan(steps, RATES[regime], BATCH, warmup=max(1, steps // 10))
    path = chosen.work / f"{regime}-{kind}-{steps}-{fingerprint(target)}.pt"
    torch.manual_seed(0)
    heads = copy.deepcopy(start) if start else Heads(target.hidden_size, COUNT).to(target.device)
    heads.requires_grad_(True)
    if regime == "finetuned":
        model = copy.deepcopy(target.model).requires_grad_(True)
        trained = nn.ModuleDict({"backbone": model, "heads": heads})
        loss = finetuned_loss(model, heads, kind, chosen.compile)
    else:
        model = target.model
        trained = heads
        features = Features(target, chosen.work / "features")
        loss = frozen_loss(model, heads, kind, lambda tokens: features(tokens)["final"])
    seconds = train(trained, loss, streams, plan, path)
    model.requires_grad_(False)
    heads.requires_grad_(False)
    made = {"steps": steps, "batch": BATCH, "learning_rate": plan.learning_rate, "seconds": seconds}
    return CausalLM(model), heads, made


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training blockwise`."""
    parser.add_argument(
        "--regime",
        choices=["all", *REGIMES],
        default="all",
        help="frozen: heads alone, the ones shipped; the others go on from them",
    )
    parser.add_argument(
        "--loss",
        choices=LOSSES,
        help=(
            "one head a batch, or the mean of all; default: frozen with both, the others with mean"
        ),
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=SHIPPED,
        help="folder for the heads of the frozen regime with the mean loss",
    )
    parser.add_argument(
        "--record",
        type=Path,
        default=Path("results/blockwise.json"),
        help="the recording to write, or to bring up to date",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".work/blockwise"),
        help="folder for checkpoints, token streams, the target's own text and features (2 GB)",
    )
    parser.add_argument("--device", default="cpu")
    for regime in REGIMES:
        parser.add_argument(f"--{regime}-steps", type=int, default=STEPS[regime])
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile the target where it is trained: needs a C++ compiler",
    )


def command_line(chosen: argparse.Namespace, regime: str, kind: str) -> str:
    """What to type to train one entry of the recording again."""
    usual = {f"{name}-steps": STEPS[name] for name in REGIMES} | {"device": "cpu", "compile": False}
    words = [f"python -m specdec_lite.training blockwise --regime {regime} --loss {kind}"]
    return " ".join([*words, *given(chosen, usual)])


def recorded(path: Path, target: CausalLM) -> dict:
    """What the recording at `path` holds of this target: {"untrained": figures or None, "runs":
    entries}; nothing of another one.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = found.get("target") == fingerprint(target)
    return {
        "untrained": found["untrained"] if same else None,
        "runs": found["runs"] if same else [],
    }


def record(path: Path, target: CausalLM, untrained: dict, entry: dict) -> None:
    """Put one entry into the recording, in the place of an older one of the same regime and loss."""
    runs = [
        run
        for run in recorded(path, target)["runs"]
        if (run["regime"], run["loss_kind"]) != (entry["regime"], entry["loss_kind"])
    ]
    stamp = results.stamp(
        "heads for blockwise parallel decoding on the shipped target",
        "python -m specdec_lite.training blockwise",
        target.device.type,
    )
    data = {"target": fingerprint(target), "untrained": untrained, "runs": [*runs, entry]}
    results.save(path, stamp, data)


def asked_for(regime: str, loss: str | None) -> list[tuple[str, str]]:
    """(regime, loss) of every training to do, in order: the frozen one comes first, since the
    others start from its heads.
    """
    regimes = [name for name in REGIMES if regime in ("all", name) or name == "frozen"]
    runs = [(name, loss or "mean") for name in regimes]
    if loss is None and regime in ("all", "frozen"):
        runs.insert(0, ("frozen", "random"))
    return runs


def text_of(regime: str, streams: dict, chosen: argparse.Namespace) -> dict:
    """What a regime trains on: the streams, or what the target writes after pieces of them."""
    if regime != "distilled":
        return streams
    writer = load_pair(device=chosen.device, dtype="bfloat16").target
    return own_words(writer, streams, chosen.work / "own-text")


def run(chosen: argparse.Namespace) -> None:
    """Train the regimes asked for, measure and record each; the frozen heads with the mean loss are
    written to `--out`.
    """
    pair = load_pair(device=chosen.device, dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    _, streams = prepare(chosen.work, PAIR)
    fresh = Heads(target.hidden_size, COUNT).to(target.device)
    untrained = recorded(chosen.record, target)["untrained"] or held_out(target, fresh, tokenizer)
    _, originals = block_sizes(target, fresh, tokenizer, blocks=(1,))
    frozen = None
    for regime, kind in asked_for(chosen.regime, chosen.loss):
        text = text_of(regime, streams, chosen)
        start = None if regime == "frozen" else frozen
        model, heads, plan = train_regime(regime, kind, target, start, text, chosen)
        if regime == "frozen":
            frozen = heads
        if (regime, kind) == ("frozen", "mean"):
            save(chosen.out, heads, target, heads.config)
        if chosen.regime not in ("all", regime):
            continue
        sizes, texts = block_sizes(model, heads, tokenizer)
        entry = {
            "regime": regime,
            "loss_kind": kind,
            "date": date.today().isoformat(),
            "command": command_line(chosen, regime, kind),
            **plan,
            "held_out": held_out(model, heads, tokenizer),
            "blocks": sizes,
            "change": differences(texts, originals),
        }
        record(chosen.record, target, untrained, entry)
        print(json.dumps(entry, indent=1))
