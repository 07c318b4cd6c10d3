"""Training: the shipped pair, from scratch, on text that every machine has.

    python -m specdec_lite.training pair --out specdec_lite/weights/pair

What lives here: the training loop, distillation of the draft on the target's distributions, and the held-out
measurements. What does not: the text (`corpus`) and the shapes of the models, which are the constants below.
Interrupt it at any time: it resumes from `--work`, step for step.
"""
import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from .corpus import DOMAINS, HELD_OUT, held_out_text, make_prompts, training_text
from .timing import machine_name
from .transformer import Transformer, TransformerConfig

VOCABULARY = 2048
TARGET = TransformerConfig(VOCABULARY, hidden_size=320, intermediate_size=896, num_layers=8, num_heads=5, num_kv_heads=5, head_size=64)
DRAFT = TransformerConfig(VOCABULARY, hidden_size=192, intermediate_size=512, num_layers=2, num_heads=3, num_kv_heads=3, head_size=64)
MIXTURE = {"library": 0.62, "tests": 0.32, "docs": 0.06}


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast: the last tenth of the steps runs at `long_context`, with as many tokens per step."""
    steps: int
    learning_rate: float
    batch: int = 8
    context: int = 512
    long_context: int = 1024
    warmup: int = 200
    decay_from: float = 0.3
    weight_decay: float = 0.1
    seed: int = 0

    def rate(self, step: int) -> float:
        """Learning rate: linear warm-up, constant, linear to zero."""
        left = (self.steps - step) / (self.steps * (1 - self.decay_from))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup, left)

    def window(self, step: int) -> tuple[int, int]:
        """Rows and tokens per row at this step."""
        if step < 0.9 * self.steps:
            return self.batch, self.context
        return max(1, self.batch * self.context // self.long_context), self.long_context


def train_tokenizer(texts: list[str], vocabulary: int = VOCABULARY):
    """A byte-level BPE with one special token, `<|endoftext|>` (id 0), as a Hugging Face fast tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", clean_up_tokenization_spaces=False,
                                   model_max_length=TARGET.max_positions)


def tokenize(tokenizer, texts: list[str]) -> np.ndarray:
    """All documents in one row of uint16 ids, each followed by the end-of-text token."""
    encoded = tokenizer.backend_tokenizer.encode_batch(texts)
    return np.concatenate([np.array([*e.ids, tokenizer.eos_token_id], dtype=np.uint16) for e in encoded])


def batches(streams: dict[str, np.ndarray], plan: Plan, first: int = 0) -> Iterator[Tensor]:
    """Batches [rows, context + 1] of random windows; step i is a function of (seed, i) alone, so a run can resume."""
    names = list(streams)
    weights = np.array([MIXTURE[name] for name in names])
    for step in range(first, plan.steps):
        rng, (rows, context) = np.random.default_rng((plan.seed, step)), plan.window(step)
        chosen = rng.choice(len(names), size=rows, p=weights / weights.sum())
        starts = [rng.integers(len(streams[names[i]]) - context - 1) for i in chosen]
        yield torch.from_numpy(np.stack([streams[names[i]][s:s + context + 1] for i, s in zip(chosen, starts)]).astype(np.int64))


def next_token_loss(model: Transformer) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy in nats per token over a batch of windows."""
    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())
    return loss


def distillation_loss(draft: Transformer, target: Transformer) -> Callable[[Tensor], Tensor]:
    """Total variation between the two next-token laws, which is the rejection rate itself, plus a little KL(p‖q).

    The rate 1 − Σ min(p, q) is what the draft is for; its gradient vanishes where q is far from p, and there KL helps.
    Source: Zhou et al. 2023 (DistillSpec), equation 2 and the TVD objective.
    """
    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            log_p = target(rows[:, :-1]).float().log_softmax(-1)
        log_q = draft(rows[:, :-1]).float().log_softmax(-1)
        variation = (log_p.exp() - log_q.exp()).abs().sum(-1).mean() / 2
        divergence = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
        return variation + 0.1 * divergence
    return loss


def initialise(model: Transformer, seed: int = 0) -> Transformer:
    """Normal(0, .02) weights, the two matrices that write to the residual stream scaled down by √(2 · layers)."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            scale = math.sqrt(2 * model.config.num_layers) if name.endswith(("out.weight", "down.weight")) else 1.0
            torch.nn.init.normal_(weight, std=0.02 / scale, generator=generator)
    return model


def train(model: Transformer, loss: Callable, streams: dict, plan: Plan, checkpoint: Path, compiled: bool = False) -> float:
    """Run `plan`, saving to and resuming from `checkpoint`. bf16 autocast, float32 weights, AdamW, clipping at 1.

    Leaves the model in eval mode and returns the seconds spent on it, earlier runs included.
    """
    device = next(model.parameters()).device
    matrices = [w for w in model.parameters() if w.dim() == 2]
    vectors = [w for w in model.parameters() if w.dim() < 2]
    groups = [{"params": matrices, "weight_decay": plan.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, 0.98), fused=True)
    first, spent = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, spent = saved["step"], saved.get("seconds", 0.0)
    model.rotary(device, torch.float32)
    step_loss = torch.compile(loss, dynamic=False) if compiled else loss
    bar = tqdm(batches(streams, plan, first), initial=first, total=plan.steps, mininterval=5, desc=checkpoint.stem)
    smooth, saved_at = None, time.monotonic()
    began = saved_at - spent
    for step, rows in enumerate(bar, start=first):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step)
        with torch.autocast(device.type, torch.bfloat16):
            value = step_loss(rows.to(device))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        smooth = value.item() if smooth is None else 0.98 * smooth + 0.02 * value.item()
        bar.set_postfix(loss=f"{smooth:.3f}", refresh=False)
        if step + 1 == plan.steps or time.monotonic() - saved_at > 120:
            saved_at = time.monotonic()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1, "seconds": saved_at - began}
            torch.save(state, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
    model.eval()
    return time.monotonic() - began


@torch.no_grad()
def held_out_logits(model: Transformer, tokens: Tensor, context: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits [n, V], next tokens [n]) over a long text, each token scored once, with at least context/2 before it (but for the first)."""
    done = 0
    for start in range(0, max(1, len(tokens) - 1), context // 2):
        window = tokens[start:start + context + 1]
        logits = model(window[None, :-1])[0, done - start:]
        yield logits.float(), window[1 + done - start:]
        done = start + len(window) - 1
        if done >= len(tokens) - 1:
            return


def measure(target: Transformer, tokenizer, draft: Transformer | None = None) -> dict[str, dict[str, float]]:
    """Held-out figures by domain: bits_per_byte of the target; with a draft, alpha = mean Σ min(p, q) at T=1 and argmax agreement."""
    report = {}
    for domain, texts in held_out_text().items():
        nats, alpha, agree, count, size = 0.0, 0.0, 0.0, 0, 0
        for text in texts:
            tokens = torch.tensor(tokenizer.encode(text))
            size += len(tokenizer.decode(tokens[1:]).encode())
            pieces = zip(held_out_logits(target, tokens), held_out_logits(draft or target, tokens))
            for (logits, following), (draft_logits, _) in pieces:
                nats += F.cross_entropy(logits, following, reduction="sum").item()
                alpha += torch.minimum(logits.softmax(-1), draft_logits.softmax(-1)).sum().item()
                agree += (logits.argmax(-1) == draft_logits.argmax(-1)).sum().item()
                count += len(following)
        report[domain] = {"bits_per_byte": nats / math.log(2) / size, "tokens": count, "bytes": size}
        if draft is not None:
            report[domain] |= {"alpha": alpha / count, "argmax_agreement": agree / count}
    totals = {key: sum(report[d][key] for d in DOMAINS) for key in ("tokens", "bytes")}
    report["all"] = totals | {"bits_per_byte": sum(report[d]["bits_per_byte"] * report[d]["bytes"] for d in DOMAINS) / totals["bytes"]}
    if draft is not None:
        report["all"] |= {k: sum(report[d][k] * report[d]["tokens"] for d in DOMAINS) / totals["tokens"] for k in ("alpha", "argmax_agreement")}
    return report


def prepare(work: Path, start: Path | None = None):
    """Tokenizer and token streams, made once and kept in `work`; the tokenizer is that of `start`, if given."""
    from transformers import PreTrainedTokenizerFast
    work.mkdir(parents=True, exist_ok=True)
    texts = training_text()
    if start:
        PreTrainedTokenizerFast.from_pretrained(start / "target").save_pretrained(work / "tokenizer")
    if not (work / "tokenizer" / "tokenizer.json").exists():
        train_tokenizer([*texts["library"], *texts["docs"] * 4]).save_pretrained(work / "tokenizer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    streams = {}
    for name, documents in texts.items():
        path = work / f"{name}.npy"
        if not path.exists():
            np.save(path, tokenize(tokenizer, documents))
        streams[name] = np.load(path)
    return tokenizer, streams


CARD = """# The shipped pair

Two small byte-level language models with one tokenizer, made to teach speculative decoding: a target and a draft that was
distilled on it. They continue Python source and Python documentation, and are good for nothing else.

| | layers | hidden | parameters | training |
|---|---|---|---|---|
| target | {target.num_layers} | {target.hidden_size} | {target_size:.1f} M | {target_steps} steps of {tokens} tokens |
| draft | {draft.num_layers} | {draft.hidden_size} | {draft_size:.1f} M | {draft_steps} steps on text, then {distil_steps} on the target's distributions |

Held-out figures (report.json holds all of them). α is the mean of Σ min(p, q) at temperature 1.

| domain | bits per byte, target | α | argmax agreement |
|---|---|---|---|
{rows}

- **Data.** The standard library of Python {python}: its source ({library:.1f} M tokens), its tests ({tests:.1f} M), the reference
  topics of `pydoc_data` ({docs:.2f} M), drawn with weights {mixture}. BPE of {vocabulary} entries. The last tenth of the steps ran at 1,024 tokens of context.
- **Held out, whole.** {held_out}. Tests named after a held-out module are left out as well, and lines of held-out topics that other topics repeat.
- **Measured.** Every held-out token once, in windows of 1,024 that advance by 512, so with at least 512 tokens before it where the document has them.
- **Command.** `{command}`, {date}, {machine}, torch {torch}, {hours:.1f} hours. {note}
- **Licence.** The weights: Apache-2.0, as this project. The text they were trained on: the Python Software Foundation License 2.0.
"""


def write_card(folder: Path, report: dict) -> None:
    """The model card, from what was measured."""
    sizes = {name: sum(w.numel() for w in Transformer(c).parameters()) / 1e6 for name, c in (("target", TARGET), ("draft", DRAFT))}
    rows = "\n".join(f"| {d} | {report[d]['bits_per_byte']:.3f} | {report[d]['alpha']:.3f} | {report[d]['argmax_agreement']:.3f} |" for d in (*DOMAINS, "all"))
    held_out = "; ".join(f"{domain}: {', '.join(names)}" for domain, names in HELD_OUT.items())
    training = report["training"]
    millions = {name: count / 1e6 for name, count in training["stream_tokens"].items()}
    plan = Plan(1, 1.0)
    card = CARD.format(target=TARGET, draft=DRAFT, target_size=sizes["target"], draft_size=sizes["draft"], tokens=plan.batch * plan.context, rows=rows,
                       held_out=held_out, mixture=MIXTURE, vocabulary=VOCABULARY, hours=training["seconds"] / 3600, **millions, **training)
    (folder / "README.md").write_text(card, encoding="utf-8")


def command_line(chosen: argparse.Namespace) -> str:
    """What to type to train the same way again: no folders of the machine it ran on."""
    steps = " ".join(f"--{kind}-steps {getattr(chosen, f'{kind}_steps')}" for kind in ("target", "draft", "distil"))
    return f"python -m specdec_lite.training pair --device {chosen.device} {steps}{' --compile' * chosen.compile}"


def main(arguments: list[str] | None = None) -> None:
    """The command line: `python -m specdec_lite.training pair`."""
    from .pairs import load_model, save_pair
    parser = argparse.ArgumentParser(prog="python -m specdec_lite.training", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["pair"])
    parser.add_argument("--out", type=Path, default=Path("pair"), help="folder for the finished weights")
    parser.add_argument("--work", type=Path, default=Path(".work/pair"), help="folder for checkpoints and token streams")
    parser.add_argument("--start", type=Path, help="a saved pair to train on from, such as specdec_lite/weights/pair; default: from scratch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target-steps", type=int, default=3000)
    parser.add_argument("--draft-steps", type=int, default=600)
    parser.add_argument("--distil-steps", type=int, default=2000)
    parser.add_argument("--note", default="", help="a remark for the model card, such as a schedule that was changed under way")
    parser.add_argument("--compile", action="store_true", help="torch.compile the loss: needs a C++ compiler, about 1.7 times faster")
    chosen = parser.parse_args(arguments)
    torch.manual_seed(0)
    tokenizer, streams = prepare(chosen.work, chosen.start)
    target, draft = (initialise(Transformer(config)).to(chosen.device) for config in (TARGET, DRAFT))
    if chosen.start:
        for model, name in ((target, "target"), (draft, "draft")):
            model.load_state_dict(load_model(chosen.start / name, chosen.device, "float32").model.state_dict())
    stages = ((target, next_token_loss(target), Plan(chosen.target_steps, 3e-3), "target"),
              (draft, next_token_loss(draft), Plan(chosen.draft_steps, 4e-3, seed=1), "draft"),
              (draft, distillation_loss(draft, target), Plan(chosen.distil_steps, 3e-3, seed=2), "distilled"))
    seconds = sum(train(model, loss, streams, plan, chosen.work / f"{name}.pt", chosen.compile) for model, loss, plan, name in stages)
    report = measure(target.cpu(), tokenizer, draft.cpu())
    report["training"] = {
        "target_steps": chosen.target_steps, "draft_steps": chosen.draft_steps, "distil_steps": chosen.distil_steps, "seconds": seconds,
        "stream_tokens": {name: len(stream) for name, stream in streams.items()}, "date": date.today().isoformat(),
        "machine": machine_name(chosen.device), "python": platform.python_version(), "torch": torch.__version__,
        "command": command_line(chosen), "note": chosen.note}
    save_pair(chosen.out, target, draft, tokenizer, report)
    write_card(chosen.out, report)
    (chosen.out.parent / "prompts.json").write_text(json.dumps(make_prompts(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
