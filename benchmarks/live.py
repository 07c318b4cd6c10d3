"""Measure the live page in headless Chromium, as a reader of the built book would on this machine.

    make book && python -m benchmarks run live-page        # nine minutes on two cores

The command opens one page and presses its button once for every setting and prompt. Speedups are
the page's own; each is a ratio of medians over three turns. The recording also contains sizes, the
time from the press to loaded models and to the first decoded text, and the longest time for which
the page's own thread did not respond. The command asserts nothing.

    make book && python -m benchmarks run live-smollm2     # five minutes on two cores

does the same for SmolLM2: a race for each request, with one thread and, for some kinds, with several.
A race that ends with two different texts stops the command.
"""

import os
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

from browser import Isolating

from specdec_lite.texts.corpus import evaluation_prompts
from specdec_lite.texts.smollm2_tasks import TASKS

from .experiment import Run, experiment
from .page_sizes import BOOK, about, opened

MINUTES = 60_000
GAPS = """() => {
  let last = performance.now();
  globalThis.sdlGap = 0;
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    const now = performance.now();
    sdlGap = Math.max(sdlGap, now - last);
    last = now;
    setTimeout(() => channel.port2.postMessage(0), 4);
  };
  channel.port2.postMessage(0);
}"""
STOPWATCH = """() => {
  const status = document.querySelector('.sdl-live-status');
  const starts = { loaded: 'Decoding', all_decoded: 'Decoded', all_measured: 'Done' };
  globalThis.sdlTimes = {};
  const arrived = (name) => { sdlTimes[name] ??= performance.now() - sdlTimes.pressed; };
  new MutationObserver(() => {
    for (const [name, start] of Object.entries(starts))
      if (status.textContent.startsWith(start)) arrived(name);
  }).observe(status, { childList: true });
  new MutationObserver(() => document.querySelector('.sdl-live .sdl-pass') && arrived('first_text'))
    .observe(document.querySelector('.sdl-live'), { childList: true, subtree: true });
  const press = () => { sdlTimes.pressed ??= performance.now(); };
  document.querySelector('.sdl-live-run').addEventListener('click', press, { capture: true });
}"""


def press(page, prompt: str, gamma: int, temperature: float, form: str) -> dict:
    """Run the page once and return the worker's result."""
    page.get_by_label("Prompt").fill(prompt)
    page.get_by_role("slider", name="draft length").fill(str(gamma))
    page.get_by_role("slider", name="temperature").fill(str(temperature))
    page.get_by_label("Weights in memory").select_option(form)
    runs = int(page.evaluate("document.querySelector('.sdl-live').dataset.runs ?? 0"))
    page.locator(".sdl-live-run").click()
    page.wait_for_function(
        f"document.querySelector('.sdl-live').dataset.runs === '{runs + 1}'", timeout=10 * MINUTES
    )
    return page.evaluate("document.querySelector('.sdl-live').sdlResult")


def first_press(page, prompt: str) -> dict:
    """Return the milliseconds from the first press to loaded models, first text and end."""
    page.get_by_label("Prompt").fill(prompt)
    page.evaluate(STOPWATCH)
    page.evaluate(GAPS)
    page.locator(".sdl-live-run").click()
    page.wait_for_function("sdlTimes.all_measured", timeout=10 * MINUTES)
    times = page.evaluate("({...sdlTimes, longest_gap: sdlGap})")
    return {
        name: round(times[name], 1)
        for name in ("loaded", "first_text", "all_decoded", "all_measured", "longest_gap")
    }


def predicted(run: dict, gamma: int) -> float:
    """Return τ ÷ (T(γ+1)/T(1) + γc) from one run's own measurements."""
    single = run["costs"]["target"][0]
    return (
        run["stats"]["tau"]
        * single
        / (run["costs"]["target"][gamma] + gamma * run["costs"]["inLoop"])
    )


def row(form: str, gamma: int, domain: str, temperature: float, runs: list[dict]) -> dict:
    """Return medians over prompts, and the range of the speedups."""
    middle = lambda get: round(statistics.median(map(get, runs)), 3)
    speedups = [result["speedup"] for result in runs]
    return {
        "format": form,
        "gamma": gamma,
        "domain": domain,
        "temperature": temperature,
        "prompts": len(runs),
        "speedup": round(statistics.median(speedups), 3),
        "speedup_range": [round(min(speedups), 3), round(max(speedups), 3)],
        "predicted": middle(lambda r: predicted(r, gamma)),
        "alpha": middle(lambda r: r["stats"]["alpha"]),
        "tau": middle(lambda r: r["stats"]["tau"]),
        "c": middle(lambda r: r["costs"]["inLoop"] / r["costs"]["target"][0]),
        "target_ms": [middle(lambda r, k=k: r["costs"]["target"][k]) for k in range(9)],
        "draft_ms": middle(lambda r: r["costs"]["draft"]),
        "memory_mb": middle(lambda r: r["memory"] / 1e6),
    }


FILES = ("weights.bin", "engine.js", "kernel-relaxed.wasm", "kernel-simd.wasm")
FIRST = "first press"


@experiment(
    "live-page",
    "the live page in a headless browser: the shipped pair, plain and speculative",
    time="9 minutes",
    quick={"gamma": (1,), "prompts": 1},
)
def live_page(
    run: Run, *, book: Path = BOOK, gamma: Sequence[int] = (1, 2, 3), prompts: int = 4
) -> dict:
    """Return the first press of the button, and then the settings.

    Args:
        prompts: prompts per kind
    """
    browser, address = opened(run, book)
    page = browser.new_page(bypass_csp=True)
    page.goto(f"{address}book/live.html")
    page.wait_for_selector(".sdl-live")
    page.locator(".sdl-live-settings > summary").click()
    texts = {
        domain: [prompt["text"] for prompt in given[:: max(1, len(given) // prompts)][:prompts]]
        for domain, given in evaluation_prompts().items()
    }

    def setting(form: str, g: int, domain: str, temperature: float) -> dict:
        runs = [press(page, text, g, temperature, form) for text in texts[domain]]
        return row(form, g, domain, temperature, runs)

    first = run({FIRST: lambda: first_press(page, texts["code"][0])})[FIRST]
    rows = run(
        {
            f"{form} γ={g} {domain} T={t:g}": partial(setting, form, g, domain, t)
            for form, g, domain, t in product(("float32", "int8"), gamma, texts, (0.0, 1.0))
        }
    )
    folder = book / "_static" / "live"
    return {
        "cores": os.cpu_count(),
        "browser": about(browser),
        "bytes": {name: (folder / name).stat().st_size for name in FILES},
        "milliseconds_from_press": first,
        "rows": [*rows.values()],
    }


WITH_THREADS = ("code", "edit", "json")
"""Kinds of text that several threads decode too."""


def ask(page, way: str, kind: str, number: int) -> dict:
    """Return a race of SmolLM2 in the page: a way of computing, a kind of text, a request."""
    panel = "document.querySelector('.sdl-ask')"
    page.get_by_label("Computed by").select_option(way)
    page.get_by_label("Your question").fill(TASKS[kind][number].text)
    runs = int(page.evaluate(f"{panel}.dataset.runs ?? 0"))
    page.locator(".sdl-ask-run").click()
    page.wait_for_function(
        f"{panel}.dataset.runs === '{runs + 1}' || document.querySelector('.sdl-ask-bad')",
        timeout=10 * MINUTES,
    )
    if page.locator(".sdl-ask-bad").count():
        raise RuntimeError(page.locator(".sdl-ask-status").inner_text())
    result = page.evaluate(f"{panel}.sdlResult")
    if not result["same"]:
        raise RuntimeError(f"{way} {kind} {number}: the two texts differ")
    return {
        "way": way,
        "threads": result["threads"],
        "kind": kind,
        "speedups": [round(x, 3) for x in result["speedups"]],
        "per_second": {lane: round(x, 2) for lane, x in result["perSecond"].items()},
        "tokens": result["stats"]["tokens"],
        "tau": round(result["stats"]["tau"], 3),
        "alpha": round(result["stats"]["alpha"] or 0, 3),
        "target_ms": [round(x, 2) for x in result["costs"]["target"]],
        "draft_ms": round(result["costs"]["draft"], 2),
        "kernel": result["kernel"],
    }


@experiment(
    "live-smollm2",
    "SmolLM2 in the live page in a headless browser: plain and speculative, by kind of text",
    time="5 minutes",
    quick={"texts": 1, "kinds": ("edit",), "ways": ("one",)},
)
def live_smollm2(
    run: Run,
    *,
    book: Path = BOOK,
    texts: int = 2,
    kinds: Sequence[Literal[*TASKS]] = tuple(TASKS),
    ways: Sequence[Literal["one", "threads"]] = ("one", "threads"),
) -> dict:
    """Return a race for each request, with one thread and, for some kinds, with several.

    Args:
        texts: requests per kind, one thread
    """
    browser, address = opened(run, book, Isolating)  # so that threads can share memory
    page = browser.new_page(bypass_csp=True)
    page.goto(f"{address}book/live.html")
    page.wait_for_selector(".sdl-ask-run")
    page.get_by_text("Settings", exact=True).last.click()
    numbers = {"one": range(texts), "threads": range(1)}
    parts = {
        f"{way} {kind} {number}": partial(ask, page, way, kind, number)
        for way in ways
        for kind in kinds
        if way == "one" or kind in WITH_THREADS
        for number in numbers[way]
    }
    return {"cores": os.cpu_count(), "browser": about(browser), "races": [*run(parts).values()]}
