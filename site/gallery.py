"""Show each interactive alone on localhost, and draw it again when its files are saved.

Usage: python site/gallery.py [--port 8001]

A page reads the module and the style sheet when it is opened, so a change in
`specdec_book/viz/static/` shows within a second. The state comes from Python: after a change there
the server restarts by itself, which takes some seconds.
"""

import argparse
import asyncio
import functools
import json
import time
from collections.abc import Callable

from tornado.web import Application, RequestHandler

from specdec_book import recordings, viz
from specdec_book.recordings import board, measured
from specdec_book.viz.interactive import STATIC, Interactive, source
from specdec_book.viz.interactives import BlockStepper, JacobiGrid, Stepper, StopExplorer
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
  const answer = await fetch("/saved").catch(() => null); // null while the server restarts
  const now = await answer?.text();
  if (saved && now && saved !== now) location.reload();
  saved = now ?? saved;
}, 500);
</script>"""
STARTED = time.time()


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


def lookup() -> viz.Lookup:
    """Return the lookups of a text that repeats itself."""
    pair = load_pair()
    prompt = pair.tokenizer.encode("def area(width, height):\n    return width * height\n\n\ndef ")
    answer = generate(pair.target, prompt, None, 64).tokens.tolist()
    return viz.Lookup.of({"a function": (prompt, answer)}, pair.tokenizer)


def pairs() -> viz.Explorer:
    """Return the explorer of measured pairs."""
    return viz.Explorer.of_pairs([*measured.published_pairs(), *measured.recorded_pairs()])


def fault() -> viz.LogLine:
    """Return the reading of a line with many positions, of which most accept nothing."""
    rates = ", ".join(f"{rate:.3f}" for rate in (0.6, 0.385, 0.215, 0.108, 0.062, *[0.0] * 10))
    return viz.LogLine(
        text="SpecDecoding metrics: Mean acceptance length: 2.37, Accepted: 89 tokens, Drafted: 975"
        f" tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 9.1%"
    )


def stops() -> StopExplorer:
    """Return the explorer of a recorded draft."""
    story = recordings.load("jacobi-and-stopping").data["drafts"]
    return StopExplorer(**{name: story[name] for name in ("words", "places")})


GALLERY: dict[str, Callable[[], Interactive]] = {
    kind.module: load if callable(load := getattr(kind, "load", None)) else kind
    for kind in (getattr(viz, name) for name in viz.__all__)
    if isinstance(kind, type) and issubclass(kind, Interactive) and kind is not Interactive
} | {
    "bench_of_siblings": lambda: viz.Bench(siblings=True),
    "block_stepper": blocks,
    "explorer_of_pairs": pairs,
    "growth": growth,
    "log_line": lambda: viz.LogLine(
        text="draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length"
        " =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
    ),
    "log_line_of_a_fault": fault,
    "lookup": lookup,
    "scoreboard": lambda: viz.Scoreboard.of(board.load("smollm2")),
    "jacobi_grid": lambda: JacobiGrid(**recordings.load("jacobi-and-stopping").data["grids"]),
    "skip_switches": switches,
    "stepper": Stepper.load,
    "stop_explorer": stops,
}
"""How the interactive of each module is made, and further ones that fill their modules otherwise."""


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


@functools.cache
def made(name: str) -> Interactive:
    """Return an interactive; the server restarts when the code that makes it changes."""
    return GALLERY[name]()


def page(address: str) -> str:
    """Return the page of an address: the list of interactives, one of them, or the time of saving."""
    if address == "/saved":
        return str(max(STARTED, *(path.stat().st_mtime for path in STATIC.rglob("*"))))
    name, _, theme = address.strip("/").partition("?")
    if name in GALLERY:
        return bare_page(made(name), theme or "light") + RELOAD
    links = (
        f'<li><a href="/{each}">{each}</a> (<a href="/{each}?dark">dark</a>)'
        for each in sorted(GALLERY)
    )
    return f"<!doctype html><title>gallery</title><h1>Interactives</h1><ul>{''.join(links)}</ul>"


class Gallery(RequestHandler):
    """Answer every request with a fresh page."""

    def get(self):
        self.write(page(self.request.uri or "/"))


async def serve(port: int) -> None:
    """Serve the pages until the process is stopped."""
    Application([(r".*", Gallery)], autoreload=True).listen(port, "127.0.0.1")
    print(f"Open http://127.0.0.1:{port}/ (press Ctrl+C to stop)", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    try:
        asyncio.run(serve(parser.parse_args().port))
    except KeyboardInterrupt:
        pass
