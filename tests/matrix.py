"""Tables of what is promised: which architectures, rules and drafters are lossless, and refusals.

`python tests/matrix.py` runs the checks and writes results/losslessness/<machine>.json; with
`--only NAME` it adds or renews the rows of one drafter, rule, architecture or refusal. The book's
appendix shows that file; test_matrix.py and test_architectures.py compare every entry with a fresh
run.
"""

import argparse
import json
import sys
from collections.abc import Collection
from dataclasses import asdict
from functools import cache

import torch
from architectures import examine
from models_zoo import PROMPT, TYPES, hugging_face, native
from registry import DRAFTERS, NATIVE_ONLY, RULES
from text_laws import TINY, bias, distance, exact_text_law, own_text_law, random_law

from specdec_book import recordings
from specdec_lite import CausalLM, acceptance as a, generate
from specdec_lite.measure import stamps
from specdec_lite.sampling import Sampling

EXACT = 1e-12
ARCHITECTURES = ("exact", "refused", "not tried")
SAMPLINGS = {
    "T = 0": Sampling(0.0),
    "T = 0.3": Sampling(0.3),
    "T = 1": Sampling(1.0),
    "T = 2": Sampling(2.0),
    "top-k 2": Sampling(top_k=2),
    "top-p 0.8": Sampling(top_p=0.8),
}


@cache
def recorded() -> dict:
    found = recordings.load("losslessness")
    return {"versions": found.versions, **found.data}


# Rules: exact distributions --------------------------------------------------------------------------------


def adjusted(law, sampling: Sampling):
    return lambda prefix: sampling(law(prefix).log())


def total_variation(rule, propose, gamma: int, sampling: Sampling) -> float | None:
    """Return the largest distance from the target's distribution of γ + 1 tokens.

    It is taken over four pairs of distributions; None if the rule rejects soft rows.
    """
    worst = 0.0
    for seed, zeros in ((0, False), (1, False), (2, True), (3, True)):
        target, draft = (adjusted(random_law(seed + shift, 3, zeros), sampling) for shift in (0, 9))
        try:
            worst = max(worst, bias(target, draft, rule, gamma, propose))
        except ValueError as refusal:
            if rule is a.exact_match and "one-hot" in str(refusal):
                return None
            raise
    return worst


def law_of_rule(name: str, way: str) -> dict:
    """Return one row of the table of rules: the distance under every sampling.

    A distance below 1e-12 is shown as 0; None means that the rule rejects the sampling.
    """
    rule, ways = RULES[name]
    apart = {
        label: total_variation(rule, *ways[way], sampling) for label, sampling in SAMPLINGS.items()
    }
    return {
        "rule": name,
        "draft": way,
        "tag": rule.lossless,
        "distance": {
            label: d if d is None else 0.0 if d < EXACT else round(d, 6)
            for label, d in apart.items()
        },
    }


# Drafters: exact distributions of real rounds --------------------------------------------------------------

JUDGES = (
    "speculative_sampling",
    "sample_and_match",
    "traversal_verification",
    "block_verification",
    "k_seq(2)",
)  # lossless at every temperature


def judges(name: str) -> tuple[str, ...]:
    """Return the rules that a drafter is tested with: the last two do not take every tree."""
    return JUDGES[:3] if "tree" in name else JUDGES


def distance_of_drafter(name: str, judge: str, label: str, length: int) -> float:
    """Return the distance of the first `length` tokens from the target's own distribution."""
    layers = 2 if name in NATIVE_ONLY else 1  # an early exit needs two
    tiny = native(seed=5, vocab_size=3, **TINY | {"num_layers": layers})
    emitted = exact_text_law(tiny, DRAFTERS[name](tiny), SAMPLINGS[label], length, RULES[judge][0])
    return distance(emitted, own_text_law(tiny, SAMPLINGS[label], length))


def law_of_drafter(name: str, judge: str) -> dict:
    """Return one row of the table of drafters, under one rule.

    It states whether greedy texts equal the target's own, and the exact distance of real rounds: of
    three tokens, or of two if trees are drawn, since every draw multiplies the outcomes.
    """
    rule = RULES[judge][0]
    targets = [native()]
    if name not in NATIVE_ONLY:
        targets += [hugging_face("Llama"), hugging_face("Bloom")]
    same = all(
        torch.equal(
            generate(target, PROMPT, DRAFTERS[name](target), 24, rule=rule).tokens,
            generate(target, PROMPT, max_new_tokens=24).tokens,
        )
        for target in targets
    )
    length = 2 if "tree drawn" in name else 3
    apart = {
        label: distance_of_drafter(name, judge, label, length)
        for label in ("T = 0.3", "T = 1", "T = 2", "top-k 2", "top-p 0.8")
    }
    apart = {label: 0.0 if d < EXACT else round(d, 6) for label, d in apart.items()}
    return {
        "drafter": name,
        "rule": judge,
        "greedy text": same,
        "tokens": length,
        "distance": apart,
    }


# Refusals -----------------------------------------------------------------------------------------


def _decode(**options):
    return lambda: generate(native(), PROMPT, max_new_tokens=2, **options)


def _wrap(kind: str):
    from architectures import tiny

    return lambda: CausalLM(tiny(kind))


def _encoder_decoder():
    from transformers import T5Config, T5ForConditionalGeneration

    CausalLM(
        T5ForConditionalGeneration(
            T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        )
    )


REFUSALS = {
    "recurrent state (state-space models and hybrids)": _wrap("mamba"),
    "encoder–decoders": _encoder_decoder,
    "positions counted from the padding id": _wrap("roberta"),
    "a model without a cache": _wrap("openai-gpt"),
    "a cache with a sparse-attention index": _wrap("glm_moe_dsa"),
    "exact match above temperature 0": _decode(rule=a.exact_match, temperature=1.0),
    "block verification of a tree": _decode(
        drafter=DRAFTERS["a tree of chosen tokens"](native()),
        rule=a.block_verification,
        temperature=1.0,
    ),
    "several prompts (use `generate_batch`)": lambda: generate(native(), [[1], [2]]),
}


def refusal(name: str) -> dict:
    """Return one row of the table of refusals: the request, and the error that it raises."""
    try:
        REFUSALS[name]()
    except (ValueError, TypeError) as error:
        return {"asked": name, "error": type(error).__name__, "message": str(error)}
    raise AssertionError(f"{name} was not refused")


PARTS = {
    "architectures": {(kind,): lambda kind: asdict(examine(kind)) for kind in TYPES},
    "rules": {(name, way): law_of_rule for name, (_, ways) in RULES.items() for way in ways},
    "drafters": {(name, rule): law_of_drafter for name in DRAFTERS for rule in judges(name)},
    "refused": {(name,): refusal for name in REFUSALS},
}
"""Every row of every table: its key, and the function of the key that computes it."""
KEYS = {
    "architectures": ("kind",),
    "rules": ("rule", "draft"),
    "drafters": ("drafter", "rule"),
    "refused": ("asked",),
}
"""The fields of a row that are its key."""


def rows(part: str) -> dict[tuple[str, ...], dict]:
    """Return the recorded rows of a table by key."""
    return {tuple(row[key] for key in KEYS[part]): row for row in recorded()[part]}


def command(name: str) -> str:
    """Return the command that records the rows of one name."""
    return f"python tests/matrix.py --only {name!r}"


def tables(chosen: Collection[str]) -> dict[str, list[dict]]:
    """Return all tables, with the rows of the chosen tables and names computed anew."""

    def row(part: str, key: tuple[str, ...]) -> dict:
        if part in chosen or key[0] in chosen:
            return PARTS[part][key](*key)
        if key not in rows(part):
            raise SystemExit(f"{part} has no row for {key}, run: {command(key[0])}")
        return rows(part)[key]

    def ordered(part: str) -> list[tuple[str, ...]]:
        """Return the keys of a table: those recorded already in their order, then the new ones."""
        known = [key for key in rows(part) if key in PARTS[part]]
        return known + [key for key in PARTS[part] if key not in known]

    return {part: [row(part, key) for key in ordered(part)] for part in PARTS}


def main() -> None:
    """The command line: record everything, or some tables or rows anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about = (
        f"tables ({', '.join(PARTS)}) or names of rows, such as a drafter's; default: all tables"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(PARTS), help=about)
    chosen = parser.parse_args().only
    names = {*PARTS, *(key[0] for keys in PARTS.values() for key in keys)}
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"--only {unknown[0]!r}: there is no such table or row")
    what = (
        "Which architectures, acceptance rules and drafters are lossless, by running them; and what"
        " is refused"
    )
    stamp = stamps.stamp(what, "python tests/matrix.py")
    path = stamps.recording_path("losslessness", stamp["machine"], recordings.FOLDER)
    if not {*PARTS} <= {*chosen}:
        # The rows are exact, so they do not depend on the machine: they go into the recording that
        # has the others, whose versions they must share.
        if recorded()["versions"] != stamp["versions"]:
            parser.error(
                f"recorded with {recorded()['versions']}, installed are {stamp['versions']}: install"
                " requirements.txt, or record everything"
            )
        path = recordings.find("losslessness")
        stamp, _ = stamps.split(json.loads(path.read_text(encoding="utf-8")))
    print("wrote", stamps.save(path, stamp, tables(chosen)))


if __name__ == "__main__":
    sys.exit(main())
