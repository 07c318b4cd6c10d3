"""Record the two models at toy size and read the recording. The tests assert no time."""

import json
from types import SimpleNamespace

import pytest
import torch
from models_zoo import native, perturbed

from benchmarks import models, next_words, speed
from benchmarks.experiment import execute
from specdec_book import recordings
from specdec_book.recordings import models as quoted
from specdec_lite.loading.pairs import Pair


def toy(options):
    target = native(num_layers=1, max_positions=160)
    pair = Pair(target, perturbed(target), None)
    rng = torch.Generator().manual_seed(0)
    rows = [torch.randint(48, (5,), generator=rng) for _ in range(2)]
    bench = speed.Bench(
        load=lambda dtype: pair,
        prompts={"code": rows, "prose": rows},
        gammas=(1, 2),
        dtypes=("float32",),
        new_tokens=8,
        turns=options.turns,
        least=options.turns,
        drafters={"speculative": speed.DRAFTERS["speculative"]},
    )
    one = lambda dtype: native(dtype=getattr(torch, dtype), num_layers=1, max_positions=64)
    targets = {"pair": one, "smollm2": one}
    return models.Plan(bench, targets, ("float32", "bfloat16"), (1, 2, 4), 8, 0.1)


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    monkeypatch.setattr(models.BookModels, "make", lambda self: toy(self.options))
    path = execute(models.BookModels, ["--turns", "2", "--work", str(tmp_path / "work")])
    return json.loads(path.read_text(encoding="utf-8"))


def test_pages_quote_the_recorded_numbers(recording):
    for row in recording["passes"]:
        quote = quoted.passes(row["model"], row["dtype"])
        assert quote.seconds == {int(k): t[1] for k, t in row["seconds"].items()}
        assert all(low <= middle <= high for low, middle, high in row["seconds"].values())
        read = row["weight_bytes"] + row["cache_bytes"]
        assert quote.reading == pytest.approx(
            read / recording["profile"]["bandwidth"] / quote.seconds[1]
        )
        assert quote.growth(1) == 1
    assert all(set(row["gammas"]) == {"1", "2"} for row in recording["drafting"])


def test_an_error_lists_the_recorded_settings(recording):
    with pytest.raises(ValueError, match="smollm2 float32"):
        quoted.passes("smollm2", "float16")


@pytest.mark.parametrize("wrong", [["--turns", "1"], ["--prompts", "1"], ["--new-tokens", "3"]])
def test_a_wrong_option_is_named(wrong, capsys):
    with pytest.raises(SystemExit):
        execute(models.BookModels, wrong)
    assert wrong[0] in capsys.readouterr().err


def test_next_words_are_recorded(tmp_path, monkeypatch):
    model = native(num_layers=1, max_positions=64)
    tokenizer = SimpleNamespace(
        encode=lambda text: [ord(letter) % 48 for letter in text[:9]],
        decode=lambda ids: "".join(chr(97 + i % 26) for i in ids),
    )
    monkeypatch.setattr(next_words.NextWords, "model", (model, tokenizer))
    out = ["--out", str(tmp_path / "next.json"), "--work", str(tmp_path)]
    path = execute(next_words.NextWords, out)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert set(data["texts"]) == set(next_words.SETTINGS)
