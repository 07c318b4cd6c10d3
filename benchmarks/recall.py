"""Measure how often a draft has the target's token among its k likeliest, at every depth.

    python -m benchmarks run draft-recall      # ten minutes

A head that ranks the right token second knows it and picks the wrong one. The texts are the
target's own greedy continuations, so the right token is the text's next token. Sequential drafts
read the true tokens before the one that they predict. For Medusa's heads, a selector of pairs is
trained on their own candidates, in the target's continuations of pieces of its training text.
Rates alone: the machine may be busy.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lite import CausalLM, load_pair, load_smollm2
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    EagleDrafter,
    MarkovDrafter,
    MedusaDrafter,
    MtpDrafter,
    PardDrafter,
)
from specdec_lite.drafters.heads.heads import Heads
from specdec_lite.drafters.heads.vocabulary import output_head
from specdec_lite.drafters.parallel.parallel import Correction, Selector
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.texts.smollm2_tasks import TASKS, chat
from specdec_lite.training import head_texts
from specdec_lite.training.anchors import anchor_logits, draft_vocabulary
from specdec_lite.training.medusa_evaluation import calibration_prompts
from specdec_lite.training.own_text import own_text
from specdec_lite.training.selector import collect, train

from .experiment import Experiment
from .smollm2 import STOP

DEPTHS = 4
MOST = 64
"""Most texts that recall is counted on."""
RANKS = (1, 2, 4, 16)
HEADS: dict[str, Callable[[CausalLM], nn.Module]] = {
    "Medusa": lambda target: MedusaDrafter.from_pretrained(target).heads,
    "PARD": lambda target: PardDrafter.from_pretrained(target).model.model,
    "DFlash": lambda target: BlockDiffusionDrafter.from_pretrained(target).head,
    "EAGLE-1": lambda target: EagleDrafter.from_pretrained(target, version=1).head,
    "MTP": lambda target: MtpDrafter.from_pretrained(target).head,
}
MODELS = {"pair": tuple(HEADS), "smollm2": tuple(name for name in HEADS if name != "PARD")}


RANK = 16
"""Rank of the trained selector."""

Written = tuple[CausalLM, list[tuple[Tensor, int]]]
"""A target and its greedy texts, each with the length of its prompt."""


def pair_texts(count: int, new_tokens: int, folder: Path) -> Written:
    """Return the pair's target and its continuations of documents that it was not trained on."""
    pair = load_pair(device="cpu", dtype="float32")
    prompts = calibration_prompts(pair.tokenizer)[:count]
    texts = own_text(pair.target, list(prompts), new_tokens, folder)
    return pair.target, [(text, prompts.shape[1]) for text in texts]


def smollm2_texts(count: int, new_tokens: int, folder: Path) -> Written:
    """Return SmolLM2 and its answers to the book's requests."""
    target, tokenizer = load_smollm2("cpu", "float32")
    requests = [task for tasks in TASKS.values() for task in tasks]
    prompts = [list(chat(tokenizer, task.text)) for task in requests[:count]]
    texts = own_text(target, prompts, new_tokens, folder, stop_token_ids=(STOP,))
    return target, [(text, len(prompt)) for text, prompt in zip(texts, prompts)]


def long_enough(texts: list[tuple[Tensor, int]]) -> list[tuple[Tensor, int]]:
    """Return the texts in which some position has all depths after it."""
    return [(text, start) for text, start in texts if len(text) > start + DEPTHS + 1]


@torch.inference_mode()
def rows_at(head: nn.Module, target: CausalLM, text: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return a head's logits [A, K, v] after every anchor, and the indices [A, K] of the right tokens.

    A token outside the draft's vocabulary has the index v.
    """
    vocabulary = draft_vocabulary(head)
    layers = dict.fromkeys((*getattr(head, "layers", ()), "final"))
    cache = target.new_cache(capacity=len(text))
    states = target.score(text[None], cache, hidden_layers=tuple(layers)).hidden
    anchors = torch.arange(start, len(text) - DEPTHS)
    output = output_head(target, vocabulary)
    logits = anchor_logits(head, output, text[None], states, anchors, DEPTHS)[0]
    right = text[anchors[:, None] + torch.arange(1, DEPTHS + 1)]
    return logits, right if vocabulary is None else vocabulary.number(right)


def ranks(logits: Tensor, right: Tensor) -> Tensor:
    """Return the rank [A, K] of the right tokens; v for an absent one.

    Shapes: logits [A, K, v], right [A, K].
    """
    size = logits.shape[-1]
    score = logits.gather(-1, right.clamp(max=size - 1)[..., None])
    return (logits > score).sum(-1).masked_fill(right == size, size)


@torch.inference_mode()
def left_to_right(logits: Tensor, states: Tensor, before: Tensor, correction: Correction) -> Tensor:
    """Return the likeliest drafts [A, K], each after the one just drafted.

    Shapes: logits [A, K, v], states [A, K, d], before [A].
    """
    drafts, last = [], before
    for depth in range(logits.shape[1]):
        last = correction.correct(logits[:, depth], last, states[:, depth]).argmax(-1)
        drafts.append(last)
    return torch.stack(drafts, -1)


@torch.inference_mode()
def best_path(logits: Tensor, states: Tensor, before: Tensor, correction: Correction) -> Tensor:
    """Return the path [A, K] of largest product through the likeliest tokens of each position.

    Shapes: logits [A, K, v], states [A, K, d], before [A].
    """
    values, tokens = logits.topk(RANKS[-1], -1)  # [A, K, k]
    score = correction.correct(logits[:, 0], before, states[:, 0]).gather(-1, tokens[:, 0])
    score, back = score.log_softmax(-1), []
    for depth in range(1, logits.shape[1]):
        rows, state = (part[:, depth, None].expand(-1, RANKS[-1], -1) for part in (logits, states))
        after = tokens[:, depth, None].expand(-1, RANKS[-1], -1)
        pairs = correction.correct(rows, tokens[:, depth - 1], state).gather(-1, after)
        score, origin = (score[..., None] + pairs.log_softmax(-1)).max(1)  # of [A, before, k]
        back.append(origin)
    entry = score.argmax(-1, keepdim=True)
    path = [tokens[:, -1].gather(-1, entry)]
    for depth, origin in reversed(list(enumerate(back))):
        entry = origin.gather(-1, entry)
        path.append(tokens[:, depth].gather(-1, entry))
    return torch.cat(path[::-1], -1)


@torch.inference_mode()
def head_states(heads: Heads, target: CausalLM, text: Tensor, start: int) -> Tensor:
    """Return the states [A, K, d] from which heads compute their rows after every anchor."""
    cache = target.new_cache(capacity=len(text))
    final = target.score(text[None], cache, hidden_layers=("final",)).hidden["final"][0]
    anchors = torch.arange(start, len(text) - DEPTHS)
    return heads(final[anchors - 1], slice(DEPTHS))


def trained_selector(heads: Heads, target: CausalLM, options: argparse.Namespace) -> Selector:
    """Return a selector for the pair's Medusa heads, trained on their own candidates."""
    torch.manual_seed(0)
    selector = Selector(target.vocab_size, RANK, candidates=RANKS[-1], width=target.hidden_size)
    tokenizer = load_pair(device="cpu", dtype="float32").tokenizer
    samples = head_texts.pair_texts(target, tokenizer, options.cache, options.training).training
    texts = long_enough([(sample.ids, sample.start) for sample in samples])
    examples = collect(heads, target, texts, selector, DEPTHS)
    train(selector, examples, options.steps)
    return selector.requires_grad_(False)


def kept(right: Sequence[Tensor]) -> dict:
    """Return the mean number of right tokens before the first wrong one, and its error over texts.

    Shapes: right [A, K], whether the drafts of a text are right.
    """
    sums = torch.stack([rows.double().cumprod(1).sum() for rows in right])
    counts = torch.tensor([len(rows) for rows in right]).double()
    mean = sums.sum() / counts.sum()
    error = (sums - mean * counts).square().sum().sqrt() / counts.sum()
    return {"mean": float(mean), "error": float(error)}


def summary(found: Sequence[Tensor]) -> dict:
    """Return recall at every k and depth, and the tokens that the best choice among k would keep.

    Errors are standard errors over texts.
    """
    table = {}
    for k in RANKS:
        inside = [(rank < k).double() for rank in found]
        counts = torch.tensor([len(rows) for rows in inside]).double()
        sums = torch.stack([rows.sum(0) for rows in inside])
        mean = sums.sum(0) / counts.sum()
        error = (sums - mean * counts[:, None]).square().sum(0).sqrt() / counts.sum()
        table[str(k)] = {"mean": mean.tolist(), "error": error.tolist(), "kept": kept(inside)}
    return table


class DraftRecall(Experiment):
    """The parts are the two targets."""

    name = "draft-recall"
    what = "how often the target's token is among a draft's k likeliest, by depth"
    time = "ten minutes, not timed"
    quick = "--texts 2 --new-tokens 16 --training 4 --steps 3 --models pair".split()
    unrelated = ("cache", "models")
    timed = False

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--texts", type=int, default=MOST, help="number of texts, at most")
        parser.add_argument("--new-tokens", type=int, default=96)
        parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
        parser.add_argument("--training", type=int, default=1024, help="texts for the selector")
        parser.add_argument("--steps", type=int, default=2000, help="of training the selector")
        parser.add_argument("--cache", type=Path, default=cache_folder() / "recall")

    def parts(self):
        return list(self.options.models)

    def run(self, part):
        options = self.options
        texts_of = {"pair": pair_texts, "smollm2": smollm2_texts}[part]
        target, texts = texts_of(options.texts, options.new_tokens, options.cache)
        texts = long_enough(texts)
        heads = {name: HEADS[name](target) for name in MODELS[part]}
        table = {
            name: summary([ranks(*rows_at(head, target, text, start)) for text, start in texts])
            for name, head in heads.items()
        }
        return {"texts": len(texts), "heads": table, "paths": self.paths(target, texts, part)}

    def paths(self, target: CausalLM, texts: Sequence[tuple[Tensor, int]], part: str) -> dict:
        """Return the tokens kept by each way to choose from the rows of Medusa's heads."""
        drafter = MarkovDrafter.from_pretrained(target)
        heads, words, ways = drafter.heads, drafter.heads.words, {}
        if part == "pair":
            ways["selector of 16"] = trained_selector(heads, target, self.options)
        right: dict[str, list[Tensor]] = {}
        for text, start in texts:
            logits, tokens = rows_at(heads, target, text, start)
            states = head_states(heads, target, text, start)
            before = drafter.correction.index(text[start : len(text) - DEPTHS], words)
            rows = logits, states, before
            drafts = {
                "likeliest": logits.argmax(-1),
                "left to right": left_to_right(*rows, drafter.correction),
                "best path of 16": best_path(*rows, drafter.correction),
            }
            drafts |= {way: left_to_right(*rows, selector) for way, selector in ways.items()}
            for way, drafted in drafts.items():
                right.setdefault(way, []).append(drafted == tokens)
        return {way: kept(rows) for way, rows in right.items()}

    def summarise(self, rows):
        return {"models": rows}

    def restore(self, data):
        return data["models"]
