"""What is checked on the virtual GPU: suites of checks, each suite in one process.

    python tests/virtual_gpu.py virtual_checks methods found.json   # {check: what was found}

A check that raises is recorded with its error, so that one failure hides no other. The library is
imported here alone: `test_virtual_gpu` reads the recorded files.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch
import virtual_card
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from letters import Letters
from models_zoo import PROMPT, hugging_face, native

from benchmarks.methods import METHODS
from specdec_book.recordings.measured import recorded_pairs
from specdec_book.viz import panel
from specdec_lite import CausalLM, generate, load_pair, stream
from specdec_lite.__main__ import command_line
from specdec_lite.batch import generate_batch
from specdec_lite.diagnosis.diagnose import diagnose
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter
from specdec_lite.drafters.heads import ExitHead, HydraHeads
from specdec_lite.drafters.self_drafts import LookaheadRows
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.gpu.plan.run import STEPS, run_steps
from specdec_lite.gpu.whole_draft import CapturedDrafter
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.pairs import SHIPPED, Pair
from specdec_lite.training import heads
from specdec_lite.training.__main__ import main as train
from specdec_lite.training.anchors import anchor_loss
from specdec_lite.training.losses import exit_loss, native_model, rows_loss
from specdec_lite.training.texts import Sample, Texts

TESTS = Path(__file__).resolve().parent
TEMPERATURES = (0.0, 1.0)
CPU_ALONE = "the target in 8 bits"
"""The method that a GPU refuses: its product is written for a CPU."""
GAMMA, NEW_TOKENS = 4, 8
TEXT = "def add(a, b):\n    return a + b\n\ndef add_three(a, b, c):\n    return a"
FAMILIES = ("Llama", "GPT2")

Check = tuple[str, Callable[[], dict | None]]


# Methods --------------------------------------------------------------------------------------------


def decoded(pair: Pair, make: Callable, rule, temperature: float) -> tuple[list[int], int]:
    """Return the tokens that a method decodes, and the number of rounds whose waits are counted:
    all but the first, which reads the prompt.
    """
    prompt = torch.tensor(pair.tokenizer.encode(TEXT))
    steps = []
    for step in stream(pair.target, prompt, make(pair), NEW_TOKENS, temperature, rule=rule, seed=3):
        if not steps:
            virtual_card.CARD.reset()
        steps.append(step)
    return [int(token) for step in steps for token in step.tokens], len(steps) - 1


def waits_of(on_cpu: Pair, on_card: Pair, make: Callable, rule, temperature: float) -> dict:
    """Decode on the CPU and on the card: the texts must agree."""
    text, _ = decoded(on_cpu, make, rule, temperature)
    again, rounds = decoded(on_card, make, rule, temperature)
    counts, sites = virtual_card.CARD.counts, virtual_card.CARD.sites
    assert again == text, f"the card's text {again} is not the CPU's {text}"
    assert not counts["copied mask"] + counts["cudnn"], f"slow attention: {sites}"
    return {
        "reads": counts["read"] / max(1, rounds),
        "uploads": counts["upload"] / max(1, rounds),
        "sites": [[*key, count] for key, count in sites.most_common(6)],
    }


def on_the_device(kind: type, pair: Pair):
    """Return a drafter that is captured on a card and runs plainly on the CPU."""
    if kind is DeviceDrafter:
        return DeviceDrafter(pair.draft, GAMMA)
    return CapturedDrafter(StaticLM(pair.draft, 128, (1, 2)), GAMMA)


def methods() -> Iterator[Check]:
    pairs = [load_pair(device=device, dtype="float32") for device in ("cpu", "cuda")]
    ways = {
        name: (lambda pair, method=method: method.make(pair, GAMMA), method.rule)
        for name, method in METHODS.items()
        if "pair" in method.targets and name != CPU_ALONE
    }
    ways["plain decoding"] = lambda pair: None, None
    for kind in (DeviceDrafter, CapturedDrafter):
        ways[kind.__name__] = (lambda pair, kind=kind: on_the_device(kind, pair)), on_device
    for name, (make, rule) in ways.items():
        for t in TEMPERATURES if " × " not in name else TEMPERATURES[1:]:
            check = lambda make=make, rule=rule, t=t: waits_of(*pairs, make, rule, t)
            yield f"{name}, T = {t:g}", check


# Serving and wrapped models -------------------------------------------------------------------------


def small(device: str, seed: int = 0) -> CausalLM:
    """Return a tiny native model with random weights."""
    return CausalLM(native(seed, dtype=torch.float32).model.to(device))


def check_batch(temperature: float) -> None:
    rows, texts = [PROMPT, PROMPT[:4], PROMPT[2:]], []
    for device in ("cpu", "cuda"):
        target, drafter = small(device), ModelDrafter(small(device, 1), 3)
        outputs = generate_batch(target, rows, drafter, 12, temperature, seeds=[1, 2, 3])
        texts.append([out.tokens.tolist() for out in outputs])
    assert texts[0] == texts[1]


def check_wrapped(family: str) -> None:
    texts = []
    for device in ("cpu", "cuda"):
        target = CausalLM(hugging_face(family).model.to(device))
        drafters = None, PromptLookupDrafter(3), ModelDrafter(target, 3)
        for options in product(drafters, [12], TEMPERATURES):
            texts.append(generate(target, PROMPT, *options, seed=0).tokens.tolist())
    assert texts[:6] == texts[6:]


def check_panel() -> None:
    """A pair of our own models is measured one by one and in graphs, and shows both c."""
    pair = Pair(small("cuda"), small("cuda", 1), Letters())
    with mock.patch.object(panel, "TURNS", 2):
        controls = panel.PairPanel(
            {"a pair": pair}, {"a text": "hello"}, recorded_pairs()[:1], 2, max_new_tokens=8
        )
        found = controls.measure()
    assert found, controls.result.value
    labels = [each["label"] for each in controls.explorer.presets[:2]]
    assert [label.rsplit(", ", 1)[1] for label in labels] == ["in graphs", "one by one"]
    for each in found:
        assert {"c one by one", "c in graphs"} <= dict(each["facts"]).keys()


def serving() -> Iterator[Check]:
    yield "the panel", check_panel
    for temperature in TEMPERATURES:
        yield f"a batch, T = {temperature:g}", lambda t=temperature: check_batch(t)
    own = lambda: diagnose(small("cuda"), ModelDrafter(small("cuda", 1), 2), [2 * PROMPT], 16)
    yield "diagnose", lambda: own() and None
    for family in FAMILIES:
        yield f"a wrapped model: {family}", lambda family=family: check_wrapped(family)


# Training -------------------------------------------------------------------------------------------


def check_eagle(name: str) -> None:
    """Run the whole command on a small target; SmolLM2's must be loaded in a dtype of the card."""
    target = small("cuda")
    rows = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0))
    samples = [Sample(row, 5, "text", t) for t in TEMPERATURES for row in rows]

    def load(device, dtype):
        assert dtype != "bfloat16" or has_bfloat16(device), f"{dtype} on a card without it"
        return target, None

    words = f"heads --target {name} --kind eagle1 --steps 3 --device cuda".split()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(heads, "load_pair", lambda **options: Pair(target, target, None)),
        mock.patch.object(heads, "load_smollm2", load),
        mock.patch.dict(heads.TEXTS, {name: lambda *args: Texts(samples, samples)}),
    ):
        words += ["--work", f"{folder}/work", "--out", folder]
        for steps, limit in enumerate(("0", "0", "inf"), 1):  # each run continues the last one
            train([*words, "--limit", limit])
            assert json.loads(Path(folder, "report.json").read_text("utf-8"))["steps"] == steps
        train([*words, "--start", folder, "--work", f"{folder}/more"])


def check_losses() -> None:
    """Take one step of every loss whose command has no toy size."""
    target = small("cuda")
    model, size = native_model(target), target.hidden_size
    model.requires_grad_(False)
    rows = torch.randint(40, (3, 24), generator=torch.Generator().manual_seed(0)).to("cuda")
    exit_loss(model, ExitHead(size, 1).to("cuda"), torch.arange(40), rows).backward()
    rows_loss(model, LookaheadRows(size, 2).to("cuda"), rows).backward()
    anchors = torch.tensor([3, 5], device="cuda")
    states = target.score(rows, target.new_cache(3), hidden_layers=("final",)).detached().hidden
    hydra = HydraHeads(size, 2).to("cuda")
    anchor_loss(hydra, target, rows, states, anchors, 2, 0.8, rows > 5).backward()


def training() -> Iterator[Check]:
    for name in ("pair", "smollm2"):
        yield f"training eagle, {name}", lambda name=name: check_eagle(name)
    yield "the losses of other heads", check_losses


# The tests that need a GPU, the plan of a GPU's first minutes, and notebooks ------------------------------


def check_tests(file: str) -> None:
    """Run the tests of a file that a machine without a GPU skips."""
    chosen = "(on_a_gpu or a_gpu_is) and not 1.0- and not 1.3"  # two of four settings suffice
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen]
    assert pytest.main([*options, str(TESTS / file)]) == 0, f"a test of {file} failed"


def existing() -> Iterator[Check]:
    for file in ("gpu/test_graphs.py", "gpu/test_on_device.py", "measure/test_timing.py"):
        yield file, lambda file=file: check_tests(file)


def check_step(name: str, folder: str) -> None:
    """Run one step of the plan at tiny size; a step without kernels for the card says so."""
    words = ["gpu", "--worker", "--tiny", "--device", "cuda", "--out", folder]
    pair = ["--pair", str(SHIPPED / "target"), str(SHIPPED / "draft")]
    words += pair if name == "pair" else ["--only", name]
    assert run_steps(command_line().parse_args(words)) == 0
    (file,) = Path(folder).glob("gpu/*.json")
    step = json.loads(file.read_text("utf-8"))["steps"][name]
    assert "error" not in step, step["error"]
    assert "skipped" not in step or name == "smollm2" or not has_bfloat16("cuda")


def plan() -> Iterator[Check]:
    folder = tempfile.mkdtemp()
    for step in STEPS:
        yield step, lambda step=step: check_step(step, folder)


def check_cell(shell: InteractiveShell, source: str) -> None:
    with capture_output():
        result = shell.run_cell(source)
    result.raise_error()


def notebook(name: str) -> Iterator[Check]:
    os.environ["MPLBACKEND"] = "Agg"
    os.chdir(TESTS.parent / "notebooks")
    shell = InteractiveShell.instance()
    for number, cell in enumerate(json.loads(Path(name).read_text("utf-8"))["cells"]):
        tags = cell.get("metadata", {}).get("tags", [])
        if cell["cell_type"] == "code" and "raises-exception" not in tags:
            source = "".join(cell["source"])
            yield f"cell {number}", lambda source=source: check_cell(shell, source)


SUITES = {
    "existing": existing,
    "methods": methods,
    "serving": serving,
    "training": training,
    "plan": plan,
}


def outcome(check: Callable[[], dict | None]) -> dict:
    """Return what a check found, with the error it raised."""
    try:
        return {"error": None} | (check() or {})
    except (Exception, SystemExit) as error:
        virtual_card.CARD.recording = None
        return {"error": f"{type(error).__name__}: {error}"}


def main(suite: str, file: str) -> None:
    found, file = {}, Path(file).resolve()
    for name, check in SUITES[suite]() if suite in SUITES else notebook(suite):
        found[name] = outcome(check)
        file.write_text(
            json.dumps(found, separators=(",", ":"), ensure_ascii=False), encoding="utf-8"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
