"""Count and time the scoreboard's rows on a tiny pair: bytes, growth, shares, checks, own rows."""

import json
import sys

import pytest
import torch
from boards import SMALL
from models_zoo import native

from benchmarks import methods, plain, scoreboard_clocks, scoreboard_counts
from benchmarks.experiment import execute
from benchmarks.methods import METHODS, custom, minutes_of_training
from benchmarks.scoreboard_counts import Rows, extend, pack, size, split
from specdec_book import recordings
from specdec_book.recordings import Recording
from specdec_book.recordings.board import Board
from specdec_lite import generate
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps
from specdec_lite.texts.benchmark_prompts import BenchmarkPrompt

COUNTS, CLOCKS = "scoreboard-counts", "scoreboard-clocks"
TARGET = native(dtype=torch.float32)


class Numbers:
    """A tokenizer of texts that are numbers."""

    chat_template = None

    def encode(self, text: str) -> list[int]:
        return [int(word) % TARGET.vocab_size for word in text.split()]


def prompts(kinds=("code", "json"), count=None):
    texts = [" ".join(str((i + 1) * j) for j in range(1, 13)) for i in range(8)]
    rows = lambda kind: [
        BenchmarkPrompt(f"{kind}-{i}", kind, "", (), t) for i, t in enumerate(texts)
    ]
    return {kind: rows(kind)[:count] for kind in kinds if kind in ("code", "json")}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Let both experiments run on a tiny pair whose draft is the target; return the arguments."""
    pair = Pair(TARGET, TARGET, Numbers())
    monkeypatch.setattr(methods, "METHODS", SMALL)
    monkeypatch.setattr(scoreboard_counts, "load_benchmark_prompts", prompts)
    for module in (scoreboard_counts, scoreboard_clocks):
        monkeypatch.setattr(module, "load_models", lambda model, dtype, device="cpu": pair)
    other = {"transformers": lambda ids, seed: (1.0, 4)}
    monkeypatch.setattr(plain, "others", lambda *about: other)
    words = lambda name: ["--work", str(tmp_path / "w"), "--out", str(tmp_path / f"{name}.json")]
    return words


def count(tiny, name="counts", *more):
    path = execute(COUNTS, [*"--kinds code json --new-tokens 9".split(), *more, *tiny(name)])
    return json.loads(path.read_text(encoding="utf-8"))


def cell(data, kind="code", temperature=0.0):
    return next(
        row["methods"]
        for row in data["cells"]
        if (row["kind"], row["temperature"]) == (kind, temperature)
    )


def test_the_same_command_gives_the_same_bytes(tiny, tmp_path):
    first = count(tiny, "counts", "--prompts", "4")
    path = tmp_path / "counts.json"
    before = path.read_bytes()
    count(tiny, "counts", "--prompts", "4")
    assert path.read_bytes() == before
    again = count(tiny, "again", "--prompts", "4")
    assert again["cells"] == first["cells"]


def test_the_command_that_makes_all_of_a_recording_is_stated(tiny):
    run = lambda *more: count(tiny, "counts", *more)["command"].split(" --out")[0]
    assert "--kinds json" in run("--prompts", "8", "--kinds", "json")
    part = run("--prompts", "4", "--kinds", "code")
    assert "--prompts 4 --kinds code" in part, "it counted last"
    assert run("--prompts", "4") == part, "this would count four texts of json, not eight"
    whole = run("--prompts", "8")
    assert "--prompts 8" in whole and "--kinds code json" in whole
    assert run("--prompts", "8", "--kinds", "json") == whole


def test_one_row_is_counted_again(tiny, monkeypatch):
    first = count(tiny, "counts", "--prompts", "4")
    decode, decoded = Rows.decode, set()
    spy = lambda self, name, *block: decoded.add(name) or decode(self, name, *block)
    monkeypatch.setattr(Rows, "decode", spy)
    again = count(tiny, "counts", "--prompts", "4", "--again", "draft model")
    assert decoded == {"plain", "draft model"}, "plain decoding tells whether texts are equal"
    assert (again["cells"], again["about"]) == (first["cells"], first["about"])


def test_counts_are_those_of_single_runs(tiny):
    data = count(tiny, "counts", "--prompts", "4")
    methods = cell(data)
    assert set(methods) == {"plain", "draft model", "prompt lookup"}
    assert set(cell(data, "json", 1.0)) == {"plain", *SMALL}
    itself = methods["draft model"]
    assert split(itself["accepted"]) == split(itself["tested"])
    assert set(split(itself["same"])) == {1}
    assert split(methods["plain"]["rounds"]) == split(methods["plain"]["tokens"]) == [9] * 4
    for number, prompt in enumerate(prompts()["code"][:4]):
        ids = prompt.encode(Numbers())
        for name, temperature in (("prompt lookup", 0.0), ("draft model × lenient(0.6)", 1.0)):
            method = SMALL[name]
            drafter = method.make(Pair(TARGET, TARGET, None), 4)
            options = {"rule": method.rule, "seed": number}
            steps = generate(TARGET, ids, drafter, 9, temperature, **options).steps
            counted = cell(data, "code", temperature)[name]
            assert split(counted["rounds"])[number] == len(steps)
            assert split(counted["drafted"])[number] == sum(step.drafted for step in steps)
            passes = sum(split(each)[number] for each in counted["rows"].values())
            assert passes == len(steps)


def test_a_longer_run_extends_the_recording(tiny, monkeypatch):
    short = count(tiny, "counts", "--prompts", "4")
    decode, decoded = Rows.decode, set()
    spy = lambda self, *block: decoded.add(block[-1]) or decode(self, *block)
    monkeypatch.setattr(Rows, "decode", spy)
    long = count(tiny, "counts", "--prompts", "8")
    assert decoded == {4} and size(cell(long)["draft model"]) == 8
    for name, counts in cell(short).items():
        assert split(cell(long)[name]["tokens"])[:4] == split(counts["tokens"])
    whole = count(tiny, "whole", "--prompts", "8")
    assert whole["cells"] == long["cells"]


def test_shares_are_joined(tiny, tmp_path):
    work = ["--work", str(tmp_path / "w")]
    words = "--kinds code json --new-tokens 9 --prompts 8".split()
    for share in ("1/2", "2/2"):
        execute(COUNTS, [*words, *work, "--share", share])
    joined = count(tiny, "joined", "--prompts", "8")
    shares = sorted((tmp_path / "w").glob("share-*/scoreboard-counts/counts.json"))
    assert len(shares) == 2
    for path in shares:
        path.unlink()
    assert count(tiny, "whole", "--prompts", "8")["cells"] == joined["cells"]


def test_packed_counts_of_other_widths_are_joined():
    one = {name: 1 for name in scoreboard_counts.SUMS}
    levels = {"reached": [1, 0], "tried": [2, 1]}
    first = pack([one | levels | {"rows": {1: 2}}])
    second = pack([one | levels | {"rows": {5: 3}}, one | levels | {"rows": {1: 1, 5: 1}}])
    both = extend(first, second)
    assert both["rows"] == {"1": "2 0 1", "5": "0 3 1"} and both["tokens"] == "1*3"
    assert (
        both["reached"] == "3 0" and both["tried"] == "6 3" and size(both) == 3 and size(None) == 0
    )


def test_costs_of_every_row_become_speeds(tiny):
    counts = count(tiny, "counts", "--prompts", "4")
    words = "--turns 2 --rounds 2 --check-share 0.5 --check-tokens 6".split()
    path = execute(CLOCKS, [*words, *tiny("clocks")])
    clocks = json.loads(path.read_text(encoding="utf-8"))
    assert set(clocks["rounds"]["float32"]["1"]) == {"plain", *SMALL}
    assert set(clocks["rounds"]["float32"]["0"]) == {"plain", "draft model", "prompt lookup"}
    board = Board(*map(recording, (counts, clocks)))
    for name in board.methods:
        entry = board.entry(name, None, 1.0)
        assert entry["over_best"]["value"] > 0 and entry["verdict"] in ("wins", "ties", "loses")
    assert board.checks() and all(row["predicted"] > 0 for row in board.checks())


def recording(content):
    stamp, data = stamps.split(content)
    return Recording("board", **stamp, data=data)


def test_a_row_from_outside_the_library(tiny, tmp_path, monkeypatch):
    text = "from specdec_lite.drafters import PromptLookupDrafter\n"
    text += "def mine(gamma, target):\n    return PromptLookupDrafter(gamma)\n"
    text += "def greedy(width):\n    return None\n"
    (tmp_path / "own_drafters.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    name = "own_drafters:mine"
    data = count(tiny, "counts", "--prompts", "4")
    added = count(tiny, "counts", "--prompts", "4", "--method", name)
    assert cell(added)[name] == cell(added)["prompt lookup"] == cell(data)["prompt lookup"]
    assert added["about"][name]["source"] == "custom"
    words = "--turns 2 --rounds 1 --check-share 0".split()
    execute(CLOCKS, [*words, *tiny("clocks")])
    path = execute(CLOCKS, [*words, "--method", name, *tiny("clocks")])
    clocks = json.loads(path.read_text(encoding="utf-8"))
    assert {name, "draft model"} <= set(clocks["rounds"]["bfloat16"]["0"])
    assert clocks["added"][0]["rows"] == [name]
    with pytest.raises(ValueError, match="needs the argument 'width'"):
        custom("own_drafters:greedy")
    for wrong in ("own_drafters:absent", "no_such_module:x", "nothing"):
        with pytest.raises(ValueError, match="must be MODULE:NAME"):
            custom(wrong)
    del sys.modules["own_drafters"]


COUNTED = ("scoreboard-counts", "humaneval-counts")


@pytest.mark.parametrize(
    "name", [n for each in COUNTED for m in ("", "-smollm2") for n in recordings.names(each + m)]
)
def test_counted_rows_are_of_the_weights_that_ship(name):
    """The minutes of training have all their digits, so other weights have other minutes."""
    data = recordings.load(name).data
    stale = [
        row
        for row, about in data["about"].items()
        if row in METHODS and about["minutes"] != minutes_of_training(METHODS[row], data["model"])
    ]
    assert not stale, f"trained again since: count them with --again {stale}"


@pytest.mark.parametrize("model", ["", "-smollm2"])
def test_the_public_set_is_counted_in_the_format_of_our_prompts(model):
    ours, public = (recordings.load(name + model).data["dtype"] for name in COUNTED)
    assert ours == public, "A3 shows both side by side"


@pytest.mark.slow
def test_transformers_is_timed_from_its_first_token():
    """A text of one token takes no time that counts; one of twelve has eleven after the first."""
    assert plain.theirs("pair", 1, 0.0, torch.arange(1, 9), 0) == (0.0, 0)
    seconds, tokens = plain.theirs("pair", 12, 0.0, torch.arange(1, 9), 0)
    assert seconds > 0 and tokens == 11
