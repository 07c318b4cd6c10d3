"""Medusa's heads on the frozen target, their accuracy by rank, and the sparse tree chosen from it;
joint training beside it.
"""

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import SHIPPED
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading.corpus import DOMAINS, evaluation_prompts, held_out_text, make_prompts
from specdec_lite.loading.pairs import SHIPPED as PAIR, load_pair
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.measure import results
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan, given, train
from specdec_lite.training.losses import final_states, head_loss
from specdec_lite.training.own_text import continued
from specdec_lite.training.text import prepare
from specdec_lite.tree import TokenTree

COUNT = 4
DECAY = 0.8
RANKS = 10
NODES = 16
REGIMES = ("frozen", "joint")
STEPS = {"frozen": 3000, "joint": 150}
RATES = {"frozen": 3e-3, "joint": 3e-4}
WEIGHT = 0.2
OWN_TEXT = {"greedy": 0.0, "sampled": 1.0}


def weighted_loss(
    model: Transformer, heads: Heads, hidden: Tensor, rows: Tensor, decay: float = DECAY
) -> Tensor:
    """Σ λᵏ · (cross-entropy of head k), k = 1 … K, with λ = `decay`: later heads know less and
    weigh less.

    Head k at the row of token t_j is scored on t_{j+k+1}: labels shifted by one more than its
    number. Source: Cai et al. 2024, equation 1.
    """
    losses = [
        decay ** (index + 1) * head_loss(model, heads, hidden, rows, index)
        for index in range(heads.count)
    ]
    return torch.stack(losses).sum()


def frozen_loss(
    model: Transformer, heads: Heads, states: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Medusa-1: the heads learn, the target does not; its hidden states are those of `states`,
    tokens [B, n] → [B, n, d].
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = states(rows[:, :-1])
        return weighted_loss(model, heads, hidden, rows)

    return loss


def joint_loss(
    model: Transformer, heads: Heads, weight: float = WEIGHT
) -> Callable[[Tensor], Tensor]:
    """Medusa-2: the target's own next-token loss plus `weight` times that of the heads; both learn.
    Source: equation 2.
    """

    def loss(rows: Tensor) -> Tensor:
        hidden = final_states(model, rows[:, :-1])
        own = head_loss(model, heads, hidden, rows, -1)
        return own + weight * weighted_loss(model, heads, hidden, rows)

    return loss


@torch.inference_mode()
def hit_ranks(target: CausalLM, heads: Heads, ids: Tensor, first: int = 2) -> Tensor:
    """Where each head put the token that came: LongTensor [positions, K], 0 for the likeliest
    guess.

    ids: [B, n]. One row for every position from which all K heads point inside the text, at tokens
    from number `first` on.
    """
    cache = target.new_cache(*ids.shape)
    hidden = target.score(ids, cache, hidden_layers=("final",), last=True).hidden["final"]
    count = heads.count
    logits = target.head(heads(hidden[:, first - 2 : ids.shape[1] - count - 1])).float()
    came = ids[:, first:].unfold(1, count, 1)[:, : logits.shape[1], :, None]
    return (logits > logits.gather(-1, came)).sum(-1).flatten(0, 1)


def accuracies(ranks: Tensor, guesses: int = RANKS) -> list[list[float]]:
    """[levels][ranks]: how often guess r of each head was the token that came, from the ranks
    [positions, K] at which it stood.
    """
    return [
        [(ranks[:, level] == rank).float().mean().item() for rank in range(guesses)]
        for level in range(ranks.shape[1])
    ]


def calibration_prompts(tokenizer, length: int = 96) -> Tensor:
    """Prompts [B, length] from the held-out documents, none of which is one of the evaluation
    prompts.
    """
    used = {item["text"] for items in evaluation_prompts().values() for item in items}
    texts = dict.fromkeys(
        item["text"]
        for items in make_prompts(each=40).values()
        for item in items
        if item["text"] not in used
    )
    rows = [tokenizer.encode(text)[:length] for text in texts]
    return torch.tensor([row for row in rows if len(row) == length])


def held_out_rows(tokenizer, length: int = 256) -> Tensor:
    """Held-out text [B, length], cut into windows that do not overlap."""
    texts = [
        torch.tensor(tokenizer.encode(text))
        for domain in DOMAINS
        for text in held_out_text()[domain]
    ]
    return torch.cat([text[: len(text) // length * length].view(-1, length) for text in texts])


def measure(
    target: CausalLM, heads: Heads, tokenizer, new: int = 128
) -> dict[str, list[list[float]]]:
    """Accuracies [levels][ranks] on held-out text ("text"), on the target's greedy text and on text
    it sampled at temperature 1.
    """
    prompts = calibration_prompts(tokenizer)
    table = {"text": rank_table(target, heads, held_out_rows(tokenizer), 2)}
    for name, temperature in OWN_TEXT.items():
        text = continued(target, prompts, new, temperature)
        table[name] = rank_table(target, heads, text, prompts.shape[1])
    return table


def rank_table(target: CausalLM, heads: Heads, ids: Tensor, first: int) -> list[list[float]]:
    """Accuracies [levels][ranks] on ids [B, n], at tokens from number `first` on."""
    parts = ids.to(target.device).split(32)
    return accuracies(torch.cat([hit_ranks(target, heads, rows, first) for rows in parts]))


@torch.inference_mode()
def own_loss(target: CausalLM, rows: Tensor) -> float:
    """Nats per token of the target's own head on rows [B, n]: what joint training must not raise."""
    nats = 0.0
    for part in rows.to(target.device).split(8):
        logits = target.model(part[:, :-1]).float().flatten(0, 1)
        nats += F.cross_entropy(logits, part[:, 1:].flatten(), reduction="sum").item()
    return nats / (len(rows) * (rows.shape[1] - 1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training medusa`."""
    parser.add_argument(
        "--regime",
        choices=["all", *REGIMES],
        default="all",
        help="frozen: the heads that are shipped; joint goes on from them, with the target",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=SHIPPED,
        help="folder for the heads, their accuracies and the tree",
    )
    parser.add_argument(
        "--record", type=Path, default=Path("results/medusa.json"), help="the recording to write"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".work/medusa"),
        help="folder for checkpoints, token streams and the target's features (2 GB)",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--nodes", type=int, default=NODES, help="size of the tree that is stored beside the heads"
    )
    for regime in REGIMES:
        parser.add_argument(f"--{regime}-steps", type=int, default=STEPS[regime])


def command_line(chosen: argparse.Namespace) -> str:
    """What to type to train the same way again."""
    words = ["python -m specdec_lite.training medusa", *given(chosen, {"regime": "all"})]
    words += [f"--{regime}-steps {getattr(chosen, f'{regime}_steps')}" for regime in REGIMES]
    words.append(f"--nodes {chosen.nodes}")
    return " ".join([*words, *given(chosen, {"device": "cpu"})])


def plan(regime: str, steps: int) -> Plan:
    """Short steps, many of them: the heads are small, and what costs is the pass through the
    target.
    """
    return Plan(
        steps,
        RATES[regime],
        batch=4,
        context=256,
        long_context=512,
        warmup=50,
        weight_decay=0.0,
        seed=REGIMES.index(regime),
    )


def checkpoint(regime: str, target: CausalLM, chosen: argparse.Namespace) -> Path:
    """Named after the target and the steps too: another target's heads must not pass for this
    one's.
    """
    return chosen.work / f"{regime}-{getattr(chosen, f'{regime}_steps')}-{fingerprint(target)}.pt"


def entry(
    regime: str, target: CausalLM, heads: Heads, tokenizer, steps: int, seconds: float
) -> dict:
    """One run of the recording: what was trained for how long, and what came of it."""
    made = plan(regime, steps)
    return {
        "regime": regime,
        "steps": steps,
        "seconds": seconds,
        "tokens": steps * made.batch * made.context,
        "rate": made.learning_rate,
        "own_loss": own_loss(target, held_out_rows(tokenizer)),
        "accuracies": measure(target, heads, tokenizer),
    }


def train_frozen(
    target: CausalLM, streams: dict, chosen: argparse.Namespace
) -> tuple[Heads, float]:
    """Fresh heads, trained on the target as it is: (heads, seconds)."""
    torch.manual_seed(0)
    heads = Heads(target.hidden_size, COUNT).to(target.device)
    features = Features(target, chosen.work / "features")
    loss = frozen_loss(target.model, heads, lambda tokens: features(tokens)["final"])
    path = checkpoint("frozen", target, chosen)
    return heads, train(heads, loss, streams, plan("frozen", chosen.frozen_steps), path)


def train_joint(
    target: CausalLM, heads: Heads, streams: dict, chosen: argparse.Namespace
) -> tuple[CausalLM, Heads, float]:
    """A copy of target and heads, trained together from where the frozen regime ended (its
    warm-up): (target, heads, seconds).
    """
    model = copy.deepcopy(target.model)
    tuned = copy.deepcopy(heads)
    both = nn.ModuleDict({"model": model, "heads": tuned}).requires_grad_(True)
    path = checkpoint("joint", target, chosen)
    loss = joint_loss(model, tuned)
    seconds = train(both, loss, streams, plan("joint", chosen.joint_steps), path)
    return CausalLM(model), tuned, seconds


def store(
    folder: Path, target: CausalLM, heads: Heads, measured: dict, chosen: argparse.Namespace
) -> None:
    """Write the heads, and beside them what was measured and the tree chosen from their accuracies
    on greedy text.
    """
    save(folder, heads, target, heads.config)
    shape = TokenTree.best(measured["greedy"], chosen.nodes)
    report = {
        "accuracies": measured,
        "tree": {"tokens": shape.tokens.tolist(), "parents": list(shape.parents)},
        "target": fingerprint(target),
        "command": command_line(chosen),
    }
    (folder / "report.json").write_text(json.dumps(report) + "\n", encoding="utf-8")


def run(chosen: argparse.Namespace) -> None:
    """Train the frozen heads, store them with their tree, and record; then the joint regime."""
    TokenTree.best([[0.5]], chosen.nodes)  # refuses what is no number of nodes, before the hours
    pair = load_pair(device=chosen.device, dtype="float32")
    target, tokenizer = pair.target, pair.tokenizer
    target.model.requires_grad_(False)
    _, streams = prepare(chosen.work, PAIR)
    heads, seconds = train_frozen(target, streams, chosen)
    runs = [entry("frozen", target, heads, tokenizer, chosen.frozen_steps, seconds)]
    store(chosen.out, target, heads, runs[0]["accuracies"], chosen)
    if chosen.regime != "frozen":
        tuned, its_heads, seconds = train_joint(target, heads, streams, chosen)
        runs.append(entry("joint", tuned, its_heads, tokenizer, chosen.joint_steps, seconds))
    stamp = results.stamp(
        "heads for Medusa on the shipped target, trained with the target frozen and with it",
        command_line(chosen),
        chosen.device,
    )
    data = {"target": fingerprint(target), "decay": DECAY, "weight": WEIGHT, "runs": runs}
    results.save(chosen.record, stamp, data)
