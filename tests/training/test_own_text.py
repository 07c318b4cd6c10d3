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


def test_a_prefill_in_parts_gives_the_same_text(monkeypatch):
    prompts = some_prompts(5, 11)
    for target in (native(), hugging_face("Llama")):
        whole = continue_prompts(target, prompts, 6)
        for tokens in (1, 15, 20, 54):
            monkeypatch.setattr(module, "PREFILL_TOKENS", tokens)
            assert continue_prompts(target, prompts, 6).equal(whole)
        monkeypatch.undo()


def some_text(target, folder, **settings):
    return own_text(target, [*some_prompts(9, 7)], 6, folder, **({"batch": 2} | settings))


def test_texts_keep_the_order_of_the_prompts(tmp_path):
    target = native()
    for prompt, text in zip(some_prompts(9, 7), some_text(target, tmp_path), strict=True):
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


def test_another_target_dtype_or_setting_has_files_of_its_own(tmp_path):
    others = [
        (native(), {}),
        (native(seed=1), {}),
        (native(dtype=torch.float32), {}),
        (native(), {"temperature": 1.0}),
        (native(), {"temperature": 1.0, "seed": 1}),
    ]
    for number, (target, settings) in enumerate(others, 1):
        some_text(target, tmp_path, **settings)
        assert len(list(tmp_path.iterdir())) == 5 * number
    sampled = [some_text(native(), tmp_path, temperature=1.0, seed=seed) for seed in (0, 1)]
    assert any(not a.equal(b) for a, b in zip(*sampled))
    twice = own_text(native(), [torch.tensor([5, 6])] * 2, 8, tmp_path, batch=1, temperature=1.5)
    assert not twice[0].equal(twice[1]), "every batch has draws of its own"
