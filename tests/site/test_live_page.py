"""The live page's interface and its messages to the worker: its own modules in Chromium, without a book."""

import base64
import re

import browser
import pytest
from conftest import ROOT
from mounting import says
from specdec_site import live
from test_live_engine import TOKENIZER, tiny

EMPTY = '<!doctype html><html data-content_root="./"><link rel="icon" href="data:,"><body></body>'
FULL = """{
  const { grow } = WebAssembly.Memory.prototype;
  const fail = () => { throw new RangeError("out of memory"); };
  addEventListener("message", ({ data }) => {
    WebAssembly.Memory.prototype.grow = data.options?.prompt === "FULL" ? fail : grow;
  });
}"""
"""What gives a worker no more memory while it answers to this prompt."""


@pytest.fixture
def modules(new_page):
    """A page of the repository's host, which can import the modules of site/live."""
    with browser.served(ROOT) as address:
        page = new_page((address,))
        page.route("**/empty", lambda route: route.fulfill(content_type="text/html", body=EMPTY))
        page.goto(f"{address}empty")
        yield page


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, dict]:
    """The weights file and the manifest of a small pair whose tokens are single characters."""
    data, manifest = live.export(tiny(1, 1), tiny(2, 1), TOKENIZER)
    pieces = [chr(33 + token) for token in range(64)]
    return data, manifest | {"tokenizer": {"pieces": pieces, "merges": [], "special": {}}}


def hold_the_clock(page) -> None:
    """Let the page's clock move by `run_for` alone."""
    page.clock.install(time=0)
    page.clock.pause_at(1000)


REPLAY = """async () => {
  const { replay } = await import("/site/live/replay.js");
  globalThis.panel = replay("pass");
  document.body.append(panel.node);
  const words = [["accepted", "a"], ["bonus", "b"]];
  globalThis.steps = (count) => Array.from({ length: count }, () => ({ words, emitted: [0, 1] }));
}"""


@pytest.mark.browser
def test_the_replay_of_a_new_run_starts_empty_with_one_timer(modules):
    hold_the_clock(modules)
    modules.evaluate(REPLAY)
    play, scrubber = (modules.locator(part).first for part in ("button", "input[type=range]"))

    def shown(ticks: int, script: str = "") -> str:
        modules.evaluate(f"() => {{ {script} }}")
        modules.clock.run_for(220 * ticks)
        return modules.locator("output").inner_text()

    assert shown(0, "panel.begin('one'); panel.extend(steps(3), true)") == "1 of 3"
    assert shown(3) == shown(1) == "3 of 3"
    assert shown(0, "panel.begin('two')") == "0 of 0"
    press = "document.querySelector('button').click();"
    move = "document.querySelector('input').dispatchEvent(new Event('input'));"
    assert shown(1, press + move) == "0 of 0"
    assert play.is_disabled() and play.inner_text() == "Play"
    assert modules.locator(".sdl-live-bar div").first.evaluate("(bar) => bar.style.width") == "0%"
    assert shown(0, "panel.extend([], false); panel.extend(steps(4), true)") == "1 of 4"
    assert shown(1) == "2 of 4" and shown(3) == "4 of 4", "one timer moves it"
    scrubber.fill("1")
    assert shown(2) == "1 of 4"


MOUNT = """async (parts) => {
  const presets = [{ kind: "code", source: "a file", text: "ABC" }];
  globalThis.sdlLive = { presets, kernels: {}, ...parts };
  const { default: live } = await import("/site/live/live.js");
  live.render({ model: { get: () => false }, el: document.body });
}"""


@pytest.mark.browser
def test_numbers_are_old_until_a_run_has_new_ones_and_a_failed_run_is_followed_by_others(
    modules, pair
):
    """A run, one with an empty prompt, one without memory for its format, and a last one."""
    data, manifest = pair
    modules.route("**/weights.bin", lambda route: route.fulfill(body=data))
    worker = FULL + live.bundle(live.WORKER)
    modules.evaluate(MOUNT, {"manifest": manifest | {"pieces": 1}, "worker": worker})
    modules.locator(".sdl-live-settings > summary").click()
    old, button = (
        modules.get_by_text("Measured in the previous run"),
        modules.locator(".sdl-live-run"),
    )

    def run(prompt: str, format: str, words: str, shown: str = "") -> None:
        modules.get_by_label("Prompt").fill(prompt)
        modules.get_by_label("Weights in memory").select_option(format)
        button.click()
        modules.wait_for_selector(".sdl-live-run:not([aria-disabled])")
        says(modules, ".sdl-live-status", words)
        is_old = "Done" not in words
        assert old.is_visible() == is_old == bool(modules.locator(".sdl-live-old").count())
        if is_old:
            assert modules.locator(".sdl-live-replay output").inner_text() == "0 of 0"

    run("ABC", "float32", "Done: ")
    run("", "float32", "The prompt is empty")
    run("FULL", "int8", "Close other tabs and try again.")
    run("ABC", "int8", "Done: ")
    assert modules.locator("output:not([aria-live=off])").count() == 0
    assert modules.locator("[role=status]").count() == 1, "what screen readers announce"
    modules.problems.clear()  # a failure is a warning in the console too


WORKER = """async ({ source, text, manifest }) => {
  const [made, revoked, heard] = [[], [], []];
  for (const [name, list] of [["createObjectURL", made], ["revokeObjectURL", revoked]]) {
    const own = URL[name];
    URL[name] = (it) => list.push(own.call(URL, it) ?? it) && list.at(-1);
  }
  const { startWorker } = await import("/site/live/download.js");
  const worker = startWorker(source);
  const before = revoked.length;
  for (let time = 0; time < 2; time++) {
    worker.postMessage({ type: "piece", text });
    worker.postMessage({ type: "load", kernels: {}, manifest, format: "int8", url: null });
    heard.push(await new Promise((resolve) => {
      worker.onmessage = ({ data }) => data.type !== "sign" && resolve(data.text ?? data.type);
    }));
  }
  return { heard, before, made, revoked };
}"""


@pytest.mark.browser
def test_the_worker_frees_its_source_and_the_pieces_of_joined_weights(modules, pair):
    data, manifest = pair
    text = base64.b64encode(data).decode()
    given = {"source": live.bundle(live.WORKER), "text": text, "manifest": manifest}
    seen = modules.evaluate(WORKER, given)
    assert seen["heard"] == ["ready", "ready"]
    assert seen["before"] == 0 and seen["revoked"] == seen["made"] and len(seen["made"]) == 1


SCRIPTS = """async () => {
  const { loadFromScripts } = await import("/site/live/download.js");
  const got = { a: [], b: [], c: [], again: [] };
  const start = (base, into) =>
    loadFromScripts(`${base}/weights`, 2, (text) => got[into].push(text), () => {});
  await Promise.all([start("a", "a"), start("b", "b")]);
  const failed = await start("c", "c").catch((error) => error.message);
  const left = "sdlWeights" in globalThis;
  await start("a", "again");
  return { got, failed, left };
}"""


@pytest.mark.browser
def test_copies_of_the_page_load_weights_one_after_another(modules):
    """From a folder, every script calls one global function, which is deleted afterwards even if a
    script fails.
    """

    def answer(route) -> None:
        name = re.sub(r".*/(.)/weights-(.)\.js", r"\1\2", route.request.url)
        body = f"globalThis.sdlWeights('{name}')"
        route.fulfill(status=404) if name == "c1" else route.fulfill(body=body)

    modules.route("**/weights-*.js", answer)
    seen = modules.evaluate(SCRIPTS)
    assert seen["got"] == {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0"], "again": ["a0", "a1"]}
    assert "could not be loaded" in seen["failed"] and not seen["left"]
    modules.problems.clear()


REQUEST = """async (type) => {
  globalThis.Worker = class extends EventTarget {
    postMessage() {}
    terminate() { this.ended = true; }
    constructor() { super(); globalThis.worker = this; }
  };
  const { startEngine } = await import("/site/live/download.js");
  [globalThis.engine, globalThis.said] = [startEngine(""), "waits"];
  engine.request({ type }, () => {}).catch((error) => { said = error.message; });
}"""
ALIVE = "setInterval(() => worker.onmessage({ data: { type: 'sign' } }), 1000)"
BROKEN = """worker.onerror({ preventDefault() {}, message: "Uncaught SyntaxError: Unexpected token '<'" })"""


@pytest.mark.browser
@pytest.mark.parametrize(
    "kind, seconds, act, words",
    [
        ("run", 21, "", "Press the button to start it again"),
        ("loadSmollm2", 61, "", "Check the connection"),
        ("run", 0, BROKEN, "Press the button again"),
        ("run", 19, "", ""),
        ("loadSmollm2", 59, "", ""),
        ("run", 90, ALIVE, ""),
    ],
)
def test_a_worker_that_does_not_answer_is_stopped_within_seconds(
    modules, kind: str, seconds: int, act: str, words: str
):
    """The next press of the button starts another one; one that shows life may compute for long."""
    hold_the_clock(modules)
    modules.evaluate(REQUEST, kind)
    modules.evaluate(f"() => {{ {act} }}")
    modules.clock.run_for(1000 * seconds)
    said, stopped, ended = modules.evaluate("[said, engine.stopped(), Boolean(worker.ended)]")
    assert words in said and (said == "waits") == (not words) and "SyntaxError" not in said
    assert stopped == ended == bool(words)
    modules.problems.clear()


LINES = """async () => {
  const { lineFor, ReaderError, sendSignsBy, showLife } = await import("/site/live/failure.js");
  const errors = [
    new ReaderError("The question is empty."),
    new TypeError("Cannot read properties of undefined (reading 'x')"),
    new SyntaxError('Unexpected token \'<\', "<!DOCTYPE" is not valid JSON'),
    new RangeError("WebAssembly.Memory.grow(): Maximum memory size exceeded"),
    undefined,
  ];
  let [now, signs] = [0, 0];
  performance.now = () => now;
  sendSignsBy(() => signs++);
  for (; now < 3000; now += 10) showLife();
  return { lines: errors.map((error) => lineFor(error)), other: lineFor(errors[1], "It stopped."), signs };
}"""


@pytest.mark.browser
def test_a_browsers_own_words_are_replaced_by_a_line_that_says_what_to_do(modules):
    seen = modules.evaluate(LINES)
    own, *raw = seen["lines"]
    assert own == "The question is empty." and seen["other"] == "It stopped."
    assert not re.search("undefined|token|WebAssembly|JSON", " ".join(raw))
    assert all(re.search("again|reload", line) for line in raw) and "memory" in raw[2]
    assert seen["signs"] == 3, "one per second, however many passes"
    modules.problems.clear()


def test_no_module_shows_the_words_of_an_error_by_itself():
    """`lineFor` alone reads the message of an error; what is thrown for readers is a ReaderError."""
    for path in sorted((ROOT / "site" / "live").glob("*.js")):
        source = path.read_text("utf-8")
        assert path.name == "failure.js" or "error.message" not in source, path.name
        for kind, line in re.findall(r"new (\w*Error)\(\s*[\"`]([^\"`]*)", source):
            is_sentence = bool(re.match(r"[A-Z$].*[.:] ?", line))
            assert is_sentence == (kind == "ReaderError"), f"{path.name}: {line}"
