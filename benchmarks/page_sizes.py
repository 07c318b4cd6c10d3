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
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import Compressing, chromium, draw_figures, served

from .experiment import Experiment

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


def pages(book: Path) -> list[str]:
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


class OfBook(Experiment):
    """An experiment that opens the built book in headless Chromium."""

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--book", type=Path, default=ROOT / "_build" / "html")

    def check(self):
        if not (self.options.book / "index.html").is_file():
            raise ValueError(f"--book {self.options.book}: has no built book; run `make book`")

    @cached_property
    def browser(self):
        """Headless Chromium."""
        return self.open.enter_context(chromium())

    @cached_property
    def address(self) -> str:
        """Address of the served book."""
        return self.open.enter_context(served(self.options.book, handler=Compressing))

    def versions(self):
        return {"chromium": self.browser.version}

    def about_browser(self) -> str:
        """Return the browser and its version for the recording."""
        return f"Chromium {self.browser.version}, headless"


class PageSizes(OfBook):
    """The parts are the pages, and the answers of the interactives of each page."""

    name = "page-sizes"
    what = "the built book in a headless browser: sizes and first drawing"
    time = "10 minutes"
    quick = "--pages 1 --openings 1".split()

    @classmethod
    def add_options(cls, parser):
        super().add_options(parser)
        parser.add_argument("--pages", type=int, help="the first pages only; default: all")
        parser.add_argument("--openings", type=int, default=3, help="times that a page is opened")

    @cached_property
    def pages(self) -> list[str]:
        """The pages to measure."""
        return pages(self.options.book)[: self.options.pages]

    def parts(self):
        has_module = lambda page: (
            b'class="sdl-interactive' in (self.options.book / page).read_bytes()
        )
        return [*self.pages, *(f"inputs {page}" for page in self.pages if has_module(page))]

    def run(self, part):
        browser, address = self.browser, self.address
        if part.startswith("inputs "):
            return answers(browser, address, part.removeprefix("inputs "))
        times = range(self.options.openings)
        loads, draws = zip(*(moments(browser, address, part) for _ in times))
        lasts = [largest(browser, address, part) for _ in times]
        drawn = None if None in draws else round(statistics.median(draws), 1)
        return (
            weight(browser, address, self.options.book, part)
            | {"load_ms": round(statistics.median(loads), 1), "drawn_ms": drawn}
            | {"shift": {w: round(shift(browser, address, part, w), 4) for w in WIDTHS}}
            | {"largest_ms": round(statistics.median(lasts), 1)}
        )

    def summarise(self, rows):
        inputs: dict[str, dict] = {}  # of each module, on its first page
        for part in rows:
            for module, times in rows[part].items() if part.startswith("inputs ") else ():
                inputs.setdefault(module, {"page": part.removeprefix("inputs ")} | times)
        archive = next(self.options.book.glob("*.zip"), None)
        return {
            "browser": self.about_browser(),
            "openings": self.options.openings,
            "archive_bytes": archive.stat().st_size if archive else 0,
            "slow": SLOW,
            "inputs": inputs,
            "pages": [rows[page] for page in self.pages],
        }

    def restore(self, data):
        rows = {row["page"]: row for row in data["pages"]}
        # Of a module, only the answers on its first page are recorded.
        rows |= {part: {} for part in self.parts() if part.startswith("inputs ")}
        for module, times in data["inputs"].items():
            rows.setdefault(f"inputs {times['page']}", {})[module] = times
        return rows
