"""A ragged batch: every row equals its single run, for every drafter, at both temperatures."""

import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, native
from registry import DRAFTERS, RULES

from specdec_lite import batch, generate, generate_batch
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine import ragged

TARGET = native(dtype=torch.float64)
PROMPTS = [PROMPT, PROMPT[:3], PROMPT * 6, [7, 2], [9]]
"""Prompts of 1 to 60 tokens, each of another length."""
NAMES = sorted(name for name in DRAFTERS if "device" not in name)


def alone(prompts, drafter, seeds, **options):
    return [
        generate(TARGET, prompt, drafter, seed=seed, **options)
        for prompt, seed in zip(prompts, seeds)
    ]


def same(batched, single):
    for row, other in zip(batched, single, strict=True):
        assert row.tokens.tolist() == other.tokens.tolist()
        assert [(s.path, s.kind, s.tests) for s in row.steps] == [
            (s.path, s.kind, s.tests) for s in other.steps
        ]


GREEDY = [None, "draft model", "Medusa heads, a sparse tree", "suffix decoding"]
"""Greedily, a batch differs from temperature 1 only in how a row chooses; some drafters show it."""
EVERY = [(name, 1.0) for name in (None, *NAMES)]
CASES = one_in(4, EVERY, [f"{name} 1.0" for name in GREEDY]) + [
    (name, 0.0) if name in GREEDY else pytest.param(name, 0.0, marks=pytest.mark.weekly)
    for name in (None, *NAMES)
]


@pytest.mark.parametrize("name, temperature", CASES)
def test_every_row_equals_its_single_run(name, temperature):
    drafter = None if name is None else DRAFTERS[name](TARGET)
    options = {"max_new_tokens": 14, "temperature": temperature}
    seeds = range(len(PROMPTS))
    batched = generate_batch(TARGET, PROMPTS, drafter, seeds=seeds, **options)
    same(batched, alone(PROMPTS, drafter, seeds, **options))


@pytest.mark.parametrize("name", RULES)
def test_every_rule_verifies_a_row_as_it_would_alone(name):
    drafter = DRAFTERS["draft model"](TARGET)
    options = {"max_new_tokens": 14, "temperature": 1.0, "rule": RULES[name][0]}
    seeds = range(len(PROMPTS))
    try:
        single = alone(PROMPTS, drafter, seeds, **options)
    except ValueError as refusal:  # exact match wants chosen tokens
        with pytest.raises(ValueError, match=str(refusal)[:20]):
            generate_batch(TARGET, PROMPTS, drafter, seeds=seeds, **options)
        return
    same(generate_batch(TARGET, PROMPTS, drafter, seeds=seeds, **options), single)


def test_rows_end_at_their_own_stop_tokens_and_leave_the_batch(monkeypatch):
    plain = alone(PROMPTS, None, range(5), max_new_tokens=20)
    stop = int(plain[2].tokens[3])
    widths = []
    score = batch.score_rows
    monkeypatch.setattr(
        batch, "score_rows", lambda *args: widths.append(len(args[2])) or score(*args)
    )
    drafter = DRAFTERS["draft model"](TARGET)
    options = {"max_new_tokens": 20, "stop_token_ids": [stop]}
    batched = generate_batch(TARGET, PROMPTS, drafter, seeds=range(5), **options)
    same(batched, alone(PROMPTS, drafter, range(5), **options))
    assert widths[0] == 5 and widths == sorted(widths, reverse=True) and widths[-1] < 5


def test_one_row_is_rejected_while_another_is_fully_accepted():
    batched = generate_batch(
        TARGET, PROMPTS, DRAFTERS["draft model"](TARGET), 24, 1.0, seeds=range(5)
    )
    rounds = list(zip(*(row.steps for row in batched)))
    assert any({0, 3} <= {step.accepted for step in steps} for steps in rounds)


@pytest.mark.slow
def test_storage_grows_while_rows_are_under_way():
    class Wide(ModelDrafter):
        def limits(self):
            return None

    drafter = Wide(DRAFTERS["draft model"](TARGET).model, 90)
    options = {"max_new_tokens": 100}
    batched = generate_batch(TARGET, PROMPTS[:3], drafter, seeds=range(3), **options)
    same(batched, alone(PROMPTS[:3], drafter, range(3), **options))


def test_a_mask_that_is_off_by_one_key_is_noticed(monkeypatch):
    """A broken variant makes rows differ from their single runs."""
    right = ragged.visible

    def short(length, count, tree, window, positions):
        mask = right(length, count, tree, window, positions)
        mask[-1, 0] = False
        return mask

    monkeypatch.setattr(ragged, "visible", short)
    drafter = DRAFTERS["draft model"](TARGET)
    batched = generate_batch(TARGET, PROMPTS, drafter, 14, seeds=range(5))
    single = alone(PROMPTS, drafter, range(5), max_new_tokens=14)
    assert any(a.tokens.tolist() != b.tokens.tolist() for a, b in zip(batched, single))


def test_seeds_are_the_rows_own():
    twice = [PROMPT, PROMPT]
    first, second = generate_batch(TARGET, twice, None, 12, 1.0, seeds=[3, 4])
    assert first.tokens.tolist() != second.tokens.tolist()
    again = generate_batch(TARGET, twice[:1], None, 12, 1.0, seeds=[3])[0]
    assert first.tokens.tolist() == again.tokens.tolist()


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "prompts is empty"),
        ([PROMPT, []], {}, "prompt_ids"),
        ([PROMPT], {"seeds": [1, 2]}, "seeds has 2"),
        ([PROMPT], {"max_new_tokens": 0}, "max_new_tokens"),
        ([PROMPT], {"temperature": -1}, "temperature"),
    ],
)
def test_bad_input_is_refused_before_a_model_runs(prompts, options, message, monkeypatch):
    monkeypatch.setattr(type(TARGET), "score", lambda *_, **__: pytest.fail("a model ran"))
    with pytest.raises((ValueError, TypeError), match=message):
        generate_batch(TARGET, prompts, **options)


def test_the_encoding_of_several_texts_is_taken_without_its_padding():
    rows = [[5, 6, 7, 8], [9, 4]]
    alone = [generate(TARGET, row, None, 6).tokens.tolist() for row in rows]
    left = {"input_ids": [[5, 6, 7, 8], [0, 0, 9, 4]], "attention_mask": [[1] * 4, [0, 0, 1, 1]]}
    right = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])}
    right["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    for encoding in (left, right, {"input_ids": rows}):
        outputs = generate_batch(TARGET, encoding, None, 6)
        assert [out.tokens.tolist() for out in outputs] == alone
    with pytest.raises(TypeError, match="input_ids"):
        generate_batch(TARGET, {"ids": rows}, None, 6)
