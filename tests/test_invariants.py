"""The invariants that every drafter of the registry keeps, over several kinds of target.

The exact distribution of each drafter's text is in test_matrix.py. What only one class promises is
in the test file of that class.
"""

import pytest
import torch
from caches import contents, watched_caches
from models_zoo import FAMILIES, PROMPT, native
from registry import DRAFTERS, NATIVE_ONLY, SEEDED_DRAFTERS
from text_laws import NATIVE, model_named

from specdec_lite import generate, stream
from specdec_lite.acceptance import sample_and_match
from specdec_lite.decoding import Stats

SOME = ["native", "native with a window", "Llama", "Gemma2", "Bloom", "Llama4"]
TARGET = native()
DRAFTERS = DRAFTERS | SEEDED_DRAFTERS
DRAFTER = pytest.mark.parametrize("name", DRAFTERS)
SAMPLE = [
    "draft model",
    "Medusa heads, a sparse tree",
    "suffix decoding",
    "the target without some sublayers",
]
"""A chain, a tree, a draft without a model, and a draft on the target's own cache."""
SOME_QUICK = [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.registry) for name in DRAFTERS
]
CASES = [pytest.param(SOME[0], name, id=f"{SOME[0]}-{name}") for name in DRAFTERS] + [
    pytest.param(
        where,
        name,
        id=f"{where}-{name}",
        marks=pytest.mark.registry
        if where in SOME[1:3] or name in SAMPLE
        else (pytest.mark.registry, pytest.mark.weekly),
    )
    for where in SOME[1:]
    for name in DRAFTERS
]
"""Every drafter on three kinds of target, and some on every kind; the others run with the matrix."""


def check_greedy_text(name, target, monkeypatch):
    plain, committed = generate(target, PROMPT, max_new_tokens=24).tokens, list(PROMPT)
    drafter = DRAFTERS[name](target)  # one with a memory may have read a text with the target
    made = watched_caches(target, monkeypatch)
    for step in stream(target, PROMPT, drafter, 24):
        committed += step.tokens
        assert made[0].length == len(committed) - 1
    assert committed == PROMPT + plain.tolist()
    monkeypatch.undo()
    fresh = target.new_cache()
    target.score(committed[:-1], fresh)
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(contents(made[0]), contents(fresh)))


@pytest.mark.parametrize("where, name", CASES)
def test_greedy_text_is_the_targets_own_and_the_cache_that_of_a_fresh_run(name, where, monkeypatch):
    if name in NATIVE_ONLY and where not in NATIVE:
        with pytest.raises(ValueError, match="must be a native model"):
            DRAFTERS[name](model_named(where))
        return
    check_greedy_text(name, model_named(where), monkeypatch)


@pytest.mark.weekly
@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in NATIVE_ONLY])
@pytest.mark.parametrize("where", [family for family in FAMILIES if family not in SOME])
def test_greedy_text_in_every_family(name, where, monkeypatch):
    check_greedy_text(name, model_named(where), monkeypatch)


@DRAFTER
@pytest.mark.parametrize(
    "temperature, wanted",
    [(1.0, 16), *(pytest.param(t, 40, marks=pytest.mark.registry) for t in (0.0, 1.0))],
)
def test_counts_add_up_and_nothing_is_lost_or_repeated(name, temperature, wanted):
    options = dict(max_new_tokens=wanted, temperature=temperature, seed=3)
    drafter = DRAFTERS[name](TARGET)
    out, limits = generate(TARGET, PROMPT, drafter, **options), drafter.limits()
    assert [t for step in out.steps for t in step.tokens] == out.tokens.tolist()
    assert len(out.tokens) == wanted == out.stats.tokens
    for step in out.steps:
        assert limits is None or step.tree.levels <= limits.levels
        assert limits is None or len(step.tree) <= limits.nodes
        assert step.tokens == (*step.tree.tokens[list(step.path)].tolist(), step.token)
        assert step.accepted <= step.tested <= step.drafted
        assert step.path == step.tree.path(step.path[-1] if step.path else -1)
    again = generate(TARGET, PROMPT, DRAFTERS[name](TARGET), **options)
    assert torch.equal(again.tokens, out.tokens)
    assert [s.path for s in again.steps] == [s.path for s in out.steps]
    assert not temperature or not torch.equal(
        generate(TARGET, PROMPT, DRAFTERS[name](TARGET), **options | dict(seed=4)).tokens,
        out.tokens,
    )


@pytest.mark.parametrize("name", SOME_QUICK)
def test_stop_tokens_limits_and_short_prompts(name):
    plain = generate(TARGET, PROMPT, max_new_tokens=24).tokens.tolist()
    drafter = DRAFTERS[name](TARGET)
    for last in (i for i, token in enumerate(plain) if token not in plain[:i]):
        steps = list(stream(TARGET, PROMPT, drafter, 24, stop_token_ids=(plain[last],)))
        assert [t for step in steps for t in step.tokens] == plain[: last + 1]
        assert Stats.of(steps).tokens == last + 1
        assert all(step.accepted <= step.tested <= step.drafted for step in steps)
    for wanted in range(1, 8):
        assert generate(TARGET, PROMPT, drafter, wanted).tokens.tolist() == plain[:wanted]
    assert torch.equal(
        generate(TARGET, [7], drafter, 12).tokens, generate(TARGET, [7], max_new_tokens=12).tokens
    )
    short = native(max_positions=20)
    assert torch.equal(
        generate(short, PROMPT, DRAFTERS[name](short), 10).tokens,
        generate(short, PROMPT, max_new_tokens=10).tokens,
    )


@pytest.mark.parametrize("name", SOME_QUICK)
def test_generations_do_not_disturb_each_other(name):
    drafter = DRAFTERS[name](TARGET)
    options = [
        dict(temperature=1.0, seed=1),
        dict(),
        dict(temperature=1.0, seed=2, rule=sample_and_match),
    ]
    alone = [
        generate(TARGET, PROMPT[i:], drafter, 16, **o).tokens.tolist()
        for i, o in enumerate(options)
    ]
    streams = [stream(TARGET, PROMPT[i:], drafter, 16, **o) for i, o in enumerate(options)]
    together = [[], [], []]
    while any(streams):
        for i, running in enumerate(streams):
            step = next(running, None) if running else None
            together[i] += step.tokens if step else ()
            streams[i] = running if step else None
    assert together == alone


@pytest.mark.parametrize("name", SOME_QUICK)
@pytest.mark.parametrize(
    "call", [2, 7, *(pytest.param(n, marks=pytest.mark.weekly) for n in (3, 12))]
)
def test_an_interrupt_at_any_pass_leaves_everything_usable(name, call, monkeypatch):
    drafter = DRAFTERS[name](TARGET)
    plain = generate(TARGET, PROMPT, max_new_tokens=24).tokens
    passes = iter(range(1, 10**6))
    score = TARGET.backend.score

    def interrupted(*arguments, **options):
        if next(passes) == call:
            raise KeyboardInterrupt
        return score(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TARGET.backend, "score", interrupted)
        generate(TARGET, PROMPT, drafter, 24, temperature=1.0, seed=0)
        for _ in range(20):
            TARGET.score(
                PROMPT, TARGET.new_cache()
            )  # a drafter that needs fewer passes than `call`
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, plain)
