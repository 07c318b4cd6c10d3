"""Every way to draft that the library has, and every rule with a way to draft that it judges: the
rows of the scoreboard.

What lives here: one line a method, ready to run on the shipped pair or on SmolLM2. What does not:
how they are measured (`scoreboard`). A drafter or rule of the library that has no line here fails a
test.
"""

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_lite import CausalLM, TokenTree, acceptance as a, results
from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    BlockwiseDrafter,
    CascadeDrafter,
    CoupledDrafter,
    Drafter,
    EagleDrafter,
    EarlyExitDrafter,
    Growth,
    HashPoolDrafter,
    HydraDrafter,
    JacobiDrafter,
    LayerSkipDrafter,
    LookaheadDrafter,
    MarkovDrafter,
    MedusaDrafter,
    MergedDrafter,
    MlpSpeculatorDrafter,
    ModelDrafter,
    MtpDrafter,
    NgramDrafter,
    OnlineDrafter,
    PardDrafter,
    PassDrafter,
    PromptLookupDrafter,
    QuantisedDrafter,
    RelayDrafter,
    RestDrafter,
    SequoiaDrafter,
    ShapedDrafter,
    SparseCacheDrafter,
    SpecExecDrafter,
    SuffixDrafter,
    TemperedDrafter,
    TokenRecyclingDrafter,
    same_noise,
)
from specdec_lite.drafters.grow import with_replacement
from specdec_lite.drafters.layer_skip import sublayers
from specdec_lite.drafters.lengths import Confidence
from specdec_lite.drafters.ngram_model import NgramModel
from specdec_lite.drafters.shapes import balanced
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import FILE, SHIPPED as WEIGHTS
from specdec_lite.speculation import Verifier
from specdec_lite.training.blockwise import COUNT

from .smollm2 import array, counts

BOTH = ("pair", "smollm2")
PAIR = ("pair",)
SMOLLM2 = ("smollm2",)
NO_DRAFT_MODEL = (
    "It needs a smaller model with the target's vocabulary, and SmolLM2's family has none smaller."
)
NO_TREE = "No tree of ranks was fitted to SmolLM2's heads, which draft a chain in the row above."
NOT_TRAINED = "It is trained on its target, and what ships was trained on the pair's alone."
BLOCKS_LEFT_OUT = (12, 16, 20)
"""Of SmolLM2's thirty, which its layer-skipping draft does without."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the scoreboard.

    Attributes:
        make: (pair, γ) → the drafter; γ is the number of nodes for a tree that grows freely.
        source: where the drafts come from, one of book/map.yml's sources.
        chapter: the page that teaches it.
        rule: what judges; None: the default. Another rule differs above temperature 0 only.
        targets: what it can run on, "pair" and "smollm2".
        lengths: it drafts a chain of γ, and is measured at several γ.
        weights: the folder of its trained weights, which it needs for a target.
        lacks: why it cannot run on SmolLM2 where `targets` leaves that out.
    """

    make: Callable[[Pair, int], Drafter]
    source: str
    chapter: str
    rule: RuleFunction | Verifier | None = None
    targets: Sequence[str] = BOTH
    lengths: bool = False
    weights: str | None = None
    lacks: str = NO_DRAFT_MODEL

    @property
    def lossless(self) -> bool:
        return self.rule is None or self.rule.lossless

    def trained(self, model: str) -> Path | None:
        """The folder of its weights for a target; None where there is none. What lies beside the
        targets' folders is the pair's.
        """
        folder = WEIGHTS / (self.weights or "")
        if (folder / model / FILE).is_file():
            return folder / model
        return folder if model == "pair" and self.weights else None

    def why_not(self, model: str) -> str:
        """Why it has no row on a target; empty where it has one."""
        if model in self.targets:
            return NOT_TRAINED if self.weights and self.trained(model) is None else ""
        if self.targets == SMOLLM2:
            return "The pair has the same rule on its draft model."
        return self.lacks


def tree_of_ranks(nodes: int) -> TokenTree:
    """The best `nodes` of a tree in which deeper and later guesses are right less often."""
    return TokenTree.best([[0.6, 0.15, 0.07]] * 4, nodes)


def skipping(pair: Pair, gamma: int) -> LayerSkipDrafter:
    """Without what a recorded search left out of the pair's target, or without three of SmolLM2's
    blocks.
    """
    target = pair.target
    if pair.draft is None:
        parts = [(block, part) for block in BLOCKS_LEFT_OUT for part in ("attention", "mlp")]
        return LayerSkipDrafter(target, sublayers(parts, target.num_layers), gamma)
    search = results.load("skips").data["targets"]["pair"]["search"]["greedy"]["path"]
    parts = next(row["skip"] for row in search if len(row["skip"]) == 4)
    return LayerSkipDrafter(target, [tuple(part) for part in parts], gamma)


def two_drafts(pair: Pair) -> MergedDrafter:
    """The draft model draws twice, and equal beginnings become one node."""
    return MergedDrafter([ModelDrafter(pair.draft, 4)] * 2)


def independent(pair: Pair) -> ShapedDrafter:
    """Two siblings drawn with replacement, then one child each."""
    return ShapedDrafter(pair.draft, balanced([2, 1, 1]), with_replacement)


def without_weights() -> dict[str, Method]:
    """The text and the target alone."""
    ch8, ch12 = "notebooks/08_model_free", "notebooks/12_lookahead"
    return {
        "prompt lookup": Method(lambda pair, g: PromptLookupDrafter(g), "text", ch8, lengths=True),
        "suffix decoding": Method(lambda pair, g: SuffixDrafter(g), "text", ch8, lengths=True),
        "suffix decoding, a tree": Method(
            lambda pair, g: SuffixDrafter(2 * g, width=3), "text", ch8
        ),
        "REST, a tree": Method(
            lambda pair, g: RestDrafter(array(pair.tokenizer), 2 * g), "text", ch8
        ),
        "n-gram model": Method(
            lambda pair, g: NgramDrafter(counts(pair.tokenizer), g), "text", ch8, lengths=True
        ),
        "token recycling": Method(
            lambda pair, g: TokenRecyclingDrafter(pair.target, 2 * g), "text", ch8
        ),
        "a hash pool": Method(lambda pair, g: HashPoolDrafter(g), "text", ch8, lengths=True),
        "Jacobi": Method(lambda pair, g: JacobiDrafter(g), "target", ch12, lengths=True),
        "Lookahead": Method(lambda pair, g: LookaheadDrafter(3, 3, 3), "target", ch12),
    }


def parts_of_the_target() -> dict[str, Method]:
    ch9 = "notebooks/09_self_drafts"
    return {
        "early exit": Method(
            lambda pair, g: EarlyExitDrafter.from_pretrained(pair.target, gamma=g),
            *("target", ch9),
            lengths=True,
            weights="early_exit",
        ),
        "layers left out": Method(skipping, "target", ch9),
        "the target in 8 bits": Method(
            lambda pair, g: QuantisedDrafter(pair.target, 8, g), "target", ch9
        ),
        "look-ahead rows": Method(
            lambda pair, g: PassDrafter.from_pretrained(pair.target),
            *("target", ch9),
            weights="pass_rows",
        ),
        "sinks and a window": Method(
            lambda pair, g: SparseCacheDrafter(pair.target, 4, 32, g), "target", ch9
        ),
    }


def trained_heads() -> dict[str, Method]:
    ch10, ch11 = "notebooks/10_training", "notebooks/11_eagle"
    ch13, ch14 = "notebooks/13_when_to_stop", "notebooks/14_medusa"
    medusa = lambda tree: (
        lambda pair, g: MedusaDrafter.from_pretrained(pair.target, tree=tree and tree(g))
    )
    eagle = lambda version, draft: (
        lambda pair, g: EagleDrafter.from_pretrained(pair.target, version, draft=draft(g))
    )
    chain = lambda g: TokenTree.chain([0] * min(g, 4))
    return {
        "blockwise heads": Method(
            lambda pair, g: BlockwiseDrafter.from_pretrained(pair.target, k=min(g, COUNT) + 1),
            "heads",
            "notebooks/04_blockwise_parallel",
            lengths=True,
            weights="blockwise",
        ),
        "Medusa, a chain": Method(medusa(chain), "heads", ch14, weights="medusa"),
        "Medusa, a tree": Method(
            medusa(None), "heads", ch14, targets=PAIR, weights="medusa", lacks=NO_TREE
        ),
        "Hydra": Method(
            lambda pair, g: HydraDrafter.from_pretrained(pair.target, gamma=min(g, 4)),
            *("heads", ch10),
            weights="hydra",
        ),
        "EAGLE-1, a chain": Method(
            eagle(1, lambda g: g), "heads", ch11, lengths=True, weights="eagle1"
        ),
        "EAGLE-1, a tree": Method(
            eagle(1, lambda g: tree_of_ranks(2 * g)), "heads", ch11, weights="eagle1"
        ),
        "EAGLE-1, stops when unsure": Method(
            eagle(1, lambda g: Confidence(2 * g, 0.4)), *("heads", ch13), weights="eagle1"
        ),
        "EAGLE-2, a grown tree": Method(
            eagle(1, lambda g: Growth(3, 4, 2 * g)), "heads", ch11, weights="eagle1"
        ),
        "EAGLE-3, a grown tree": Method(
            eagle(3, lambda g: Growth(3, 4, 2 * g)), "heads", ch11, weights="eagle3"
        ),
        "multi-token prediction": Method(
            lambda pair, g: MtpDrafter.from_pretrained(pair.target, draft=g),
            "heads",
            ch11,
            weights="mtp",
        ),
        "Medusa, corrected": Method(
            lambda pair, g: MarkovDrafter.from_pretrained(pair.target),
            "heads",
            ch10,
            weights="markov",
        ),
        "MLP speculator": Method(
            lambda pair, g: MlpSpeculatorDrafter.from_pretrained(pair.target, gamma=min(g, 4)),
            *("heads", ch10),
            weights="mlp_speculator",
        ),
        "block diffusion": Method(
            lambda pair, g: BlockDiffusionDrafter.from_pretrained(pair.target, gamma=min(g, 7)),
            *("heads", ch10),
            weights="block_diffusion",
        ),
    }


def draft_models() -> dict[str, Method]:
    """Whatever needs a second model, so the pair."""

    def of(make, source: str, chapter: str, **more) -> Method:
        about = {"targets": PAIR, "weights": "pair"} | more
        return Method(make, source, f"notebooks/{chapter}", **about)

    ch5, ch10 = "05_draft_then_verify", "10_training"
    ch13, ch15 = "13_when_to_stop", "15_token_trees"
    return {
        "draft model": of(lambda pair, g: ModelDrafter(pair.draft, g), "model", ch5, lengths=True),
        "draft model, stops when unsure": of(
            lambda pair, g: ModelDrafter(pair.draft, Confidence(2 * g, 0.4)), "model", ch13
        ),
        "draft model, chosen tokens": of(
            lambda pair, g: TemperedDrafter(ModelDrafter(pair.draft, g)), "model", ch13
        ),
        "draft model, the target's noise": of(
            lambda pair, g: CoupledDrafter(ModelDrafter(pair.draft, g)),
            *("model", ch13),
            rule=same_noise,
        ),
        "draft model that learns online": of(
            lambda pair, g: OnlineDrafter(pair.draft, g), "model", ch10
        ),
        "PARD, one pass": of(
            lambda pair, g: PardDrafter.from_pretrained(pair.target, gamma=g),
            *("model", ch10),
            targets=BOTH,
            weights="pard",
        ),
        "cascade over prompt lookup": of(
            lambda pair, g: CascadeDrafter(pair.draft, PromptLookupDrafter(g), 2 * g),
            *("cascade", ch13),
        ),
        "draft model, then n-grams": of(
            lambda pair, g: RelayDrafter(
                [(ModelDrafter(pair.draft, g), g), (NgramDrafter(counts(pair.tokenizer), 2), 2)]
            ),
            *("cascade", ch13),
        ),
        "SpecInfer, two drafts merged": of(lambda pair, g: two_drafts(pair), "model", ch15),
        "a tree drawn independently": of(lambda pair, g: independent(pair), "model", ch15),
        "Sequoia": of(lambda pair, g: SequoiaDrafter(pair.draft, 2 * g), "model", ch15),
        "SpecExec": of(
            lambda pair, g: SpecExecDrafter(pair.draft, 2 * g, width=4, depth=4), "model", ch15
        ),
    }


def relays() -> dict[str, Method]:
    """Drafters of drafters that no second model stands in."""
    ch13 = "notebooks/13_when_to_stop"
    return {
        "n-gram model over prompt lookup": Method(
            lambda pair, g: CascadeDrafter(
                NgramModel(counts(pair.tokenizer)), PromptLookupDrafter(g), 2 * g
            ),
            *("cascade", ch13),
        ),
        "EAGLE-1, then n-grams": Method(
            lambda pair, g: RelayDrafter(
                [
                    (EagleDrafter.from_pretrained(pair.target, 1, draft=g), g),
                    (NgramDrafter(counts(pair.tokenizer), 2), 2),
                ]
            ),
            *("cascade", ch13),
            weights="eagle1",
        ),
    }


def other_rules(ways: dict[str, Method]) -> dict[str, Method]:
    """Every rule but the default, each with a way to draft that it judges: "way × rule"."""
    ch6, ch7b = "notebooks/06_why_lossless", "notebooks/07b_better_rule"
    ch15, a2 = "notebooks/15_token_trees", "notebooks/a2_blockwise_heads"
    judged = [
        ("draft model", a.sample_and_match, ch6),
        ("draft model", a.block_verification, ch7b),
        ("draft model", a.rejection_sampling, ch6),
        ("draft model", a.lenient(0.6), ch7b),
        ("draft model", a.lenient_scaled(0.6), ch7b),
        ("draft model", a.lenient_argmax(0.6), ch7b),
        ("draft model", a.typical(), "notebooks/14_medusa"),
        ("draft model", a.top_k_match(2), a2),
        ("draft model", a.distance_match(1), a2),
        ("a tree drawn independently", a.k_seq(2), ch15),
        ("a tree drawn independently", a.sample_and_match, ch15),
        ("Sequoia", a.traversal_verification, ch15),
        ("Medusa, a tree", a.typical(), "notebooks/14_medusa"),
        ("EAGLE-1, a chain", a.sample_and_match, ch6),
        ("EAGLE-1, a chain", a.block_verification, ch7b),
        ("EAGLE-1, a chain", a.lenient(0.6), ch7b),
        ("EAGLE-1, a chain", a.typical(), "notebooks/14_medusa"),
        ("EAGLE-1, a tree", a.traversal_verification, ch15),
    ]
    return {
        f"{name} × {rule.name}": Method(
            ways[name].make,
            *(ways[name].source, chapter, rule),
            targets=SMOLLM2 if name.startswith("EAGLE") else ways[name].targets,
            weights=ways[name].weights,
        )
        for name, rule, chapter in judged
    }


WAYS = draft_models() | relays() | trained_heads() | parts_of_the_target() | without_weights()
METHODS: dict[str, Method] = WAYS | other_rules(WAYS)
"""The scoreboard's rows by name."""


def bytes_beside(drafter: Drafter, target: CausalLM) -> int:
    """Bytes that a drafter holds beside its target before the first token: the size of its pickle
    without the target's parts.
    """
    theirs = {id(part) for part in (target, *target.model.modules(), *target.model.parameters())}
    theirs |= {id(part) for part in target.model.buffers()}
    file = io.BytesIO()

    class Beside(pickle.Pickler):
        def persistent_id(self, part):
            return "target" if id(part) in theirs else None

    Beside(file).dump(drafter)
    return file.tell()
