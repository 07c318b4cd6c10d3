"""The built book on localhost and a headless Chromium to open it with: for the measurements here and for the tests."""
import functools
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, *args) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """Silent about a page that was closed before all had been sent."""

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder on localhost; gives its address, which ends with a slash."""
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def chromium() -> Iterator:
    """Headless Chromium, as a Playwright browser; CHROMIUM names another executable than /usr/bin/chromium."""
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()
