"""List every drafter and every rule for the invariants, one entry each.

A row of `benchmarks.methods` with `tiny=True` is an entry as it is. A drafter that needs random
heads, a text or other settings has its entry here.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import broken
import torch
from broken import grow
from heads_zoo import (
    exit_head,
    lookahead,
    random_blocks,
    random_correction,
    random_head,
    random_heads as heads,
    random_hydra,
    random_parallel_head,
    random_selector,
    random_speculator,
)
from models_zoo import PROMPT, TreeDrafter, Wrapped, native, perturbed

from benchmarks.methods import METHODS, Method
from specdec_lite import acceptance as a, drafters as d, generate
from specdec_lite.acceptance import draw_chain
from specdec_lite.contract import Drafter
from specdec_lite.drafters.lengths import Confidence, Entropy, Heuristic, Optimal, Predicted
from specdec_lite.drafters.ngrams import Counts, SuffixArray
from specdec_lite.drafters.self_drafts import Chunks
from specdec_lite.drafters.trees import drawn_then_chosen, with_replacement
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter
from specdec_lite.gpu.whole_draft import CapturedDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.tree import TokenTree


def some(target: CausalLM) -> torch.Tensor:
    """Return a draft vocabulary: two thirds of the target's tokens."""
    return torch.tensor([token for token in range(target.vocab_size) if token % 3])


@cache
def perturbed_text(target: CausalLM) -> list[int]:
    """Return the prompt and the target's greedy text, with every fifth token changed."""
    prompt = [token % target.vocab_size for token in PROMPT]
    most = min(40, target.max_positions - len(prompt))
    text = [*prompt, *generate(target, prompt, max_new_tokens=most).tokens.tolist()]
    return [(t + (i % 5 == 0)) % target.vocab_size for i, t in enumerate(text)]


def trigram(target: CausalLM) -> d.NgramModel:
    """Return a trigram model of that text."""
    return d.NgramModel(Counts(perturbed_text(target), target.vocab_size, 3))


def with_memory(drafter: Drafter, target: CausalLM) -> Drafter:
    """Return a drafter that has learned that text."""
    drafter.learn(perturbed_text(target))
    return drafter


def after_learning(drafter: d.OnlineDrafter, target: CausalLM) -> Drafter:
    """Return a drafter that has learned from one of its own generations."""
    prompt = [token % target.vocab_size for token in PROMPT]
    most = min(24, target.max_positions - len(prompt))
    drafter.learn([*prompt, *generate(target, prompt, drafter, most).tokens.tolist()])
    return drafter


class Letters:
    """A tokenizer whose tokens are given strings; of several that fit, the longest comes first."""

    def __init__(self, tokens):
        self.tokens = list(tokens)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids = []
        while text:
            fits = [i for i, token in enumerate(self.tokens) if text.startswith(token)]
            ids.append(max(fits, key=lambda i: len(self.tokens[i])))
            text = text[len(self.tokens[ids[-1]]) :]
        return ids

    def decode(self, ids, skip_special_tokens: bool = False) -> str:
        return "".join(self.tokens[i] for i in ids)


def another_tokenizer(target: CausalLM) -> Drafter:
    """Return a drafter whose tokens are the target's in reversed order."""
    letters = [chr(ord("A") + i) for i in range(target.vocab_size)]
    return d.TextMatchDrafter(perturbed(target), Letters(letters[::-1]), Letters(letters), 3)


def with_draft(kind: Callable[..., Drafter], *values, **options) -> Callable[[CausalLM], Drafter]:
    """Return a function from the target to a drafter with a draft model and these options."""
    return lambda target: kind(perturbed(target), *values, **options)


def with_blocks(*values, **shape) -> Callable[[CausalLM], Drafter]:
    """Return a function from the target to a block drafter whose head has a shape."""
    return lambda target: d.BlockDiffusionDrafter(target, random_blocks(target, **shape), *values)


def contributed_drafter() -> type:
    """Return the drafter class printed in CONTRIBUTING.md."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = text.split("## Add a method")[1].split("```python\n")[1].split("```")[0]
    scope: dict = {}
    exec(code, scope)
    return scope["EchoDrafter"]


# Drafters: name → a function from the target to a drafter of depth 2 or 3. Each is a class of
# specdec_lite.drafters, or a tree that one could draft.
DRAFTERS = {
    "draft model": with_draft(d.ModelDrafter, 3),
    "the target as its own draft": lambda target: d.ModelDrafter(target, 3),
    "draft model with another tokenizer": another_tokenizer,
    "blockwise heads, drawn": lambda target: d.BlockwiseDrafter(target, heads(target), 4),
    "blockwise heads, chosen": lambda target: d.TemperedDrafter(
        d.BlockwiseDrafter(target, heads(target), 3)
    ),
    "Medusa heads, a sparse tree": lambda target: d.MedusaDrafter(
        target, heads(target, 2), TokenTree([0, 1, 0, 2, 0], [-1, -1, 0, -1, 1])
    ),
    "draft model that stops when unsure": with_draft(d.ModelDrafter, Confidence(3, 0.6)),
    "draft model of changing length": with_draft(d.ModelDrafter, Heuristic(3, first=1)),
    "draft model that has learnt online": lambda target: after_learning(
        d.OnlineDrafter(perturbed(target, 0.3), 3, every=1, learning_rate=1e-3), target
    ),
    "prompt lookup, the earliest place": lambda target: d.PromptLookupDrafter(
        Heuristic(3, first=1), 2, latest=False
    ),
    "prompt lookup in a reference": lambda target: d.ReferenceLookupDrafter(
        [perturbed_text(target), [0, 1, 0]], 3
    ),
    "n-gram model, drawn": lambda target: d.NgramDrafter(
        Counts(perturbed_text(target), target.vocab_size, 3), 2
    ),
    "n-gram model, chosen": lambda target: d.TemperedDrafter(
        d.NgramDrafter(Counts(perturbed_text(target), target.vocab_size, 2), 3)
    ),
    "suffix decoding with a memory, a tree": lambda target: with_memory(
        d.SuffixDrafter(6, factor=3.0, width=2), target
    ),
    "REST, a tree": lambda target: d.RestDrafter(SuffixArray(perturbed_text(target)), 6, levels=3),
    "token recycling, a tree": lambda target: d.TokenRecyclingDrafter(target, 6),
    "token recycling with a memory, a tree": lambda target: with_memory(
        d.TokenRecyclingDrafter(target, shape=TokenTree([0, 1, 0], [-1, -1, 0])), target
    ),
    "a hash pool": lambda target: d.HashPoolDrafter(3, 1, 64),
    "a hash pool with a memory": lambda target: with_memory(d.HashPoolDrafter(3, 2, 8), target),
    "a cascade over prompt lookup": with_draft(d.CascadeDrafter, d.PromptLookupDrafter(2, 2), 3),
    "a cascade over suffix decoding": with_draft(d.CascadeDrafter, d.SuffixDrafter(3), 3),
    "draft model that stops at high entropy": with_draft(d.ModelDrafter, Entropy(3, 0.9)),
    "draft model of the length that pays best": with_draft(d.ModelDrafter, Optimal(3, 0.3, 0.5)),
    "draft model that stops when probably refused": with_draft(
        d.ModelDrafter, Predicted(3, (0.5, 0.5, -0.3, 0.4))
    ),
    "Jacobi iteration": lambda target: d.JacobiDrafter(3),
    "Lookahead, a tree": lambda target: d.LookaheadDrafter(2, 3, 2),
    "a draft model, then a smaller one": lambda target: d.RelayDrafter(
        [(d.ModelDrafter(perturbed(target), 1), 1), (d.ModelDrafter(perturbed(target, 0.3), 2), 2)]
    ),
    "draft model of another temperature": lambda target: d.TemperedDrafter(
        d.ModelDrafter(perturbed(target), 2), 0.6
    ),
    "draft model that chooses while the target draws": lambda target: d.TemperedDrafter(
        d.ModelDrafter(perturbed(target), 3)
    ),
    "draft model with the target's noise": lambda target: d.CoupledDrafter(
        d.ModelDrafter(perturbed(target), 3)
    ),
    "the drafter of CONTRIBUTING.md": lambda target: contributed_drafter()(3),
    "a wrapped drafter": lambda target: Wrapped(d.ModelDrafter(perturbed(target), 2)),
    "a cascade": lambda target: d.CascadeDrafter(
        perturbed(target), d.ModelDrafter(perturbed(target, 0.25, seed=4), 2), 3
    ),
    "a cascade of cascades": lambda target: d.CascadeDrafter(
        perturbed(target),
        d.CascadeDrafter(
            perturbed(target, 0.2, seed=4), d.ModelDrafter(perturbed(target, 0.3), 1), 2
        ),
        3,
    ),
    "a cascade of four levels: draft, trigram, lookup": lambda target: d.CascadeDrafter(
        perturbed(target), d.CascadeDrafter(trigram(target), d.PromptLookupDrafter(2, 2), 2), 3
    ),
    "a cascade over heads": lambda target: d.CascadeDrafter(
        middle := perturbed(target), d.BlockwiseDrafter(middle, heads(middle), 3), 3
    ),
    "EAGLE, a chain": lambda target: d.EagleDrafter(target, random_head(target), 3),
    "EAGLE, a tree of ranks, two thirds of the tokens": lambda target: d.EagleDrafter(
        target, random_head(target, ids=some(target)), TokenTree([0, 1, 0, 1, 0], [-1, -1, 0, 0, 1])
    ),
    "EAGLE-2, a tree": lambda target: d.EagleDrafter(
        target, random_head(target), d.ConfidenceTree(2, 3, 5)
    ),
    "EAGLE-3, a tree": lambda target: d.EagleDrafter(
        target, random_head(target, "eagle3"), d.ConfidenceTree(2, 3, 5)
    ),
    "P-EAGLE, two thirds of the tokens": lambda target: d.EagleDrafter(
        target, random_parallel_head(target, some(target)), 3
    ),
    "multi-token prediction": lambda target: d.MtpDrafter(target, random_head(target, "mtp"), 3),
    "Hydra's heads": lambda target: d.HydraDrafter(target, random_hydra(target)),
    "the MLP speculator": lambda target: d.MlpSpeculatorDrafter(target, random_speculator(target)),
    "PARD": with_draft(d.PardDrafter, 3),
    "block diffusion": with_blocks(),
    "block diffusion with a Markov correction": with_blocks(2, rank=2),
    "block diffusion with windows, from the anchor": with_blocks(
        3, parts=dict(windows=[3, None], from_anchor=True)
    ),
    "block diffusion that stops when probably rejected": with_blocks(
        3, 0.5, rank=2, parts=dict(confidence="state and token")
    ),
    "block diffusion with convolutions and a selector": with_blocks(
        3, rank=2, parts=dict(taps=2, group=4, candidates=2)
    ),
    "extra heads with a selector of pairs": lambda target: d.MarkovDrafter(
        target, heads(target), random_selector(target), 3
    ),
    "extra heads with a Markov correction": lambda target: d.MarkovDrafter(
        target, heads(target), random_correction(target), 3
    ),
    "early exit": lambda target: d.EarlyExitDrafter(target, 1, 3, reuse=False),
    "early exit whose layers are not run again": lambda target: d.EarlyExitDrafter(target, 1, 3),
    "early exit with an adapter": lambda target: d.EarlyExitDrafter(
        target, 1, 3, adapter=exit_head(target)
    ),
    "the target without some sublayers": lambda target: d.LayerSkipDrafter(
        target, [(0, "mlp"), (1, "attention")], 3
    ),
    "the target in 3 bits": lambda target: d.QuantizedDrafter(target, 3, 3),
    "look-ahead rows": lambda target: d.PassDrafter(target, lookahead(target)),
    "the target on sinks and a window": lambda target: d.SparseCacheDrafter(target, 1, 3, 3),
    "the target on chunks that its query asks for": lambda target: d.SparseCacheDrafter(
        target, 1, 2, 3, Chunks([0, 1], 2, 2)
    ),
    "a bandit over lookup, a draft model and a head": lambda target: d.BanditDrafter(
        [
            d.PromptLookupDrafter(3, 2),
            d.ModelDrafter(perturbed(target), 2),
            d.EagleDrafter(target, random_head(target), 2),
        ]
    ),
    "a tree drawn by two drafts, merged": lambda target: d.MergedDrafter(
        [d.ModelDrafter(perturbed(target), 2), d.ModelDrafter(perturbed(target, seed=3), 2)]
    ),
    "a tree drawn by a draft, merged with heads": lambda target: d.MergedDrafter(
        [
            d.MedusaDrafter(target, heads(target, 2), TokenTree([0, 0], [-1, 0])),
            d.ModelDrafter(perturbed(target), Heuristic(2, first=1)),
        ]
    ),
    "a tree drawn in Sequoia's shape": with_draft(d.SequoiaDrafter, 3, rates=(0.6, 0.3)),
    "a tree drawn in a given shape, independently": with_draft(
        d.FixedTreeDrafter, TokenTree([0, 1, 0], [-1, -1, 0]), with_replacement
    ),
    "a tree drawn in a given shape, then chosen": with_draft(
        d.FixedTreeDrafter, TokenTree([0, 1, 0], [-1, -1, 1]), drawn_then_chosen
    ),
    "SpecExec's tree": with_draft(d.SpecExecDrafter, 4, width=2, depth=3),
    "a tree of chosen tokens": with_draft(TreeDrafter, grow(broken.chosen(2)), 2),
    "a tree drawn with replacement, equal nodes merged": with_draft(
        TreeDrafter, grow(broken.with_replacement(2), merge="nodes"), 2
    ),
    "a tree drawn without replacement": with_draft(
        TreeDrafter, grow(broken.without_replacement(2)), 2
    ),
    "a tree drawn, then chosen": with_draft(TreeDrafter, grow(broken.mixed(2)), 2),
}


def of_scoreboard(method: Method) -> Callable[[CausalLM], Drafter]:
    """Return a row of the scoreboard as an entry: a function from a target to the drafter."""
    return lambda target: method.make(Pair(target, perturbed(target), tokenizer=None), 3)


DRAFTERS |= {name: of_scoreboard(row) for name, row in METHODS.items() if row.tiny}


def lookup(target: CausalLM) -> Drafter:
    """Return the drafter that a composite has beside another, unless it is given one."""
    return d.PromptLookupDrafter(3, 1)


def cascade(make: Callable[[CausalLM], Drafter], middle: CausalLM) -> Drafter:
    """Return a cascade whose inner drafter drafts for the middle model."""
    return d.CascadeDrafter(middle, make(middle), 3)


# Composites: name → a function (make, target, beside=lookup) of the drafter inside; `make` and
# `beside` are functions from the target to a drafter, as in DRAFTERS. The drafter beside it
# sometimes wins, so that the session of the other is asked for drafts on which it hears no verdict.
COMPOSITES = {
    "bandit": lambda make, target, beside=lookup: d.BanditDrafter([beside(target), make(target)]),
    "merged": lambda make, target, beside=lookup: d.MergedDrafter([make(target), beside(target)]),
    "relay": lambda make, target, beside=lookup: d.RelayDrafter(
        [(make(target), 2), (beside(target), 2)]
    ),
    "tempered": lambda make, target, beside=lookup: d.TemperedDrafter(make(target), 0.6),
    "coupled": lambda make, target, beside=lookup: d.CoupledDrafter(make(target)),
    "cascade": lambda make, target, beside=lookup: cascade(make, perturbed(target, 0.05)),
}


def is_late_refusal(error: ValueError) -> bool:
    """Return whether a relay refuses a drafter that does not tell its limits, once it drafts a tree."""
    return str(error).startswith("legs[") and "proposed a tree" in str(error)


# Drafters that use a part of the target's layers or of its cache.
NATIVE_ONLY = {
    "early exit",
    "early exit whose layers are not run again",
    "early exit with an adapter",
    "the target without some sublayers",
    "the target in 8 bits",
    "the target in 3 bits",
    "look-ahead rows",
    "the target on sinks and a window",
    "the target on chunks that its query asks for",
}

# Drafters that draw uniforms in advance, so their distributions cannot be enumerated. Each equals a
# drafter above, draw by draw (test_on_device).
SEEDED_DRAFTERS = {
    "draft model, its tokens left on the device": lambda target: DeviceDrafter(
        perturbed(target), 3
    ),
    "draft model, its draft one program": lambda target: CapturedDrafter(
        StaticLM(perturbed(native()), 400, (1, 2)), 3
    ),
}

# Ways to draft, for exact distributions: name → (propose, γ).
CHAINS = {"chain, drawn": (draw_chain, 2), "chain, chosen": (grow(broken.chosen(1)), 2)}
TREES = {
    "tree, chosen": (grow(broken.chosen(2)), 1),
    "tree, drawn with replacement": (grow(broken.with_replacement(2)), 1),
    "tree, equal nodes merged": (grow(broken.with_replacement(2), merge="nodes"), 1),
    "tree, drawn without replacement": (grow(broken.without_replacement(2)), 1),
    "tree, drawn then chosen": (grow(broken.mixed(2)), 1),
}
INDEPENDENT = {
    name: way for name, way in TREES.items() if "with replacement" in name or "merged" in name
}
# Rules, each with the ways of drafting that it verifies.
RULES = {
    rule.name: (rule, ways)
    for rule, ways in (
        (a.speculative_sampling, CHAINS | TREES),
        (a.sample_and_match, CHAINS | TREES),
        (a.block_verification, CHAINS),
        (a.traversal_verification, CHAINS | TREES),
        (a.k_seq(2), CHAINS | INDEPENDENT),
        (a.exact_match, CHAINS | TREES),
        (a.lenient(1.0), CHAINS | TREES),
        (a.lenient_scaled(1.0), CHAINS | TREES),
        (a.rejection_sampling, CHAINS),
        (a.lenient(0.6), CHAINS | TREES),
        (a.lenient_scaled(0.6), CHAINS | TREES),
        (a.lenient_argmax(0.6), CHAINS | TREES),
        (a.typical(), CHAINS | TREES),
        (a.top_k_match(2), CHAINS | TREES),
        (a.distance_match(1), CHAINS | TREES),
    )
}
