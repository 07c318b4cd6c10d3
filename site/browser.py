"""Serve the built book on localhost, and open it in headless Chromium.

The tests and `make serve` use this module.
"""

import functools
import http.server
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


OWN_NAMES = {"127.0.0.1", "localhost"}
"""Names of this machine. A page of another name that leads here could read what is served."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """A request handler that serves the files of one folder to this machine, and writes no log."""

    def parse_request(self) -> bool:
        """Read a request, and refuse one for another host."""
        if not super().parse_request():
            return False
        if re.sub(r":\d+$", "", self.headers.get("Host", "localhost")) not in OWN_NAMES:
            self.send_error(403, "This server answers to localhost only")
            return False
        return True

    def translate_path(self, path: str) -> str:
        """Return the file of a request, or one that does not exist if it leads out of the folder."""
        file, absent = super().translate_path(path), os.path.join(self.directory, ".absent")
        try:
            target = Path(os.path.realpath(file))
        except ValueError:  # a name with a NUL
            return absent
        return file if target.is_relative_to(os.path.realpath(self.directory)) else absent

    def list_directory(self, path) -> None:
        """Answer that there is no page; a folder without an index is not listed."""
        self.send_error(404)

    def log_message(self, *args) -> None:
        """Write nothing."""


class Isolating(Handler):
    """A request handler that isolates its pages, so that their threads can share memory."""

    def end_headers(self) -> None:
        """Add the headers COOP and COEP, and end the headers."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server that ignores connections closed by the browser."""

    def handle_error(self, request, client_address) -> None:
        """Report an error, unless the browser closed the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(folder: Path, port: int = 0, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve a folder on localhost."""
    server = Server(("127.0.0.1", port), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def launch(kind, *options: str):
    """Start headless Chromium as a Playwright browser that can reach only localhost.

    The environment variable CHROMIUM names its executable; the default is /usr/bin/chromium.
    """
    return kind.launch(
        executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
        args=["--no-sandbox", OFFLINE, *options],
    )


@contextmanager
def chromium() -> Iterator:
    """Yield headless Chromium as a Playwright browser that can reach only localhost."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        yield browser
        browser.close()


def draw_figures(page) -> None:
    """Scroll to every figure of a page, because a figure is drawn when it comes into view."""
    for plot in page.query_selector_all(".sdl-plot"):
        plot.evaluate("(plot) => plot.scrollIntoView({ behavior: 'instant', block: 'center' })")
        page.wait_for_function("(plot) => plot.dataset.drawn", arg=plot)
