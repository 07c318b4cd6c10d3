"""The figures of the GPUs' recordings state what the recordings hold, and show the reader's own."""

import json
import shutil

import pytest
from figure_roles import role_faults

from specdec_book.recordings import measured
from specdec_book.viz import gpu_figures, gpu_report, payoff

FIGURES = (
    gpu_figures.passes_figure,
    gpu_figures.map_figure,
    gpu_figures.modes_figure,
    gpu_figures.drafts_figure,
)


@pytest.fixture(scope="module")
def gpus():
    return measured.gpus()


@pytest.fixture
def with_own(gpus, tmp_path):
    """The book's recordings and a reader's own, which is a copy of the first."""
    book = measured.recordings.files()[gpus[0].name]
    (tmp_path / "mine.json").write_text(
        json.dumps(json.loads(book.read_text("utf-8")) | {"machine": "Tesla T4"}), "utf-8"
    )
    return [*gpus, *measured.own_gpus(tmp_path)]


@pytest.mark.parametrize("build", FIGURES)
def test_roles_and_the_readers_own_gpu(build, gpus, with_own):
    alone, both = build(gpus), build(with_own)
    assert role_faults(json.loads(both.to_json())) == []
    added = {trace.name for trace in both.data} - {trace.name for trace in alone.data}
    assert added and all(name.startswith("your GPU") for name in added)


def test_no_file_is_no_gpu_and_the_books_own_are_not_the_readers(gpus, tmp_path):
    assert measured.own_gpus(tmp_path) == []
    book = measured.recordings.files()[gpus[0].name]
    assert not any(map(measured.is_own, gpus)), "results/ of a checkout are the book's"
    shutil.copy(book, tmp_path / book.name)
    assert [measured.title(each) for each in measured.own_gpus(tmp_path)] == [
        f"your GPU, {gpus[0].machine}"
    ]


def test_the_payoff_menu_ends_with_the_readers_own_gpu(with_own, monkeypatch):
    assert payoff.own_machines() == []
    monkeypatch.setattr(measured, "gpus", lambda: with_own)
    (own,) = payoff.own_machines()
    card = with_own[-1].data["steps"]["card"]
    assert own["label"].startswith("your GPU, Tesla T4, ")
    assert (own["bandwidth"], own["memory"]) == (card["read_bandwidth"], card["memory_bytes"])


def test_what_to_doubt_is_computed_from_the_recording(gpus):
    text = gpu_report.doubts(gpus[0]).data
    assert text.startswith("<details>") and "float32: 20 of 20; bfloat16: 4 differ" in text
    assert "1.44 times the time to read the weights" in text


def test_the_passes_are_the_recorded_ones(gpus):
    rows = gpus[0].data["steps"]["passes"]["rows"]
    find = lambda k: next(
        r["seconds"] for r in rows if (r["batch"], r["k"], r["context"]) == (128, k, 512)
    )
    line = next(t for t in gpu_figures.passes_figure(gpus).data if t.name == "target, B = 128")
    assert line.x[-1] == 16 and line.y[-1] == pytest.approx(find(16) / find(1))


def test_a_draft_costs_more_than_its_bytes_and_less_bytes_may_cost_more(gpus):
    names, costs, ratios = gpu_figures.draft_costs(gpus[0].data["steps"])
    at = {name.partition(",")[0]: i for i, name in enumerate(names)}
    small, large = at["Qwen3-0.6B"], at["Llama-3.2-1B"]
    assert ratios[small] < ratios[large] and costs[small] > costs[large]
