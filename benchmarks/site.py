"""What the built book weighs, and how soon its interactives are drawn: opened in headless Chromium,
on this machine.

    make book && python -m benchmarks.site        # some minutes; writes results/site.json

Sizes are of the files that a page fetches until it is idle and every figure has been in view, each
compressed as a web server would (gzip, level 6), and of the page's own file alone. `plotly`:
whether the page fetched that library. `load_ms`: from the start of the navigation to the load
event; `drawn_ms`: from there to the last interactive's first picture, negative where it was drawn
before; both are medians of several openings. `shift`: the sum of layout shifts while the page is
loaded, by the window's width. `largest_ms`: when the largest piece of the first screen is painted on
a phone's screen, over a slow line with an empty cache and a processor four times slower than this
one (SLOW), the files compressed by the server. `inputs`: for every interactive with a slider, the
milliseconds from the press of an arrow key on it to the painted answer, on the same slow processor.
"""

import argparse
import functools
import gzip
import statistics
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from benchmarks.browser import Compressing, chromium, draw_figures, served
from specdec_lite import results

ROOT = Path(__file__).resolve().parents[1]
OPENINGS = 3
WIDTHS = (1280, 768, 390)  # CSS pixels: a laptop, a tablet, a phone
STOPWATCH = """(() => {
  globalThis.sdlDrawn = 0;
  new MutationObserver((changes) => {
    if (changes.some(({ target }) => target.dataset?.mounted)) sdlDrawn = performance.now();
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-mounted"] });
})()"""

# a phone on a poor line: bytes per second, milliseconds, and how much slower its processor is
SLOW = {"download": 1.6e6 / 8, "upload": 0.75e6 / 8, "latency": 150, "processor": 4}
PHONE = {"width": 390, "height": 844}
PRESSES = 60

LARGEST = """(() => {
  new PerformanceObserver((list) => { globalThis.sdlLargest = list.getEntries().at(-1).startTime; })
    .observe({ type: "largest-contentful-paint", buffered: true });
})()"""

ANSWERS = """(place) => {
  globalThis.sdlAnswers = [];
  const { port1, port2 } = new MessageChannel();
  const begun = [];
  port1.onmessage = () => sdlAnswers.push(performance.now() - begun.shift());
  place.addEventListener("input", ({ timeStamp }) => requestAnimationFrame(() => {
    begun.push(timeStamp);
    port2.postMessage(0); // answered when the frame has been painted
  }), true);
}"""

SHIFTS = """(() => {
  globalThis.sdlShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) sdlShift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
})()"""


def pages(book: Path) -> list[str]:
    """Every page of the book, the front door and the archive's folder aside."""
    return sorted(
        str(path.relative_to(book))
        for path in book.rglob("*.html")
        if "_static" not in path.parts and path.parent != book
    )


@functools.cache
def wire_bytes(file: Path) -> int:
    """A file's size over the wire; most are fetched by every page."""
    return len(gzip.compress(file.read_bytes(), 6))


def fetched(browser, address: str, page_name: str) -> list[str]:
    """The files of the book, as paths in its folder, that one page fetches."""
    page = browser.new_page()
    urls = {}
    page.on("requestfinished", lambda request: urls.update({request.url: None}))
    page.goto(address + page_name)
    draw_figures(page)
    page.wait_for_load_state("networkidle")
    page.close()
    return [unquote(urlsplit(url).path)[1:] for url in urls if url.startswith(address)]


def weight(browser, address: str, book: Path, page_name: str) -> dict:
    """Bytes over the wire of everything that one page fetches."""
    files = fetched(browser, address, page_name)
    return {
        "page": page_name,
        "wire_bytes": sum(wire_bytes(book / name) for name in files),
        "own_bytes": wire_bytes(book / page_name),
        "files": len(files),
        "figures": (book / page_name).read_bytes().count(b'class="sdl-plot"'),
        "plotly": any("plotly" in name for name in files),
    }


def moments(browser, address: str, page_name: str) -> tuple[float, float | None]:
    """Milliseconds from the start to the load event, and from there to the last interactive's first
    picture (None: the page has none).
    """
    page = browser.new_page()
    page.add_init_script(STOPWATCH)
    page.goto(address + page_name)
    page.wait_for_function(
        "[...document.querySelectorAll('.sdl-interactive')].every((place) => place.dataset.mounted)"
    )
    drawn, loaded = page.evaluate(
        "[sdlDrawn, performance.getEntriesByType('navigation')[0].loadEventEnd]"
    )
    page.close()
    return loaded, drawn - loaded if drawn else None


def shift(browser, address: str, page_name: str, width: int) -> float:
    """How much of the view moves while a page is loaded: the sum of its layout shifts, in a window
    of `width` CSS pixels (up to .1 counts as good).
    """
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.add_init_script(SHIFTS)
    page.goto(address + page_name, wait_until="networkidle")
    total = page.evaluate("sdlShift")
    page.close()
    return total


def slow_phone(browser, line: bool):
    """A page of a slow phone, `line`: on a slow line too."""
    page = browser.new_page(viewport=PHONE)
    page.set_default_timeout(120_000)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOW["processor"]})
    if line:
        session.send("Network.enable")
        conditions = {
            "offline": False,
            "latency": SLOW["latency"],
            "downloadThroughput": SLOW["download"],
            "uploadThroughput": SLOW["upload"],
        }
        session.send("Network.emulateNetworkConditions", conditions)
    return page


def largest(browser, address: str, page_name: str) -> float:
    """Milliseconds to the largest contentful paint of a page on a slow phone and a slow line."""
    page = slow_phone(browser, line=True)
    page.add_init_script(LARGEST)
    page.goto(address + page_name)
    page.wait_for_timeout(500)
    found = page.evaluate("sdlLargest")
    page.close()
    return found


def answers(browser, address: str, page_name: str) -> dict[str, list[float]]:
    """By module, the milliseconds from every press of an arrow key on its first slider to the
    painted answer, on a slow phone.
    """
    page = slow_phone(browser, line=False)
    page.goto(address + page_name)
    page.wait_for_function("!document.querySelector('.sdl-interactive:not([data-mounted])')")
    found = {}
    for place in page.query_selector_all(".sdl-interactive"):
        slider = place.query_selector("input[type=range]:enabled:visible")
        module = place.get_attribute("data-module")
        if not slider or module in found:
            continue
        slider.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        place.evaluate(ANSWERS)
        for number in range(PRESSES):
            slider.press("ArrowRight" if number < PRESSES / 2 else "ArrowLeft")
            page.wait_for_timeout(60)
        page.wait_for_timeout(1000)
        found[module] = page.evaluate("sdlAnswers")
    page.close()
    return {module: times for module, times in found.items() if times}


def answered(browser, address: str, names: list[str]) -> dict[str, dict]:
    """The middle and the slowest twentieth of the answers of each module, on the first page that
    has it."""
    rows: dict[str, dict] = {}
    for name in tqdm(names, unit="page"):
        for module, times in answers(browser, address, name).items():
            cuts = statistics.quantiles(times, n=20)
            found = {"page": name, "p50_ms": round(cuts[9], 1), "p95_ms": round(cuts[18], 1)}
            rows.setdefault(module, found | {"answers": len(times)})
    return rows


def measure(book: Path) -> dict:
    """The recording's data. book: the folder of the built book."""
    with served(book, handler=Compressing) as address, chromium() as browser:
        rows = []
        for name in tqdm(pages(book), unit="page"):
            loads, draws = zip(*(moments(browser, address, name) for _ in range(OPENINGS)))
            lasts = [largest(browser, address, name) for _ in range(OPENINGS)]
            drawn = None if None in draws else round(statistics.median(draws), 1)
            rows.append(
                weight(browser, address, book, name)
                | {"load_ms": round(statistics.median(loads), 1), "drawn_ms": drawn}
                | {"shift": {w: round(shift(browser, address, name, w), 4) for w in WIDTHS}}
                | {"largest_ms": round(statistics.median(lasts), 1)}
            )
        with_modules = [row["page"] for row in rows if row["drawn_ms"] is not None]
        inputs = answered(browser, address, with_modules)
        version = browser.version
    archive = next(book.glob("*.zip"), None)
    return {
        "browser": f"Chromium {version}, headless",
        "openings": OPENINGS,
        "archive_bytes": archive.stat().st_size if archive else None,
        "slow": SLOW,
        "inputs": inputs,
        "pages": rows,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "site.json")
    asked = parser.parse_args()
    found = measure(asked.book)
    for row in found["pages"]:
        print(
            f"{row['page']:44} {row['wire_bytes'] / 1e6:6.2f} MB in {row['files']:3} files,"
            f" {row['figures']:2} figures, loaded in {row['load_ms']:.0f} ms, drawn"
            f" {row['drawn_ms']} ms later"
        )
    stamp = results.stamp(
        "the built book in a headless browser: sizes and first drawing",
        "python -m benchmarks.site",
        versions={"chromium": found["browser"].split()[1].rstrip(",")},
    )
    print(f"written to {results.save(asked.out, stamp, found)}")
