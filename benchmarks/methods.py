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
from dataclasses import dataclass, replace
from functools import partial
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


# How drafters are made ----------------------------------------------------------------------------


def trained(kind: type, most: int | None = None, name: str = "gamma") -> Callable:
    """Return a function that loads a trained drafter, whose option `name` is γ, at most `most`."""
    return lambda pair, g: kind.from_pretrained(pair.target, **{name: min(g, most or g)})


def medusa(tree: Callable[[int], TokenTree] | None = None) -> Callable:
    """Return a function that loads Medusa's heads with a tree of γ; None: the stored tree."""
    return lambda pair, g: d.MedusaDrafter.from_pretrained(pair.target, tree=tree and tree(g))


def eagle(version: int, draft: Callable[[int], object] = int) -> Callable:
    """Return a function that loads an EAGLE head with a draft of γ; default: a chain of γ."""
    return lambda pair, g: d.EagleDrafter.from_pretrained(pair.target, version, draft=draft(g))


def chain(g: int) -> TokenTree:
    """Return a chain of γ of Medusa's four heads."""
    return TokenTree.chain([0] * min(g, 4))


def tree_of_ranks(g: int) -> TokenTree:
    """Return the best tree of 2γ nodes if deeper and later guesses are right less often."""
    return TokenTree.best([[0.6, 0.15, 0.07]] * 4, 2 * g)


def grown(g: int) -> d.ConfidenceTree:
    """Return a tree of 2γ nodes that follows the draft's confidence."""
    return d.ConfidenceTree(3, 4, 2 * g)


def unsure(g: int) -> Confidence:
    """Return a chain of at most 2γ that stops when the draft is unsure."""
    return Confidence(2 * g, 0.4)


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


def ngrams(pair: Pair, g: int) -> d.NgramDrafter:
    """Return a drafter by the trigram counts of the datastore."""
    return d.NgramDrafter(counts(pair.tokenizer), g)


def relay(pair: Pair, g: int, first: d.Drafter) -> d.RelayDrafter:
    """Return a drafter whose chains of γ are continued by n-grams."""
    return d.RelayDrafter([(first, g), (ngrams(pair, 2), 2)])


def independent(pair: Pair, g: int) -> d.FixedTreeDrafter:
    """Return a drafter of two siblings drawn with replacement, then one child each."""
    return d.FixedTreeDrafter(pair.draft, balanced([2, 1, 1]), with_replacement)


def bandit(pair: Pair, g: int) -> d.BanditDrafter:
    """Return the automatic choice: prompt lookup where the text repeats, EAGLE-1's head elsewhere.

    The lengths and priors are those of bfloat16. They were chosen on held-out answers of the heads'
    training text, which share nothing with the scoreboard's prompts.
    """
    lookups = [d.PromptLookupDrafter(gamma, n, n) for gamma, n in ((10, 3), (6, 2), (4, 1))]
    drafters = [*lookups, eagle(1)(pair, 2)]
    return d.BanditDrafter(drafters, 0.1, 0.04, priors=(3.0, 1.7, 1.0, 1.3), weight=8)


# The table ----------------------------------------------------------------------------------------


def of(make: Callable, source: str, chapter: str, weights: str | None = None, **more) -> Method:
    """Return a row."""
    return Method(make, source, f"notebooks/{chapter}", weights=weights, **more)


by_model = partial(of, targets=PAIR, weights="pair")
"""A row of a second model, which only the pair has."""
SEVERAL = ("cascade", "15c_several_drafters")
WAYS: dict[str, Method] = {
    "draft model": by_model(
        lambda pair, g: d.ModelDrafter(pair.draft, g), "model", "05_draft_then_verify"
    ),
    "draft model, stops when unsure": by_model(
        lambda pair, g: d.ModelDrafter(pair.draft, unsure(g)), "model", "15_when_to_stop"
    ),
    "draft model, chosen tokens": by_model(
        lambda pair, g: d.TemperedDrafter(d.ModelDrafter(pair.draft, g)), "model", "15_when_to_stop"
    ),
    "draft model, the target's noise": by_model(
        lambda pair, g: d.CoupledDrafter(d.ModelDrafter(pair.draft, g)),
        "model",
        "15b_hide_drafting",
        rule=d.same_noise,
    ),
    "draft model that learns online": by_model(
        lambda pair, g: d.OnlineDrafter(pair.draft, g), "model", "12_training"
    ),
    "PARD, one pass": of(trained(d.PardDrafter), "model", "12b_one_pass", "pard"),
    "cascade over prompt lookup": by_model(
        lambda pair, g: d.CascadeDrafter(pair.draft, d.PromptLookupDrafter(g), 2 * g), *SEVERAL
    ),
    "draft model, then n-grams": by_model(
        lambda pair, g: relay(pair, g, d.ModelDrafter(pair.draft, g)), *SEVERAL
    ),
    "SpecInfer, two drafts merged": by_model(
        lambda pair, g: d.MergedDrafter([d.ModelDrafter(pair.draft, 4)] * 2),
        "model",
        "11_token_trees",
    ),
    "a tree drawn independently": by_model(independent, "model", "11_token_trees"),
    "Sequoia": by_model(
        lambda pair, g: d.SequoiaDrafter(pair.draft, 2 * g), "model", "11_token_trees"
    ),
    "SpecExec": by_model(
        lambda pair, g: d.SpecExecDrafter(pair.draft, 2 * g, width=4, depth=4),
        "model",
        "11_token_trees",
    ),
    # several drafters without a second model
    "n-gram model over prompt lookup": of(
        lambda pair, g: d.CascadeDrafter(
            NgramModel(counts(pair.tokenizer)), d.PromptLookupDrafter(g), 2 * g
        ),
        *SEVERAL,
    ),
    "EAGLE-1, then n-grams": of(
        lambda pair, g: relay(pair, g, eagle(1)(pair, g)), *SEVERAL, "eagle1"
    ),
    "a bandit over lookup and EAGLE-1": of(bandit, *SEVERAL, "eagle1"),
    # trained heads
    "blockwise heads": of(
        lambda pair, g: d.BlockwiseDrafter.from_pretrained(
            pair.target, k=min(g, BLOCKWISE_HEADS) + 1
        ),
        *("heads", "04_blockwise_parallel", "blockwise"),
    ),
    "Medusa, a chain": of(medusa(chain), "heads", "10_medusa", "medusa"),
    "Medusa, a tree": of(medusa(), "heads", "10_medusa", "medusa", targets=PAIR, lacks=NO_TREE),
    "Hydra": of(trained(d.HydraDrafter, 4), "heads", "12b_one_pass", "hydra"),
    "EAGLE-1, a chain": of(eagle(1), "heads", "13_eagle", "eagle1"),
    "EAGLE-1, a tree": of(eagle(1, tree_of_ranks), "heads", "13_eagle", "eagle1"),
    "EAGLE-1, stops when unsure": of(eagle(1, unsure), "heads", "15_when_to_stop", "eagle1"),
    "EAGLE-2, a grown tree": of(eagle(1, grown), "heads", "13b_confidence_trees", "eagle1"),
    "EAGLE-3, a grown tree": of(eagle(3, grown), "heads", "13b_confidence_trees", "eagle3"),
    "multi-token prediction": of(trained(d.MtpDrafter, name="draft"), "heads", "13_eagle", "mtp"),
    "Medusa, corrected": of(
        lambda pair, g: d.MarkovDrafter.from_pretrained(pair.target),
        *("heads", "12b_one_pass", "markov"),
    ),
    "MLP speculator": of(
        trained(d.MlpSpeculatorDrafter, 4), "heads", "12b_one_pass", "mlp_speculator"
    ),
    "block diffusion": of(
        trained(d.BlockDiffusionDrafter, 7), "heads", "12b_one_pass", "block_diffusion"
    ),
    # a part of the target
    "early exit": of(trained(d.EarlyExitDrafter), "target", "09_self_drafts", "early_exit"),
    "layers left out": of(skipping, "target", "09_self_drafts"),
    "the target in 8 bits": of(
        lambda pair, g: d.QuantizedDrafter(pair.target, 8, g),
        *("target", "09_self_drafts"),
        tiny=True,
    ),
    "look-ahead rows": of(
        lambda pair, g: d.PassDrafter.from_pretrained(pair.target),
        *("target", "09_self_drafts", "pass_rows"),
    ),
    "sinks and a window": of(
        lambda pair, g: d.SparseCacheDrafter(pair.target, 4, 32, g), "target", "09_self_drafts"
    ),
    # the text and the target alone
    "prompt lookup": of(
        lambda pair, g: d.PromptLookupDrafter(g), "text", "08_model_free", tiny=True
    ),
    "suffix decoding": of(lambda pair, g: d.SuffixDrafter(g), "text", "08_model_free", tiny=True),
    "suffix decoding, a tree": of(
        lambda pair, g: d.SuffixDrafter(2 * g, width=3), "text", "08_model_free"
    ),
    "REST, a tree": of(
        lambda pair, g: d.RestDrafter(array(pair.tokenizer), 2 * g), "text", "10b_recycling"
    ),
    "n-gram model": of(ngrams, "text", "08_model_free"),
    "token recycling": of(
        lambda pair, g: d.TokenRecyclingDrafter(pair.target, 2 * g), "text", "10b_recycling"
    ),
    "a hash pool": of(lambda pair, g: d.HashPoolDrafter(g), "text", "08_model_free"),
    "Jacobi": of(lambda pair, g: d.JacobiDrafter(g), "target", "14_lookahead"),
    "Lookahead": of(lambda pair, g: d.LookaheadDrafter(3, 3, 3), "target", "14_lookahead"),
}
OTHER_RULES = (
    ("draft model", a.sample_and_match, "06_why_lossless"),
    ("draft model", a.block_verification, "07b_better_rule"),
    ("draft model", a.rejection_sampling, "06_why_lossless"),
    ("draft model", a.lenient(0.6), "07b_better_rule"),
    ("draft model", a.lenient_scaled(0.6), "07b_better_rule"),
    ("draft model", a.lenient_argmax(0.6), "07b_better_rule"),
    ("draft model", a.typical(), "10_medusa"),
    ("draft model", a.top_k_match(2), "a2_blockwise_heads"),
    ("draft model", a.distance_match(1), "a2_blockwise_heads"),
    ("a tree drawn independently", a.k_seq(2), "11_token_trees"),
    ("a tree drawn independently", a.sample_and_match, "11_token_trees"),
    ("Sequoia", a.traversal_verification, "11_token_trees"),
    ("Medusa, a tree", a.typical(), "10_medusa"),
    ("EAGLE-1, a chain", a.sample_and_match, "06_why_lossless"),
    ("EAGLE-1, a chain", a.block_verification, "07b_better_rule"),
    ("EAGLE-1, a chain", a.lenient(0.6), "07b_better_rule"),
    ("EAGLE-1, a chain", a.typical(), "10_medusa"),
    ("EAGLE-1, a tree", a.traversal_verification, "11_token_trees"),
)
"""Every rule except the default, each with a drafter."""
METHODS: dict[str, Method] = WAYS | {
    f"{name} × {rule.name}": replace(
        WAYS[name],
        rule=rule,
        chapter=f"notebooks/{chapter}",
        targets=SMOLLM2 if name.startswith("EAGLE") else WAYS[name].targets,
    )
    for name, rule, chapter in OTHER_RULES
}
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
