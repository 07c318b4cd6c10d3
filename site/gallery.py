"""Show each interactive alone on localhost, and draw it again when its files are saved.

Usage: python site/gallery.py [--port 8001]

A page reads the module and the style sheet when it is opened, so a change in
`specdec_book/viz/static/` shows within a second. The state comes from Python: restart for a change
there.
"""

import argparse
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specdec_book import recordings, viz
from specdec_book.viz.block_stepper import BlockStepper
from specdec_book.viz.interactive import STATIC, Interactive, source
from specdec_book.viz.jacobi_grid import JacobiGrid
from specdec_book.viz.stepper import Stepper
from specdec_book.viz.stop_explorer import StopExplorer
from specdec_lite import generate, load_pair
from specdec_lite.drafters import BlockwiseDrafter, EagleDrafter

PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><title>interactive</title>
<style>body {{ margin: 8px; background: {background} }} {css}</style>
<body><main><h1 style="color: gray">Interactive</h1><div id="place"></div></main><script>
{module}
const state = {state}, calls = {{}};
window.model = {{ get: (name) => state[name], save_changes() {{}}, off() {{}},
  set(name, value) {{
    if (state[name] === value) return;
    state[name] = value;
    (calls["change:" + name] ?? []).forEach((call) => call());
  }},
  on(event, call) {{ calls[event] = [...(calls[event] ?? []), call]; }} }};
window.heard = [];
document.body.addEventListener("keydown", (event) => window.heard.push(event.key));
interactive.render({{ model, el: document.getElementById("place") }});
</script></body></html>"""

RELOAD = """<script>
let saved;
setInterval(async () => {
  const now = await (await fetch("/saved")).text();
  if (saved && saved !== now) location.reload();
  saved = now;
}, 500);
</script>"""


def blocks() -> BlockStepper:
    """Return the stepper of a short text that heads drafted."""
    pair = load_pair()
    prompt = pair.tokenizer.encode("def main():")
    drafter = BlockwiseDrafter.from_pretrained(pair.target, k=4)
    return BlockStepper.record(
        generate(pair.target, prompt, drafter, 32), pair.tokenizer, prompt, 4
    )


def growth() -> viz.TreeGrowth:
    """Return both trees that EAGLE's head drafts after two texts."""
    pair = load_pair()
    drafter = EagleDrafter.from_pretrained(pair.target, 2)
    return viz.TreeGrowth.of(drafter, pair.tokenizer, ("def main():", "The answer is"), budget=6)


def switches() -> viz.SkipSwitches:
    """Return the switches of the sublayers, with the recorded rates of both targets."""
    targets = {}
    for name, row in recordings.load("layer-skip-search").data["targets"].items():
        group = row["group"]
        costs = {
            part: size * (1 if part == "head" else group) for part, size in row["bytes"].items()
        }
        shape = {"layers": row["layers"] // group, "group": group}
        targets[name] = shape | {"rates": row["sets"], "costs": costs}
    return viz.SkipSwitches(targets)


def stops() -> StopExplorer:
    """Return the explorer of a recorded draft."""
    story = recordings.load("jacobi-and-stopping").data["drafts"]
    return StopExplorer(**{name: story[name] for name in ("prompt", "words", "places")})


GALLERY: dict[str, Callable[[], Interactive]] = {
    kind.module: load if callable(load := getattr(kind, "load", None)) else kind
    for kind in vars(viz).values()
    if isinstance(kind, type) and issubclass(kind, Interactive) and kind is not Interactive
} | {
    "block_stepper": blocks,
    "growth": growth,
    "jacobi_grid": lambda: JacobiGrid(**recordings.load("jacobi-and-stopping").data["grids"]),
    "skip_switches": switches,
    "stepper": Stepper.load,
    "stop_explorer": stops,
}
"""Each module, and how its interactive is made."""


def bare_page(widget: Interactive, theme: str) -> str:
    """Return HTML that draws one interactive with its state.

    The model is `window.model`; keys that leave the interactive are listed in `window.heard`.
    """
    return PAGE.format(
        theme=theme,
        background="#14181e" if theme == "dark" else "#fff",
        css=(STATIC / "interactive.css").read_text(encoding="utf-8"),
        module=source(widget.module).replace("export default", "const interactive ="),
        state=json.dumps(widget.state()),
    )


def page(address: str) -> str:
    """Return the page of an address: the list of interactives, one of them, or the time of saving."""
    if address == "/saved":
        return str(max(path.stat().st_mtime for path in STATIC.iterdir()))
    name, _, theme = address.strip("/").partition("?")
    if name in GALLERY:
        return bare_page(GALLERY[name](), theme or "light") + RELOAD
    links = (
        f'<li><a href="/{each}">{each}</a> (<a href="/{each}?dark">dark</a>)'
        for each in sorted(GALLERY)
    )
    return f"<!doctype html><title>gallery</title><h1>Interactives</h1><ul>{''.join(links)}</ul>"


class Gallery(BaseHTTPRequestHandler):
    """Answer every request with a fresh page."""

    def do_GET(self):
        content = page(self.path).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Gallery)
    print(f"Open http://127.0.0.1:{server.server_port}/ (press Ctrl+C to stop)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
