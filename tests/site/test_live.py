"""The live page in Chromium, with its models; test_live_engine.py tests the engine alone."""

import pytest
from browsing import accessibility_faults, layout_faults, show
from specdec_site import live
from tokenizers import Tokenizer

from specdec_lite import CausalLM, generate
from specdec_lite.loading.pairs import SHIPPED, load_model
from specdec_lite.texts.corpus import evaluation_prompts

LIVE = "book/live.html"
DONE = "document.querySelector('.sdl-live').dataset.runs === '%d'"


def open_live(open_page, prompt: str = "def add(a, b):\n    return", **settings):
    page = open_page(LIVE, **settings)
    page.wait_for_selector(".sdl-live")
    page.locator(".sdl-live-settings > summary").click()
    page.get_by_label("Prompt").fill(prompt)
    return page


def press(page, run: int = 1) -> str:
    """Press the button, wait for the end of the run, and return the status line."""
    page.locator(".sdl-live-run").click()
    page.wait_for_function(f"({DONE % run}) || document.querySelector('.sdl-live-bad')")
    return page.locator(".sdl-live-status").inner_text()


def numbers(page) -> dict[str, str]:
    """Return the names and values below the replay."""
    return dict(
        page.evaluate(
            "[...document.querySelectorAll('.sdl-live dl div')].map((d) =>"
            " [d.children[0].textContent, d.children[1].textContent])"
        )
    )


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_decodes_and_explains(open_page):
    """The page loads no weights before the press, runs by keyboard, and again in the other format."""
    requests = []
    page = open_page(LIVE)
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_selector(".sdl-live")
    page.locator(".sdl-live-settings > summary").click()
    assert not page.evaluate(
        "performance.getEntriesByType('resource').some((entry) => /weights/.test(entry.name))"
    )
    page.get_by_label("Prompt").fill("def add(a, b):\n    return")
    button = page.locator(".sdl-live-run")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DONE % 1)
    assert [url.rsplit("/", 1)[1] for url in requests if "weights" in url] == ["weights.bin"]
    assert page.locator(".sdl-live-status").inner_text().startswith("Done: ")
    assert "identical" in numbers(page)["text"]
    assert page.evaluate("document.activeElement.matches('.sdl-live-run')"), (
        "the button lost the focus"
    )
    assert "was measured" in page.locator(".sdl-live-why").inner_text()
    assert page.locator(".sdl-live svg circle").count() > 9
    whole = page.evaluate(
        "[...document.querySelectorAll('.sdl-live .sdl-pass > :not(del):not(.sdl-hidden)')].map((e)"
        " => e.textContent).join('')"
    )
    assert len(whole) > 20
    scrubber = page.locator(".sdl-live-scrub input")
    scrubber.focus()
    page.keyboard.press("Home")
    assert page.locator(".sdl-live .sdl-pass:visible").count() == 0
    page.keyboard.press("ArrowRight")
    assert page.locator(".sdl-live .sdl-pass:visible").count() == 1
    assert scrubber.get_attribute("aria-valuetext").startswith("pass 1 of ")
    page.get_by_label("Weights in memory").select_option("int8")
    press(page, 2)
    assert "weights in int8" in numbers(page)["memory"]
    assert sum("weights" in url for url in requests) == 1, "the weights were downloaded twice"


WRITTEN = """[
  ...document.querySelectorAll('.sdl-live .sdl-pass > :not(del):not(.sdl-hidden)')
].map((token) => {
  const own = token.cloneNode(true);
  own.querySelectorAll('.sdl-newline, .sdl-hidden').forEach((mark) => mark.remove());
  return own.textContent;
}).join('')"""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("format", ["float32", "int8"])
def test_the_page_decodes_the_same_greedy_text_as_the_library(open_page, format):
    """The library decodes with the page's weights, which are rounded to int8."""
    target = CausalLM(live.dequantize(load_model(SHIPPED / "target", "cpu", "float32").model))
    tokenizer = Tokenizer.from_file(str(SHIPPED / "target" / "tokenizer.json"))
    prompt = evaluation_prompts()["code"][0]["text"]
    page = open_live(open_page, prompt)
    page.emulate_media(reduced_motion="reduce")
    page.get_by_label("Weights in memory").select_option(format)
    press(page)
    result = page.evaluate("document.querySelector('.sdl-live').sdlResult")
    assert (result["options"]["temperature"], result["same"], result["cut"]) == (0, True, 0)
    ids = tokenizer.encode(prompt).ids
    tokens = generate(target, ids, max_new_tokens=result["plainTokens"]).tokens.tolist()
    assert page.evaluate(WRITTEN) == "".join(tokenizer.decode([token]) for token in tokens)


@pytest.mark.browser
@pytest.mark.slow
def test_results_fit_a_phone_and_are_accessible(open_page):
    page = open_live(open_page, width=390)
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("slider", name="temperature").fill("1")
    press(page)
    passes = page.locator(".sdl-live .sdl-pass")
    assert passes.count() == page.locator(".sdl-live .sdl-pass:visible").count(), (
        "with reduced motion the whole text is visible immediately"
    )
    faults = layout_faults(page) + accessibility_faults(page, "light")
    show(page, "dark")
    assert faults + accessibility_faults(page, "dark") == []


@pytest.mark.browser
def test_a_worker_that_hangs_is_replaced_at_the_next_press(open_page):
    """The clock of the page's own thread is moved on; the new worker answers."""
    page = open_live(open_page, prompt="")
    page.evaluate("[globalThis.sound, sdlLive.worker] = [sdlLive.worker, 'for (;;);']")
    page.clock.install()
    page.locator(".sdl-live-run").click()
    page.clock.run_for(65_000)
    page.wait_for_selector(".sdl-live-bad")
    assert "60 seconds" in page.locator(".sdl-live-status").inner_text()
    page.clock.resume()
    page.evaluate("sdlLive.worker = sound")
    page.locator(".sdl-live-run").click()
    page.wait_for_function(
        "document.querySelector('.sdl-live-status').innerText.includes('prompt is empty')"
    )


@pytest.mark.browser
@pytest.mark.slow
def test_without_simd_the_page_says_that_it_is_slow(open_page):
    page = open_live(open_page, prompt="x")
    page.evaluate("globalThis.sdlScalar = true")
    page.get_by_role("slider", name="draft length").fill("1")
    assert "plain JavaScript" in press(page)
