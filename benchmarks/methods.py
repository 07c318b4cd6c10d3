"""List every drafter and every rule of the library: one row each, for the scoreboard and the tests.

Each row is ready to run on the shipped pair or on SmolLM2. `scoreboard_counts` and
`scoreboard_clocks` measure the rows. With `tiny=True` the invariants and the enumeration of
distributions run the row too, on models with random weights. A test fails if a drafter or rule of
the library has no row here.
"""

import inspect
import io
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from specdec_book import recordings
from specdec_lite import CausalLM, TokenTree, acceptance as a, drafters as d
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.drafters.lengths import Confidence
from specdec_lite.drafters.ngrams import NgramModel
from specdec_lite.drafters.self_drafts import sublayers
from specdec_lite.drafters.trees import balanced, with_replacement
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import FILE, SHIPPED as WEIGHTS
from specdec_lite.speculation import Verifier
from specdec_lite.training.heads import BLOCKWISE_HEADS

from .smollm2 import SKIPPED, array, counts

BOTH = ("pair", "smollm2")
PAIR = ("pair",)
SMOLLM2 = ("smollm2",)
NO_DRAFT_MODEL = (
    "It needs a smaller model with the target's vocabulary, and SmolLM2's family has none smaller."
)
NO_TREE = "No tree of ranks was fitted to SmolLM2's heads, which draft a chain in the row above."
NOT_TRAINED = "It is trained on its target, and what ships was trained on the pair's alone."


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the scoreboard.

    Attributes:
        make: Function from the pair and γ to the drafter; γ is the number of nodes of an expanded
            tree.
        source: Origin of the drafts, one of the sources in book/map.yml.
        chapter: Page that teaches the method.
        rule: Rule that verifies; None is the default. Another rule differs only above temperature
            0.
        targets: Targets on which the method runs, "pair" and "smollm2".
        weights: Folder of the trained weights that the method needs for a target.
        lacks: Why the method cannot run on SmolLM2, if `targets` does not contain it.
        tiny: Whether the tests make this row for models with random weights, and without a
            tokenizer. Other drafters have entries of their own in `tests/registry.py`.
    """

    make: Callable[[Pair, int], d.Drafter]
    source: str
    chapter: str
    rule: RuleFunction | Verifier | None = None
    targets: Sequence[str] = BOTH
    weights: str | None = None
    lacks: str = NO_DRAFT_MODEL
    tiny: bool = False

    @property
    def lossless(self) -> bool:
        """Whether the rule is lossless."""
        return self.rule is None or self.rule.lossless

    def trained(self, model: str) -> Path | None:
        """Return the folder of the weights for a target, or None if there are none.

        Weights outside the folders of the targets belong to the pair.
        """
        folder = WEIGHTS / (self.weights or "")
        if (folder / model / FILE).is_file():
            return folder / model
        return folder if model == "pair" and self.weights else None

    def why_not(self, model: str) -> str:
        """Return why the method has no row on a target; empty if it has one."""
        if model in self.targets:
            return NOT_TRAINED if self.weights and self.trained(model) is None else ""
        if self.targets == SMOLLM2:
            return "The pair has the same rule on its draft model."
        return self.lacks


def tree_of_ranks(nodes: int) -> TokenTree:
    """Return the best tree if deeper and later guesses are right less often."""
    return TokenTree.best([[0.6, 0.15, 0.07]] * 4, nodes)


def skipping(pair: Pair, gamma: int) -> d.LayerSkipDrafter:
    """Return a drafter that leaves out sublayers of its target.

    For the pair's target they come from a recorded search; for SmolLM2 they are three blocks.
    """
    target = pair.target
    if pair.draft is None:
        parts = [(block, part) for block in SKIPPED for part in ("attention", "mlp")]
        return d.LayerSkipDrafter(target, sublayers(parts, target.num_layers), gamma)
    search = recordings.load("layer-skip-search").data["targets"]["pair"]["search"]["greedy"][
        "path"
    ]
    parts = next(row["skip"] for row in search if len(row["skip"]) == 4)
    return d.LayerSkipDrafter(target, [tuple(part) for part in parts], gamma)


def two_drafts(pair: Pair) -> d.MergedDrafter:
    """Return a drafter that draws two drafts and merges their equal beginnings."""
    return d.MergedDrafter([d.ModelDrafter(pair.draft, 4)] * 2)


def independent(pair: Pair) -> d.FixedTreeDrafter:
    """Return a drafter of two siblings drawn with replacement, then one child each."""
    return d.FixedTreeDrafter(pair.draft, balanced([2, 1, 1]), with_replacement)


def without_weights() -> dict[str, Method]:
    """Return the methods that use only the text and the target."""
    ch8, ch10b = "notebooks/08_model_free", "notebooks/10b_recycling"
    ch14 = "notebooks/14_lookahead"
    return {
        "prompt lookup": Method(lambda pair, g: d.PromptLookupDrafter(g), "text", ch8, tiny=True),
        "suffix decoding": Method(lambda pair, g: d.SuffixDrafter(g), "text", ch8, tiny=True),
        "suffix decoding, a tree": Method(
            lambda pair, g: d.SuffixDrafter(2 * g, width=3), "text", ch8
        ),
        "REST, a tree": Method(
            lambda pair, g: d.RestDrafter(array(pair.tokenizer), 2 * g), "text", ch10b
        ),
        "n-gram model": Method(
            lambda pair, g: d.NgramDrafter(counts(pair.tokenizer), g), "text", ch8
        ),
        "token recycling": Method(
            lambda pair, g: d.TokenRecyclingDrafter(pair.target, 2 * g), "text", ch10b
        ),
        "a hash pool": Method(lambda pair, g: d.HashPoolDrafter(g), "text", ch8),
        "Jacobi": Method(lambda pair, g: d.JacobiDrafter(g), "target", ch14),
        "Lookahead": Method(lambda pair, g: d.LookaheadDrafter(3, 3, 3), "target", ch14),
    }


def parts_of_the_target() -> dict[str, Method]:
    """Return the methods that draft with a part of the target."""
    ch9 = "notebooks/09_self_drafts"
    return {
        "early exit": Method(
            lambda pair, g: d.EarlyExitDrafter.from_pretrained(pair.target, gamma=g),
            *("target", ch9),
            weights="early_exit",
        ),
        "layers left out": Method(skipping, "target", ch9),
        "the target in 8 bits": Method(
            lambda pair, g: d.QuantizedDrafter(pair.target, 8, g), "target", ch9, tiny=True
        ),
        "look-ahead rows": Method(
            lambda pair, g: d.PassDrafter.from_pretrained(pair.target),
            *("target", ch9),
            weights="pass_rows",
        ),
        "sinks and a window": Method(
            lambda pair, g: d.SparseCacheDrafter(pair.target, 4, 32, g), "target", ch9
        ),
    }


def trained_heads() -> dict[str, Method]:
    """Return the methods that draft with trained heads."""
    ch10, ch11 = "notebooks/12b_one_pass", "notebooks/13_eagle"
    grown = "notebooks/13b_confidence_trees"
    ch15, medusa_page = "notebooks/15_when_to_stop", "notebooks/10_medusa"
    medusa = lambda tree: (
        lambda pair, g: d.MedusaDrafter.from_pretrained(pair.target, tree=tree and tree(g))
    )
    eagle = lambda version, draft: (
        lambda pair, g: d.EagleDrafter.from_pretrained(pair.target, version, draft=draft(g))
    )
    chain = lambda g: TokenTree.chain([0] * min(g, 4))
    return {
        "blockwise heads": Method(
            lambda pair, g: d.BlockwiseDrafter.from_pretrained(
                pair.target, k=min(g, BLOCKWISE_HEADS) + 1
            ),
            "heads",
            "notebooks/04_blockwise_parallel",
            weights="blockwise",
        ),
        "Medusa, a chain": Method(medusa(chain), "heads", medusa_page, weights="medusa"),
        "Medusa, a tree": Method(
            medusa(None), "heads", medusa_page, targets=PAIR, weights="medusa", lacks=NO_TREE
        ),
        "Hydra": Method(
            lambda pair, g: d.HydraDrafter.from_pretrained(pair.target, gamma=min(g, 4)),
            *("heads", ch10),
            weights="hydra",
        ),
        "EAGLE-1, a chain": Method(eagle(1, lambda g: g), "heads", ch11, weights="eagle1"),
        "EAGLE-1, a tree": Method(
            eagle(1, lambda g: tree_of_ranks(2 * g)), "heads", ch11, weights="eagle1"
        ),
        "EAGLE-1, stops when unsure": Method(
            eagle(1, lambda g: Confidence(2 * g, 0.4)), *("heads", ch15), weights="eagle1"
        ),
        "EAGLE-2, a grown tree": Method(
            eagle(1, lambda g: d.ConfidenceTree(3, 4, 2 * g)), "heads", grown, weights="eagle1"
        ),
        "EAGLE-3, a grown tree": Method(
            eagle(3, lambda g: d.ConfidenceTree(3, 4, 2 * g)), "heads", grown, weights="eagle3"
        ),
        "multi-token prediction": Method(
            lambda pair, g: d.MtpDrafter.from_pretrained(pair.target, draft=g),
            "heads",
            ch11,
            weights="mtp",
        ),
        "Medusa, corrected": Method(
            lambda pair, g: d.MarkovDrafter.from_pretrained(pair.target),
            "heads",
            ch10,
            weights="markov",
        ),
        "MLP speculator": Method(
            lambda pair, g: d.MlpSpeculatorDrafter.from_pretrained(pair.target, gamma=min(g, 4)),
            *("heads", ch10),
            weights="mlp_speculator",
        ),
        "block diffusion": Method(
            lambda pair, g: d.BlockDiffusionDrafter.from_pretrained(pair.target, gamma=min(g, 7)),
            *("heads", ch10),
            weights="block_diffusion",
        ),
    }


def draft_models() -> dict[str, Method]:
    """Return the methods that need a second model, which only the pair has."""

    def of(make, source: str, chapter: str, **more) -> Method:
        about = {"targets": PAIR, "weights": "pair"} | more
        return Method(make, source, f"notebooks/{chapter}", **about)

    ch5, ch10 = "05_draft_then_verify", "12_training"
    ch11, ch15, ch15b = "11_token_trees", "15_when_to_stop", "15b_hide_drafting"
    several = "15c_several_drafters"
    return {
        "draft model": of(lambda pair, g: d.ModelDrafter(pair.draft, g), "model", ch5),
        "draft model, stops when unsure": of(
            lambda pair, g: d.ModelDrafter(pair.draft, Confidence(2 * g, 0.4)), "model", ch15
        ),
        "draft model, chosen tokens": of(
            lambda pair, g: d.TemperedDrafter(d.ModelDrafter(pair.draft, g)), "model", ch15
        ),
        "draft model, the target's noise": of(
            lambda pair, g: d.CoupledDrafter(d.ModelDrafter(pair.draft, g)),
            *("model", ch15b),
            rule=d.same_noise,
        ),
        "draft model that learns online": of(
            lambda pair, g: d.OnlineDrafter(pair.draft, g), "model", ch10
        ),
        "PARD, one pass": of(
            lambda pair, g: d.PardDrafter.from_pretrained(pair.target, gamma=g),
            *("model", "12b_one_pass"),
            targets=BOTH,
            weights="pard",
        ),
        "cascade over prompt lookup": of(
            lambda pair, g: d.CascadeDrafter(pair.draft, d.PromptLookupDrafter(g), 2 * g),
            *("cascade", several),
        ),
        "draft model, then n-grams": of(
            lambda pair, g: d.RelayDrafter(
                [(d.ModelDrafter(pair.draft, g), g), (d.NgramDrafter(counts(pair.tokenizer), 2), 2)]
            ),
            *("cascade", several),
        ),
        "SpecInfer, two drafts merged": of(lambda pair, g: two_drafts(pair), "model", ch11),
        "a tree drawn independently": of(lambda pair, g: independent(pair), "model", ch11),
        "Sequoia": of(lambda pair, g: d.SequoiaDrafter(pair.draft, 2 * g), "model", ch11),
        "SpecExec": of(
            lambda pair, g: d.SpecExecDrafter(pair.draft, 2 * g, width=4, depth=4), "model", ch11
        ),
    }


def automatic(
    target: CausalLM,
    lookups: Sequence[int] = (10, 6, 4),
    head: int = 2,
    priors: Sequence[float] = (3.0, 1.7, 1.0, 1.3),
    c: float = 0.1,
    t: float = 0.04,
) -> d.BanditDrafter:
    """Return the automatic choice: prompt lookup where the text repeats, EAGLE-1's head elsewhere.

    The default lengths and priors are those of bfloat16. They were chosen on held-out answers of
    the heads' training text, which share nothing with the scoreboard's prompts.
    """
    drafters = [d.PromptLookupDrafter(gamma, n, n) for gamma, n in zip(lookups, (3, 2, 1))]
    eagle_head = d.EagleDrafter.from_pretrained(target, 1, draft=head)
    return d.BanditDrafter([*drafters, eagle_head], c, t, priors=priors, weight=8)


def relays() -> dict[str, Method]:
    """Return the methods that combine drafters without a second model."""
    several = "notebooks/15c_several_drafters"
    return {
        "n-gram model over prompt lookup": Method(
            lambda pair, g: d.CascadeDrafter(
                NgramModel(counts(pair.tokenizer)), d.PromptLookupDrafter(g), 2 * g
            ),
            *("cascade", several),
        ),
        "EAGLE-1, then n-grams": Method(
            lambda pair, g: d.RelayDrafter(
                [
                    (d.EagleDrafter.from_pretrained(pair.target, 1, draft=g), g),
                    (d.NgramDrafter(counts(pair.tokenizer), 2), 2),
                ]
            ),
            *("cascade", several),
            weights="eagle1",
        ),
        "a bandit over lookup and EAGLE-1": Method(
            lambda pair, g: automatic(pair.target), *("cascade", several), weights="eagle1"
        ),
    }


def other_rules(ways: dict[str, Method]) -> dict[str, Method]:
    """Return every rule except the default, each with a drafter, named "drafter × rule"."""
    ch6, ch7b = "notebooks/06_why_lossless", "notebooks/07b_better_rule"
    ch15, a2 = "notebooks/11_token_trees", "notebooks/a2_blockwise_heads"
    combinations = [
        ("draft model", a.sample_and_match, ch6),
        ("draft model", a.block_verification, ch7b),
        ("draft model", a.rejection_sampling, ch6),
        ("draft model", a.lenient(0.6), ch7b),
        ("draft model", a.lenient_scaled(0.6), ch7b),
        ("draft model", a.lenient_argmax(0.6), ch7b),
        ("draft model", a.typical(), "notebooks/10_medusa"),
        ("draft model", a.top_k_match(2), a2),
        ("draft model", a.distance_match(1), a2),
        ("a tree drawn independently", a.k_seq(2), ch15),
        ("a tree drawn independently", a.sample_and_match, ch15),
        ("Sequoia", a.traversal_verification, ch15),
        ("Medusa, a tree", a.typical(), "notebooks/10_medusa"),
        ("EAGLE-1, a chain", a.sample_and_match, ch6),
        ("EAGLE-1, a chain", a.block_verification, ch7b),
        ("EAGLE-1, a chain", a.lenient(0.6), ch7b),
        ("EAGLE-1, a chain", a.typical(), "notebooks/10_medusa"),
        ("EAGLE-1, a tree", a.traversal_verification, ch15),
    ]
    return {
        f"{name} × {rule.name}": Method(
            ways[name].make,
            *(ways[name].source, chapter, rule),
            targets=SMOLLM2 if name.startswith("EAGLE") else ways[name].targets,
            weights=ways[name].weights,
        )
        for name, rule, chapter in combinations
    }


WAYS = draft_models() | relays() | trained_heads() | parts_of_the_target() | without_weights()
METHODS: dict[str, Method] = WAYS | other_rules(WAYS)
"""The scoreboard's rows by name."""


def bytes_beside(drafter: d.Drafter, target: CausalLM) -> int:
    """Return the bytes that a drafter stores besides its target before the first token.

    This is the size of its pickle without the parts of the target.
    """
    theirs = {id(part) for part in (target, *target.model.modules(), *target.model.parameters())}
    theirs |= {id(part) for part in target.model.buffers()}
    file = io.BytesIO()

    class Beside(pickle.Pickler):
        def persistent_id(self, part):
            return "target" if id(part) in theirs else None

    Beside(file).dump(drafter)
    return file.tell()


def minutes_of_training(method: Method, model: str) -> float | None:
    """Return the training time of a shipped drafter, or None if its report has none."""
    path = method.weights and method.trained(model) / "report.json"
    if not path or not path.is_file():
        return None
    report = json.loads(path.read_text(encoding="utf-8"))
    seconds = report.get("seconds") or report.get("training", {}).get("seconds")
    return seconds and seconds / 60


def describe(method: Method, pair: Pair, model: str, gamma: int) -> dict:
    """Return the facts about a method that need no measurement."""
    return {
        "source": method.source,
        "chapter": method.chapter,
        "rule": method.rule.name if method.rule else None,
        "lossless": method.lossless,
        "bytes": bytes_beside(method.make(pair, gamma), pair.target),
        "minutes": minutes_of_training(method, model),
        "trained": method.weights is not None,
    }


ARGUMENTS = ("pair", "target", "draft", "tokenizer", "gamma")
"""Names of parameters that a row from outside the library may have."""


def custom(name: str) -> Method:
    """Return a row for a drafter that is not part of the library."""
    module, _, attribute = name.partition(":")
    try:
        make = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--method {name}: must be MODULE:NAME of a drafter ({error})") from None
    parameters = inspect.signature(make).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if unknown := [each for each in needed if each not in ARGUMENTS]:
        raise ValueError(
            f"--method {name}: needs the argument {unknown[0]!r}; the arguments that it can have are"
            f" {', '.join(ARGUMENTS)}"
        )
    names = [p.name for p in parameters if p.name in ARGUMENTS]

    def build(pair: Pair, gamma: int) -> d.Drafter:
        values = {
            "pair": pair,
            "target": pair.target,
            "draft": pair.draft,
            "tokenizer": pair.tokenizer,
            "gamma": gamma,
        }
        return make(**{each: values[each] for each in names})

    return Method(build, "custom", "")


# Rows of a run ------------------------------------------------------------------------------------


def available_rows(model: str, added: Sequence[str]) -> dict[str, Method]:
    """Return the rows that a target can have."""
    every = METHODS | {name: custom(name) for name in added}
    return {name: each for name, each in every.items() if not each.why_not(model)}


def absent_rows(model: str) -> dict[str, str]:
    """Return why a target cannot have the other rows of the catalog."""
    return {name: why for name, each in METHODS.items() if (why := each.why_not(model))}


def choose(available: dict[str, Method], names: Sequence[str]) -> dict[str, Method]:
    """Return some of the rows, in the order of the catalog."""
    if unknown := [name for name in names if name not in available]:
        raise ValueError(f"--rows {unknown[0]!r}: must be among {', '.join(available)}")
    return {name: available[name] for name in available if name in names}
