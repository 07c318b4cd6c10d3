"""Random targets, drafters, rules and settings, each compared with plain decoding.

`python -m tests.fuzz --minutes 10` draws cases until the time is over. A case makes one of three
comparisons: of a greedy text, of the exact distribution of short texts over a tiny vocabulary, or
of the rows of a batch with the same rows decoded alone. At the first difference the command prints
the case's seed and a command that runs the case again, and its exit status is 1. That command
contains the whole case, so it keeps its meaning when the registry or the weights below change.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["SPECDEC_CHECK"] = "1"  # check every row of every proposal
sys.path.insert(0, str(Path(__file__).parent))  # the tests import each other without a package

import torch
from models_zoo import VOCABULARY, WINDOW, hugging_face, native
from registry import COMPOSITES, DRAFTERS, RULES, SEEDED_DRAFTERS, is_late_refusal, lookup
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import CausalLM, generate, generate_batch, processors as p
from specdec_lite.diagnosis.enumeration import TooManyOutcomes
from specdec_lite.drafters import Drafter, same_noise
from specdec_lite.options import prepare
from specdec_lite.sampling import Sampling
from specdec_lite.scheduling import FirstDrop

SEEDED = {name: make for name, make in SEEDED_DRAFTERS.items() if "program" not in name}
"""Those that draw uniforms in advance, so that only texts can be compared."""
NEWEST = {
    "draft model with another tokenizer",
    "block diffusion",
    "block diffusion with a Markov correction",
    "a cascade over heads",
    "a bandit over lookup, a draft model and a head",
    "a hash pool",
    "multi-token prediction",
    "token recycling, a tree",
}
"""What was added or changed last in the registry: it is drawn `WEIGHT` times as often."""
WEIGHT = 4
KINDS = {"text": 4, "distribution": 2, "batch": 4}
"""How often each comparison is made, relative to the others."""
DEPTHS = {0: 2, 1: 3, 2: 3}
"""How often a drafter is inside this many composites."""
FAMILIES = ("Llama", "Bloom", "GPT2", "Gemma2", "Mistral")
SHAPES = (
    {},
    {"window": WINDOW},
    {"num_layers": 3},
    {"qk_norm": True, "qkv_bias": True},
    {"tied": True, "num_kv_heads": 4},
    {"max_positions": 40},
)
LOSSLESS = {name: rule for name, (rule, _) in RULES.items() if rule.lossless} | {
    "same_noise": same_noise
}
GREEDY_ONLY = {"exact_match"}
MOST_TOKENS = 30
MOST_OUTCOMES = 600
TOLERANCE = 2e-6
"""The largest total variation that rounding explains: rows may be reported in float32."""

Spec = Any
"""A drafter: a name of the registry, or [composite, Spec, Spec of the drafter beside it or None]."""


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison, of values that JSON can store.

    Attributes:
        kind: one of KINDS.
        target: options of `models_zoo.native`, or {"family": a name for `models_zoo.hugging_face`}.
        drafter: see Spec.
        sampling: (temperature, top_k, top_p).
        rule: a name in LOSSLESS; None for the default.
        processors: [name in specdec_lite.processors or "alternating", arguments …] of each.
        prompts: rows of ids: several for a batch, else one.
        tokens: the largest number of new tokens.
        stops: stop tokens.
        scheduled: whether a schedule chooses which drafted tokens of a batch are verified.
    """

    kind: str
    target: dict
    drafter: Spec
    sampling: Sequence
    rule: str | None
    processors: Sequence[Sequence]
    prompts: Sequence[Sequence[int]]
    tokens: int
    stops: Sequence[int]
    scheduled: bool = False

    @property
    def command(self) -> str:
        """Return the command that runs this case again."""
        return f"python -m tests.fuzz --case {quote(json.dumps(asdict(self)))}"


class Refused(Exception):
    """The library refuses a combination."""


# Drawing a case -----------------------------------------------------------------------------------


def weighted(chance: random.Random, weights: dict) -> Any:
    """Return a key, drawn by its weight."""
    return chance.choices(list(weights), list(weights.values()))[0]


def draw_case(seed: int) -> Case:
    """Return the case of a seed."""
    chance = random.Random(seed)
    kind = weighted(chance, KINDS)
    target = draw_target(chance, kind)
    vocabulary = target.get("vocab_size", VOCABULARY)
    greedy = kind == "text" or kind == "batch" and chance.random() < 0.5
    rules = [name for name in LOSSLESS if greedy or name not in GREEDY_ONLY]
    rows = chance.randint(2, 5) if kind == "batch" else 1
    return Case(
        kind=kind,
        target=target,
        drafter=draw_drafter(chance, weighted(chance, DEPTHS), kind),
        sampling=draw_sampling(chance, greedy),
        rule=chance.choice(rules) if chance.random() < 0.5 else None,
        processors=draw_processors(chance, vocabulary),
        prompts=[
            [chance.randrange(vocabulary) for _ in range(chance.randint(1, 10))]
            for _ in range(rows)
        ],
        tokens=3 if kind == "distribution" else chance.randint(1, MOST_TOKENS),
        stops=[]
        if kind == "distribution"
        else [chance.randrange(vocabulary)][: chance.randint(0, 1)],
        scheduled=kind == "batch" and greedy and chance.random() < 0.3,
    )


def draw_target(chance: random.Random, kind: str) -> dict:
    """Return the options of a target; there are few, so that each is made once."""
    if kind == "distribution":
        window = chance.choice([None, 2])
        return TINY | {
            "vocab_size": 3,
            "num_layers": 2,
            "seed": chance.randint(5, 6),
            "window": window,
        }
    if chance.random() < (0.3 if kind == "batch" else 0.15):  # batches of these are new
        return {"family": chance.choice(FAMILIES)}
    vocabulary = chance.choice([3, 17, VOCABULARY, VOCABULARY])
    return {"vocab_size": vocabulary, "seed": chance.randint(0, 1), **chance.choice(SHAPES)}


def draw_drafter(chance: random.Random, depth: int, kind: str) -> Spec:
    """Return a drafter inside `depth` composites."""
    if depth:
        beside = draw_drafter(chance, 0, kind) if chance.random() < 0.5 else None
        return [chance.choice(list(COMPOSITES)), draw_drafter(chance, depth - 1, kind), beside]
    names = [*DRAFTERS, *([] if kind == "distribution" else SEEDED)]
    return weighted(chance, {name: WEIGHT if name in NEWEST else 1 for name in names})


def draw_sampling(chance: random.Random, greedy: bool) -> list:
    """Return temperature, top_k and top_p."""
    temperature = 0.0 if greedy else chance.choice([0.3, 0.7, 1.0, 1.0, 2.0])
    return [temperature, chance.choice([None, None, 2]), chance.choice([None, None, 0.7])]


def draw_processors(chance: random.Random, vocabulary: int) -> list:
    """Return up to two processors that together never forbid every token."""
    if chance.random() < 0.5:
        return []
    first, second = (chance.randrange(vocabulary) for _ in range(2))
    known = [
        ["RepetitionPenalty", chance.choice([0.7, 1.5])],
        ["PresencePenalty", 0.8, 0, chance.choice([0.0, 0.3])],
        ["MinP", 0.3],
        ["ForbiddenWords", [[first, 0], [second, first, 0]]],
        ["alternating"],
    ]
    # MinP keeps the likeliest of what is left, so after it nothing may forbid that one.
    return sorted(chance.sample(known, chance.randint(1, 2)), key=lambda each: each[0] == "MinP")


# Running a case -----------------------------------------------------------------------------------


def alternating(prefix_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Forbid every third token except the last; after every token the forbidden ones are others."""
    banned = (torch.arange(len(logits)) + len(prefix_ids)) % 3 == 0
    banned[-1] = False
    return logits.masked_fill(banned, -torch.inf)


@cache
def target_of(options: str) -> CausalLM:
    """Return the target of some options in JSON."""
    settings = json.loads(options)
    return hugging_face(settings["family"]) if "family" in settings else native(**settings)


def maker(spec: Spec) -> Callable[[CausalLM], Drafter]:
    """Return the function from a target to the drafter."""
    if isinstance(spec, str):
        return (DRAFTERS | SEEDED)[spec]
    outer, inner, beside = spec
    return lambda target: COMPOSITES[outer](
        maker(inner), target, lookup if beside is None else maker(beside)
    )


def processors_of(case: Case, prompt: Sequence[int]) -> dict:
    """Return the processors of a case for one of its prompts, as an option of `generate`."""
    processors = [
        alternating if name == "alternating" else getattr(p, name)(*arguments)
        for name, *arguments in case.processors
    ]
    for processor in processors:
        if hasattr(processor, "prompt_length"):
            processor.prompt_length = len(prompt)
    return {"processors": processors}


def prepared(case: Case) -> tuple[CausalLM, Drafter | None, dict]:
    """Return the target, the drafter and the other arguments of `generate`.

    It raises Refused for a combination that the library refuses.
    """
    target = target_of(json.dumps(case.target, sort_keys=True))
    rule = None if case.rule is None else LOSSLESS[case.rule]
    room = target.max_positions - max(map(len, case.prompts))
    names = ("temperature", "top_k", "top_p")
    options = dict(zip(names, case.sampling)) | {
        "max_new_tokens": min(case.tokens, room),
        "stop_token_ids": case.stops,
    }
    try:
        drafter = maker(case.drafter)(target)
        for prompt in case.prompts:
            prepare(target, prompt, drafter, rule=rule, **options, **processors_of(case, prompt))
        limits = drafter.limits()
        needs_chain = getattr(rule, "chains_only", False) or hasattr(rule, "independent_draws")
        if (needs_chain or case.scheduled) and not (limits and limits.is_chain):
            raise ValueError("a rule or a schedule of chains")
    except ValueError as refusal:
        raise Refused(str(refusal)) from None
    return target, drafter, options | {"rule": rule}


def compare_text(case: Case, target: CausalLM, drafter, options: dict) -> str | None:
    """Compare a greedy text and its log-probabilities with those of plain decoding."""
    (prompt,) = case.prompts
    settings = options | processors_of(case, prompt) | {"logprobs": True}
    plain = generate(target, prompt, None, **settings | {"rule": None})
    output = generate(target, prompt, drafter, **settings)
    if plain.tokens.tolist() != output.tokens.tolist():
        return f"plain text {plain.tokens.tolist()}, with the draft {output.tokens.tolist()}"
    if not torch.allclose(plain.logprobs, output.logprobs, atol=1e-4):
        return f"log-probabilities {plain.logprobs.tolist()}, {output.logprobs.tolist()}"
    return None


def by_a_pass(target: CausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits [V] after a text by one pass, which has the window's mask."""
    return target.score(ids, target.new_cache()).logits[0, -1]


def compare_distribution(case: Case, target: CausalLM, drafter, options: dict) -> str | None:
    """Compare the exact distribution of three tokens, or of two, with the target's own."""
    (prompt,) = case.prompts
    sampling, chosen = Sampling(*case.sampling), processors_of(case, prompt)["processors"]
    for length in (3, 2):
        settings = (sampling, length, options["rule"], chosen, prompt, MOST_OUTCOMES)
        try:
            texts = exact_text_law(target, drafter, *settings)
        except TooManyOutcomes:
            continue
        own = own_text_law(target, sampling, length, chosen, prompt, by_a_pass)
        apart = distance(texts, own)
        return None if apart < TOLERANCE else f"{length} tokens have a total variation of {apart}"
    raise TooManyOutcomes


def compare_batch(case: Case, target: CausalLM, drafter, options: dict) -> str | None:
    """Compare the rows of a batch with the same rows decoded alone."""
    seeds = range(len(case.prompts))
    schedule = FirstDrop(lambda rows, drafted: rows + 0.2 * drafted) if case.scheduled else None
    own = [processors_of(case, prompt) for prompt in case.prompts]
    chosen = {"seeds": seeds, "schedule": schedule, "row_options": own, **options}
    batch = generate_batch(target, case.prompts, drafter, **chosen)
    for number, (prompt, row) in enumerate(zip(case.prompts, batch, strict=True)):
        alone = generate(target, prompt, drafter, seed=number, **options, **own[number])
        alone = alone.tokens.tolist()
        if row.tokens.tolist() != alone:
            return f"row {number} is {row.tokens.tolist()}, alone {alone}"
    return None


COMPARISONS = {"text": compare_text, "distribution": compare_distribution, "batch": compare_batch}


def difference(case: Case) -> str | None:
    """Return how a case differs from plain decoding; None if it does not.

    It raises Refused, or TooManyOutcomes.
    """
    target, drafter, options = prepared(case)
    try:
        return COMPARISONS[case.kind](case, target, drafter, options)
    except TooManyOutcomes:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and is_late_refusal(error):
            raise Refused(str(error)) from None
        return f"decoding raises {type(error).__name__}: {error}"


# The command --------------------------------------------------------------------------------------


def check(case: Case, counts: Counter) -> bool:
    """Run a case, count it, and return whether it is right; print what is wrong."""
    try:
        found = difference(case)
    except Refused:
        counts["refused"] += 1
        return True
    except TooManyOutcomes:
        counts["too large to enumerate"] += 1
        return True
    counts[case.kind] += 1
    if found is None:
        return True
    print(f"{case.kind}: {found}\n{case.command}")
    return False


def summary(counts: Counter) -> str:
    """Return what was compared, in one line."""
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "no case"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="time to run (default: 2)")
    parser.add_argument(
        "--cases", type=int, default=sys.maxsize, help="run this many cases at most"
    )
    parser.add_argument("--seed", type=int, help="of the first case (default: from the system)")
    parser.add_argument("--case", help="run one case, as a failure prints it")
    options = parser.parse_args(arguments)
    counts: Counter = Counter()
    if options.case:
        if not check(Case(**json.loads(options.case)), counts):
            return 1
        print(f"no difference ({summary(counts)})")
        return 0
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    end = time.monotonic() + 60 * options.minutes
    for seed in range(first, first + options.cases):
        if time.monotonic() > end:
            break
        if not check(draw_case(seed), counts):
            print(f"seed {seed}; before it, {summary(counts)}")
            return 1
    print(f"no difference from seed {first} on; {summary(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
