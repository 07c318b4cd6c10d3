"""Random targets, drafters, rules and settings, each compared with plain decoding.

A case is a greedy text, the exact distribution of a short text over a tiny vocabulary, or a batch
whose rows are decoded alone too. `FUZZ=200 pytest tests/test_fuzz.py` draws 200 times as many.
Hypothesis then prints the smallest case that differs.
"""

import os
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from drafted_rows import altered
from hypothesis import Phase, given, settings, strategies as st
from models_zoo import VOCABULARY, WINDOW, hugging_face, native, perturbed
from registry import COMPOSITES, DRAFTERS, RULES, SEEDED_DRAFTERS, is_late_refusal, lookup
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import generate, generate_batch, processors as p
from specdec_lite.diagnosis.enumeration import TooManyOutcomes
from specdec_lite.drafters import ModelDrafter, same_noise
from specdec_lite.options import prepare
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.scheduling import FirstDrop

TIMES = int(os.environ.get("FUZZ", "1"))
COUNTS = {"text": 4, "distribution": 2, "batch": 4}
"""How many cases of each kind are drawn, times `TIMES`."""
MOST_OUTCOMES = 600
TOLERANCE = 2e-6
"""The largest total variation that rounding explains: rows may be reported in float32."""
LOSSLESS = {name: rule for name, (rule, _) in RULES.items() if rule.lossless}
LOSSLESS |= {"same_noise": same_noise}
MAKERS = DRAFTERS | {
    name: SEEDED_DRAFTERS[name] for name in SEEDED_DRAFTERS if "program" not in name
}
SHAPES = (
    {},
    {"window": WINDOW},
    {"num_layers": 3},
    {"qk_norm": True, "qkv_bias": True},
    {"tied": True, "num_kv_heads": 4},
    {"max_positions": 40},
)
TARGETS = [
    {"vocab_size": size, "seed": seed, **shape}
    for size, seed, shape in product((3, 17, VOCABULARY), (0, 1), SHAPES)
] + [{"family": name} for name in ("Llama", "Bloom", "GPT2", "Gemma2", "Mistral")]
TINY_TARGETS = [
    TINY | {"vocab_size": 3, "num_layers": 2, "seed": seed, "window": window}
    for seed, window in product((5, 6), (None, 2))
]
PROCESSORS = [
    ("RepetitionPenalty", 0.7),
    ("RepetitionPenalty", 1.5),
    ("PresencePenalty", 0.8, 0, 0.0),
    ("PresencePenalty", 0.8, 0, 0.3),
    ("ForbiddenWords", [[1, 0], [2, 1, 0]]),
    ("ForbiddenWords", [[0, 0], [2, 0, 0]]),
    ("alternating",),
    ("MinP", 0.3),
]
"""Any two of them, those of later rows last, never forbid every token."""


@dataclass(frozen=True)
class Case:
    """One comparison. Token ids are taken modulo the target's vocabulary.

    Attributes:
        target: options of `models_zoo.native`, or {"family": a name for `models_zoo.hugging_face`}.
        drafter: a name, or (composite, drafter, drafter beside it or None).
        sampling: (temperature, top_k, top_p).
        rule: a name in LOSSLESS; None for the default.
        scheduled: whether a schedule chooses which drafted tokens of a batch are verified.
    """

    target: dict
    drafter: Any
    sampling: tuple
    rule: str | None
    processors: list
    prompts: list
    tokens: int
    stops: list
    scheduled: bool

    @property
    def is_scheduled(self) -> bool:
        """Whether there is a schedule: of a greedy batch only, since it moves a row's later draws."""
        return self.scheduled and not self.sampling[0]


def cases(kind: str) -> st.SearchStrategy[Case]:
    """Return the cases of a kind: "text", "distribution" or "batch"."""
    tiny, batch = kind == "distribution", kind == "batch"
    name = st.sampled_from([*DRAFTERS] if tiny else [*MAKERS])
    inside = lambda spec: st.tuples(st.sampled_from([*COMPOSITES]), spec, st.none() | name)
    ids = st.integers(0, VOCABULARY - 1)
    temperatures = {"text": [0.0], "distribution": [0.3, 1.0, 2.0], "batch": [0.0, 0.7, 1.0]}
    return st.builds(
        Case,
        target=st.sampled_from(TINY_TARGETS if tiny else TARGETS),
        drafter=name | inside(name) | inside(inside(name)),
        sampling=st.tuples(
            st.sampled_from(temperatures[kind]),
            st.sampled_from([None, 2]),
            st.sampled_from([None, 0.7]),
        ),
        rule=st.none() | st.sampled_from([*LOSSLESS]),
        processors=st.lists(st.sampled_from(PROCESSORS), max_size=2, unique_by=lambda row: row[0]),
        prompts=st.lists(
            st.lists(ids, min_size=1, max_size=10), min_size=1 + batch, max_size=1 + 4 * batch
        ),
        tokens=st.integers(1, 30),
        stops=st.lists(ids, max_size=0 if tiny else 1),
        scheduled=st.booleans() if batch else st.just(False),
    )


def alternating(prefix_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Forbid every third token except the last; after every token the forbidden ones are others."""
    banned = (torch.arange(len(logits)) + len(prefix_ids)) % 3 == 0
    banned[-1] = False
    return logits.masked_fill(banned, -torch.inf)


@cache
def target_of(number: int):
    options = [*TARGETS, *TINY_TARGETS][number]
    return hugging_face(**options) if "family" in options else native(**options)


def maker(spec):
    """Return the function from a target to the drafter."""
    if isinstance(spec, str):
        return MAKERS[spec]
    outer, inner, beside = spec
    beside = lookup if beside is None else maker(beside)
    return lambda target: COMPOSITES[outer](maker(inner), target, beside)


def processors_of(case: Case, prompt: list[int]) -> dict:
    """Return the processors of a case for one of its prompts, as an option of `generate`."""
    rows = sorted(case.processors, key=PROCESSORS.index)
    made = [alternating if len(row) == 1 else getattr(p, row[0])(*row[1:]) for row in rows]
    for processor in made:
        if hasattr(processor, "prompt_length"):
            processor.prompt_length = len(prompt)
    return {"processors": made}


def difference(kind: str, case: Case):
    """Return what differs from plain decoding; None if nothing does or the library refuses the case."""
    target = target_of([*TARGETS, *TINY_TARGETS].index(case.target))
    prompts = [[token % target.vocab_size for token in prompt] for prompt in case.prompts]
    greedy_only = case.rule == "exact_match" and case.sampling[0]
    rule = None if case.rule is None or greedy_only else LOSSLESS[case.rule]
    options = dict(zip(("temperature", "top_k", "top_p"), case.sampling)) | {
        "max_new_tokens": min(case.tokens, target.max_positions - max(map(len, prompts))),
        "stop_token_ids": [token % target.vocab_size for token in case.stops],
        "rule": rule,
    }
    try:
        drafter = maker(case.drafter)(target)
        for prompt in prompts:
            prepare(target, prompt, drafter, **options, **processors_of(case, prompt))
    except ValueError:
        return None
    limits = drafter.limits()
    needs_chain = getattr(rule, "chains_only", False) or hasattr(rule, "independent_draws")
    if (needs_chain or case.is_scheduled) and not (limits and limits.is_chain):
        return None
    try:
        return COMPARISONS[kind](case, target, drafter, prompts, options)
    except TooManyOutcomes:
        return None
    except ValueError as error:
        if is_late_refusal(error):
            return None
        raise


def compare_text(case: Case, target, drafter, prompts, options: dict):
    """Compare a greedy text and its log-probabilities with those of plain decoding."""
    settings = options | processors_of(case, prompts[0]) | {"logprobs": True}
    plain = generate(target, prompts[0], None, **settings | {"rule": None})
    output = generate(target, prompts[0], drafter, **settings)
    texts = plain.tokens.tolist(), output.tokens.tolist()
    close = texts[0] == texts[1] and torch.allclose(plain.logprobs, output.logprobs, atol=1e-4)
    return None if close else (*texts, plain.logprobs, output.logprobs)


def by_a_pass(target, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits [V] after a text by one pass, which has the window's mask."""
    return target.score(ids, target.new_cache()).logits[0, -1]


def compare_distribution(case: Case, target, drafter, prompts, options: dict):
    """Compare the exact distribution of three tokens, or of two, with the target's own."""
    sampling, chosen = Sampling(*case.sampling), processors_of(case, prompts[0])["processors"]
    for length in (3, 2):
        settings = (sampling, length, options["rule"], chosen, prompts[0], MOST_OUTCOMES)
        try:
            texts = exact_text_law(target, drafter, *settings)
        except TooManyOutcomes:
            continue
        own = own_text_law(target, sampling, length, chosen, prompts[0], by_a_pass)
        apart = distance(texts, own)
        return None if apart < TOLERANCE else (length, apart)
    raise TooManyOutcomes


def compare_batch(case: Case, target, drafter, prompts, options: dict):
    """Compare the rows of a batch with the same rows decoded alone."""
    schedule = FirstDrop(lambda rows, drafted: rows + 0.2 * drafted) if case.is_scheduled else None
    own = [processors_of(case, prompt) for prompt in prompts]
    chosen = {"seeds": range(len(prompts)), "schedule": schedule, "row_options": own, **options}
    batch = generate_batch(target, prompts, drafter, **chosen)
    for number, (prompt, row) in enumerate(zip(prompts, batch, strict=True)):
        alone = generate(target, prompt, drafter, seed=number, **options, **own[number])
        if row.tokens.tolist() != alone.tokens.tolist():
            return number, row.tokens.tolist(), alone.tokens.tolist()
    return None


COMPARISONS = {"text": compare_text, "distribution": compare_distribution, "batch": compare_batch}


def check(kind: str, examples: int, strategy=None, **options) -> None:
    """Raise AssertionError if one of some random cases differs."""

    @settings(max_examples=examples, database=None, **options)
    @given(cases(kind) if strategy is None else strategy)
    def property_of(case):
        assert difference(kind, case) is None

    property_of()


@pytest.mark.parametrize("times", [TIMES, pytest.param(20 * TIMES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", COUNTS)
def test_no_case_differs_from_plain_decoding(kind, times):
    check(kind, COUNTS[kind] * times)


def wrong_rows(session, proposal, context):
    """Broken: draw from the draft's rows, and report uniform ones."""
    if proposal.probs is None:
        return proposal
    return Proposal(proposal.tree, torch.full_like(proposal.probs, 1 / context.vocab_size))


def writer(session, proposal, context):
    """Broken: change the target's keys while drafting."""
    context.cache.keys(0)[...] += 1
    return proposal


@pytest.mark.parametrize("broken, kind", [(wrong_rows, "distribution"), (writer, "text")])
def test_a_broken_drafter_is_found(broken, kind, monkeypatch):
    make = lambda target: altered(ModelDrafter(perturbed(target, 0.3), 3), broken)
    monkeypatch.setitem(MAKERS, "draft model", make)
    fixed = {"drafter": "draft model", "rule": None}
    strategy = cases(kind).map(lambda case: Case(**{**vars(case), **fixed}))
    with pytest.raises(AssertionError):
        check(kind, 60, strategy, phases=[Phase.generate], report_multiple_bugs=False)
