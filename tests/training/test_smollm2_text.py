"""Prompts for SmolLM2: six kinds, distinct, repeatable, the held-out ones apart; and its answers to
them, interrupted or not.
"""

from collections import Counter

import pytest
import torch
from models_zoo import native

from specdec_lite.loading.pairs import _tokenizer
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.loading.smollm2_tasks import AGENT, HISTORY, TASKS, chat
from specdec_lite.training import smollm2_prompts, smollm2_text
from specdec_lite.training.smollm2_prompts import (
    GRAM,
    KINDS,
    Prompt,
    apart,
    equal,
    grams,
    prompts,
    words,
)
from specdec_lite.training.smollm2_text import STOPS, answer, answers, main, planned

pytestmark = pytest.mark.slow  # the library's source is parsed once, the tokenizer loaded


@pytest.fixture(scope="module")
def tokenizer():
    return _tokenizer(smollm2_folder())


@pytest.fixture(scope="module")
def training(tokenizer):
    return prompts(tokenizer, 60)


@pytest.fixture(scope="module")
def held_out(tokenizer):
    return prompts(tokenizer, 30, held_out=True)


def test_every_kind_has_as_many_prompts_as_asked_for_and_no_two_are_alike(training, held_out):
    assert Counter(prompt.kind for prompt in training) == dict.fromkeys(KINDS, 60)
    assert len({prompt.text for prompt in (*training, *held_out)}) == 90 * len(KINDS)


def test_a_seed_repeats_them_and_another_does_not(tokenizer, held_out):
    assert prompts(tokenizer, 30, held_out=True) == held_out
    assert prompts(tokenizer, 30, held_out=True, seed=1) != held_out


def test_the_chat_template_is_around_the_text(tokenizer, training):
    for prompt in training:
        before, after = tokenizer.decode(prompt.ids).split(prompt.text)
        assert before.startswith("<|im_start|>system\n") and before.endswith("<|im_start|>user\n")
        assert after == "<|im_end|>\n<|im_start|>assistant\n" and len(prompt.ids) <= 320
        assert "{" not in prompt.text or prompt.kind not in ("question", "story")


def test_held_out_words_documents_and_token_sequences_are_in_no_other_prompt(
    tokenizer, training, held_out
):
    ours, theirs = words(False), words(True)
    for field in ("concept", "plural", "character", "event", "task", "object"):
        assert not set(ours[field]) & set(theirs[field]) and len(ours[field]) > len(theirs[field])
    passages = {passage for prompt in held_out for passage in prompt.text.split("\n\n")[1:]}
    rest = apart(training, held_out, tokenizer)
    assert len(rest) > 0.98 * len(training)
    assert not any(passage in prompt.text for passage in passages for prompt in rest)


def test_fifty_tokens_in_common_are_too_many_and_forty_nine_are_not(tokenizer):
    text = " apple" * 10 + " tree" * 60
    kept = Prompt("story", text, ())
    few, many = (Prompt("story", "Once" + " tree" * n + " fell", ()) for n in (GRAM - 1, GRAM))
    assert apart([few, many], [kept], tokenizer) == [few]
    short = Prompt("story", "A short one.", ())
    assert apart([short, few], [short], tokenizer) == [few]
    assert grams(range(GRAM + 2)) == {tuple(range(n, n + GRAM)) for n in range(3)}


def test_more_than_there_are_is_refused(tokenizer, monkeypatch):
    monkeypatch.setattr(smollm2_prompts, "KINDS", ("summary",))
    with pytest.raises(ValueError, match="each=5000: must be at most"):
        prompts(tokenizer, 5000, held_out=True)
    with pytest.raises(ValueError, match="each"):
        prompts(tokenizer, 0)


def test_batches_hold_prompts_of_equal_length_each_once(training):
    made = equal(training, 4, least=4)
    assert made == equal(training, 4, least=4) != equal(training, 4, least=4, seed=1)
    assert all(len(part) == 4 and len({len(row.ids) for row in part}) == 1 for part in made)
    rows = [row for part in made for row in part]
    assert len(rows) == len(set(rows)) > len(training) // 3
    lengths = [len(part[0].ids) for part in made]
    assert lengths != sorted(lengths)  # the first batches are like all
    every = [row for part in equal(training, 4) for row in part]
    assert set(every) == set(training) and len(every) == len(training)


# Answers ------------------------------------------------------------------------------------------


@pytest.fixture
def target(tokenizer):
    return native(dtype=torch.float32, vocab_size=len(tokenizer), max_positions=512)


def test_answers_go_on_where_they_were_stopped(tmp_path, tokenizer, target, monkeypatch):
    plan = planned(tmp_path / "a", tokenizer, each=12, held_out=12, rows=4)
    kinds = [row.kind for batch in plan if batch.held_out for row in batch.prompts]
    assert Counter(kinds) == dict.fromkeys(KINDS, 12) and not plan[-1].held_out
    assert [batch.held_out for batch in plan] == sorted((b.held_out for b in plan), reverse=True)
    greedy = [batch.temperature == 0 for batch in plan if not batch.held_out]
    assert abs(2 * sum(greedy) - len(greedy)) <= 1 and len({b.temperature for b in plan}) == 3
    plan = plan[-4:]
    answer(target, tmp_path / "whole", plan, 6)
    made = smollm2_text.own_text

    def stopped(*args):
        if args[3].name == "00002":
            raise KeyboardInterrupt
        return made(*args)

    monkeypatch.setattr(smollm2_text, "own_text", stopped)
    with pytest.raises(KeyboardInterrupt):
        answer(target, tmp_path / "a", plan, 6)
    assert len(answers(tmp_path / "a", plan)) == 8
    calls = []
    monkeypatch.setattr(smollm2_text, "own_text", lambda *args: calls.append(made(*args)))
    answer(target, tmp_path / "a", plan, 6)
    assert len(calls) == 2
    texts, whole = answers(tmp_path / "a", plan), answers(tmp_path / "whole", plan)
    assert len(texts) == 16 and all(a.ids.equal(b.ids) for a, b in zip(texts, whole))
    rows = [prompt for batch in plan for prompt in batch.prompts]
    for text, prompt in zip(texts, rows):
        assert text.ids[: text.start].tolist() == list(prompt.ids) and text.kind == prompt.kind
        assert text.start < len(text.ids) <= text.start + 6
        assert not set(text.ids[text.start : -1].tolist()) & set(STOPS)


def test_the_plan_is_made_once(tmp_path, tokenizer, monkeypatch):
    plan = planned(tmp_path, tokenizer, each=12, held_out=12, rows=4)
    monkeypatch.setattr(smollm2_text, "prompts", None)
    assert planned(tmp_path, tokenizer, each=99) == plan


def test_the_command_says_what_there_is(tmp_path, tokenizer, target, monkeypatch, capsys):
    monkeypatch.setattr(smollm2_text, "load_smollm2", lambda *_: (target, tokenizer))
    first = len(planned(tmp_path, tokenizer, each=12, held_out=12, rows=4)[0].prompts)
    main(["--folder", str(tmp_path), "--count"])
    assert capsys.readouterr().out.startswith("0 answers to ")
    main(["--folder", str(tmp_path), "--batches", "1", "--new-tokens", "3"])
    assert capsys.readouterr().out.startswith(f"{first} answers to ")


def test_what_is_measured_is_apart_from_what_is_trained_on(tokenizer, training):
    """The measured requests share neither 50 tokens with a training prompt nor its whole text, and
    are all different; their passages stand in no document that prompts are made of.
    """
    every = [task for rows in (*TASKS.values(), AGENT, HISTORY) for task in rows]
    assert len({task.text for task in every}) == len(every) == 8 * 6
    assert [*TASKS] == list(KINDS) and {len(rows) for rows in TASKS.values()} == {6}
    measured = [Prompt(task.kind, task.text, chat(tokenizer, task.text)) for task in every]
    assert apart(training, measured, tokenizer) == training
    taken = {gram for prompt in measured for gram in grams(tokenizer.encode(prompt.text))}
    passages = smollm2_prompts.passages(False)
    assert all(taken.isdisjoint(grams(tokenizer.encode(text))) for text in passages[::20])
    copied = [Prompt("edit", measured[12].text + " Now.", measured[12].ids)]
    assert apart(copied, measured, tokenizer) == [], "a copy is seen"
