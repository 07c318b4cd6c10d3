"""What EAGLE's parts are worth, on the shipped target: inputs, depth, vocabulary, trees, confidence.

    python -m benchmarks.eagle            # half an hour on two quiet cores
    python -m benchmarks.eagle --texts 64 --epochs 1

Everything recorded is a rate of acceptance, none a time, so a busy machine changes nothing. It trains
its heads on the target's own text (kept in --work, where an interrupted run goes on) and writes
results/eagle.json. Nothing here is asserted.
"""

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import generate, load_pair, results
from specdec_lite.checks import whole
from specdec_lite.drafters import EagleDrafter, Growth
from specdec_lite.drafters.feature_head import Eagle1Head, FeatureHead
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training import eagle
from specdec_lite.training.features import Features
from specdec_lite.training.loop import Plan
from specdec_lite.training.unroll import RECIPES, Recipe, acceptance_by_depth, unroll
from specdec_lite.tree import TokenTree

NODES = 8
BINS = 10


class FeatureOnly(Eagle1Head):
    """Is not told which token was taken."""

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return super().enter(torch.zeros_like(embedded), state)


class TokenOnly(Eagle1Head):
    """Sees no feature: a small language model of one block."""

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return super().enter(embedded, torch.zeros_like(state))


def unshifted(target: CausalLM) -> CausalLM:
    """The target with every embedding one place late: pairs of a feature and its own token."""
    other = copy.copy(target)
    other.embed = lambda ids: target.embed(ids.roll(1, -1))
    return other


ONE_PASS = Recipe(feature=1.0, law=0.1)
HEADS = {
    "feature and next token": (Eagle1Head, ONE_PASS, False),
    "feature and own token": (Eagle1Head, ONE_PASS, True),
    "feature": (FeatureOnly, ONE_PASS, False),
    "token": (TokenOnly, ONE_PASS, False),
    "EAGLE-1": (Eagle1Head, RECIPES["1"], False),
    "law alone": (Eagle1Head, Recipe(law=1.0), False),
    "HASS": (Eagle1Head, RECIPES["hass"], False),
    "EAGLE-3, one pass": (eagle.Eagle3Head, Recipe(law=1.0), False),
    "EAGLE-3": (eagle.Eagle3Head, RECIPES["3"], False),
    "multi-token prediction": (eagle.MtpHead, RECIPES["mtp"], False),
}


def trained(
    name: str, target: CausalLM, texts: eagle.Texts, options
) -> tuple[FeatureHead, CausalLM]:
    """The head of this name, and the target as it is shown to it."""
    kind, recipe, late = HEADS[name]
    shown = unshifted(target) if late else target
    head = eagle.initialise(kind.beside(target), target)
    data = eagle.batched(texts.training, 8, 5)
    plan = Plan(max(1, round(options.epochs * len(data))), 1e-3, 8, warmup=10, weight_decay=0.0)
    layers = tuple(dict.fromkeys((*head.layers, "final")))
    features = Features(target, options.work / "features", layers)
    path = options.work / f"study-{name.replace(' ', '-')}-{len(data)}-{plan.steps}.pt"
    eagle.fit(head, shown, data, features, recipe, plan, path)
    return head.requires_grad_(False), shown


def rates(head: FeatureHead, target: CausalLM, texts: eagle.Texts) -> dict:
    return eagle.measure(head, target, texts.held_out)["all"]


def vocabularies(
    head: FeatureHead, target: CausalLM, texts: eagle.Texts, sizes: Sequence[int]
) -> list[dict]:
    """α of the same head where it may draft its most frequent tokens alone."""
    rows = []
    chosen = [text for text in texts.held_out if text.temperature == 1]
    for count in sizes:
        fewer = copy.deepcopy(head)
        fewer.ids = eagle.frequent(texts.training, count, target.vocab_size).sort().values
        sums, counts = eagle.by_text(fewer, target, chosen, ("alpha", "covered"))
        row = {"tokens": count}
        for name, sum in sums.items():
            depth = eagle.averages(sum, counts)
            row[name] = {"value": depth["mean"][0], "error": depth["error"][0]}
        rows.append(row)
    return rows


def reliability(head: FeatureHead, target: CausalLM, texts: eagle.Texts) -> list[dict]:
    """How often the likeliest token is the target's too, by how sure the head is of it."""
    found = []
    for tokens, counted in eagle.batched(
        [text for text in texts.held_out if text.temperature == 0], 8, eagle.DEPTHS + 1
    ):
        found += acceptance_by_depth(head, target, tokens, counted, eagle.DEPTHS)[:1]
    sure = torch.cat([rows["confidence"] for rows in found])
    right = torch.cat([rows["agrees"] for rows in found]).double()
    place = (sure * BINS).long().clamp(max=BINS - 1)
    return [
        {
            "confidence": float(sure[place == b].mean()),
            "accepted": float(right[place == b].mean()),
            "count": int((place == b).sum()),
        }
        for b in range(BINS)
        if bool((place == b).any())
    ]


@torch.inference_mode()
def example(heads: dict[int, FeatureHead], target: CausalLM, tokenizer, text: eagle.Sample) -> dict:
    """The first place of a text, behind eight of its own words, at which the heads trained with
    shift 0 and 1 differ in their likeliest token, and what each says there; the last where none is.
    """
    tokens = text.ids[None]
    hidden = target.score(tokens, target.new_cache(), hidden_layers=("final",)).hidden
    laws = {}
    for shift, head in heads.items():
        shown = target if shift else unshifted(target)
        output = next(unroll(head, hidden, shown.embed(tokens), 1))[0]
        laws[shift] = head.logits(output, head.rows(target)).softmax(-1)
    rows = range(text.start + 8, laws[0].shape[0] - 1)
    best = {shift: law.argmax(-1).tolist() for shift, law in laws.items()}
    row = next((i for i in rows if best[0][i] != best[1][i]), rows[-1])
    word = lambda token: tokenizer.decode([int(token)])
    said = {shift: law[row].topk(5) for shift, law in laws.items()}
    return {
        "words": [word(token) for token in tokens[0, row - 3 : row + 3]],
        "laws": [[[word(t), round(float(q), 4)] for q, t in zip(*said[shift])] for shift in (0, 1)],
    }


def shapes(
    head: FeatureHead, target: CausalLM, tokenizer, new_tokens: int, count: int
) -> list[dict]:
    """Tokens a round with chains and trees of the same number of nodes, greedy and at temperature 1:
    the mean over prompts and its standard error.
    """
    drafts = {
        "chain of 4": 4,
        f"chain of {NODES}": NODES,
        f"tree of ranks, {NODES}": TokenTree.best([[0.6, 0.15, 0.07]] * 4, NODES),
        f"grown, {NODES}": Growth(3, 5, NODES),
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eagle")
    parser.add_argument("--texts", type=int, default=512, help="pieces of text to train on")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--held-out", type=int, help="judge on so many texts; default: all")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=24, help="for the trees")
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
        head, shown = trained(name, target, texts, options)
        data["heads"][name] = rates(head, shown, texts)
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
        greedy = next(text for text in texts.held_out if text.temperature == 0)
        data["example"] = example(paired, target, pair.tokenizer, greedy)
        for name, shift in shifts.items():
            mean = data["heads"][name]["agrees"]["mean"][0]
            law = data["example"]["laws"][shift]
            data["example"]["laws"][shift] = {"law": law, "agrees": mean}
    command = f"python -m benchmarks.eagle --texts {options.texts} --epochs {options.epochs:g}"
    stamp = results.stamp("parts of EAGLE on the shipped target: rates of acceptance", command)
    results.save(options.out, stamp, data)


if __name__ == "__main__":
    main()
