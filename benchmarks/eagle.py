"""Measure parts of EAGLE on the shipped target: what the head reads, its training, its trees.

    python -m benchmarks run eagle-ablations    # an hour

The recording contains rates and no times, so a busy machine changes nothing. Trained heads and the
target's texts are stored in --cache.
"""

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import generate, load_pair
from specdec_lite.drafters import ConfidenceTree, EagleDrafter
from specdec_lite.drafters.eagle.feature_head import Eagle1Head, FeatureHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.stamps import slug
from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.training import eagle
from specdec_lite.training.features import Features
from specdec_lite.training.head_texts import Sample, Texts
from specdec_lite.training.loop import Plan
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unroll
from specdec_lite.tree import TokenTree

from .experiment import Experiment

NODES = 8
BINS = 10


class FeatureOnly(Eagle1Head):
    """A head whose input does not contain the sampled token."""

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return super().enter(torch.zeros_like(embedded), state)


class TokenOnly(Eagle1Head):
    """A head whose input does not contain the feature: a small language model of one block."""

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return super().enter(embedded, torch.zeros_like(state))


def unshifted(target: CausalLM) -> CausalLM:
    """Return the target with embeddings one position late.

    A feature is then paired with its own token.
    """
    other = copy.copy(target)
    other.embed = lambda ids: target.embed(ids.roll(1, -1))
    return other


ONE_PASS = Recipe(feature=1.0, distillation=0.1)
HEADS = {
    "feature and next token": (Eagle1Head, ONE_PASS, False),
    "feature and own token": (Eagle1Head, ONE_PASS, True),
    "feature": (FeatureOnly, ONE_PASS, False),
    "token": (TokenOnly, ONE_PASS, False),
    "EAGLE-1": (Eagle1Head, RECIPES["1"], False),
    "law alone": (Eagle1Head, Recipe(distillation=1.0), False),
    "HASS": (Eagle1Head, RECIPES["hass"], False),
    "EAGLE-3, one pass": (eagle.Eagle3Head, Recipe(distillation=1.0), False),
    "EAGLE-3": (eagle.Eagle3Head, RECIPES["3"], False),
    "multi-token prediction": (eagle.MtpHead, RECIPES["mtp"], False),
}


def short_texts(tokenizer, count: int = 16, start: int = 16, length: int = 48) -> Texts:
    """Return pieces of held-out documents for a quick run, in place of the target's own texts."""
    documents = [item["text"] for items in evaluation_prompts().values() for item in items]
    pieces = [torch.tensor(tokenizer.encode(text)[:length]) for text in documents]
    whole = [ids for ids in pieces if len(ids) == length][:count]
    samples = [Sample(ids, start, "text", float(i % 2)) for i, ids in enumerate(whole)]
    return Texts(samples, samples)


def train_head(
    name: str, target: CausalLM, texts: eagle.Texts, options, heads: dict | None = None
) -> tuple[FeatureHead, CausalLM]:
    """Train a head of `HEADS`, or of another table."""
    kind, recipe, is_late = (heads or HEADS)[name]
    inputs = unshifted(target) if is_late else target
    head = eagle.initialize_head(kind.for_target(target), target)
    data = eagle.batch_by_length(texts.training, 8, 5)
    plan = Plan(max(1, round(options.epochs * len(data))), 1e-3, 8, warmup=10, weight_decay=0.0)
    layers = tuple(dict.fromkeys((*head.layers, "final")))
    features = Features(target, options.cache / "features", layers)
    path = options.cache / f"study-{slug(name)}-{len(data)}-{plan.steps}.pt"
    eagle.fit(head, inputs, data, features, recipe, plan, path)
    return head.requires_grad_(False), inputs


def rates(head: FeatureHead, target: CausalLM, texts: eagle.Texts) -> dict:
    """Return the acceptance rates of a head on the held-out texts."""
    return eagle.measure(head, target, texts.held_out)["all"]


def vocabularies(
    head: FeatureHead, target: CausalLM, texts: eagle.Texts, sizes: Sequence[int]
) -> list[dict]:
    """Return α of a head that may draft only its most frequent tokens."""
    rows = []
    sampled = [text for text in texts.held_out if text.temperature == 1]
    for count in sizes:
        fewer = copy.deepcopy(head)
        fewer.ids = (
            eagle.most_frequent_tokens(texts.training, count, target.vocab_size).sort().values
        )
        sums, counts = eagle.acceptance_by_text(fewer, target, sampled, ("alpha", "covered"))
        row = {"tokens": count}
        for name, sum in sums.items():
            depth = eagle.mean_and_error(sum, counts)
            row[name] = {"value": depth["mean"][0], "error": depth["error"][0]}
        rows.append(row)
    return rows


def reliability(head: FeatureHead, target: CausalLM, texts: eagle.Texts) -> list[dict]:
    """Return how often the head's most likely token is the target's too, by its confidence."""
    parts = []
    for tokens, counted in eagle.batch_by_length(
        [text for text in texts.held_out if text.temperature == 0], 8, eagle.DEPTHS + 1
    ):
        parts += acceptance_by_depth(head, target, tokens, counted, eagle.DEPTHS)[:1]
    confidence = torch.cat([rows["confidence"] for rows in parts])
    agreement = torch.cat([rows["agrees"] for rows in parts]).double()
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    return [
        {
            "confidence": float(confidence[bins == b].mean()),
            "accepted": float(agreement[bins == b].mean()),
            "count": int((bins == b).sum()),
        }
        for b in range(BINS)
        if bool((bins == b).any())
    ]


@torch.inference_mode()
def example(
    heads: dict[int, FeatureHead], target: CausalLM, tokenizer, texts: Sequence[eagle.Sample]
) -> dict:
    """Return a position at which two heads predict different words, with their likeliest tokens.

    It is the first position, at least eight tokens into a text, at which only the head with shift 1
    agrees with the target and the context and the likeliest tokens are readable words. If there is
    none, it is the first position of the first text.
    """
    text_of = lambda token: tokenizer.decode([int(token)])
    is_word = lambda token: text_of(token).strip().isalpha() and text_of(token).startswith(" ")
    first = None
    for text in texts:
        tokens = text.ids[None]
        hidden = target.score(tokens, target.new_cache(), hidden_layers=("final",)).hidden
        distributions = {}
        for shift, head in heads.items():
            inputs = target if shift else unshifted(target)
            output = next(unroll(head, hidden, inputs.embed(tokens), 1))[0]
            distributions[shift] = head.logits(output, head.rows(target)).softmax(-1)
        for row in range(text.start + 8, distributions[0].shape[0] - 1):
            top = {shift: probs[row].topk(5) for shift, probs in distributions.items()}
            words = text.ids[row - 3 : row + 3].tolist()
            shown = [
                [[text_of(heads[s].ids[t]), round(float(q), 4)] for q, t in zip(*top[s])]
                for s in (0, 1)
            ]
            found = {"words": [text_of(token) for token in words], "laws": shown}
            first = first or found
            best = {shift: int(heads[shift].ids[top[shift].indices[0]]) for shift in top}
            if best[1] == words[-1] != best[0] and all(map(is_word, (*words, best[0]))):
                return found
    assert first is not None
    return first


def shapes(
    head: FeatureHead, target: CausalLM, tokenizer, new_tokens: int, count: int
) -> list[dict]:
    """Measure tokens per round for chains and trees with the same number of nodes.

    The drafts are greedy and at temperature 1. Each mean over prompts has its standard error.
    """
    drafts = {
        "chain of 4": 4,
        f"chain of {NODES}": NODES,
        f"tree of ranks, {NODES}": TokenTree.best([[0.6, 0.15, 0.07]] * 4, NODES),
        f"grown, {NODES}": ConfidenceTree(3, 5, NODES),
    }
    prompts = [
        tokenizer.encode(item["text"]) for items in evaluation_prompts().values() for item in items
    ]
    rows = []
    prompts = prompts[:: max(1, len(prompts) // count)]
    for name, draft in drafts.items():
        for temperature in (0.0, 1.0):
            drafter = EagleDrafter(target, head, draft)
            runs = [
                generate(
                    target, ids, drafter, new_tokens, temperature, stop_token_ids=(), seed=number
                ).stats
                for number, ids in enumerate(prompts)
            ]
            tau = torch.tensor([run.tokens / run.target_passes for run in runs])
            error = float(tau.std() / len(tau) ** 0.5)
            rows.append(
                {
                    "draft": name,
                    "temperature": temperature,
                    "tau": float(tau.mean()),
                    "error": error,
                }
            )
    return rows


SHIFTS = {"feature and own token": 0, "feature and next token": 1}
"""The two heads of the example, with the shift of the token."""


class EagleAblations(Experiment):
    """The parts are the heads, measurements with the EAGLE-1 head, and an example."""

    name = "eagle-ablations"
    what = "parts of EAGLE on the shipped target: rates of acceptance"
    time = "1 hour"
    quick = ("--epochs 0.5 --prompts 2 --new-tokens 4 --cache .work/quick-eagle").split()
    unrelated = ("cache",)
    timed = False

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--texts", type=int, default=512, help="pieces of text to train on")
        parser.add_argument("--epochs", type=float, default=4.0)
        parser.add_argument("--held-out", type=int, help="number of held-out texts; default: all")
        parser.add_argument("--new-tokens", type=int, default=48)
        parser.add_argument(
            "--prompts", type=int, default=24, help="number of prompts for the trees"
        )
        parser.add_argument("--cache", type=Path, default=cache_folder() / "eagle")

    def check(self):
        if self.options.prompts < 2:
            raise ValueError(f"--prompts {self.options.prompts}: must be at least 2")

    @cached_property
    def pair(self):
        """The shipped pair, whose target is not trained."""
        pair = load_pair(dtype="float32")
        pair.target.model.requires_grad_(False)
        return pair

    @cached_property
    def texts(self) -> eagle.Texts:
        """The training texts and the held-out texts."""
        options, pair = self.options, self.pair
        if options.quick:
            return short_texts(pair.tokenizer)
        texts = eagle.pair_texts(pair.target, pair.tokenizer, options.cache, options.texts)
        if options.held_out is None:
            return texts
        step = max(1, len(texts.held_out) // options.held_out)
        return eagle.Texts(texts.training, texts.held_out[::step])

    def head(self, name: str) -> tuple[FeatureHead, CausalLM]:
        """Return a head, trained or from its checkpoint, and the target with its inputs."""
        return train_head(name, self.pair.target, self.texts, self.options)

    def parts(self):
        return [*HEADS, "vocabulary", "reliability", "shapes", "example"]

    def run(self, part):
        target, tokenizer, texts = self.pair.target, self.pair.tokenizer, self.texts
        if part in HEADS:
            return rates(*self.head(part), texts)
        if part == "example":
            heads = {shift: self.head(name)[0] for name, shift in SHIFTS.items()}
            greedy = [text for text in texts.held_out if text.temperature == 0]
            prose = [text for text in greedy if text.kind == "prose"] or greedy
            return example(heads, target, tokenizer, prose)
        head = self.head("EAGLE-1")[0]
        if part == "vocabulary":
            sizes = [size for size in (64, 128, 256, 512, 1024) if size < target.vocab_size]
            return vocabularies(head, target, texts, [*sizes, target.vocab_size])
        if part == "reliability":
            return reliability(head, target, texts)
        return shapes(head, target, tokenizer, self.options.new_tokens, self.options.prompts)

    def summarise(self, rows):
        laws = []
        for name, shift in SHIFTS.items():
            agrees = rows[name]["agrees"]["mean"][0]
            laws.append({"law": rows["example"]["laws"][shift], "agrees": agrees})
        return {
            "target": fingerprint(self.pair.target),
            "texts": self.options.texts,
            "epochs": self.options.epochs,
            "heads": {name: rows[name] for name in HEADS},
            "vocabulary": rows["vocabulary"],
            "reliability": rows["reliability"],
            "shapes": rows["shapes"],
            "example": rows["example"] | {"laws": laws},
        }

    def restore(self, data):
        example = data["example"] | {"laws": [row["law"] for row in data["example"]["laws"]]}
        names = ("vocabulary", "reliability", "shapes")
        return data["heads"] | {name: data[name] for name in names} | {"example": example}
