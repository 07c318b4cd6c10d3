"""The shipped pair, from scratch: its shapes, the draft's distillation, the held-out measurements,
the model card.
"""

import argparse
import json
import math
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.corpus import DOMAINS, HELD_OUT, PACKAGES, held_out_text, make_prompts
from specdec_lite.loading.memory import device_named, native_size
from specdec_lite.loading.pairs import load_model, save_pair
from specdec_lite.measure.timing import machine_name
from specdec_lite.training.loop import (
    DECAY_FROM,
    OPTIMIZERS,
    Plan,
    digest,
    given,
    initialise,
    next_token_loss,
    train,
)
from specdec_lite.training.losses import forward_kl, total_variation
from specdec_lite.training.text import MIXTURE, VOCABULARY, prepare

TARGET = TransformerConfig(
    VOCABULARY,
    hidden_size=320,
    intermediate_size=896,
    num_layers=8,
    num_heads=5,
    num_kv_heads=5,
    head_size=64,
)
DRAFT = TransformerConfig(
    VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    head_size=64,
)
RATES = {"target": 3e-3, "draft": 4e-3, "distil": 3e-3}
STEPS = {"target": 3000, "draft": 600, "distil": 2000}


def distillation_loss(draft: Transformer, target: Transformer) -> Callable[[Tensor], Tensor]:
    """Total variation between the two next-token laws, which is the rejection rate itself, plus a
    little KL(p‖q).

    The rate 1 − Σ min(p, q) is what the draft is for; its gradient vanishes where q is far from p,
    and there KL helps. Source: Zhou et al. 2023 (DistillSpec), equation 2 and the TVD objective.
    """

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            log_p = target(rows[:, :-1]).float().log_softmax(-1)
        log_q = draft(rows[:, :-1]).float().log_softmax(-1)
        return (total_variation(log_p, log_q) + 0.1 * forward_kl(log_p, log_q)).mean()

    return loss


@torch.no_grad()
def held_out_logits(
    model: Transformer, tokens: Tensor, context: int = 1024
) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits [n, V], next tokens [n]) over a long text, each token scored once, with at least
    context/2 before it (but for the first).
    """
    done = 0
    for start in range(0, max(1, len(tokens) - 1), context // 2):
        window = tokens[start : start + context + 1]
        logits = model(window[None, :-1])[0, done - start :]
        yield logits.float(), window[1 + done - start :]
        done = start + len(window) - 1
        if done >= len(tokens) - 1:
            return


def measure(
    target: Transformer, tokenizer, draft: Transformer | None = None
) -> dict[str, dict[str, float]]:
    """Held-out figures by domain: bits_per_byte of the target; with a draft, alpha = mean Σ min(p,
    q) at T=1 and argmax agreement.
    """
    sums = {"all": Counter()}
    for domain, texts in held_out_text().items():
        sums[domain] = Counter()
        for text in texts:
            sums[domain].update(counts(target, tokenizer, draft, text))
        sums["all"].update(sums[domain])
    return {domain: figures(counted, draft is not None) for domain, counted in sums.items()}


def counts(target: Transformer, tokenizer, draft: Transformer | None, text: str) -> Counter:
    """Sums over one text: tokens, bytes, nats of the target, Σ min(p, q), equal argmaxes."""
    tokens = torch.tensor(tokenizer.encode(text))
    counted = Counter(bytes=len(tokenizer.decode(tokens[1:]).encode()))
    pieces = zip(held_out_logits(target, tokens), held_out_logits(draft or target, tokens))
    for (logits, following), (draft_logits, _) in pieces:
        overlap = torch.minimum(logits.softmax(-1), draft_logits.softmax(-1)).sum()
        counted["nats"] += F.cross_entropy(logits, following, reduction="sum").item()
        counted["alpha"] += overlap.item()
        counted["agree"] += (logits.argmax(-1) == draft_logits.argmax(-1)).sum().item()
        counted["tokens"] += len(following)
    return counted


def figures(counted: Counter, with_draft: bool) -> dict[str, float]:
    """What the report says of one domain."""
    report = {
        "bits_per_byte": counted["nats"] / math.log(2) / counted["bytes"],
        "tokens": counted["tokens"],
        "bytes": counted["bytes"],
    }
    if with_draft:
        report["alpha"] = counted["alpha"] / counted["tokens"]
        report["argmax_agreement"] = counted["agree"] / counted["tokens"]
    return report


CARD = """# The shipped pair

Two small byte-level language models with one tokenizer, made to teach speculative decoding: a target and a draft that was
distilled on it. They continue Python source and Python documentation, and are good for nothing else.

| | layers | hidden | feed-forward | parameters | training in this run |
|---|---|---|---|---|---|
| target | {target.num_layers} | {target.hidden_size} | {target.intermediate_size} | {target_size:.1f} M | {target_steps} steps of {tokens} tokens |
| draft | {draft.num_layers} | {draft.hidden_size} | {draft.intermediate_size} | {draft_size:.1f} M | {draft_steps} steps on text, then {distil_steps} on the target's distributions |

Held-out figures (report.json holds all of them). α is the mean of Σ min(p, q) at temperature 1.

| domain | bits per byte, target | α | argmax agreement |
|---|---|---|---|
{rows}

- **Data.** The standard library of Python {python}: its source ({library:.1f} M tokens), its tests ({tests:.1f} M), the reference
  topics of `pydoc_data` ({docs:.2f} M){packages}, drawn with weights {mixture}. BPE of {vocabulary} entries. The last tenth of the steps ran at 1,024 tokens of context.
- **Held out, whole.** {held_out}. Tests named after a held-out module are left out as well, and lines of held-out topics that other topics repeat.
- **Measured.** Every held-out token once, in windows of 1,024 that advance by 512, so with at least 512 tokens before it where the document has them.
- **Command.** `{command}`, {date}, {machine}, torch {torch}, {hours:.1f} hours. {note}
- **Licence.** The weights: Apache-2.0, as this project. The text they were trained on: the Python Software Foundation License 2.0{licences}.
"""  # noqa: E501


def write_card(folder: Path, report: dict) -> None:
    """The model card, from what was measured."""
    sizes = {
        name: native_size(config).parameters / 1e6
        for name, config in (("target", TARGET), ("draft", DRAFT))
    }
    rows = "\n".join(
        f"| {d} | {report[d]['bits_per_byte']:.3f} | {report[d]['alpha']:.3f} |"
        f" {report[d]['argmax_agreement']:.3f} |"
        for d in (*DOMAINS, "all")
    )
    held_out = "; ".join(f"{domain}: {', '.join(names)}" for domain, names in HELD_OUT.items())
    training = report["training"]
    millions = {name: count / 1e6 for name, count in training["stream_tokens"].items()}
    mixture = {name: MIXTURE[name] for name in millions}
    extra, licences = "", ""
    if "packages" in millions:
        extra = (
            f"; the source of {', '.join(PACKAGES)} as installed ({millions.pop('packages'):.0f} M)"
        )
        licences = (
            "; that of the packages: their own, all permissive (BSD, MIT, MIT-CMU, Apache-2.0, PSF,"
            " public domain)"
        )
    plan = Plan(1, 1.0)
    card = CARD.format(
        target=TARGET,
        draft=DRAFT,
        target_size=sizes["target"],
        draft_size=sizes["draft"],
        tokens=plan.batch * plan.context,
        rows=rows,
        held_out=held_out,
        mixture=mixture,
        packages=extra,
        licences=licences,
        vocabulary=VOCABULARY,
        hours=training["seconds"] / 3600,
        **millions,
        **training,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specdec_lite.training pair`."""
    parser.add_argument(
        "--out", type=Path, default=Path("pair"), help="folder for the finished weights"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".work/pair"),
        help="folder for checkpoints and token streams",
    )
    parser.add_argument(
        "--start",
        type=Path,
        help=(
            "a saved pair to train on from, such as specdec_lite/weights/pair; default: from"
            " scratch"
        ),
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--packages",
        action="store_true",
        help=(
            "train on the source of installed packages too, as much as on all else"
            " (corpus.PACKAGES)"
        ),
    )
    for stage in STEPS:
        parser.add_argument(f"--{stage}-steps", type=int, default=STEPS[stage])
    for stage in RATES:
        parser.add_argument(
            f"--{stage}-rate", type=float, default=RATES[stage], help="peak learning rate"
        )
        parser.add_argument(
            f"--{stage}-decay-from",
            type=float,
            default=DECAY_FROM,
            help="the share of these steps after which the rate falls",
        )
    parser.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        default="adamw",
        help="of the hidden matrices; muon needs torch 2.9",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help=(
            "of the windows that are drawn: a run that goes on from a pair sees other text with"
            " another one, at least 3 away (the stages use it, the next, and the one after)"
        ),
    )
    parser.add_argument(
        "--note",
        default="",
        help="a remark for the model card, such as a schedule that was changed under way",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile the loss: needs a C++ compiler, about 1.7 times faster",
    )


def command_line(chosen: argparse.Namespace) -> str:
    """What to type to train the same way again: no folders of the machine it ran on. PAIR: the
    saved pair that it began from.
    """
    usual = {f"{stage}-rate": RATES[stage] for stage in RATES}
    usual |= {f"{stage}-decay-from": DECAY_FROM for stage in STEPS}
    usual |= {"optimizer": "adamw", "seed": 0, "packages": False, "compile": False}
    words = [f"python -m specdec_lite.training pair --device {chosen.device}"]
    words += [f"--{stage}-steps {getattr(chosen, f'{stage}_steps')}" for stage in STEPS]
    if chosen.start:
        words.append("--start PAIR")
    return " ".join([*words, *given(chosen, usual)])


def plans(chosen: argparse.Namespace) -> list[Plan]:
    """One for each stage, all of them before the first: what they refuse, they refuse before the
    hours.
    """
    return [
        Plan(
            getattr(chosen, f"{stage}_steps"),
            getattr(chosen, f"{stage}_rate"),
            optimizer=chosen.optimizer,
            decay_from=getattr(chosen, f"{stage}_decay_from"),
            seed=chosen.seed + later,
        )
        for later, stage in enumerate(STEPS)
    ]


def models(chosen: argparse.Namespace) -> tuple[Transformer, Transformer]:
    """Target and draft, fresh, or those of the saved pair to go on from."""
    torch.manual_seed(0)
    made = {}
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        made[name] = initialise(Transformer(config)).to(chosen.device)
        if chosen.start:
            saved = load_model(chosen.start / name, chosen.device, "float32").model
            made[name].load_state_dict(saved.state_dict())
    return made["target"], made["draft"]


def trained(
    target: Transformer, draft: Transformer, streams: dict, chosen: argparse.Namespace
) -> float:
    """Train the target on text, then the draft on text and on the target's distributions. Returns
    the seconds.
    """
    first, second, third = plans(chosen)
    work = chosen.work
    compiled = chosen.compile
    on_text = next_token_loss(target)
    seconds = train(target, on_text, streams, first, work / "target.pt", compiled)
    on_text = next_token_loss(draft)
    seconds += train(draft, on_text, streams, second, work / "draft.pt", compiled)
    # In the name: a draft distilled on another target must not pass for this one's.
    path = work / f"distilled-{digest(target)[:16]}.pt"
    on_target = distillation_loss(draft, target)
    return seconds + train(draft, on_target, streams, third, path, compiled)


def run(chosen: argparse.Namespace) -> None:
    """Train target and draft, measure them on held-out text, and write weights, report, card and
    prompts to `--out`.
    """
    plans(chosen)
    device_named(chosen.device)
    tokenizer, streams = prepare(chosen.work, chosen.start, chosen.packages)
    target, draft = models(chosen)
    seconds = trained(target, draft, streams, chosen)
    report = measure(target.cpu(), tokenizer, draft.cpu())
    report["training"] = {
        "target_steps": chosen.target_steps,
        "draft_steps": chosen.draft_steps,
        "distil_steps": chosen.distil_steps,
        "seconds": seconds,
        "stream_tokens": {name: len(stream) for name, stream in streams.items()},
        "date": date.today().isoformat(),
        "machine": machine_name(chosen.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "command": command_line(chosen),
        "note": chosen.note,
    }
    save_pair(chosen.out, target, draft, tokenizer, report)
    write_card(chosen.out, report)
    prompts = json.dumps(make_prompts(), indent=1, ensure_ascii=False)
    (chosen.out.parent / "prompts.json").write_text(prompts + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
