"""SmolLM2's passes by several threads and by WebGPU: the logits and texts are those of one thread.

Chromium's software adapter runs the WebGPU programs, so these tests show that they are correct, not
that they are fast.
"""

import random
import shutil
from pathlib import Path

import browser
import numpy as np
import pytest
import torch
from conftest import ROOT, patience
from node import add_kernels, live_module
from specdec_site import live_smollm2
from test_live_smollm2 import ASK, TOLERANCE, SmallFile, finish, passes_over

from specdec_lite import load_smollm2
from specdec_lite.texts.smollm2_tasks import TASKS, chat

SOFTWARE_ADAPTER = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
COMPUTE = """(job) => new Promise((resolve, reject) => {
  const worker = new Worker("ways.mjs", { type: "module" });
  worker.onerror = ({ message }) => reject(new Error(message));
  worker.onmessage = ({ data }) => data.way && resolve(data);
  worker.postMessage(job);
})"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder to serve: the engine's modules, the small model and the kernels."""
    folder = tmp_path_factory.mktemp("ways")
    shutil.copytree(ROOT / "site" / "live", folder / "live")
    shutil.copy2(ROOT / "tests" / "js" / "ways.mjs", folder)
    (folder / "empty.html").write_text('<!doctype html><link rel="icon" href="data:,">')
    for name in ("small", "smollm2"):
        (folder / name).mkdir()
        add_kernels(folder / name)
    return folder


@pytest.fixture(scope="module")
def small(folder) -> SmallFile:
    return SmallFile(folder / "small")


@pytest.fixture(scope="module")
def with_adapter(chromium):
    """Chromium with its software adapter for WebGPU."""
    opened = browser.launch(chromium.browser_type, *SOFTWARE_ADAPTER)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def compute(folder, with_adapter):
    """compute(job) -> what ways.mjs answers in an isolated page of Chromium."""
    with browser.served(folder, handler=browser.Isolating) as address:
        page = with_adapter.new_page()
        page.set_default_timeout(patience(10))
        page.goto(f"{address}empty.html")
        yield lambda job: page.evaluate(COMPUTE, job)


def checked(answer: dict) -> dict:
    """Return the ways of an answer; all three must be there."""
    assert "error" not in answer, answer["error"]
    assert set(answer["ways"]) == {"one", "threads", "gpu"}, answer["missing"]
    return answer["ways"]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("subgroups", [True, False])
def test_threads_and_webgpu_compute_the_logits_of_pytorch(small, compute, subgroups):
    """Passes of 1 to 8 tokens, a prompt of several chunks, and a rollback."""
    draw = random.Random(1)
    tokens = [draw.randrange(64) for _ in range(56)]
    passes, start = passes_over(tokens, (*range(1, 9), 20))
    expected = small.model(torch.tensor([tokens]))[0].numpy()
    runs = [{"prompt": [1, 2, 3], "gamma": 3, "wanted": 6}]
    runs.append(runs[0] | {"drafter": "lookup"})
    job = {"folder": "small", "threads": 2, "subgroups": subgroups, "passes": passes, "runs": runs}
    answer = compute(job)
    assert answer["subgroups"], "the software adapter has subgroups, so both programs are tested"
    ways = checked(answer)
    for way, own in ways.items():
        rows = np.array(own["logits"])
        assert np.abs(rows[:start] - expected).max() < 1e-4, way
        assert np.abs(rows[start:] - expected[10:14]).max() < 1e-4, way
        assert own["texts"] == [ways["one"]["texts"][0]] * 2, way
    assert ways["threads"]["logits"] == ways["one"]["logits"], "the sums differ"


@pytest.mark.weekly
def test_smollm2_by_threads_and_by_webgpu_is_the_librarys(folder, compute):
    """Logits of the shipped weights, and greedy text with the trained head."""
    live_smollm2.write(folder / "smollm2")
    target, tokenizer = load_smollm2("cpu", "float32")
    ids = [int(token) for token in chat(tokenizer, TASKS["question"][0].text)][:20]
    with torch.inference_mode():
        expected = target.model(torch.tensor([ids]))[0].numpy()
    runs = [
        {"prompt": ids, "drafter": drafter, "gamma": 2, "wanted": 5} for drafter in (None, "head")
    ]
    job = {
        "folder": "smollm2",
        "threads": 2,
        "subgroups": True,
        "passes": [{"start": 0, "tokens": ids}],
        "runs": runs,
    }
    ways = checked(compute(job))
    for way, own in ways.items():
        rows = np.array(own["logits"])
        assert np.abs(rows - expected).max() < TOLERANCE, way
        assert (rows.argmax(-1) == expected.argmax(-1)).all(), way
        assert own["texts"] == [ways["one"]["texts"][0]] * 2, way


@pytest.mark.parametrize(
    "gpu, chosen, words",
    [
        ({"milliseconds": 1}, "gpu", None),
        ({"milliseconds": 60}, "one", None),
        ({"milliseconds": 1, "added": 1}, "one", "other logits"),
        ({"milliseconds": 1, "stops": True}, "one", "graphics processor stopped"),
    ],
)
def test_webgpu_is_used_only_where_it_is_right_and_faster(gpu, chosen, words):
    answer = live_module("trial", ways={"one": {"milliseconds": 20}, "gpu": gpu})
    assert answer["chosen"] == chosen
    assert answer["then"] == "one", "a graphics processor that stopped was used again"
    words = "The graphics processor stopped." if chosen == "gpu" else words
    assert words in answer["missing"]["gpu"] if words else not answer["missing"]


def test_a_thread_that_does_not_answer_is_replaced_by_one_thread():
    answer = live_module("lostThread")
    assert answer["start"] == "a thread did not start" and answer["ended"]
    assert answer["lost"] and answer["first"].endswith("the page now computes with one.")
    assert answer["ways"] == ["one"] and answer["missing"] == "A thread of this page stopped."


@pytest.mark.browser
@pytest.mark.slow
def test_an_isolated_page_chooses_and_answers_with_several_threads(book: Path, with_adapter):
    """The slow software adapter loses the trial; one thread and two give the same text."""
    with browser.served(book.parent, handler=browser.Isolating) as address:
        # the page's policy refuses the strings that Playwright's waits evaluate
        page = with_adapter.new_page(bypass_csp=True)
        page.goto(f"{address}{book.name}/{ASK}")
        page.get_by_label("Your question").fill("Write the word tea five times.")
        page.get_by_text("Settings", exact=True).last.click()
        texts = []
        for run, way in enumerate(("fastest", "one", "threads"), 1):
            page.get_by_label("Computed by").select_option(way)
            page.locator(".sdl-ask-run").click()
            assert finish(page, run) == ""
            result = page.evaluate("document.querySelector('.sdl-ask').sdlResult")
            assert result["way"] != "gpu" and way in (result["way"], "fastest") and result["same"]
            words = [word for each in result["lanes"]["plain"] for word in each["words"]]
            texts.append([text for kind, text in words if kind not in ("rejected", "unused")])
        assert texts[0] == texts[1] == texts[2]
        assert result["missing"] == {} and result["trial"]["gpu"] > result["trial"]["one"]
        assert "graphics processor took" in page.locator(".sdl-ask-details").text_content()
