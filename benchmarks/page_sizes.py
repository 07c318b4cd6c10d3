"""Measure the size of the built book and how soon its interactives appear, in headless Chromium.

    make book && python -m benchmarks run page-sizes        # some minutes

- Sizes are those of the files that a page fetches until it is idle and every figure has been in view,
  each compressed as a web server would (gzip, level 6), and of the page's own file alone.
- `plotly`: whether the page fetched that library.
- `load_ms`: time from the start of the navigation to the load event. `drawn_ms`: time from there to the
  first picture of the last interactive, negative if it was drawn earlier. Both are medians.
- `shift`: sum of the layout shifts while the page loads, by width of the window.
- `largest_ms`: time to the largest contentful paint on a phone's screen, with a slow line, an empty
  cache and a processor four times slower than this one (SLOW); the server compresses the files.
- `inputs`: for every interactive with a slider, milliseconds from the press of an arrow key to the
  painted answer, on the same slow processor.
"""

import functools
import gzip
import statistics
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import Compressing, chromium, draw_figures, served

from .experiment import Run, experiment

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = (1280, 768, 390)  # CSS pixels: a laptop, a tablet, a phone
STOPWATCH = """(() => {
  globalThis.sdlDrawn = 0;
  new MutationObserver((changes) => {
    if (changes.some(({ target }) => target.dataset?.mounted)) sdlDrawn = performance.now();
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-mounted"] });
})()"""

# A phone on a slow line: bytes per second, milliseconds, and slowdown of the processor.
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


def pages_of(book: Path) -> list[str]:
    """Return every page of the book except the front page and the archive's folder."""
    return sorted(
        str(path.relative_to(book))
        for path in book.rglob("*.html")
        if "_static" not in path.parts and path.parent != book
    )


@functools.cache
def wire_bytes(file: Path) -> int:
    """Return a file's compressed size; the cache helps because pages share most files."""
    return len(gzip.compress(file.read_bytes(), 6))


def fetched_files(browser, address: str, page_name: str) -> list[str]:
    """Return the book's files that one page fetches, as paths in its folder."""
    page = browser.new_page(bypass_csp=True)
    urls = {}
    page.on("requestfinished", lambda request: urls.update({request.url: None}))
    page.goto(address + page_name)
    draw_figures(page)
    page.wait_for_load_state("networkidle")
    page.close()
    return [unquote(urlsplit(url).path)[1:] for url in urls if url.startswith(address)]


def weight(browser, address: str, book: Path, page_name: str) -> dict:
    """Return the compressed bytes of everything that one page fetches."""
    files = fetched_files(browser, address, page_name)
    return {
        "page": page_name,
        "wire_bytes": sum(wire_bytes(book / name) for name in files),
        "own_bytes": wire_bytes(book / page_name),
        "files": len(files),
        "figures": (book / page_name).read_bytes().count(b'class="sdl-plot"'),
        "plotly": any("plotly" in name for name in files),
    }


def moments(browser, address: str, page_name: str) -> tuple[float, float | None]:
    """Return the milliseconds to the load event, and from there to the last interactive's picture.

    The second number is None if the page has no interactive.
    """
    page = browser.new_page(bypass_csp=True)
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
    """Return the sum of the layout shifts while a page loads; up to 0.1 counts as good."""
    page = browser.new_page(viewport={"width": width, "height": 800}, bypass_csp=True)
    page.add_init_script(SHIFTS)
    page.goto(address + page_name, wait_until="networkidle")
    total = page.evaluate("sdlShift")
    page.close()
    return total


def slow_phone(browser, line: bool):
    """Return a browser page that simulates a slow phone."""
    page = browser.new_page(viewport=PHONE, bypass_csp=True)
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
    """Return the milliseconds to the largest contentful paint on a slow phone and a slow line."""
    page = slow_phone(browser, line=True)
    page.add_init_script(LARGEST)
    page.goto(address + page_name)
    page.wait_for_timeout(500)
    milliseconds = page.evaluate("sdlLargest")
    page.close()
    return milliseconds


def answers(browser, address: str, page_name: str) -> dict[str, dict]:
    """Return quantiles of the milliseconds from a key press to the painted answer, by module.

    The keys are arrow keys on the module's first slider, on a slow phone.
    """
    page = slow_phone(browser, line=False)
    page.goto(address + page_name)
    page.wait_for_function("!document.querySelector('.sdl-interactive:not([data-mounted])')")
    times_by_module = {}
    for element in page.query_selector_all(".sdl-interactive"):
        slider = element.query_selector("input[type=range]:enabled:visible")
        module = element.get_attribute("data-module")
        if not slider or module in times_by_module:
            continue
        slider.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        element.evaluate(ANSWERS)
        for number in range(PRESSES):
            slider.press("ArrowRight" if number < PRESSES / 2 else "ArrowLeft")
            page.wait_for_timeout(60)
        page.wait_for_timeout(1000)
        times_by_module[module] = page.evaluate("sdlAnswers")
    page.close()
    rows = {}
    for module, times in times_by_module.items():
        if times:
            cuts = statistics.quantiles(times, n=20)
            rows[module] = {"p50_ms": round(cuts[9], 1), "p95_ms": round(cuts[18], 1)}
            rows[module] |= {"answers": len(times)}
    return rows


BOOK = ROOT / "_build" / "html"


def opened(run: Run, book: Path, handler=Compressing) -> tuple:
    """Return headless Chromium and the address of the served book, which close with the run."""
    if not (book / "index.html").is_file():
        raise ValueError(f"--book {book}: has no built book; run `make book`")
    browser = run.open.enter_context(chromium())
    run.versions = {"chromium": browser.version}
    return browser, run.open.enter_context(served(book, handler=handler))


def about(browser) -> str:
    """Return the browser and its version for the recording."""
    return f"Chromium {browser.version}, headless"


def measured(browser, address: str, book: Path, page: str, openings: int) -> dict:
    """Return the sizes of a page and its times, which are medians over the openings."""
    loads, draws = zip(*(moments(browser, address, page) for _ in range(openings)))
    lasts = [largest(browser, address, page) for _ in range(openings)]
    drawn = None if None in draws else round(statistics.median(draws), 1)
    return (
        weight(browser, address, book, page)
        | {"load_ms": round(statistics.median(loads), 1), "drawn_ms": drawn}
        | {"shift": {w: round(shift(browser, address, page, w), 4) for w in WIDTHS}}
        | {"largest_ms": round(statistics.median(lasts), 1)}
    )


@experiment(
    "page-sizes",
    "the built book in a headless browser: sizes and first drawing",
    time="10 minutes",
    quick={"pages": 1, "openings": 1},
)
def page_sizes(run: Run, *, book: Path = BOOK, pages: int | None = None, openings: int = 3) -> dict:
    """Return the sizes and times of the pages, and the answers of the interactives of each page.

    Args:
        pages: the first pages only; default: all
        openings: times that a page is opened
    """
    browser, address = opened(run, book)
    names = pages_of(book)[:pages]
    rows = run({page: partial(measured, browser, address, book, page, openings) for page in names})
    with_module = [p for p in names if b'class="sdl-interactive' in (book / p).read_bytes()]
    parts = {f"inputs {page}": partial(answers, browser, address, page) for page in with_module}
    inputs: dict[str, dict] = {}  # of each module, on its first page
    for page, found in zip(with_module, run(parts).values()):
        for module, times in found.items():
            inputs.setdefault(module, {"page": page} | times)
    archive = next(book.glob("*.zip"), None)
    return {
        "browser": about(browser),
        "openings": openings,
        "archive_bytes": archive.stat().st_size if archive else 0,
        "slow": SLOW,
        "inputs": inputs,
        "pages": [*rows.values()],
    }
