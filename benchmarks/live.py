"""The live page in headless Chromium: what a reader of the built book would measure on this
machine.

    make book && python -m benchmarks.live        # about nine minutes on two cores; writes results/live.json

One page is opened, its button pressed once for every setting and prompt; speedups are the page's
own (each a ratio of medians over three turns). Beside them: sizes, the time from the press to
loaded models and to the first decoded text, and the longest time for which the page's own thread
did not answer. Nothing here is asserted.
"""

import argparse
import json
import os
import statistics
from itertools import product
from pathlib import Path

from benchmarks.browser import chromium, served
from specdec_lite import results
from specdec_lite.loading.corpus import evaluation_prompts

ROOT = Path(__file__).resolve().parents[1]
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
    """One run of the page: the worker's result."""
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
    """Milliseconds from the press, on a fresh page, until the models are loaded and until the first
    text is there.
    """
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
    """τ ÷ (T(γ+1)/T(1) + γc), from one run's own measurements."""
    single = run["costs"]["target"][0]
    return (
        run["stats"]["tau"]
        * single
        / (run["costs"]["target"][gamma] + gamma * run["costs"]["inLoop"])
    )


def row(form: str, gamma: int, domain: str, temperature: float, runs: list[dict]) -> dict:
    """Medians over prompts, and the range of the speedups."""
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


def measure(book: Path, gammas: list[int], each: int) -> dict:
    prompts = {
        domain: [prompt["text"] for prompt in given[:: max(1, len(given) // each)][:each]]
        for domain, given in evaluation_prompts().items()
    }
    folder = book / "_static" / "live"
    with served(book) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{address}book/live.html")
        page.wait_for_selector(".sdl-live")
        times, rows = first_press(page, prompts["code"][0]), []
        for form, gamma, domain, temperature in product(
            ("float32", "int8"), gammas, prompts, (0.0, 1.0)
        ):
            runs = [press(page, text, gamma, temperature, form) for text in prompts[domain]]
            rows.append(row(form, gamma, domain, temperature, runs))
            print(json.dumps(rows[-1]))
        name = f"Chromium {browser.version}, headless"
    sizes = {
        name: (folder / name).stat().st_size
        for name in ("weights.bin", "engine.js", "kernel-relaxed.wasm", "kernel-simd.wasm")
    }
    return {
        "cores": os.cpu_count(),
        "browser": name,
        "kernel": runs[0]["kernel"],
        "bytes": sizes,
        "milliseconds_from_press": times,
        "rows": rows,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--gamma", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--prompts", type=int, default=4, help="of each kind")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "live.json")
    asked = parser.parse_args()
    found = measure(asked.book, asked.gamma, asked.prompts)
    command = " ".join(
        ["python -m benchmarks.live --gamma", *map(str, asked.gamma), f"--prompts {asked.prompts}"]
    )
    stamp = results.stamp(
        "the live page in a headless browser: the shipped pair, plain and speculative",
        command,
        versions={"chromium": found["browser"].split()[1].rstrip(",")},
    )
    results.save(asked.out, stamp, found)
