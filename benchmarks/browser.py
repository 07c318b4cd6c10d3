"""The built book on localhost and a headless Chromium to open it with: for the measurements here,
for the tests and for `make serve`.
"""

import functools
import gzip
import http.server
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, *args) -> None:
        pass


class Compressing(Handler):
    """Sends text as most web hosts do: compressed."""

    def send_head(self):
        path = Path(self.translate_path(self.path))
        if path.suffix not in (".html", ".css", ".js", ".svg", ".json"):
            return super().send_head()
        body = gzip.compress(path.read_bytes(), 6)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return io.BytesIO(body)


class Server(http.server.ThreadingHTTPServer):
    """Silent about a page that was closed before all had been sent."""

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(folder: Path, port: int = 0, handler: type[Handler] = Handler) -> Iterator[str]:
    """A folder on localhost; gives its address, which ends with a slash. port: 0 takes a free one."""
    server = Server(("127.0.0.1", port), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def chromium() -> Iterator:
    """Headless Chromium, as a Playwright browser, which finds no host but this one; CHROMIUM names
    another executable than /usr/bin/chromium.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", OFFLINE],
        )
        yield browser
        browser.close()


def draw_figures(page) -> None:
    """Bring every figure of a page into view, one after another: each is drawn only then."""
    for place in page.query_selector_all(".sdl-plot"):
        place.evaluate("(place) => place.scrollIntoView({ behavior: 'instant', block: 'center' })")
        page.wait_for_function("(place) => place.dataset.drawn", arg=place)
