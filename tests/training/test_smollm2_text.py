"""Prompts for SmolLM2: distinct, repeatable, held out; and its answers, interrupted or not."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from models_zoo import native

from specdec_lite.loading.checkpoints import load_tokenizer
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.texts.smollm2_tasks import AGENT, HISTORY, TASKS, chat
from specdec_lite.training import smollm2_prompts, smollm2_text
from specdec_lite.training.packed_text import piece_paths, read_pieces
from specdec_lite.training.smollm2_prompts import (
    GRAM,
    KINDS,
    Prompt,
    draw_prompts,
    equal_length_batches,
    token_grams,
    without_overlap,
    word_lists,
)
from specdec_lite.training.smollm2_text import (
    PIECES,
    STOPS,
    main,
    plan_batches,
    read_answers,
    write_answers,
)

pytestmark = pytest.mark.slow  # the library's source is parsed once, the tokenizer loaded


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(smollm2_folder())


@pytest.fixture(scope="module")
def training(tokenizer):
    return draw_prompts(tokenizer, 60)


@pytest.fixture(scope="module")
def held_out(tokenizer):
    return draw_prompts(tokenizer, 30, held_out=True)


def test_every_kind_has_the_given_number_of_distinct_prompts(training, held_out):
    assert Counter(prompt.kind for prompt in training) == dict.fromkeys(KINDS, 60)
    assert len({prompt.text for prompt in (*training, *held_out)}) == 90 * len(KINDS)


def test_a_seed_repeats_them_and_another_does_not(tokenizer, held_out):
    assert draw_prompts(tokenizer, 30, held_out=True) == held_out
    assert draw_prompts(tokenizer, 30, held_out=True, seed=1) != held_out


def test_the_chat_template_is_around_the_text(tokenizer, training):
    for prompt in training:
        before, after = tokenizer.decode(prompt.ids).split(prompt.text)
        assert before.startswith("<|im_start|>system\n") and before.endswith("<|im_start|>user\n")
        assert after == "<|im_end|>\n<|im_start|>assistant\n" and len(prompt.ids) <= 320
        assert "{" not in prompt.text or prompt.kind not in ("question", "story")


def test_held_out_words_and_documents_are_in_no_other_prompt(tokenizer, training, held_out):
    ours, theirs = word_lists(False), word_lists(True)
    for field in ("concept", "plural", "character", "event", "task", "object"):
        assert not set(ours[field]) & set(theirs[field]) and len(ours[field]) > len(theirs[field])
    passages = {passage for prompt in held_out for passage in prompt.text.split("\n\n")[1:]}
    rest = without_overlap(training, held_out, tokenizer)
    assert len(rest) > 0.98 * len(training)
    assert not any(passage in prompt.text for passage in passages for prompt in rest)


def test_fifty_common_tokens_overlap_and_forty_nine_do_not(tokenizer):
    text = " apple" * 10 + " tree" * 60
    held_out = Prompt("story", text, ())
    few, many = (Prompt("story", "Once" + " tree" * n + " fell", ()) for n in (GRAM - 1, GRAM))
    assert without_overlap([few, many], [held_out], tokenizer) == [few]
    short = Prompt("story", "A short one.", ())
    assert without_overlap([short, few], [short], tokenizer) == [few]
    assert token_grams(range(GRAM + 2)) == {tuple(range(n, n + GRAM)) for n in range(3)}


def test_more_prompts_than_exist_are_rejected(tokenizer, monkeypatch):
    monkeypatch.setattr(smollm2_prompts, "KINDS", ("summary",))
    with pytest.raises(ValueError, match="each=5000"):
        draw_prompts(tokenizer, 5000, held_out=True)
    with pytest.raises(ValueError, match="each"):
        draw_prompts(tokenizer, 0)


def test_batches_contain_prompts_of_equal_length_once(training):
    batches = equal_length_batches(training, 4, least=4)
    assert (
        batches
        == equal_length_batches(training, 4, least=4)
        != equal_length_batches(training, 4, least=4, seed=1)
    )
    assert all(len(part) == 4 and len({len(row.ids) for row in part}) == 1 for part in batches)
    rows = [row for part in batches for row in part]
    assert len(rows) == len(set(rows)) > len(training) // 3
    lengths = [len(part[0].ids) for part in batches]
    assert lengths != sorted(lengths)  # the first batches are typical of all
    every = [row for part in equal_length_batches(training, 4) for row in part]
    assert set(every) == set(training) and len(every) == len(training)


# Answers ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_pieces(tmp_path, monkeypatch):
    """Hide the answers of the repository, which are found from the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def target(tokenizer):
    return native(dtype=torch.float32, vocab_size=len(tokenizer), max_positions=512)


def interrupt(monkeypatch):
    """Let a run be interrupted at its third batch, and return the function that writes answers."""
    own_text = smollm2_text.own_text

    def stopped(*args):
        if args[3].name == "00002":
            raise KeyboardInterrupt
        return own_text(*args)

    monkeypatch.setattr(smollm2_text, "own_text", stopped)
    return own_text


def test_answers_resume_where_they_stopped(tmp_path, tokenizer, target, monkeypatch):
    plan = plan_batches(tmp_path / "a", tokenizer, each=12, held_out=12, rows=4)
    kinds = [row.kind for batch in plan if batch.held_out for row in batch.prompts]
    assert Counter(kinds) == dict.fromkeys(KINDS, 12) and not plan[-1].held_out
    assert [batch.held_out for batch in plan] == sorted((b.held_out for b in plan), reverse=True)
    greedy = [batch.temperature == 0 for batch in plan if not batch.held_out]
    assert abs(2 * sum(greedy) - len(greedy)) <= 1 and len({b.temperature for b in plan}) == 3
    plan = plan[-4:]
    write_answers(target, tmp_path / "whole", plan, 6)
    own_text = interrupt(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        write_answers(target, tmp_path / "a", plan, 6)
    assert len(read_answers(tmp_path / "a", plan)) == 8
    calls = []
    monkeypatch.setattr(smollm2_text, "own_text", lambda *args: calls.append(own_text(*args)))
    write_answers(target, tmp_path / "a", plan, 6)
    assert len(calls) == 2
    texts, whole = read_answers(tmp_path / "a", plan), read_answers(tmp_path / "whole", plan)
    assert len(texts) == 16 and all(a.ids.equal(b.ids) for a, b in zip(texts, whole))
    rows = [prompt for batch in plan for prompt in batch.prompts]
    for text, prompt in zip(texts, rows):
        assert text.ids[: text.start].tolist() == list(prompt.ids) and text.kind == prompt.kind
        assert text.start < len(text.ids) <= text.start + 6
        assert not set(text.ids[text.start : -1].tolist()) & set(STOPS)


@pytest.fixture
def plan(tmp_path, tokenizer):
    """Return five batches of four prompts."""
    every = plan_batches(tmp_path / "plan", tokenizer, each=24, held_out=12, rows=4)
    return [batch for batch in every if len(batch.prompts) == 4][-5:]


def as_rows(texts):
    return [(t.kind, t.held_out, t.temperature, t.start, *t.ids.tolist()) for t in texts]


def test_pieces_replace_the_folder(tmp_path, plan, target, monkeypatch):
    """A machine with the pieces alone answers only the missing prompts."""
    monkeypatch.setattr(smollm2_text, "PIECE_TOKENS", 30)
    write_answers(target, tmp_path / "whole", plan, 6)
    whole = as_rows(read_answers(tmp_path / "whole", plan))
    assert not PIECES.exists(), "no piece is written by default"
    write_answers(target, tmp_path / "a", plan[:3], 6, PIECES, write=True)
    paths = piece_paths(PIECES)
    assert len(paths) == 2, "one of two batches, one of the remainder"
    assert (
        as_rows(read_pieces(PIECES)) == as_rows(read_answers(tmp_path / "none", plan)) == whole[:12]
    )
    calls, own_text = [], smollm2_text.own_text
    monkeypatch.setattr(
        smollm2_text, "own_text", lambda *args: calls.append(args) or own_text(*args)
    )
    write_answers(target, tmp_path / "b", plan, 6, PIECES, write=True)
    assert [args[3].name for args in calls] == ["00003", "00004"]
    assert piece_paths(PIECES)[:2] == paths and as_rows(read_pieces(PIECES)) == whole
    assert as_rows(read_answers(tmp_path / "whole", plan)) == whole, "no answer counts twice"
    write_answers(target, tmp_path / "c", plan, 6, PIECES, write=True)
    assert len(calls) == 2 and as_rows(read_pieces(PIECES)) == whole
    other = replace(plan[0], temperature=0.5)
    write_answers(target, tmp_path / "c", [other], 6, PIECES)
    assert len(calls) == 3, "another temperature is another answer"


def test_an_interrupted_run_writes_its_answers(tmp_path, plan, target, monkeypatch):
    interrupt(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        write_answers(target, tmp_path / "a", plan, 6, PIECES, write=True)
    texts = read_pieces(PIECES)
    assert len(texts) == 8 and as_rows(texts) == as_rows(read_answers(tmp_path / "a", plan))


def test_a_broken_piece_stops_the_command_before_it_answers(tmp_path, plan, target):
    PIECES.mkdir(parents=True)
    (PIECES / "00000.xz").write_bytes(b"half")
    with pytest.raises(ValueError, match="00000.xz: "):
        write_answers(target, tmp_path / "a", plan, 6)
    assert not (tmp_path / "a").exists()


def test_the_plan_is_written_once(tmp_path, tokenizer, monkeypatch):
    plan = plan_batches(tmp_path, tokenizer, each=12, held_out=12, rows=4)
    monkeypatch.setattr(smollm2_text, "draw_prompts", None)
    assert plan_batches(tmp_path, tokenizer, each=99) == plan


def test_the_command_prints_the_number_of_answers(tmp_path, tokenizer, target, monkeypatch, capsys):
    monkeypatch.setattr(smollm2_text, "load_smollm2", lambda *_: (target, tokenizer))
    first = len(plan_batches(tmp_path, tokenizer, each=12, held_out=12, rows=4)[0].prompts)
    main(["--folder", str(tmp_path), "--count"])
    assert capsys.readouterr().out.startswith("0 answers to ")
    main(["--folder", str(tmp_path), "--batches", "1", "--new-tokens", "3"])
    assert capsys.readouterr().out.startswith(f"{first} answers to ")
    main(["--folder", str(tmp_path), "--batches", "1", "--new-tokens", "3", "--pieces", "p"])
    assert capsys.readouterr().out.startswith(f"p/00000.xz: {first} answers, ")
    assert len(read_pieces(tmp_path / "p")) == first


def test_measured_requests_do_not_overlap_with_training(tokenizer, training):
    """Measured requests are distinct and share no 50 tokens with prompts or their documents."""
    every = [task for rows in (*TASKS.values(), AGENT, HISTORY) for task in rows]
    assert len({task.text for task in every}) == len(every) == 8 * 6
    assert [*TASKS] == list(KINDS) and {len(rows) for rows in TASKS.values()} == {6}
    measured = [Prompt(task.kind, task.text, chat(tokenizer, task.text)) for task in every]
    assert without_overlap(training, measured, tokenizer) == training
    taken = {gram for prompt in measured for gram in token_grams(tokenizer.encode(prompt.text))}
    passages = smollm2_prompts.passages(False)
    assert all(taken.isdisjoint(token_grams(tokenizer.encode(text))) for text in passages[::20])
    copied = [Prompt("edit", measured[12].text + " Now.", measured[12].ids)]
    assert without_overlap(copied, measured, tokenizer) == [], "a copy is seen"
