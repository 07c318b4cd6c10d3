"""A ragged batch: every row equals its single run, for every drafter, at both temperatures."""

from itertools import product

import pytest
import torch
from chosen import one_in
from models_zoo import FAMILIES, PROMPT, hugging_face, native
from registry import DRAFTERS
from transformers import BatchEncoding

from specdec_lite import batch, generate, generate_batch
from specdec_lite.acceptance import sample_and_match
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine import hugging_face as back_end, ragged
from specdec_lite.processors import PresencePenalty

TARGET = native(dtype=torch.float64)
PROMPTS = [PROMPT, PROMPT[:3], PROMPT * 6, [7, 2], [9]]
"""Prompts of 1 to 60 tokens, each of another length."""
NAMES = sorted(name for name in DRAFTERS if "device" not in name)


def alone(prompts, drafter, seeds, target=TARGET, **options):
    return [
        generate(target, prompt, drafter, seed=seed, **options)
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
CASES = one_in(8, EVERY, [f"{name} 1.0" for name in GREEDY]) + [
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
    rounds = zip(*(row.steps for row in batched))
    mixed = any({0, 3} <= {step.accepted for step in steps} for steps in rounds)
    assert mixed or name != "draft model", "a row is rejected while another is fully accepted"


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


@pytest.mark.slow
def test_storage_grows_while_rows_are_under_way():
    class Wide(ModelDrafter):
        def limits(self):
            return None

    drafter = Wide(DRAFTERS["draft model"](TARGET).model, 90)
    options = {"max_new_tokens": 100}
    batched = generate_batch(TARGET, PROMPTS[:3], drafter, seeds=range(3), **options)
    same(batched, alone(PROMPTS[:3], drafter, range(3), **options))


@pytest.mark.parametrize("name", ["draft model", "Medusa heads, a sparse tree"])
def test_what_belongs_to_a_row_is_its_own(name):
    drafter = DRAFTERS[name](TARGET)
    own = [
        {"processors": PresencePenalty(3.0, len(PROMPT)), "temperature": 0.0},
        {"processors": PresencePenalty(-3.0, 1), "max_new_tokens": 3},
        {"stop_token_ids": range(0, TARGET.vocab_size, 2), "top_k": 2},
        {"logprobs": True, "rule": sample_and_match},
    ]
    prompts = [PROMPT, PROMPT[:1], PROMPT[1:], PROMPT]
    shared = {"max_new_tokens": 12, "temperature": 1.0}
    batched = generate_batch(TARGET, prompts, drafter, seeds=range(4), row_options=own, **shared)
    single = [
        generate(TARGET, prompt, drafter, seed=seed, **shared | options)
        for seed, (prompt, options) in enumerate(zip(prompts, own))
    ]
    same(batched, single)
    for row, other in zip(batched, single):
        assert torch.allclose(row.logprobs, other.logprobs, atol=1e-5)


@pytest.mark.parametrize("family", [None, "Llama", "Bloom"])
def test_the_encoding_of_several_texts_is_taken_without_its_padding(family):
    target = TARGET if family is None else hugging_face(family)
    rows = [[5, 6, 7, 8], [9, 4]]
    alone = [generate(target, row, None, 6).tokens.tolist() for row in rows]
    left = {"input_ids": [[5, 6, 7, 8], [0, 0, 9, 4]], "attention_mask": [[1] * 4, [0, 0, 1, 1]]}
    right = BatchEncoding({"input_ids": torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])})
    right["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    for encoding in (left, right, {"input_ids": rows}):
        outputs = generate_batch(target, encoding, None, 6)
        assert [out.tokens.tolist() for out in outputs] == alone
    (single,) = generate_batch(target, {"input_ids": rows[0]}, None, 6)
    assert single.tokens.tolist() == alone[0]


# Hugging Face models -------------------------------------------------------------------------------

SHARED = ["Llama", "GPT2", "Gemma2", "Mistral", "Qwen3Moe", "DeepseekV3"]
"""Families whose rows share a pass: positions, windows, experts and latent keys."""
ALONE = ["Bloom", "Mpt", "Llama4"]
"""Families of which every row has a pass of its own: their code makes its own mask."""
EACH_WAY = ["Llama 0.0", "Gemma2 1.0", "Bloom 1.0"]


@pytest.mark.parametrize("family, temperature", one_in(48, product(FAMILIES, [0.0, 1.0]), EACH_WAY))
def test_every_row_of_a_hugging_face_model_equals_its_single_run(family, temperature, monkeypatch):
    target, passes = hugging_face(family), []
    forward = back_end.HuggingFaceBackend._forward
    monkeypatch.setattr(
        back_end.HuggingFaceBackend,
        "_forward",
        lambda self, inputs, tokens, *rest, **more: (
            self is target.backend
            and passes.append(len(tokens))
            or forward(self, inputs, tokens, *rest, **more)
        ),
    )
    options = {"max_new_tokens": 14, "temperature": temperature}
    seeds = range(len(PROMPTS))
    for name in (None, *GREEDY[1:], "EAGLE-3, a tree"):
        drafter = None if name is None else DRAFTERS[name](target)
        passes.clear()
        batched = generate_batch(target, PROMPTS, drafter, seeds=seeds, **options)
        widest = max(passes)
        same(batched, alone(PROMPTS, drafter, seeds, target, **options))
        assert family not in SHARED or widest == len(PROMPTS)
        assert family not in ALONE or widest == 1


@pytest.mark.parametrize("fault", ["a key less", "a key less, native", "a position more"])
def test_a_mask_or_a_position_that_is_off_by_one_is_noticed(fault, monkeypatch):
    is_native = fault.endswith("native")
    target = TARGET if is_native else hugging_face("GPT2")  # its positions are absolute
    drafter = DRAFTERS["draft model"](target)
    single = alone(PROMPTS, drafter, range(5), target, max_new_tokens=14)
    right, positions = (ragged if is_native else back_end).visible, back_end.tree_positions

    def short(*arguments):
        mask = right(*arguments)
        mask[-1, 0] = False
        return mask

    if fault != "a position more":
        monkeypatch.setattr(ragged if is_native else back_end, "visible", short)
    else:
        monkeypatch.setattr(
            back_end, "tree_positions", lambda length, *rest: positions(length + 1, *rest)
        )
    batched = generate_batch(target, PROMPTS, drafter, 14, seeds=range(5))
    assert any(a.tokens.tolist() != b.tokens.tolist() for a, b in zip(batched, single))
