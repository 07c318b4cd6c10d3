"""The GPU script runs to its end in tiny shapes on a CPU: the same code, resumable, and a recording
that the loader takes.
"""

import io
import json

import pytest
import torch
from conftest import ROOT
from rich.console import Console

from benchmarks import gpu, gpu_parts
from specdec_lite import results, timeline
from specdec_lite.viz import gpu_report


def run(folder, *more):
    return gpu.main(
        [
            "--device",
            "cpu",
            "--tiny",
            "--out",
            str(folder / "out"),
            "--work",
            str(folder / "work"),
            *more,
        ]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run twice: stopped at once by its budget, then to the end."""
    folder = tmp_path_factory.mktemp("gpu")
    assert run(folder, "--budget", "0") is None and not (folder / "out").exists()
    assert run(folder, "--budget", "1e9")
    return folder


@pytest.mark.slow
def test_writes_a_recording_with_every_part(folder, monkeypatch):
    (path,) = (folder / "out").glob("*.json")
    monkeypatch.setattr(results, "FOLDER", folder / "out")
    recording = results.load(path.stem)
    assert (
        set(gpu_parts.PARTS) <= set(recording.data)
        and recording.data["tiny"] is True
        and recording.data["graphs"] is False
    )
    assert "tiny shapes" in recording.what and "--device cpu --tiny" in recording.command
    for part in ("passes", "depth", "batches", "phases", "timeline", "speed"):
        assert {row["mode"] for row in recording.data[part]["rows"]} == set(gpu_parts.MODES)
    for row in recording.data["speed"]["rows"]:
        assert 1 <= row["tau"] <= recording.data["speed"]["gamma"] + 1 and 0 <= row["alpha"] <= 1
        assert (
            set(row["live_seconds"]) == {"draft_pass", "verify", "other"}
            and min(row["live_seconds"].values()) > 0
            and row["c_in_loop"] > 0
        )
        assert set(row["tokens_per_second"]) == {
            "plain eager",
            "plain static",
            "speculative eager",
            "speculative static",
            "hf plain",
            "hf assisted",
        }
    assert recording.data["passes"]["weights"] == recording.data["depth"]["weights"] == "random"


@pytest.mark.slow
def test_a_recorded_timeline_can_be_drawn_again(folder):
    rows = json.loads(next((folder / "out").glob("*.json")).read_text())["timeline"]["rows"]
    for row in rows:
        found = [
            timeline.Operation(kind, start, seconds, kind)
            for kind, start, seconds in row["operations"]
        ]
        assert timeline.shares(found) == pytest.approx(row["shares"], abs=0.02) and timeline.span(
            found
        ) == pytest.approx(row["seconds"], rel=0.02)
    assert {row["lane"] for row in rows} == (
        {"host", "GPU"} if torch.cuda.is_available() else {"host"}
    )


@pytest.mark.slow
def test_the_table_has_a_line_for_everything_that_was_measured(folder):
    data, told = json.loads(next((folder / "out").glob("*.json")).read_text()), io.StringIO()
    gpu.show(Console(file=told, width=150), data, graphs=False)
    said = told.getvalue()
    for what in (
        "the draft's weights, its cache",
        "ms to the first token",
        "trees of 4 nodes",
        "batch 1: T(γ+1)/T(1)",
        "batch 2: T(γ+1)/T(1)",
        "logits of one pass over γ + 1 tokens and of single ones",
        "greedy text against plain, float32",
        "greedy text against plain, bfloat16",
        "Hugging Face plain / assisted",
        "a pass of the draft, host",
    ):
        assert what in said, what
    gpu.show(
        Console(file=told), {name: data[name] for name in ("training", "passes")}, graphs=True
    )  # a run that is not whole yet


@pytest.mark.slow
def test_the_chapter_shows_what_a_gpu_recording_holds(folder, monkeypatch, capsys, tmp_path):
    """The recording of the tiny run, taken for one with graphs, through the chapter's report."""
    (path,) = (folder / "out").glob("*.json")
    recorded = json.loads(path.read_text()) | {"tiny": False, "graphs": True}
    recorded["losslessness"]["rows"][0] |= {"diverges_at": 3, "gap": 0.25, "largest_logit": 4.0}
    (tmp_path / path.name).write_text(json.dumps(recorded))
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    notebook = (ROOT / "notebooks" / "16_gpu_timing.ipynb").read_text("utf-8")
    assert 'gpu_report.report(map(results.load, results.names(\\"gpu\\")))' in notebook
    drawn = gpu_report.report(map(results.load, results.names("gpu")))
    said = capsys.readouterr().out
    for mode in ("eager", "static"):
        for what in (
            "of the copy bandwidth",
            "trees by nodes",
            "by batch",
            "T=0:",
            "T=1:",
            "Hugging Face assisted",
            "greedy texts",
            "narrow and deep",
        ):
            assert any(
                line.strip().startswith(mode) and what in line for line in said.splitlines()
            ), (mode, what)
    assert "float32: logits of a block" in said and "bfloat16: logits of a block" in said
    assert (
        "1 of 1 greedy texts leave the plain one, at a gap of at most 2.5e-01" in said
        and "0 of 1 greedy texts leave the plain one\n" in said
    )
    curves, lanes = drawn
    assert (
        len({trace.marker.symbol for trace in curves.data})
        == len({trace.line.dash for trace in curves.data})
        == 2
    )
    assert (
        len({trace.marker.pattern.shape for trace in lanes.data}) == 3 and lanes.layout.meta["alt"]
    )


@pytest.mark.slow
def test_float32_text_is_the_plain_text(folder):
    rows = json.loads(next((folder / "out").glob("*.json")).read_text())["losslessness"]["rows"]
    exact = [row for row in rows if row["dtype"] == "float32"]
    assert len(exact) == 2 and all(
        row["diverges_at"] is None or row["gap"] <= 1e-5 * row["largest_logit"] for row in exact
    )


@pytest.mark.slow
def test_goes_on_where_it_stopped(folder):
    parts = {
        path: path.stat().st_mtime_ns
        for path in (folder / "work").rglob("*.json")
        if path.stem in gpu_parts.PARTS
    }
    assert len(parts) == len(gpu_parts.PARTS)
    again = next(path for path in parts if path.stem == "passes")
    again.unlink()
    assert run(folder, "--budget", "1e9")
    assert {path: path.stat().st_mtime_ns for path in parts if path != again} == {
        path: t for path, t in parts.items() if path != again
    }
    assert again.stat().st_mtime_ns > parts[again]


def test_a_missing_gpu_is_said_in_one_line(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "sees no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, has_bfloat16, free, said",
    [
        ([], False, 80e9, "use --dtype float16"),
        ([], True, 15e9, "15.0 GB are free on cuda, and the full shapes need 30.0 GB"),
        (["--dtype", "float16"], False, 80e9, None),
        (["--tiny"], True, 15e9, None),
        (["--device", "cpu"], True, 1e9, None),
    ],
)
def test_a_card_that_cannot_run_it_is_told_before_anything_is_trained(
    arguments, has_bfloat16, free, said, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    monkeypatch.setattr(gpu.memory, "free_bytes", lambda device: free)
    refused = gpu.unfit(gpu.options().parse_args(arguments))
    assert refused is None if said is None else said in refused


def test_the_full_shapes_are_what_they_are_called():
    from specdec_lite.loading.memory import native_size

    scale = gpu_parts.FULL
    sizes = [
        native_size(config).parameters / 1e6 for config in (scale.target, scale.draft, scale.random)
    ]
    assert 300 < sizes[0] < 400 and 9 < sizes[1] < 15 and 6000 < sizes[2] < 7500
    assert (
        scale.gamma + 1 in scale.ks
        and max(scale.ks) == max(scale.trees) == max(scale.batches) == 64
    )
