"""Run the GPU script to its end in tiny shapes on a CPU, with resuming, and show its recordings."""

import json
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT
from rich.console import Console

from benchmarks import gpu, gpu_parts
from specdec_book import recordings
from specdec_book.viz import gpu_figures, gpu_report
from specdec_lite import timeline
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.programs import Program

SKIPPED = {"smollm2"}


def run(folder, *more):
    where = ["--out", str(folder / "out"), "--work", str(folder / "work")]
    return gpu.main(["--device", "cpu", "--tiny", "--together", *where, *more])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run twice: with no time left, then to the end."""
    folder = tmp_path_factory.mktemp("gpu")
    skipped = run(folder, "--piece", "0")
    assert set(skipped) == set(gpu.STEPS) and not (folder / "out").exists()
    assert skipped["captured"] == "it may take 100 s, 0 s are left"
    assert skipped["sampled"] == "it needs train-target, train-draft"
    skipped = run(folder, "--piece", "1e9", "--total", "1e9")
    assert set(skipped) == SKIPPED
    assert skipped["smollm2"] == "there is no tiny shape of it"
    return folder


@pytest.fixture
def results(folder, monkeypatch):
    """{step: its recording}."""
    monkeypatch.setattr(recordings, "FOLDER", folder / "out")
    all_steps = map(recordings.load, recordings.names("gpu"))
    return {recording.data["step"]: recording for recording in all_steps}


@pytest.mark.slow
def test_every_step_has_a_recording_with_its_command(results):
    assert set(gpu.STEPS) - SKIPPED <= set(results)
    for name, recording in results.items():
        assert recording.what.startswith(f"{name}: ") and "tiny shapes" in recording.what
        command = f"python -m benchmarks.gpu --only {name} --device cpu --dtype bfloat16 --tiny"
        assert recording.command == command
        assert recording.data["tiny"] is True and recording.data["graphs"] is False
        assert set(recording.data["state"]) == {"start", "end"} and recording.data["seconds"] > 0


@pytest.mark.slow
def test_each_mode_is_measured_and_its_rounds_add_up(results):
    for name in ("passes-0.1b", "passes-1b", "passes-7b", "depth", "batches"):
        assert {row["mode"] for row in results[name].data["rows"]} == set(gpu_parts.PASSES)
    for name in ("greedy", "sampled"):
        data = results[name].data
        assert [row["mode"] for row in data["rows"]] == list(gpu_parts.MODES)
        rates = data["tokens_per_second"]
        assert set(rates) == {
            "hf plain",
            "hf assisted",
            *(f"plain {mode}" for mode in gpu_parts.MODES if mode != "static, whole draft"),
            *(f"speculative {mode}" for mode in gpu_parts.MODES),
        }
        assert set(data["first_token_seconds"]) == set(rates)
        for row in data["rows"]:
            assert 1 <= row["tau"] <= data["gamma"] + 1 and 0 <= row["alpha"] <= 1
            rounds = row["rounds"]
            whole = rounds["draft"] + rounds["verify"] + rounds["other"]
            assert rounds["predicted"] == pytest.approx(row["tau"] * rounds["plain"] / whole)
            assert rounds["draft"] == pytest.approx(data["gamma"] * rounds["c_in_loop"])
        assert len({(row["alpha"], row["tau"]) for row in data["rows"]}) == 1  # one text for all


@pytest.mark.slow
def test_the_bandwidth_counts_keys_and_values(results):
    """A pass of fixed shape reads the whole capacity, an ordinary pass the context."""
    for name in ("passes-0.1b", "passes-1b"):
        data = results[name].data
        for row in data["rows"]:
            read = row["weights_read"] + row["cache_read"]
            reached = read / row["chains"]["1"] / data["copy_bandwidth"]
            assert row["bandwidth_share"] == pytest.approx(reached)
        eager, static = (row["cache_read"] for row in data["rows"])
        assert static / eager == pytest.approx(data["capacity"] / (data["context"] + 1))


@pytest.mark.slow
def test_a_recorded_pass_can_be_drawn_again(results):
    rows = results["kernels"].data["rows"]
    for row in rows:
        ops = [timeline.Operation(kind, at, taken, kind) for kind, at, taken in row["operations"]]
        assert timeline.shares(ops) == pytest.approx(row["shares"], abs=0.02)
        assert timeline.span(ops) == pytest.approx(row["seconds"], rel=0.02)
    lanes = {"host", "GPU"} if torch.cuda.is_available() else {"host"}
    assert {row["lane"] for row in rows} == lanes
    gamma = results["kernels"].data["gamma"]
    assert {f"{mode}, {gamma} drafted" for mode in gpu_parts.MODES} < {row["mode"] for row in rows}


@pytest.mark.slow
def test_float32_text_is_the_plain_text(results):
    exact = [row for row in results["losslessness"].data["rows"] if row["dtype"] == "float32"]
    assert {row["mode"] for row in exact} == set(gpu_parts.MODES) and all(
        row["diverges_at"] is None or row["gap"] <= 1e-5 * row["largest_logit"] for row in exact
    )


@pytest.mark.slow
def test_captured_passes_are_compared_before_and_after_a_round_trip(results, monkeypatch):
    rows = results["captured"].data["rows"]
    assert {row["after"] for row in rows} == {"load", "dtype round trip"}
    assert {row["dtype"] for row in rows} == {"float32", "bfloat16"}
    exact = [row for row in rows if row["dtype"] == "float32"]
    assert all(row["difference"] < 1e-4 * row["largest_logit"] for row in exact)
    model = gpu_parts.random_model(gpu_parts.TINY.draft, "cpu", torch.float32, std=0.2)
    monkeypatch.setattr(Program, "bias", lambda self, slots: torch.zeros_like(self.table[slots]))
    broken = gpu_parts.logit_differences(
        model, StaticLM(model, 160, (1, 3)), (1, 3), gpu_parts.TINY
    )
    chains = [row for row in broken if not row["tree"]]
    assert all(row["difference"] > 1e-2 * row["largest_logit"] for row in chains)


@pytest.mark.slow
def test_the_step_that_runs_tests_counts_them(results):
    data = results["tests"].data
    assert data["passed"] == 1 and data["failed"] == {} and data["skipped"] == []


@pytest.mark.slow
def test_the_chapter_shows_the_recordings(results, folder, monkeypatch, capsys, tmp_path):
    """Pass the recordings of the tiny run to the report as if they were of captured graphs."""
    notebook = (ROOT / "notebooks" / "16_gpu_timing.ipynb").read_text("utf-8")
    assert 'gpu_report.report(map(recordings.load, recordings.names(\\"gpu\\")))' in notebook
    assert gpu_report.report(results.values()) == []
    assert "make bench-gpu" in capsys.readouterr().out
    for name, recording in results.items():
        data = recording.data | {"tiny": False, "graphs": True}
        if name == "sampled":
            data["not_run"] = {"hf compiled": "RuntimeError: no compiler"}
        if name == "losslessness":
            data["rows"][0] |= {"diverges_at": 3, "gap": 0.25, "largest_logit": 4.0}
        results[name] = replace(recording, data=data)
    shown = gpu_report.report(results.values())
    text = "\n".join(
        part.data for part in shown if hasattr(part, "data") and type(part.data) is str
    )
    for what in (
        "Passes with fixed shapes against passes with growing shapes",
        "The first eager steps",
        "One pass of the draft, and one whole draft",
        "| 7 B | static |",
        "| float32 | eager | 1 of 1 | 2.5e−01 |",
        "T = 1: speedup predicted from the rounds",
        "T = 0: Hugging Face, tokens/s",
        "T = 1: hf compiled, not run | RuntimeError: no compiler",
        "narrow and deep draft",
        "batch 2",
        "to the first token, speculative",
    ):
        assert what in text, what
    drawn = [part for part in shown if hasattr(part, "layout")]
    assert len(drawn) == 5 and all(part.layout.meta["alt"] for part in drawn)
    curves, grids = drawn[0], drawn[-1]
    assert len({trace.marker.symbol for trace in curves.data}) == 2
    assert [len(trace.text) for trace in grids.data] == [4, 4]


def test_a_test_run_that_does_not_start_raises_an_error(tmp_path, monkeypatch):
    ran = SimpleNamespace(stdout="", stderr="ModuleNotFoundError: No module named 'playwright'")
    monkeypatch.setattr(gpu_parts.subprocess, "run", lambda *args, **options: ran)
    with pytest.raises(RuntimeError, match="pytest did not begin: ModuleNotFoundError"):
        gpu_parts.tests(gpu_parts.Bench("cpu", "float32", gpu_parts.TINY, tmp_path))


def test_the_map_is_the_corrected_formula_between_measured_passes():
    row = {"target": [2.0, 2.0, 4.0], "draft": 0.2}
    results = gpu_figures.speedups(row, [1, 2, 4], [1, 2, 3], 0.5)
    verify = [1.0, 1.5, 2.0]
    tokens = [1.5, 1.75, 1.875]
    expected = [t / (0.1 * (i + 1) + v) for i, (t, v) in enumerate(zip(tokens, verify))]
    assert results == pytest.approx(expected)


@pytest.mark.slow
def test_a_run_resumes(folder):
    parts = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("*.json")}
    again = next(path for path in parts if path.stem.endswith("footprint"))
    again.unlink()
    run(folder, "--piece", "1e9", "--total", "1e9")
    changed = {path for path, at in parts.items() if path.stat().st_mtime_ns != at}
    assert changed == {again}


@pytest.fixture
def plan(tmp_path):
    return gpu.Plan("cpu", "bfloat16", True, tmp_path / "out", tmp_path / "work", 540, 1800, False)


@pytest.mark.slow
def test_a_step_runs_in_a_separate_process(plan):
    assert gpu.attempt("depth", plan, 500) is None
    recorded = json.loads(plan.record("depth").read_text("utf-8"))
    assert recorded["step"] == "depth" and recorded["tiny"] is True


def test_a_step_that_fails_or_takes_too_long_returns_the_reason(plan, monkeypatch):
    def fails(command, stdout, **_):
        stdout.write("Traceback …\nRuntimeError: CUDA error: out of luck\n")
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(subprocess, "run", fails)
    assert "failed: RuntimeError: CUDA error: out of luck" in gpu.attempt("depth", plan, 60)

    def lasts(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", lasts)
    assert gpu.attempt("depth", plan, 60).startswith("stopped after 60 s")


def test_no_step_starts_that_may_not_end_in_time(plan, monkeypatch):
    """Each step takes its longest time; the limits are nine minutes per call and thirty in all."""
    clock = [0.0]

    def attempt(name, plan, seconds):
        assert gpu.STEPS[name].seconds <= seconds + 1
        clock[0] += gpu.STEPS[name].seconds
        plan.record(name).parent.mkdir(parents=True, exist_ok=True)
        plan.record(name).write_text("{}")

    monkeypatch.setattr(gpu, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(gpu, "attempt", attempt)
    calls, before = [], -1.0
    while clock[0] > before:
        before = clock[0]
        skipped = gpu.run_steps(plan, Console(quiet=True))
        calls.append(clock[0] - before)
    assert max(calls) <= 541 and clock[0] <= 1801
    assert [name for name in gpu.STEPS if plan.record(name).exists()][:4] == [*gpu.STEPS][:4]
    assert all("s are left" in why for name, why in skipped.items() if name not in SKIPPED)


def test_a_step_that_does_not_fit_the_gpu_is_skipped(plan, monkeypatch):
    """A T4 with 15 GB fits neither the large shape nor the training."""
    monkeypatch.setattr(gpu.memory, "free_bytes", lambda device: 15_000_000_000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    full = replace(plan, device="cuda", dtype="float16", tiny=False)
    monkeypatch.setattr(gpu.timing, "machine_name", lambda device: "Tesla T4")
    reason = {name: gpu.obstacle(name, full, 540) for name in gpu.STEPS}
    for name in ("passes-7b", "train-target"):
        assert reason[name].startswith("it needs ") and "15.0 GB are free" in reason[name]
    for name in ("captured", "kernels", "passes-0.1b", "passes-1b", "depth"):
        assert reason[name] is None
    monkeypatch.setattr(gpu.memory, "free_bytes", lambda device: 80_000_000_000)
    assert not any("GB are free" in (gpu.obstacle(name, full, 540) or "") for name in gpu.STEPS)


def test_a_longer_trained_head_is_compared_with_the_shipped_one(tmp_path, monkeypatch):
    """Check both commands and the result; an interrupted run generates no further text."""
    shipped = json.loads((gpu_parts.WEIGHTS / "eagle1/smollm2/report.json").read_text("utf-8"))
    bench = gpu_parts.Bench("cpu", "bfloat16", gpu_parts.FULL, tmp_path, 1e18)
    commands = []

    def trains(command, **_):
        commands.append(command)
        if "eagle" in command:
            out = bench.work / "eagle1" / "report.json"
            out.parent.mkdir(exist_ok=True)
            better = {"all": {"agrees": {"mean": [0.9, 0.9, 0.9, 0.9]}}}
            report = {"steps": 6560, "texts": 400, "held_out": better}
            out.write_text(json.dumps(report))
            (bench.work / "eagle").mkdir(exist_ok=True)
            (bench.work / "eagle" / "some.pt").touch()

    monkeypatch.setattr(gpu_parts.subprocess, "run", trains)
    monkeypatch.setattr(gpu_parts, "load_smollm2", lambda device: (None, None))
    texts = SimpleNamespace(training=[0] * 400)
    monkeypatch.setattr(gpu_parts, "smollm2_texts", lambda *others: texts)
    results = gpu_parts.train_longer(bench)
    assert results["better"] and results["accepted_at_4"]["longer"] == pytest.approx(3.0951)
    text, head = commands
    assert "specdec_lite.training.smollm2_text" in text and "eagle" in head
    epochs = float(head[head.index("--epochs") + 1])
    assert epochs == pytest.approx(10 * shipped["steps"] * 8 / 400)
    gpu_parts.train_longer(bench)
    assert len(commands) == 3
    assert gpu_report.tables({"smollm2": results}) and next(gpu_report.tables({"smollm2": results}))


def test_a_missing_gpu_gives_a_one_line_error(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "sees no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "dtype, has_bfloat16, reason",
    [
        ("bfloat16", False, "use --dtype float16"),
        ("auto", False, None),
        ("float16", False, None),
        ("bfloat16", True, None),
    ],
)
def test_bfloat16_is_rejected_before_measuring_without_support(
    dtype, has_bfloat16, reason, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    message = gpu.unfit("cuda", dtype)
    assert message is None if reason is None else reason in message


def test_a_gpu_without_bfloat16_uses_float16_and_prints_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu.memory, "has_bfloat16", lambda device: False)
    plans = []
    monkeypatch.setattr(gpu, "run_steps", lambda plan, console: plans.append(plan) or {})
    gpu.main(["--device", "cpu", "--tiny", "--out", str(tmp_path)])
    assert plans[0].dtype == "float16" and "-float16-tiny" in plans[0].kind
    assert "does not compute in bfloat16" in capsys.readouterr().out


def test_the_full_shapes_match_their_names():
    from specdec_lite.loading.memory import native_size

    scale = gpu_parts.FULL
    millions = lambda config: native_size(config).parameters / 1e6
    assert 300 < millions(scale.target) < 400 and 9 < millions(scale.draft) < 15
    for name, low, high in (("0.1 B", 90, 130), ("1 B", 900, 1300), ("7 B", 6000, 7500)):
        assert low < millions(scale.random[name]) < high
    assert scale.gamma + 1 in scale.ks
    assert max(scale.ks) == max(scale.trees) == max(scale.batches) == 64
