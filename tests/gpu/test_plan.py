"""The plan of `python -m specdec_lite gpu`: it starts anywhere, and what it times is what it says."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from itertools import product

import pytest
import torch
import torch.nn.functional as functional
from chosen import one_in
from conftest import ROOT
from packaging.requirements import Requirement

from specdec_book import recordings
from specdec_book.viz import gpu_report
from specdec_lite.engine.transformer import Transformer
from specdec_lite.gpu.plan import launch, passes, rounds, run
from specdec_lite.gpu.plan.bench import Bench, NoRoom, random_transformer
from specdec_lite.gpu.plan.forward import Layers, forward
from specdec_lite.gpu.plan.shapes import FULL, MODELS, SMALL, TINY
from specdec_lite.loading.memory import native_size
from specdec_lite.measure import stamps

SIX = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "tqdm")
CPU = torch.device("cpu")
RUN = [name for name in launch.NAMES if name not in ("pair", "smollm2")]
"""The steps without pairs that are not in this repository, which the virtual GPU runs."""


@pytest.fixture
def bench():
    return Bench(CPU, torch.float32, TINY)


def needed(names) -> set[str]:
    """Return the distributions that are installed with these."""
    known: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop().lower().replace("_", "-")
        if name in known:
            continue
        try:
            rows = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        known.add(name)
        wanted = map(Requirement, rows)
        queue += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return known


BLOCK = """
import runpy, sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        is_absent = name.partition(".")[0] in absent
        return None if is_absent else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
try:
    import plotly
except ModuleNotFoundError:
    runpy.run_module("specdec_lite", run_name="__main__", alter_sys=True)
"""
"""A program that runs the command line without the modules in `absent`."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The recording of the tiny plan, made with the packages of a bare GPU machine."""
    bare = needed(SIX)
    absent = {
        module
        for module, names in packages_distributions().items()
        if not {name.lower().replace("_", "-") for name in names} & bare
    } - {"specdec_lite"}
    assert {"plotly", "scipy", "IPython", "traitlets", "jsonschema"} <= absent
    out = tmp_path_factory.mktemp("gpu")
    words = ["gpu", "--worker", "--tiny", "--device", "cpu", "--out", str(out), "--only", *RUN]
    program = f"absent = {absent!r}\n{BLOCK}"
    subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, check=True, timeout=600)
    (file,) = out.glob("gpu/*.json")
    return json.loads(file.read_text("utf-8"))


@pytest.mark.slow
def test_every_step_runs_with_the_packages_of_a_bare_machine(recording):
    steps = recording["steps"]
    assert list(steps) == RUN and list(launch.NAMES) == list(run.STEPS)
    assert not {name: step["error"] for name, step in steps.items() if "error" in step}
    assert not any("skipped" in step for step in steps.values())
    assert recording["tiny"] and recording["command"] == "python -m specdec_lite gpu --tiny"
    assert all(steps[name]["complete"] for name in ("passes", "drafts", "experts", "synthetic"))


def test_rounds_of_the_shipped_pair_are_lossless_and_add_up(recording):
    step = recording["steps"]["rounds"]
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


def test_the_chapter_shows_a_recording(recording, monkeypatch):
    monkeypatch.setattr(gpu_report, "WHOLE", 4)
    show = lambda **more: gpu_report.report([recorded(recording | more)])
    assert show() == []
    *texts, figure = show(tiny=False, graphs=True)
    text = "\n".join(part.data for part in texts)
    assert len(texts) >= 10 and figure.layout.meta["alt"].startswith("Timeline")
    for what in ("| 16 | 1 |", "head, 32k rows | captured", "Zipf | 2", "T = 1 | whole draft"):
        assert what in text, what
    assert "| 16 | " in text.split("drafted nodes")[1] and "rounds of SmolLM2" in text
    failed = {name: {"error": "no such kernel"} for name in launch.NAMES}
    (absent,) = show(tiny=False, graphs=True, steps=failed)
    assert absent.data.count("it failed: no such kernel") == len(launch.NAMES) - 1


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


@pytest.mark.parametrize("products", [passes.grouped, passes.one_by_one])
def test_experts_compute_what_every_expert_alone_would(products, bench):
    sizes = TINY.experts
    experts = passes.ExpertLayers(bench, sizes)
    experts.grouped = products
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


def test_a_failing_step_is_recorded_and_the_others_go_on(tmp_path, monkeypatch):
    def fail(bench):
        bench.keep({"rows": [1]})
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(run.STEPS, "passes", run.Step(fail, 1))
    options = ["--device", "cpu", "--tiny", "--out", str(tmp_path)]
    assert run.run_steps(arguments(*options, "--only", "card", "passes", "experts")) == 0
    (file,) = tmp_path.glob("gpu/*.json")
    steps = json.loads(file.read_text("utf-8"))["steps"]
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
    (file,) = tmp_path.glob("gpu/*.json")
    steps = json.loads(file.read_text("utf-8"))["steps"]
    assert ended.value.code == launch.INTERRUPTED and "peak" in steps["card"]
    assert steps["passes"]["rows"] == [1] and steps["passes"]["error"] == "interrupted"
    monkeypatch.setattr(launch.subprocess, "run", lambda *args, **more: interrupt(run.Recorder))
    monkeypatch.setattr(run.Recorder, "keep", print, raising=False)
    assert launch.main(arguments()) == launch.INTERRUPTED
    assert "--resume measures the rest" in capsys.readouterr().out


@pytest.mark.parametrize(
    "cuda, driver", [(None, "none"), ("13.0", "driver on your system is too old")]
)
def test_without_a_gpu_a_sentence_says_why_and_where_to_get_one(cuda, driver, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", cuda)

    def too_old():
        raise RuntimeError(f"The NVIDIA {driver} (found version 11040).\nUpdate it.")

    monkeypatch.setattr(torch.cuda, "init", too_old)
    why = "built for CPUs alone" if cuda is None else f"({'The NVIDIA ' + driver} (found"
    assert why in run.no_gpu() and "Colab" in run.no_gpu() and "\n" not in run.no_gpu()


def test_a_broken_device_ends_the_process_and_another_one_goes_on(monkeypatch):
    calls = []

    def process(command, timeout):
        calls.append(command)
        return subprocess.CompletedProcess(command, launch.BROKEN if len(calls) == 1 else 0)

    monkeypatch.setattr(launch.subprocess, "run", process)
    assert launch.main(arguments("--seconds", "60", "--only", "card")) == 0
    first, second = calls
    assert "--go-on" not in first and "--go-on" in second and "--worker" in second
    assert first[first.index("--until") :][:2] == second[second.index("--until") :][:2]


def arguments(*words):
    from specdec_lite.__main__ import command_line

    return command_line().parse_args(["gpu", *words])


def test_no_time_means_no_step(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "resolve_device", lambda device: CPU)
    with pytest.raises(ValueError, match="--tiny"):
        run.run_steps(arguments("--out", str(tmp_path)))


def test_the_shapes_are_the_published_models():
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


@pytest.mark.parametrize("scale, card", [(FULL, 78 << 30), (SMALL, 14.5 * (1 << 30))])
def test_the_steps_fit_the_card(scale, card):
    for name, step in run.STEPS.items():
        if scale is SMALL and name in ("slices", "quarter", "experts"):
            continue
        assert run.bytes_of(step, scale, torch.bfloat16) < card, name


def test_the_models_of_a_whole_pass_are_transformers(bench):
    assert isinstance(bench.model("block"), Transformer)
