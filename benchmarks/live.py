"""Measure the live page in headless Chromium, as a reader of the built book would on this machine.

    make book && python -m benchmarks.live        # nine minutes on two cores; results/live.json

The command opens one page and presses its button once for every setting and prompt. Speedups are
the page's own; each is a ratio of medians over three turns. The recording also contains sizes, the
time from the press to loaded models and to the first decoded text, and the longest time for which
the page's own thread did not respond. The command asserts nothing.
"""

import argparse
import json
import os
import statistics
from itertools import product
from pathlib import Path

from browser import chromium, served

from specdec_lite.measure import stamps
from specdec_lite.texts.corpus import evaluation_prompts

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
    """Run the page once and return the worker's result.

    Args:
        page: The live page.
        prompt: Prompt text.
        gamma: Draft length.
        temperature: Sampling temperature.
        form: Format of the weights.
    """
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
    """Return the milliseconds from the first press to loaded models, first text and end.

    Args:
        page: A fresh live page.
        prompt: Prompt text.
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
    """Return τ ÷ (T(γ+1)/T(1) + γc) from one run's own measurements.

    Args:
        run: Result of the worker.
        gamma: Draft length.
    """
    single = run["costs"]["target"][0]
    return (
        run["stats"]["tau"]
        * single
        / (run["costs"]["target"][gamma] + gamma * run["costs"]["inLoop"])
    )


def row(form: str, gamma: int, domain: str, temperature: float, runs: list[dict]) -> dict:
    """Return medians over prompts, and the range of the speedups.

    Args:
        form: Format of the weights.
        gamma: Draft length.
        domain: Kind of text.
        temperature: Sampling temperature.
        runs: Results of the worker.
    """
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
    """Return the data of the recording.

    Args:
        book: Folder of the built book.
        gammas: Draft lengths.
        each: Prompts per kind.
    """
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
    parser.add_argument("--prompts", type=int, default=4, help="prompts per kind")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "live.json")
    options = parser.parse_args()
    data = measure(options.book, options.gamma, options.prompts)
    command = " ".join(
        [
            "python -m benchmarks.live --gamma",
            *map(str, options.gamma),
            f"--prompts {options.prompts}",
        ]
    )
    stamp = stamps.stamp(
        "the live page in a headless browser: the shipped pair, plain and speculative",
        command,
        versions={"chromium": data["browser"].split()[1].rstrip(",")},
    )
    stamps.save(options.out, stamp, data)
