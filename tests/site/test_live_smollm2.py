"""SmolLM2 in the live page: the engine in node agrees with the library; the panel in Chromium."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, patience
from gguf import GGUFReader
from node import add_kernels, live_module, page_logits
from specdec_site import live, live_smollm2
from tiny_gguf import tiny_gguf

from specdec_lite import generate, load_smollm2
from specdec_lite.drafters import EagleDrafter, PromptLookupDrafter
from specdec_lite.loading.checkpoints import load_model
from specdec_lite.loading.gguf_file import convert
from specdec_lite.loading.smollm2 import GGUF, smollm2_folder
from specdec_lite.texts.smollm2_tasks import TASKS, chat

KERNELS = (*live.KERNELS, "scalar")
TOLERANCE = 2e-3
"""Largest difference of a logit; sums in another order give about 1e-4."""


def passes_over(tokens: list[int], widths) -> tuple[list[dict], int]:
    """Return passes of these widths over a text, then one after a rollback; and where they end."""
    passes, start = [], 0
    for width in widths:
        passes.append({"start": start, "tokens": tokens[start : start + width]})
        start += width
    return [*passes, {"start": 10, "tokens": tokens[10:14]}], start


class SmallFile:
    """A model of SmolLM2's form in four bits: for the page in `folder`, and in PyTorch as `model`."""

    def __init__(self, folder: Path):
        tiny_gguf(folder / GGUF)
        convert(folder / GGUF, folder, "a small model")
        self.model = load_model(folder, "cpu", "float32").model
        file = live_smollm2.PackedFile()
        target = live_smollm2.add_target(file, GGUFReader(folder / GGUF))
        zeros = lambda rows, groups: file.matrix(np.zeros((rows, 34 * groups), np.uint8), 8)
        head = {"config": target["config"] | {"layers": 1, "tied": False, "vocab": 16}}
        head["tensors"] = {"fuse": zeros(64, 4), "blocks.0.qkv": zeros(128, 2)}
        manifest = {
            "models": {"target": target, "head": head | {"ids": list(range(16))}},
            "tokenizer": {"pieces": ["a"], "merges": [], "special": {}},
            "bytes": len(file.data),
            "shards": [{"name": "all.bin"}],
        }
        (folder / "all.bin").write_bytes(bytes(file.data))
        (folder / "smollm2.json").write_text(json.dumps(manifest), "utf-8")
        add_kernels(folder)
        self.folder = str(folder)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> SmallFile:
    return SmallFile(tmp_path_factory.mktemp("grouped"))


@pytest.fixture(scope="session")
def exported() -> str:
    """The folder of the page's own files of SmolLM2."""
    return str(live.stored(ROOT) / "live")


def logits(folder: str, passes: list[dict], vocab: int, kernel: str | None = None) -> np.ndarray:
    """Return the page's logits of some passes [tokens, V]."""
    return page_logits("groupedLogits", vocab, kernel, folder=folder, passes=passes, capacity=96)


@pytest.mark.parametrize("kernel", KERNELS)
def test_logits_of_four_bit_weights_equal_those_of_pytorch(small, kernel):
    """Passes of 1 to 8 tokens, a prompt of several chunks, and a rollback."""
    draw = random.Random(1)
    tokens = [draw.randrange(64) for _ in range(80)]
    passes, start = passes_over(tokens, (*range(1, 9), 20))
    rows = logits(small.folder, passes, small.model.config.vocab_size, kernel)
    expected = small.model(torch.tensor([tokens[:start]]))[0].numpy()
    assert np.abs(rows[:start] - expected).max() < 1e-4
    assert np.abs(rows[start:] - expected[10:14]).max() < 1e-4


def test_one_thread_computes_where_others_do_not_start(small):
    """Node has no workers of a browser's kind, as a browser that refuses to start them."""
    request = dict(folder=small.folder, passes=[{"start": 0, "tokens": [1, 2, 3]}], capacity=96)
    one, two = (live_module("groupedLogits", **request, threads=threads) for threads in (1, 2))
    assert one["logits"] == two["logits"] and "headers" in one["missing"]["threads"]
    assert two["missing"]["threads"] == "This browser did not start the threads."


@pytest.mark.slow
def test_smollm2_in_the_page_is_the_librarys(exported):
    """Logits, greedy text with every drafter, and the accepted drafts of the trained head."""
    target, tokenizer = load_smollm2("cpu", "float32")
    prompts = {kind: chat(tokenizer, TASKS[kind][0].text) for kind in ("question", "edit")}
    prompts = {kind: [int(token) for token in ids] for kind, ids in prompts.items()}
    ids = prompts["question"]
    rows = logits(exported, [{"start": 0, "tokens": ids}], target.vocab_size)
    with torch.inference_mode():
        expected = target.model(torch.tensor([ids]))[0].numpy()
    assert np.abs(rows - expected).max() < TOLERANCE
    assert (rows.argmax(-1) == expected.argmax(-1)).all()
    runs = [
        {"prompt": ids, "drafter": drafter, "gamma": 3, "wanted": 40}
        for ids in prompts.values()
        for drafter in (None, "lookup", "head", "both")
    ]
    costs = {"target": [1.0, 1.1, 1.5, 1.5, 1.6, 1.8], "draft": 0.1}
    answer = live_module("groupedDecode", folder=exported, runs=runs, costs=costs)
    drafter = EagleDrafter.from_pretrained(target, draft=3)
    for number, ids in enumerate(prompts.values()):
        own = answer[4 * number : 4 * number + 4]
        texts = [sum(run, []) for run in own]
        assert texts[1:] == [texts[0]] * 3, "a drafter changed the text"
        output = generate(target, ids, drafter, 40, stop_token_ids=2)
        assert texts[2] == output.tokens.tolist()
        assert [*map(len, own[2])] == [len(step.tokens) for step in output.steps]


def test_lookup_proposes_what_the_library_proposes():
    draw = random.Random(2)
    texts = [[draw.randrange(4) for _ in range(draw.randrange(2, 40))] for _ in range(300)]
    found = live_module("lookup", texts=texts, gamma=4)
    drafter = PromptLookupDrafter(4, 4, 2)
    for text, own in zip(texts, found, strict=True):
        context = SimpleNamespace(tokens=torch.tensor(text), wanted=99, vocab_size=4)
        proposal = drafter.start(context).propose(context)
        assert own == proposal.tree.tokens.tolist()


def test_the_tokenizer_separates_digits_as_smollm2_does(exported):
    folder = smollm2_folder()
    tokenizer = live_smollm2.load_tokenizer(folder)
    texts = ["In 2026, 3.14 and 1 000!", "x=42\n\n  7", "½ of ٣ 12ab34", "  99  bottles"]
    own = live_module("encodeGrouped", folder=exported, texts=texts)
    assert own == [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def test_a_special_token_in_a_question_is_plain_text(exported):
    ids, error, empty = live_module(
        "questions", folder=exported, questions=["Hi <|im_end|>", "word " * 3000, "  "]
    )
    assert ids.count(2) == 2 and ids[-1] != 2, "the template's own two"
    assert "3,0" in error and "shorten it" in error
    assert "empty" in empty


def test_the_round_is_plain_where_no_draft_can_pay():
    """Length and source follow the costs and the recent acceptance."""
    cheap = {"target": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "draft": 0.0}
    expensive = {"target": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "draft": 0.5}
    rounds = live_module("plans", costs=[cheap, expensive], accepted=[[5] * 20, [0] * 20])
    assert rounds[0][-1] == 5
    assert set(rounds[1]) == {0}


SOME = {"target": [1.0, 1.1, 1.25, 1.4, 1.6, 1.8], "draft": 0.08}


@pytest.mark.parametrize("accepted", [0, 1, 2, 5])
def test_the_choice_loses_less_than_three_percent(accepted: int):
    """Costs in plain passes over an answer of 128 tokens; none, few or all drafts are accepted."""
    (run,) = live_module("plans", costs=[SOME], accepted=[[accepted] * 128])
    emitted = cost = 0
    for length in run:
        emitted += min(accepted, length) + 1
        cost += SOME["target"][length] + length * SOME["draft"]
        if emitted >= 128:
            break
    assert emitted / cost >= 0.97


def test_the_choice_recovers_after_rejections():
    """After twenty rounds in which every draft fails, drafts that succeed are made again."""
    accepted = [0] * 20 + [5] * 20
    (run,) = live_module("plans", costs=[SOME], accepted=[accepted])
    assert 0 in run[:20] and min(run[-10:]) >= 2


@pytest.mark.parametrize(
    "speedup, accepted, words",
    [
        (1.6, 40, ("1.60× as fast", "more than one token")),
        (0.9, 20, ("10 % slower", "little to gain")),
    ],
)
def test_headline_and_lesson_follow_the_shown_speeds(speedup, accepted, words):
    """The headline is the ratio of the two medians, whatever the ratios of the turns are."""
    result = {
        "speedup": speedup,
        "speedups": [0.5, 0.6, 3.0],
        "perSecond": {"plain": 20, "speculative": 20 * speedup},
        "same": True,
        "stats": {"accepted": accepted, "tested": 100, "tau": 1.5},
        "costs": {"target": [1, 1, 1, 1, 1, 1], "draft": 0.1},
        "temperature": 0,
        "way": "one",
        "threads": 1,
        "missing": {},
    }
    headline, lesson = live_module("headline", result=result)
    assert words[0] in headline and words[1] in lesson and f"{accepted} %" in lesson


ASK = "book/live.html"
NO_MEMORY = """WebAssembly.Memory.prototype.grow = () => {
  throw new RangeError("WebAssembly.Memory.grow(): Maximum memory size exceeded");
};"""


def open_ask(open_page, **settings):
    page = open_page(ASK, **settings)
    page.wait_for_selector(".sdl-ask-run")
    return page


def finish(page, run: int = 1) -> str:
    page.wait_for_function(
        f"document.querySelector('.sdl-ask').dataset.runs === '{run}'"
        " || document.querySelector('.sdl-ask-bad')",
        timeout=patience(10),
    )
    return page.locator(".sdl-ask-status").inner_text()


@pytest.mark.browser
@pytest.mark.slow
def test_a_question_is_answered_twice_and_raced(open_page):
    """Nothing is loaded before the press; both texts are equal; a link carries the result."""
    page = open_ask(open_page)
    loaded = "performance.getEntriesByType('resource').some((e) => /smollm2-/.test(e.name))"
    assert not page.evaluate(loaded)
    page.locator(".sdl-ask select").first.select_option("1")
    page.get_by_label("Your question").fill("word " * 3000)
    page.locator(".sdl-ask-run").click()
    assert "shorten it" in finish(page)
    page.get_by_label("Your question").fill("Write the word tea five times.")
    page.locator(".sdl-ask-run").focus()
    page.keyboard.press("Enter")
    assert finish(page) == ""
    result = page.evaluate("document.querySelector('.sdl-ask').sdlResult")
    assert result["same"] and len(result["speedups"]) == 3
    assert "offers no graphics processor" in page.locator(".sdl-ask-details").text_content()
    assert "the same text ✓" in page.locator(".sdl-ask-headline").inner_text()
    assert page.locator(".sdl-ask .sdl-race-lane").count() == 2
    page.get_by_text("copy a link to this result").click()
    address = page.evaluate("location.hash")
    assert address.startswith("#ask-run=")
    other = open_ask(lambda path, **options: open_page(path + address, **options))
    assert "Shared with you" in other.locator(".sdl-ask-shared").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(
    "fault, words",
    [
        ("altered", "checksum differs"),
        ("missing", "answered 404"),
        ("short", "incomplete"),
        ("long", "altered: it is longer"),
        ("aborted", "could not be downloaded"),
        ("scalar", "no WebAssembly SIMD"),
        ("memory", "enough memory"),
        ("no shards", "checksum differs"),
        ("login page", "incomplete"),
    ],
)
def test_a_failed_load_says_why_and_can_be_tried_again(open_page, fault, words):
    page = open_ask(open_page)
    page.problems.clear()
    if fault == "scalar":
        page.evaluate("globalThis.sdlScalar = true")
    if fault == "memory":
        page.evaluate(f"sdlLive.worker = {json.dumps(NO_MEMORY)} + sdlLive.worker")
    if fault == "aborted":
        page.route("**/smollm2-1.bin*", lambda route: route.abort())
    answers = {
        "altered": {"body": bytes(16_000_000)},
        "missing": {"status": 404, "body": ""},
        "short": {"body": b"short"},
        "long": {"body": bytes(16_000_001)},
    }
    if fault in answers:
        page.route("**/smollm2-0.bin*", lambda route: route.fulfill(**answers[fault]))
    if fault == "no shards":  # a manifest of the right length that describes no weights
        empty = '{"shards": []}'.ljust(page.evaluate("sdlLive.smollm2.manifest.bytes"))
        page.route("**/smollm2.json*", lambda route: route.fulfill(body=empty))
    if fault == "login page":
        page.route("**/smollm2.json*", lambda route: route.fulfill(body="<!DOCTYPE html>"))
    page.locator(".sdl-ask-run").click()
    assert words in finish(page)
    assert page.locator(".sdl-ask-run").get_attribute("aria-disabled") is None
    page.problems.clear()


@pytest.mark.browser
def test_a_cancelled_download_says_so(open_page):
    page = open_ask(open_page)
    page.route("**/smollm2-1.bin*", lambda route: None)  # never answered
    page.locator(".sdl-ask-run").click()
    page.get_by_role("button", name="Cancel").click()
    assert finish(page).startswith("Cancelled")
