"""The figures of the GPUs' recordings state what the recordings hold, and show the reader's own.

`tests/gpu/small_cards.json` holds recordings of small cards, with skipped, failed and unfinished
steps, as the plan writes them on the virtual GPU. Commit f7767346 has the program that wrote them:
`python tests/virtual_gpu.py --capability 7.5 virtual_checks small_cards tests/gpu/small_cards.json`.
"""

import copy
import json
import re
import shutil

import pytest
from conftest import ROOT
from figure_roles import role_faults

from specdec_book.recordings import measured
from specdec_book.viz import gpu_figures, gpu_report, payoff, serving
from specdec_book.viz.interactives import Explorer

NAMES = "passes", "map", "modes", "drafts", "formula"
FIGURES = [getattr(gpu_figures, f"{name}_figure") for name in NAMES]
STORED = json.loads((ROOT / "tests" / "gpu" / "small_cards.json").read_text("utf-8"))
CARDS = {name: check["recording"] for name, check in STORED.items()}
T4, RTX, A10 = CARDS
PAIR, HEAD = (copy.deepcopy(CARDS[T4]["steps"]["rounds"]) for _ in range(2))
for mode in (*HEAD["T = 0"]["modes"].values(), *HEAD["T = 1"]["modes"].values()):
    del mode["alone"]["draft"]  # a head makes no pass of its own
CARDS[T4]["steps"] |= {
    "pair": PAIR | {"target": "large", "draft": "small", "no_graphs": ""},
    "smollm2": HEAD | {"target": "SmolLM2-135M", "draft": "its EAGLE-1 head"},
}


@pytest.fixture(scope="module")
def gpus():
    return measured.gpus()


@pytest.fixture
def with_own(gpus, tmp_path, monkeypatch):
    """Write recordings into a folder, and return the book's and these."""

    def of(*names):
        for name in names:
            (tmp_path / f"{name}.json").write_text(json.dumps(CARDS[name]), "utf-8")
        monkeypatch.setattr(measured, "FOLDERS", (tmp_path,))
        return measured.gpus()

    return of


@pytest.mark.parametrize("names", [*((name,) for name in CARDS), tuple(CARDS)], ids="-".join)
@pytest.mark.parametrize("build", FIGURES)
def test_each_card_is_in_each_figure_or_the_figure_says_why(build, names, gpus, with_own):
    alone, fig = build(gpus), build(with_own(*names))
    assert role_faults(json.loads(fig.to_json())) == []
    assert fig.layout.title.text == alone.layout.title.text
    axis = re.sub("(<.*?>)+", " ", fig.layout.xaxis.title.text)
    for name in names:
        added = [trace for trace in fig.data if trace.name.startswith(f"your GPU, {name}")]
        whole = not any("error" in step for step in CARDS[name]["steps"].values())
        assert added or f"your GPU, {name}: " in axis
        assert all(len(trace.x) for trace in added)
        assert (name != T4 or added) and (name != T4 or whole)


def test_a_small_card_has_its_own_shape_and_batches(with_own):
    both = with_own(T4)
    assert measured.shape_name(both[0]) == "Llama-3.1-8B"
    assert measured.shape_name(both[1]) == "Llama-3.2-3B"
    for build in (gpu_figures.passes_figure, gpu_figures.map_figure, gpu_figures.drafts_figure):
        assert "your GPU, Tesla T4: Llama-3.2-3B" in build(both).layout.meta["alt"]
    names = [trace.name for trace in gpu_figures.passes_figure(both).data]
    assert {"your GPU, Tesla T4, B = 1", "your GPU, Tesla T4, B = 32"} <= set(names)


@pytest.mark.parametrize("name", CARDS)
def test_tables_menus_and_doubts_of_any_card(name, with_own):
    *_, own = both = with_own(name)
    shown = [getattr(part, "data", "") for part in gpu_report.report([own])]
    text = "\n".join(part for part in shown if isinstance(part, str))
    for step in measured.STEPS:
        assert not measured.why_missing(own, step) or f"| {measured.STEPS[step]} |" in text
    doubts = gpu_report.doubts(own).data
    assert "shape" not in doubts and ("; float16: 0 differ" in doubts) == (name == T4)
    assert "batch 64" not in gpu_report.real_forecasts(own).data  # a small card has none
    pairs = [each for each in measured.recorded_pairs() if "your GPU" in each["group"]]
    assert Explorer.of_pairs(measured.recorded_pairs()) and all(p["measured"] > 0 for p in pairs)
    assert bool(pairs) == (name != A10)
    trained = {pair["label"].partition(",")[0] for pair in pairs}
    assert ({"large with small", "SmolLM2-135M with its EAGLE-1 head"} <= trained) == (name == T4)
    tables = serving.gpu_tables(both)
    serving.Serving(tables=tables, pair=len(serving.PAIRS) + len(tables) - 1)
    assert [t["label"] for t in tables[1:]] == [
        f"shape of Llama-3.2-3B with a head, your GPU, {name}" for _ in range(name == T4)
    ]


def test_no_file_is_no_gpu_and_the_books_own_are_not_the_readers(gpus, tmp_path, with_own):
    assert [each.name for each in with_own()] == [each.name for each in gpus] == [measured.BOOK]
    book = measured.recordings.files()[measured.BOOK]
    shutil.copy(book, tmp_path / book.name)
    assert [measured.title(each) for each in measured.own_gpus()] == [
        f"your GPU, {gpus[0].machine}"
    ]


def test_what_cannot_be_shown_is_named(tmp_path, with_own, capsys):
    with_own(T4, RTX)
    (tmp_path / "copy.json").write_text(json.dumps(CARDS[T4] | {"date": "2027-01-01"}), "utf-8")
    (tmp_path / "half.json").write_text('{"what": ', "utf-8")
    stamp = {name: CARDS[T4][name] for name in ("what", "date", "command", "machine", "versions")}
    (tmp_path / "old.json").write_text(json.dumps(stamp | {"rows": [1]}), "utf-8")
    modes = {"gamma": 4, "lossless": [], "T = 0": {"modes": {"eager": {"speedup": 1.5}}}}
    rows = {"steps": {"passes": {"rows": [{"batch": 1}]}, "rounds": modes}}
    (tmp_path / "older.json").write_text(json.dumps(CARDS[A10] | rows), "utf-8")
    own, notes = measured.scan()
    assert {each.machine: each.date for each in own}[T4] == "2027-01-01" and len(own) == 3
    assert sum("measured twice" in note for note in notes) == 1
    assert sum("half.json is left out" in note for note in notes) == 1
    assert sum(f"old.json is left out: {measured.OLD}" in note for note in notes) == 1
    assert all(measured.OLD in measured.why_missing(own[-1], each) for each in ("passes", "rounds"))
    assert measured.recorded_pairs() and gpu_report.report(own)
    gpu_report.announce()
    said = capsys.readouterr().out
    assert "your GPU, Tesla T4" in said and "half.json" in said and "passes of the target" in said


def test_a_gpu_without_a_recording_is_offered_its_command(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(measured, "FOLDERS", (tmp_path,))
    gpu_report.announce()
    assert not capsys.readouterr().out
    monkeypatch.setattr(gpu_report.torch.cuda, "is_available", lambda: True)
    gpu_report.announce()
    assert "!python -m specdec_lite gpu" in capsys.readouterr().out


def test_the_payoff_menu_ends_with_the_readers_own_gpus(with_own):
    with_own(*CARDS)
    menu = payoff.own_machines()
    memory = {RTX: 8, A10: 24, T4: 16}
    assert [each["label"] for each in menu] == [
        f"your GPU, {name}, {size} GB" for name, size in memory.items()
    ]
    card = CARDS[T4]["steps"]["card"]
    assert (menu[-1]["bandwidth"], menu[-1]["memory"]) == (card["read_bandwidth"], 16e9)


def test_what_to_doubt_is_computed_from_the_recording(gpus):
    text = gpu_report.doubts(gpus[0]).data
    assert text.startswith("<details>") and "float32: 20 of 20; bfloat16: 4 differ" in text
    assert "1.44 times the time to read the weights" in text
    other = copy.deepcopy(gpus[0])
    rows = other.data["steps"]["passes"]["rows"]
    rows[:] = [row for row in rows if (row["batch"], row["k"]) != (1, 1)]
    assert gpu_report.doubts(other).data.count("\n|") == text.count("\n|") - 1, "no T(1, 1)"


def test_the_passes_are_the_recorded_ones(gpus):
    rows = gpus[0].data["steps"]["passes"]["rows"]
    times = {(r["batch"], r["k"], r["context"]): r["seconds"] for r in rows}
    line = next(t for t in gpu_figures.passes_figure(gpus).data if t.name == "target, B = 128")
    assert line.y[line.x.index(16)] == pytest.approx(times[128, 16, 512] / times[128, 1, 512])
