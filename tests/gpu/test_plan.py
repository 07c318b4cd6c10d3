"""The plan of `python -m specdec_lite gpu`: it starts anywhere, and what it times is what it says."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import product
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.nn.functional as functional
from captures import replayed
from chosen import one_in
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from specdec_book import recordings
from specdec_book.viz import gpu_report
from specdec_lite.__main__ import command_line, main
from specdec_lite.gpu.plan import card, forward as plan_forward, launch, passes, rounds, run
from specdec_lite.gpu.plan.bench import Bench, NoRoom, random_transformer
from specdec_lite.gpu.plan.forward import Layers, forward
from specdec_lite.gpu.plan.shapes import FULL, MODELS, SMALL, TINY, tiny
from specdec_lite.loading.memory import native_size
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.measure import stamps

CPU = torch.device("cpu")
RUN = [name for name in launch.NAMES if name not in ("pair", "smollm2")]
"""The steps without pairs that are not in this repository, which the virtual GPU runs."""
SMALL_CARDS = json.loads((ROOT / "tests" / "gpu" / "small_cards.json").read_text("utf-8"))


@pytest.fixture
def bench():
    return Bench(CPU, torch.float32, TINY)


def undeclared() -> list[str]:
    """Return the modules of all packages that the library neither declares nor brings with it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pending, brought = declared["dependencies"], {canonicalize_name(declared["name"])}
    while pending:
        need = Requirement(pending.pop())
        name = canonicalize_name(need.name)
        if name not in brought and (not need.marker or need.marker.evaluate({"extra": ""})):
            brought.add(name)
            pending += metadata.requires(name) or []
    owners = metadata.packages_distributions().items()
    return [module for module, names in owners if not brought & {*map(canonicalize_name, names)}]


@pytest.mark.slow
def test_every_step_runs_with_the_packages_of_a_bare_machine(tmp_path):
    words = ["gpu", "--worker", "--tiny", "--device", "cpu", "--out", str(tmp_path), "--only", *RUN]
    absent = undeclared()
    assert {"plotly", "scipy", "IPython", "pytest"} <= {*absent} and "torch" not in absent
    absent = f"import runpy, sys; sys.modules.update(dict.fromkeys({absent}))"  # None: not found
    program = f"{absent}; runpy.run_module('specdec_lite', run_name='__main__', alter_sys=True)"
    subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, check=True, timeout=600)
    (file,) = tmp_path.glob("gpu/*.json")
    steps = (recording := json.loads(file.read_text("utf-8")))["steps"]
    assert list(steps) == RUN and list(launch.NAMES) == list(run.STEPS)
    assert not {name: step["error"] for name, step in steps.items() if "error" in step}
    assert not any("skipped" in step for step in steps.values())
    assert recording["tiny"] and recording["command"] == "python -m specdec_lite gpu --tiny"


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    """measure(step) -> (the tiny recording with it, what its attention saw: B, n, start, length).

    Each step runs once, in the process of the tests, on a CPU that passes for a GPU: what is
    captured is replayed.
    """
    out, seen, plain = tmp_path_factory.mktemp("tiny"), {}, plan_forward.attention
    sizes = SimpleNamespace(multi_processor_count=40, total_memory=16 << 30, major=7, minor=5)

    def of(name: str) -> tuple[dict, set]:
        def spy(block, x, past, start, tables):
            seen[name].add((*x.shape[:2], start, past[0].shape[2]))
            return plain(block, x, past, start, tables)

        with (
            mock.patch.object(plan_forward, "attention", spy),
            mock.patch.object(Bench, "graphs", True),
            mock.patch.object(Bench, "recorder", mock.Mock(wraps=replayed)),
            mock.patch.object(torch.cuda, "graph_pool_handle", lambda: (0, 1)),
            mock.patch.object(torch.cuda, "get_device_properties", lambda device: sizes),
        ):
            words = "--device", "cpu", "--tiny", "--out", str(out), "--only", name
            if name not in seen:
                seen[name] = set()
                assert run.run_steps(arguments(*words)) == 0
        (file,) = out.glob("gpu/*.json")
        return json.loads(file.read_text("utf-8")), seen[name]

    return of


B, SHORT, EITHER = TINY.batches, TINY.contexts[0], ("captured", "eager")
CELLS = [*product(TINY.ks, TINY.contexts, B)]
PASSES = {(b, k, context, context + k) for k, context, b in CELLS}
MEASURED = {
    "passes": ("k context batch", CELLS, PASSES),
    "slices": ("k context batch layers", [(*c, n) for c in CELLS for n in TINY.depths], PASSES),
    "quarter": ("k context batch", CELLS, PASSES),
    "drafts": (
        "draft batch mode drafted",
        [*product(passes.DRAFTS, B, EITHER, (4,)), *product(("block",), B, EITHER, (8,))],
        {(b, 1, SHORT + i, SHORT + 4) for b in B for i in range(4)}
        | {(b, 8, SHORT, SHORT + 8) for b in B},
    ),
    "experts": (
        "routing k batch",
        [*product(("uniform", "Zipf"), TINY.ks, B)],
        {(b, k, SHORT, SHORT + k) for b in B for k in TINY.ks},
    ),
    "synthetic": (
        "draft gamma batch",
        [*product(rounds.SYNTHETIC, TINY.gammas, B)],
        {(b, *n, SHORT + n[0]) for b in B for n in ((1, SHORT), (3, SHORT))}
        | {(b, 1, SHORT + i, SHORT + 3) for b in B for i in range(2)},
    ),
    "trees": ("nodes kind", [(0, "one token"), *product((16, 32, 64), ("chain", "tree"))], set()),
    "trace": (
        "mode lane",
        [*product((*rounds.MODES, "one layer of the target's shape"), ("host",))],
        {(1, 1, SHORT, SHORT + 1)},
    ),
}
"""{step: (fields of its rows, their values in order, what the plan's attention sees)}."""
ABOUT = {
    "passes": {"model": TINY.target},
    "experts": {"experts": 4, "chosen": 2, "layers_of_the_whole": 4, "bytes_per_expert": 3072},
    "trees": {"model": TINY.target, "context": SHORT, "capacity": SHORT + 2 * 65},
}
"""What else a step states."""


@pytest.mark.parametrize("name", MEASURED)
def test_a_step_times_what_its_rows_name(name, measure):
    (fields, values, shapes), (recording, seen) = MEASURED[name], measure(name)
    step = recording["steps"][name]
    assert not {"error", "skipped"} & step.keys() and recording["tiny"] and step["took"] > 0
    assert step.get("complete", True) and not step.get("left_out")
    assert [tuple(row[field] for field in fields.split()) for row in step["rows"]] == values
    assert seen == shapes and ABOUT.get(name, {}).items() <= step.items()
    for row in step["rows"]:
        times = [row[part] for part in ("low", "busy", "seconds", "high") if part in row]
        assert times == sorted(times) and all(time > 0 for time in times)
        assert row.get("own_layers", 2) == 2 and 2 <= row.get("experts_used", 2) <= 4
        if "tokens" in row:  # γ = 2: at most three, and 2.19 are expected at α = 0.7
            assert all(1 <= tokens <= 3 for tokens in row["tokens"].values())
            ratio = 2.19 * row["plain_seconds"] / row["round_seconds"]
            assert row["speedup"]["0.7"] == pytest.approx(ratio)
    assert run.summary(step) == f"{len(values)} rows"
    if "shape" in step:
        config = TINY.models.get(step.get("model"), TINY.experts.attention)
        assert step["parameters"] == native_size(config).parameters


def test_a_card_is_its_sizes_and_speeds(measure):
    step = measure("card")[0]["steps"]["card"]
    sizes = {"processors": 40, "memory_bytes": 16 << 30, "capability": "7.5"}
    assert sizes.items() <= step.items() and step["products"]["matrix"] == [96, 32]
    for row in step["products"]["rows"]:
        assert row["flops"] * row["seconds"] == pytest.approx(2 * row["rows"] * 96 * 32)
    assert tuple(row["rows"] for row in step["products"]["rows"]) == card.ROWS
    speeds = step["read_bandwidth"], step["peak"]["flops"], *step["launches"].values()
    assert min(speeds) > 0 and step["peak"]["size"] == 64
    assert {*step["launches"]} == {"eager", "captured", "read"}
    assert {*step["state"]} == {"start", "end"}
    assert f"reads {speeds[0] / 1e9:.0f} GB/s, multiplies" in run.summary(step)


@pytest.mark.parametrize("why", ["graphs need a GPU", ""])
def test_a_readers_pair_is_measured_in_the_ways_that_it_can_be(why, tmp_path, monkeypatch):
    names = [str(SHIPPED / "target"), str(SHIPPED / "draft")]
    load, job = (mock.Mock(wraps=each) for each in (rounds.load_pair, rounds.pass_job))
    monkeypatch.setattr(rounds, "load_pair", load)
    monkeypatch.setattr(rounds, "pass_job", job)
    monkeypatch.setattr(rounds, "why_no_graphs", lambda *models: why)
    words = ["--device", "cpu", "--tiny", "--out", str(tmp_path)]
    assert run.run_steps(arguments(*words, "--pair", *names)) == 0
    step = run.recorded_steps(run.recording_of(CPU, arguments(*words)))["pair"]
    assert [step["target"], step["draft"], step["no_graphs"]] == [*names, why]
    assert {call.args[2] for call in job.mock_calls} == {1, rounds.GAMMA + 1}
    assert load.call_args.args == (*names,) and load.call_args.kwargs["device"] == "cpu"
    for temperature in (0, 1):
        part = step[f"T = {temperature}"]
        assert list(part["modes"]) == (["eager"] if why else list(rounds.BOTH_WAYS))
        assert part["temperature"] == temperature and part["turns"] == 2 and not part["failed"]
    assert "T = 0: eager " in run.summary(step)
    assert run.missing_steps(arguments("--pair", *names), {"card": {}}) == ["pair"]


def test_rounds_of_the_shipped_pair_are_lossless_and_add_up(measure):
    step = measure("rounds")[0]["steps"]["rounds"]
    exact = [row for row in step["lossless"] if row["dtype"] == "float32"]
    assert {row["mode"] for row in exact} == set(rounds.MODES)
    assert all(
        row["diverges_at"] is None or row["gap"] <= 1e-5 * row["largest_logit"] for row in exact
    )
    for temperature in ("T = 0", "T = 1"):
        assert set(step[temperature]["modes"]) == set(rounds.MODES)
        for mode in step[temperature]["modes"].values():
            parts = mode["rounds"]
            whole = parts["draft"] + parts["verify"] + parts["other"]
            assert parts["predicted"] == pytest.approx(mode["tau"] * parts["plain"] / whole)


def test_the_chapter_shows_a_recording(measure, monkeypatch):
    monkeypatch.setattr(gpu_report, "WHOLE", 4)
    *_, (recording, _) = map(measure, RUN)
    show = lambda **more: gpu_report.report([recorded(recording | more)])
    assert show() == []
    *texts, figure = show(tiny=False, graphs=True)
    text = "\n".join(part.data for part in texts)
    assert len(texts) >= 10 and figure.layout.meta["alt"].startswith("Timeline")
    for what in ("| 16 | 1 |", "head, 32k rows | captured", "Zipf | 4", "T = 1 | whole draft"):
        assert what in text, what
    assert "| 16 | " in text.split("drafted nodes")[1] and "rounds of SmolLM2" in text
    failed = {name: {"error": "no such kernel"} for name in launch.NAMES}
    (absent,) = show(tiny=False, graphs=True, steps=failed)
    assert absent.data.count("it failed: no such kernel") == len(launch.NAMES) - 1


@pytest.mark.parametrize("card", SMALL_CARDS)
def test_the_stored_recordings_of_small_cards_are_what_the_plan_writes(card, measure):
    stored, (*_, (now, _)) = SMALL_CARDS[card]["recording"], map(measure, RUN)
    fields = lambda step: {*step, *(name for row in step.get("rows", ()) for name in row)}
    assert stored.keys() == now.keys()
    for name, step in stored["steps"].items():
        missing = fields(now["steps"][name]) - fields(step)
        assert fields(step) <= fields(now["steps"][name]) | {"error", "skipped"}
        assert not missing or {"error", "skipped"} & step.keys()


def test_the_report_extends_slices_to_all_layers():
    rows = [
        {"layers": n, "context": 512, "batch": 1, "k": k, "seconds": (0.5 + n * k) / 1e3}
        for n, k in product((10, 20), (1, 2))
    ]
    _, _, ((*_, one, two),) = gpu_report.sliced({"slices": {"rows": rows}})
    assert one == "80.50" and two == f"{160.5 / 80.5:.2f}"


def recorded(data: dict) -> recordings.Recording:
    """Return a recording as pages receive it."""
    stamp = {name: data[name] for name in stamps.STAMP}
    return recordings.Recording(
        "gpu/a", **stamp, data={name: x for name, x in data.items() if name not in stamp}
    )


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-0.6B", "Llama-3.2-1B"])
def test_a_timed_pass_over_one_token_is_the_models_own(name, bench):
    model = random_transformer(TINY.models[name], CPU, torch.float32)
    ids = torch.randint(model.config.vocab_size, (2, 7), generator=torch.Generator().manual_seed(1))
    layers = Layers(torch.zeros(1 << 16), model.config, 2, 7)
    with torch.inference_mode():
        one_by_one = [forward(model, ids[:, i : i + 1], layers, i)[:, 0] for i in range(7)]
        whole = model(ids)
    assert (torch.stack(one_by_one, 1) - whole).abs().max() < 1e-5 * whole.abs().max()


def test_attention_takes_any_strides_from_a_kernel(monkeypatch, bench):
    """Flash attention on a GPU returns [B, heads, n, h] as a view of [B, n, heads, h]."""
    model = bench.model("Llama-3.1-8B")
    run = lambda: forward(model, torch.ones(2, 3, dtype=torch.long), layers, 4)
    layers = Layers(bench.cache_buffer(), model.config, 2, 7)
    expected, plain = run(), functional.scaled_dot_product_attention
    strided = lambda *qkv: plain(*qkv).transpose(1, 2).contiguous().transpose(1, 2)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", strided)
    assert torch.equal(run(), expected)


def test_layers_share_the_buffer_only_if_they_must(bench):
    config = TINY.models["Llama-3.1-8B"]
    size = 2 * 3 * config.num_kv_heads * 8 * config.head_size  # keys and values of three texts
    for count in (1, 2, 5):
        layers = Layers(torch.zeros(count * size), config, 3, 8)
        starts = {layers[i][0].data_ptr() for i in range(config.num_layers)}
        assert len(starts) == min(count, config.num_layers)
    with pytest.raises(NoRoom):
        Layers(torch.zeros(size - 1), config, 3, 8)


def test_experts_compute_what_every_expert_alone_would(bench):
    sizes = TINY.experts
    experts = passes.ExpertLayers(bench, sizes)
    model = random_transformer(sizes.attention, CPU, torch.float32)
    x = torch.randn(2, 3, sizes.attention.hidden_size)
    chosen = passes.routing("Zipf", sizes, 6)
    block = model.blocks[1]
    rows = block.norm2(x).flatten(0, 1)
    weights = (rows @ experts.router[1].T).softmax(-1).topk(sizes.chosen).values
    expected = torch.zeros_like(rows)
    for row in range(6):
        for place, expert in enumerate(chosen[1, row].tolist()):
            gate, up = (rows[row] @ experts.up[1][expert]).chunk(2)
            hidden = functional.silu(gate) * up
            expected[row] += weights[row, place] * (hidden @ experts.down[1][expert])
    assert torch.allclose(experts.mlp(chosen)(1, block, x).flatten(0, 1), expected, rtol=1e-4)


def test_routing_is_without_repetition_and_zipf_uses_fewer_experts():
    used = {}
    for kind in ("uniform", "Zipf"):
        chosen = passes.routing(kind, FULL.experts, 32)
        assert chosen.shape == (8, 32, 8)
        assert all(len(row.unique()) == 8 for row in chosen.flatten(0, 1))
        used[kind] = sum(len(layer.unique()) for layer in chosen) / 8
    assert used["Zipf"] < 0.9 * used["uniform"]


@pytest.mark.parametrize("alpha, accepted", [(0.0, 0), (1.0, 3)])
def test_a_synthetic_round_accepts_by_its_coins(alpha, accepted, bench):
    buffer = bench.cache_buffer()
    models = bench.model("Llama-3.1-8B"), bench.model("head, 32k rows")
    with torch.inference_mode():
        one = rounds.SyntheticRounds(bench, models, (buffer, buffer.clone()), 2, 3)
        start = one.tokens.clone()
        one.coins.uniform_()
        one.alpha.fill_(alpha)
        (outcome,) = one.run()
        drafted = passes.chain_of(one.draft, one.draft_layers, start, one.context, 3)
        assert outcome[:, 0].tolist() == [accepted, accepted]
        assert torch.equal(outcome[:, 2:], torch.cat(drafted, 1))
        assert (alpha == 1) or (outcome[:, 1] != outcome[:, 2]).all()  # never the rejected token
        assert one.decode(5, alpha)[1] == 2 * 5 * (accepted + 1)


def test_a_failing_step_is_recorded_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def fail(bench):
        bench.keep({"rows": [1]})
        raise RuntimeError("no such kernel")

    timer = mock.Mock()
    monkeypatch.setattr(run, "faulthandler", timer)
    monkeypatch.setitem(run.STEPS, "passes", run.Step(fail, 1))
    options = ["--device", "cpu", "--tiny", "--out", str(tmp_path)]
    path = run.recording_of(CPU, arguments(*options))
    path.parent.mkdir()
    path.write_text('{"rows": "another version\'s"}', "utf-8")
    assert run.run_steps(arguments(*options, "--only", "card", "passes", "experts")) == 0
    printed = r": 3 steps, (300|29\d) s\n.*passes +\S+ s  failed: RuntimeError: no such kernel\n"
    assert re.search(printed, capsys.readouterr().out, re.S)
    assert len(timer.cancel_dump_traceback_later.mock_calls) == 3  # none ends a later step
    steps = run.recorded_steps(path)
    assert steps["passes"]["error"] == "RuntimeError: no such kernel"
    assert steps["passes"]["rows"] == [1] and "error" not in steps["experts"]
    names = ["card", "passes", "slices"]
    assert run.missing_steps(arguments("--resume", "--only", *names), steps) == names[1:]
    assert run.missing_steps(arguments("--go-on", "--only", *names), steps) == names[2:]
    assert run.missing_steps(arguments("--only", *names), steps) == names


def test_an_interrupted_run_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    def interrupt(bench):
        bench.keep({"rows": [1]})
        raise KeyboardInterrupt

    monkeypatch.setitem(run.STEPS, "passes", run.Step(interrupt, 1))
    options = ["--device", "cpu", "--tiny", "--out", str(tmp_path), "--only", "card", "passes"]
    with pytest.raises(SystemExit) as ended:
        run.run_steps(arguments(*options))
    steps = run.recorded_steps(run.recording_of(CPU, arguments(*options)))
    assert ended.value.code == launch.INTERRUPTED and "peak" in steps["card"]
    assert steps["passes"]["rows"] == [1] and steps["passes"]["error"] == "interrupted"
    late = subprocess.TimeoutExpired("python", 360)
    for error, status in ((KeyboardInterrupt(), launch.INTERRUPTED), (late, launch.LATE)):
        monkeypatch.setattr(launch.subprocess, "run", mock.Mock(side_effect=error))
        assert launch.main(arguments(), ["gpu"]) == status
        assert "--resume measures the rest" in capsys.readouterr().out


@pytest.mark.parametrize(
    "cuda, driver", [(None, "none"), ("13.0", "driver on your system is too old")]
)
def test_without_a_gpu_a_sentence_says_why_and_where_one_is(cuda, driver, capsys, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", cuda)

    def too_old():
        raise RuntimeError(f"The NVIDIA {driver} (found version 11040).\nUpdate it.")

    monkeypatch.setattr(torch.cuda, "init", too_old)
    why = "built without CUDA" if cuda is None else f"({'The NVIDIA ' + driver} (found"
    monkeypatch.setattr(run, "resolve_device", lambda device: CPU)
    with pytest.raises(SystemExit, match="2"):
        main(["gpu", "--worker"])
    line = capsys.readouterr().err
    assert why in line and "Colab" in line and "--tiny" in line and line.count("\n") == 1


@pytest.mark.parametrize("statuses", [(3, 0), (0,), (2,), (130,), (3, 1, 3, 3, 3)], ids=str)
def test_another_process_goes_on_after_one_that_broke(statuses, monkeypatch):
    words, calls = ["--seconds", "60", "--only", "card", "--dtype", "float16", "--resume"], []

    def process(command, timeout):
        assert 100 < timeout <= 120
        calls.append(command)
        return subprocess.CompletedProcess(command, statuses[len(calls) - 1])

    monkeypatch.setattr(launch.subprocess, "run", process)
    until = run.time() + 60
    status = launch.main(arguments(*words), ["gpu", *words])
    assert status == statuses[-1] and len(calls) == len(statuses)
    for number, command in enumerate(calls):
        assert command[:5] == [sys.executable, "-u", "-m", "specdec_lite", "gpu"]
        given = vars(arguments(*command[5:]))
        assert given["until"] == pytest.approx(until, abs=9)
        more = {"worker": True, "go_on": number > 0, "until": given["until"]}
        assert given == vars(arguments(*words)) | more


def arguments(*words):
    return command_line().parse_args(["gpu", *words])


def test_the_shapes_are_the_published_models():
    assert {name: tiny(config) for name, config in MODELS.items()} == TINY.models
    billions = {name: native_size(config).parameters / 1e9 for name, config in MODELS.items()}
    assert billions["Llama-3.1-8B"] == pytest.approx(8.03, abs=0.01)
    assert billions["Llama-3.2-3B"] == pytest.approx(3.21, abs=0.01)
    assert billions["Llama-3.2-1B"] == pytest.approx(1.24, abs=0.01)
    assert billions["Qwen3-0.6B"] == pytest.approx(0.60, abs=0.01)
    slices, quarter = billions["Llama-3.3-70B, 20 layers"], billions["Llama-3.3-70B, a quarter"]
    tables = 2 * 128256 * 8192 / 1e9
    assert 4 * (slices - tables) + tables == pytest.approx(70.55, abs=0.01)
    assert 4 * quarter == pytest.approx(70.55, abs=0.1)


@pytest.mark.parametrize("name", one_in(4, MODELS, ["Qwen3-0.6B"]))
def test_every_shape_passes_at_full_size(name):
    """On the meta device, which computes shapes without numbers."""
    bench = Bench(torch.device("meta"), torch.bfloat16, FULL)
    model, buffer = bench.model(name), bench.cache_buffer()
    for batch, k, context in ((1, 1, 512), (1, 16, 8192), (128, 16, 8192)):
        layers = Layers(buffer, model.config, batch, context + k)
        (logits,) = passes.pass_of(model, layers, batch, k, context)()
        assert logits.shape == (batch, k, model.config.vocab_size)


@pytest.mark.parametrize(
    "scale, card, without",
    [
        (FULL, 78 << 30, ()),
        (FULL, 39 << 30, ("slices", "quarter")),
        (SMALL, 32 << 30, ("slices", "quarter", "experts")),
        (SMALL, int(14.5 * (1 << 30)), ("slices", "quarter", "experts")),
    ],
)
def test_the_steps_fit_the_card(scale, card, without, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: mock.Mock(total_memory=card))
    assert run.scale_of(torch.device("cuda"), False) is scale
    for name, step in run.STEPS.items():
        assert name in without or run.bytes_of(step, scale, torch.bfloat16) < card, name
