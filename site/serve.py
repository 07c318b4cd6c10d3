"""Shows the built book on localhost and rebuilds it when a source changes. Usage: python site/serve.py [--port 8000]."""

import argparse
import functools
import http.server
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("book/**/*", "notebooks/*.ipynb", "site/**/*", "specdec_lite/**/*.py", "specdec_lite/viz/static/*", "results/*.json", "_*.yml")


def newest() -> float:
    return max(path.stat().st_mtime for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file())


def serve(port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "_build" / "html")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"Open http://localhost:{port}/index.html (Ctrl+C ends)")


def rebuild_on_change() -> None:
    seen = newest()
    while True:
        time.sleep(1)
        if (latest := newest()) > seen:
            seen = latest
            builder = Path(sys.executable).parent / "jupyter-book"
            subprocess.run([builder, "build", ".", "-n", "--keep-going"], cwd=ROOT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    serve(parser.parse_args().port)
    try:
        rebuild_on_change()
    except KeyboardInterrupt:
        pass
