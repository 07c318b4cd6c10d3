"""The target's own text: equal to generation one by one, resumable, and never another target's."""

import pytest
import torch
from models_zoo import hugging_face, native

from specdec_lite import generate
from specdec_lite.sampling import Sampling
from specdec_lite.training import own_text as module
from specdec_lite.training.own_text import continue_prompts, own_text


def some_prompts(rows, length, seed=0):
    return torch.randint(48, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("target", [native(), hugging_face("Llama"), hugging_face("Mistral")])
def test_a_batch_equals_its_rows_one_by_one(target):
    prompts = some_prompts(5, 7)
    text = continue_prompts(target, prompts, 12)
    assert text.dtype == torch.int64 and text[:, :7].equal(prompts)
    alone = [generate(target, row.tolist(), max_new_tokens=12).tokens for row in prompts]
    assert text[:, 7:].equal(torch.stack(alone))


def test_sampled_rows_follow_the_targets_distribution():
    target, prompts = native(), some_prompts(4, 6)
    text = continue_prompts(target, prompts, 5, temperature=0.7, seed=3)
    generator = torch.Generator().manual_seed(3)
    rows = prompts
    for _ in range(5):
        each = [target.score(row, target.new_cache()).logits[0, -1] for row in rows]
        probs = Sampling(0.7)(torch.stack(each))
        uniforms = torch.rand((len(rows), 1), dtype=torch.float64, generator=generator)
        passed = probs.double().cumsum(-1) <= uniforms * probs.double().sum(-1, keepdim=True)
        rows = torch.cat((rows, passed.sum(-1, keepdim=True)), 1)
    assert text.equal(rows)
    assert text.equal(continue_prompts(target, prompts, 5, temperature=0.7, seed=3))
    assert not text.equal(continue_prompts(target, prompts, 5, temperature=0.7, seed=4))
    same = continue_prompts(target, prompts[:1].expand(64, -1), 4, temperature=1.5)
    assert len({tuple(row) for row in same.tolist()}) > 32, "equal prompts have draws of their own"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_dtypes_of_training_work(dtype):
    text = continue_prompts(native(dtype=dtype), some_prompts(3, 4), 6)
    assert text.shape == (3, 10) and text.max() < 48


def test_a_row_is_padded_with_its_stop_token_and_others_continue(monkeypatch):
    target, prompts = native(), some_prompts(5, 7)
    plain = continue_prompts(target, prompts, 12)
    stop = int(plain[0, 9])
    text = continue_prompts(target, prompts, 12, stop_token_ids=[stop])
    for row, whole_row in zip(text, plain):
        ends = (whole_row[7:] == stop).nonzero()
        end = 7 + int(ends[0]) if len(ends) else 19
        assert row[:end].equal(whole_row[:end]) and bool((row[end:] == stop).all())
    assert bool((text[0, 9:] == stop).all()) and len(set(text[:, -1].tolist())) > 1
    passes = []
    score = target.score
    monkeypatch.setattr(target, "score", lambda *a, **k: passes.append(1) or score(*a, **k))
    ended = continue_prompts(target, prompts[:1], 12, stop_token_ids=[stop])
    assert ended.equal(text[:1]) and len(passes) == int((plain[0, 7:] == stop).nonzero()[0]) + 1


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_finished_rows_are_dropped_and_change_no_other_row(temperature, monkeypatch):
    """Each row equals the row of a run that decodes all rows to the end."""
    target, prompts = native(), some_prompts(12, 7)
    stops = list(range(0, 48, 8))
    plain = continue_prompts(target, prompts, 14, temperature, seed=2)
    widths = []
    score = target.score
    monkeypatch.setattr(
        target,
        "score",
        lambda tokens, *a, **k: widths.append(len(tokens)) or score(tokens, *a, **k),
    )
    text = continue_prompts(target, prompts, 14, temperature, 2, stops)
    assert widths[0] == 12 > widths[-1] and widths == sorted(widths, reverse=True)
    for row, whole_row in zip(text, plain):
        ends = torch.isin(whole_row[7:], torch.tensor(stops)).nonzero()
        end = 7 + int(ends[0]) + 1 if len(ends) else 21
        assert row[:end].equal(whole_row[:end]) and bool((row[end:] == row[end - 1]).all())


def test_a_prefill_in_parts_gives_the_same_text(monkeypatch):
    prompts = some_prompts(5, 11)
    for target in (native(), hugging_face("Llama")):
        whole = continue_prompts(target, prompts, 6)
        for tokens in (1, 15, 20, 54):
            monkeypatch.setattr(module, "PREFILL_TOKENS", tokens)
            assert continue_prompts(target, prompts, 6).equal(whole)
        monkeypatch.undo()


def some_text(target, folder, **settings):
    prompts = [*some_prompts(5, 7), some_prompts(1, 3)[0].tolist(), *some_prompts(2, 7, seed=1)]
    return own_text(target, prompts, 6, folder, **({"batch": 2} | settings))


def test_texts_of_any_lengths_keep_the_order_of_the_prompts(tmp_path):
    target = native()
    texts = some_text(target, tmp_path)
    prompts = [*some_prompts(5, 7), some_prompts(1, 3)[0], *some_prompts(2, 7, seed=1)]
    for prompt, text in zip(prompts, texts, strict=True):
        alone = generate(target, prompt.tolist(), max_new_tokens=6).tokens
        assert text.equal(torch.cat((prompt, alone)))
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(temperature, tmp_path, monkeypatch):
    target = native()
    straight = some_text(target, tmp_path / "straight", temperature=temperature)
    calls, plain = [], module.continue_prompts

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(module, "continue_prompts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        some_text(target, tmp_path / "cut", temperature=temperature)
    resumed = some_text(target, tmp_path / "cut", temperature=temperature)
    assert len(calls) == 3 + 3, "two of five batches were finished"
    assert all(a.equal(b) for a, b in zip(resumed, straight, strict=True))
    some_text(target, tmp_path / "cut", temperature=temperature)
    assert len(calls) == 6, "no batch is computed twice"


def test_texts_end_with_their_first_stop_token(tmp_path):
    target = native()
    stop = int(some_text(target, tmp_path)[0][9])
    texts = some_text(target, tmp_path, stop_token_ids=[stop])
    assert len(texts[0]) == 10 and texts[0][-1] == stop
    for text, plain in zip(texts, some_text(target, tmp_path), strict=True):
        assert text.equal(plain[: len(text)]) and (text[-1] == stop or len(text) == len(plain))


def test_another_target_dtype_or_setting_has_files_of_its_own(tmp_path):
    others = [
        (native(), {}),
        (native(seed=1), {}),
        (native(dtype=torch.float32), {}),
        (native(), {"temperature": 1.0}),
        (native(), {"temperature": 1.0, "seed": 1}),
        (native(), {"stop_token_ids": [7]}),
    ]
    for number, (target, settings) in enumerate(others, 1):
        some_text(target, tmp_path, **settings)
        assert len(list(tmp_path.iterdir())) == 5 * number
    sampled = [some_text(native(), tmp_path, temperature=1.0, seed=seed) for seed in (0, 1)]
    assert any(not a.equal(b) for a, b in zip(*sampled))
    twice = own_text(native(), [[5, 6]] * 2, 8, tmp_path, batch=1, temperature=1.5)
    assert not twice[0].equal(twice[1]), "every batch has draws of its own"


def test_invalid_numbers_of_tokens_are_rejected(tmp_path):
    for new in (0, -1, 1.5):
        with pytest.raises(ValueError, match="new_tokens="):
            continue_prompts(native(), some_prompts(1, 3), new)
        with pytest.raises(ValueError, match="new_tokens="):
            own_text(native(), [[1]], new, tmp_path)
    with pytest.raises(ValueError, match="batch=0"):
        own_text(native(), [[1]], 1, tmp_path, batch=0)
