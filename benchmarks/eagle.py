"""Measure what each part of EAGLE contributes: inputs, depth, vocabulary, trees, confidence.

    python -m benchmarks.eagle            # half an hour on two quiet cores
    python -m benchmarks.eagle --texts 64 --epochs 1

The target is the shipped one. All recorded numbers are acceptance rates, so a busy machine changes
nothing. The command trains its heads on the target's own text. Finished work is stored in --work,
so an interrupted run resumes. It writes results/eagle.json and asserts nothing.
"""

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import generate, load_pair
from specdec_lite.checks import whole
from specdec_lite.drafters import ConfidenceTree, EagleDrafter
from specdec_lite.drafters.parts.feature_head import Eagle1Head, FeatureHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure import stamps
from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.training import eagle
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unroll
from specdec_lite.tree import TokenTree

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

    Args:
        target: Model to wrap; its weights are shared.
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


def train_head(
    name: str, target: CausalLM, texts: eagle.Texts, options
) -> tuple[FeatureHead, CausalLM]:
    """Train a head.

    Args:
        name: Key of HEADS.
        target: Model that verifies.
        texts: Training and held-out texts.
        options: Options of the command line.

    Returns:
        The head, and the target whose inputs it was trained on.
    """
    kind, recipe, is_late = HEADS[name]
    inputs = unshifted(target) if is_late else target
    head = eagle.initialize_head(kind.for_target(target), target)
    data = eagle.batch_by_length(texts.training, 8, 5)
    plan = Plan(max(1, round(options.epochs * len(data))), 1e-3, 8, warmup=10, weight_decay=0.0)
    layers = tuple(dict.fromkeys((*head.layers, "final")))
    features = Features(target, options.work / "features", layers)
    path = options.work / f"study-{name.replace(' ', '-')}-{len(data)}-{plan.steps}.pt"
    eagle.fit(head, inputs, data, features, recipe, plan, path)
    return head.requires_grad_(False), inputs


def rates(head: FeatureHead, target: CausalLM, texts: eagle.Texts) -> dict:
    """Return the acceptance rates of a head on the held-out texts.

    Args:
        head: Head to measure.
        target: Model that verifies.
        texts: Training and held-out texts.
    """
    return eagle.measure(head, target, texts.held_out)["all"]


def vocabularies(
    head: FeatureHead, target: CausalLM, texts: eagle.Texts, sizes: Sequence[int]
) -> list[dict]:
    """Return α of a head that may draft only its most frequent tokens.

    Args:
        head: Head to measure.
        target: Model that verifies.
        texts: Training and held-out texts.
        sizes: Numbers of tokens.
    """
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
    """Return how often the head's most likely token is the target's too, by its confidence.

    Args:
        head: Head to measure.
        target: Model that verifies.
        texts: Training and held-out texts.
    """
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

    Args:
        heads: Heads trained with shift 0 and 1.
        target: Model that verifies.
        tokenizer: Its tokenizer.
        texts: Held-out texts that the target wrote greedily.
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

    Args:
        head: Head that drafts.
        target: Model that verifies.
        tokenizer: Its tokenizer.
        new_tokens: New tokens per prompt.
        count: Number of prompts.
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
                generate(target, ids, drafter, new_tokens, temperature, seed=number).stats
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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eagle")
    parser.add_argument("--texts", type=int, default=512, help="pieces of text to train on")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--held-out", type=int, help="number of held-out texts; default: all")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=24, help="number of prompts for the trees")
    parser.add_argument("--only", nargs="*", choices=list(HEADS), help="some heads; default: all")
    parser.add_argument("--work", type=Path, default=cache_folder() / "eagle")
    parser.add_argument("--out", type=Path, default=Path("results/eagle.json"))
    options = parser.parse_args(arguments)
    whole("prompts", options.prompts, 2)
    pair = load_pair(dtype="float32")
    target = pair.target
    target.model.requires_grad_(False)
    texts = eagle.pair_texts(target, pair.tokenizer, options.work, options.texts)
    data: dict = {
        "target": fingerprint(target),
        "texts": options.texts,
        "epochs": options.epochs,
        "heads": {},
    }
    if options.held_out is not None:
        texts = eagle.Texts(
            texts.training, texts.held_out[:: max(1, len(texts.held_out) // options.held_out)]
        )
    shifts = {"feature and own token": 0, "feature and next token": 1}
    paired = {}
    for name in options.only or HEADS:
        head, inputs = train_head(name, target, texts, options)
        data["heads"][name] = rates(head, inputs, texts)
        print(name, data["heads"][name], flush=True)
        if name in shifts:
            paired[shifts[name]] = head
        if name == "EAGLE-1":
            sizes = [size for size in (64, 128, 256, 512, 1024) if size < target.vocab_size]
            data["vocabulary"] = vocabularies(head, target, texts, [*sizes, target.vocab_size])
            data["reliability"] = reliability(head, target, texts)
            data["shapes"] = shapes(
                head, target, pair.tokenizer, options.new_tokens, options.prompts
            )
    if len(paired) == 2:
        greedy = [text for text in texts.held_out if text.temperature == 0]
        prose = [text for text in greedy if text.kind == "prose"] or greedy
        data["example"] = example(paired, target, pair.tokenizer, prose)
        for name, shift in shifts.items():
            mean = data["heads"][name]["agrees"]["mean"][0]
            top_tokens = data["example"]["laws"][shift]
            data["example"]["laws"][shift] = {"law": top_tokens, "agrees": mean}
    command = f"python -m benchmarks.eagle --texts {options.texts} --epochs {options.epochs:g}"
    stamp = stamps.stamp("parts of EAGLE on the shipped target: rates of acceptance", command)
    stamps.save(options.out, stamp, data)


if __name__ == "__main__":
    main()
