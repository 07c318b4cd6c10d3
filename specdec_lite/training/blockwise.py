"""Heads for blockwise parallel decoding: frozen, fine-tuned and distilled, each measured."""

import argparse
import copy
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from specdec_lite.decoding import generate
from specdec_lite.drafters.blockwise import SHIPPED, BlockwiseDrafter
from specdec_lite.drafters.heads import Heads, fingerprint, save_heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.corpus import DOMAINS, evaluation_prompts, held_out_text
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.measure import results
from specdec_lite.training.loop import Plan, train, windows
from specdec_lite.training.text import prepare

COUNT = 7
BLOCKS = (1, 2, 4, 6, 8)
REGIMES = ("frozen", "distilled", "finetuned")
LOSSES = ("random", "mean")
STEPS = {"frozen": 1600, "distilled": 400, "finetuned": 300}
BATCH = 4
RATES = {"frozen": 3e-3, "distilled": 1e-3, "finetuned": 3e-4}


def final_states(model: Transformer, tokens: Tensor) -> Tensor:
    """tokens [B, n] → the hidden states [B, n, d] that enter the vocabulary projection."""
    kept: dict = {"final": None}
    model(tokens, keep=kept, last=True)
    return kept["final"]


def head_logits(model: Transformer, heads: Heads, hidden: Tensor, index: int) -> Tensor:
    """hidden [..., d] → logits [..., V] of extra head `index`; −1 is the model's own head."""
    return model.head(hidden if index < 0 else heads(hidden, slice(index, index + 1))[..., 0, :])


def head_loss(model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, index: int) -> Tensor:
    """Mean cross-entropy in nats of head `index` over windows rows [B, n+1], whose first n tokens
    gave hidden [B, n, d].

    The row of token t_j is scored on t_{j+index+2}; the last rows of a window have no such token
    and are left out.
    """
    logits = head_logits(model, heads, hidden[:, : hidden.shape[1] - index - 1], index)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, index + 2 :].flatten())


def heads_loss(
    model: Transformer, heads: Heads, kind: str, backbone: bool = False, compiled: bool = False
) -> Callable[[Tensor], Tensor]:
    """The loss of a batch: of one head drawn at random ("random", the paper's), or the mean over
    all heads ("mean").

    backbone: the model is trained too, and its own head is one of the heads. The draw is a function
    of the batch, so that a resumed run draws alike. Source: Stern et al. 2018, section 6 (the mean
    did not fit into their memory).
    """
    indices = range(-1 if backbone else 0, heads.count)
    model.rotary(next(model.parameters()).device, torch.float32)
    states = torch.compile(final_states, dynamic=False) if compiled else final_states

    def loss(rows: Tensor) -> Tensor:
        with torch.set_grad_enabled(backbone):
            hidden = states(model, rows[:, :-1])
        chosen = indices
        if kind == "random":
            chosen = [int(np.random.default_rng(rows[0].tolist()).choice(indices))]
        return torch.stack(
            [head_loss(model, heads, hidden, rows, index) for index in chosen]
        ).mean()

    return loss


def own_words(
    target: CausalLM,
    streams: dict,
    pieces: int = 1024,
    prompt: int = 96,
    new: int = 160,
    batch: int = 256,
) -> dict:
    """Streams of the same names, made of the target's own greedy continuations: `pieces` times
    `prompt` tokens of text and `new` of its own.

    Source: Stern et al. 2018, section 6 (there by beam search, with a teacher of another seed; Kim
    and Rush 2016).
    """
    rng, made = np.random.default_rng(0), {name: [] for name in streams}
    for _ in tqdm(range(0, pieces, batch), desc="own words", mininterval=5):
        names, rows = windows(streams, rng, batch, prompt)
        cache = target.new_cache(batch, prompt + new)
        fed = rows
        text = [rows]
        for _ in range(new):
            fed = target.score(fed, cache, last=True).logits[:, -1:].argmax(-1)
            text.append(fed.cpu())
        for name, piece in zip(names, torch.cat(text, 1).numpy().astype(np.uint16)):
            made[name].append(piece)
    return {name: np.concatenate(parts) for name, parts in made.items() if parts}


@torch.no_grad()
def held_out(
    target: CausalLM, heads: Heads, tokenizer, window: int = 512, longest: int = 4096
) -> dict[str, list[float]]:
    """Loss in nats and accuracy of the target's own head and of every extra one: the first
    `longest` tokens of each held-out text, in windows.
    """
    loss, right, count = (torch.zeros(heads.count + 1, dtype=torch.float64) for _ in range(3))
    texts = [text for domain in DOMAINS for text in held_out_text()[domain]]
    for tokens in (
        torch.tensor(tokenizer.encode(text)[:longest], device=target.device) for text in texts
    ):
        for start in range(0, len(tokens) - heads.count - 2, window):
            rows = tokens[None, start : start + window + 1]
            hidden = final_states(target.model, rows[:, :-1])
            for index in range(-1, heads.count):
                logits = head_logits(
                    target.model, heads, hidden[0, : hidden.shape[1] - index - 1], index
                ).float()
                following = rows[0, index + 2 :]
                loss[index + 1] += (
                    F.cross_entropy(logits, following, reduction="sum").item()
                    if len(following)
                    else 0.0
                )
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

    A block is the target's own token and the drafts accepted with it: τ is tokens ÷ target passes,
    1 at k = 1.
    """
    prompts = [
        (domain, tokenizer.encode(item["text"]))
        for domain, items in evaluation_prompts().items()
        for item in items
    ]
    runs = {
        k: [
            generate(target, ids, BlockwiseDrafter(target, heads, k), new_tokens)
            for _, ids in prompts
        ]
        for k in tqdm(blocks, desc="block sizes")
    }
    texts = {k: [out.tokens.tolist() for out in outs] for k, outs in runs.items()}
    found: dict = {"k": list(blocks), "new_tokens": new_tokens, "prompts": len(prompts)}
    for name in ("all", *DOMAINS):
        chosen = {
            k: [out.stats for out, (domain, _) in zip(outs, prompts) if name in ("all", domain)]
            for k, outs in runs.items()
        }
        found[name] = [
            sum(s.tokens for s in stats) / sum(s.target_passes for s in stats)
            for stats in chosen.values()
        ]
    found["identical_to_greedy"] = [sum(a == b for a, b in zip(texts[k], texts[1])) for k in blocks]
    return found, texts[1]


def differences(texts: list[list[int]], originals: list[list[int]]) -> dict[str, float]:
    """How greedy texts changed: share of prompts whose text differs at all, and mean share of
    tokens before the first difference.
    """
    before = [
        next((i for i, (a, b) in enumerate(zip(text, original)) if a != b), len(text)) / len(text)
        for text, original in zip(texts, originals)
    ]
    return {
        "texts_changed": sum(share < 1 for share in before) / len(before),
        "tokens_before_the_change": sum(before) / len(before),
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
    rate = RATES[regime]
    tuned = regime == "finetuned"
    torch.manual_seed(0)
    heads = copy.deepcopy(start) if start else Heads(target.hidden_size, COUNT).to(target.device)
    heads.requires_grad_(True)
    model = copy.deepcopy(target.model).requires_grad_(True) if tuned else target.model
    trained = nn.ModuleDict({"backbone": model, "heads": heads}) if tuned else heads
    loss = heads_loss(model, heads, kind, tuned, chosen.compile)
    path = chosen.work / f"{regime}-{kind}-{steps}-{fingerprint(target)}.pt"
    seconds = train(
        trained, loss, streams, Plan(steps, rate, BATCH, warmup=max(1, steps // 10)), path
    )
    return (
        CausalLM(model.requires_grad_(False)),
        heads.requires_grad_(False),
        {"steps": steps, "batch": BATCH, "learning_rate": rate, "seconds": seconds},
    )


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
        help="folder for checkpoints and token streams",
    )
    parser.add_argument("--device", default="cpu")
    for regime in REGIMES:
        parser.add_argument(f"--{regime}-steps", type=int, default=STEPS[regime])
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile the target: needs a C++ compiler"
    )


def command_line(chosen: argparse.Namespace, regime: str, kind: str) -> str:
    """What to type to train one entry of the recording again."""
    words = ["python -m specdec_lite.training blockwise", f"--regime {regime}", f"--loss {kind}"]
    words += [
        f"--{name}-steps {steps}"
        for name in REGIMES
        if (steps := getattr(chosen, f"{name}_steps")) != STEPS[name]
    ]
    return " ".join(
        [
            *words,
            *[f"--device {chosen.device}"] * (chosen.device != "cpu"),
            *["--compile"] * chosen.compile,
        ]
    )


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
    named = lambda run: (run["regime"], run["loss_kind"])
    runs = [run for run in recorded(path, target)["runs"] if named(run) != named(entry)]
    stamp = results.stamp(
        "heads for blockwise parallel decoding on the shipped target",
        "python -m specdec_lite.training blockwise",
        target.device.type,
    )
    results.save(
        path, stamp, {"target": fingerprint(target), "untrained": untrained, "runs": [*runs, entry]}
    )


def asked_for(regime: str, loss: str | None) -> list[tuple[str, str]]:
    """(regime, loss) of every training to do, in order: the frozen one comes first, since the
    others start from its heads.
    """
    if loss is None:
        return [("frozen", "random")] * (regime in ("all", "frozen")) + [
            (name, "mean") for name in REGIMES if regime in ("all", name) or name == "frozen"
        ]
    return [(name, loss) for name in REGIMES if regime in ("all", name) or name == "frozen"]


def run(chosen: argparse.Namespace) -> None:
    """Train the regimes asked for, measure and record each; the frozen heads with the mean loss are
    written to `--out`.
    """
    pair = load_pair(device=chosen.device, dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    _, streams = prepare(chosen.work, PAIR)
    fresh = Heads(target.hidden_size, COUNT).to(target.device)
    untrained = recorded(chosen.record, target)["untrained"] or held_out(target, fresh, tokenizer)
    frozen, originals = None, None
    for regime, kind in asked_for(chosen.regime, chosen.loss):
        text = (
            own_words(load_pair(device=chosen.device, dtype="bfloat16").target, streams)
            if regime == "distilled"
            else streams
        )
        model, heads, plan = train_regime(
            regime, kind, target, frozen if regime != "frozen" else None, text, chosen
        )
        frozen = heads if regime == "frozen" else frozen
        if (regime, kind) == ("frozen", "mean"):
            save_heads(chosen.out, heads, target)
        if chosen.regime not in ("all", regime):
            continue
        sizes, texts = block_sizes(model, heads, tokenizer)
        originals = originals or (
            texts
            if regime != "finetuned"
            else block_sizes(target, fresh, tokenizer, blocks=(1,))[1]
        )
        entry = {
            "regime": regime,
            "loss_kind": kind,
            "date": date.today().isoformat(),
            "command": command_line(chosen, regime, kind),
        } | plan
        entry |= {
            "held_out": held_out(model, heads, tokenizer),
            "blocks": sizes,
            "change": differences(texts, originals),
        }
        record(chosen.record, target, untrained, entry)
        print(json.dumps(entry, indent=1))
