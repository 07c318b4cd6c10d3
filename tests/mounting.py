"""An interactive on a bare page in a real browser, outside any built book."""
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><title>interactive</title><style>body {{ margin: 8px; background: {background} }} {css}</style>
<body><main><h1 style="color: gray">Interactive</h1><div id="place"></div></main><script>
{module}
const state = {state}, calls = {{}};
window.model = {{ get: (name) => state[name], save_changes() {{}}, off() {{}},
  set(name, value) {{ if (state[name] === value) return; state[name] = value; (calls["change:" + name] ?? []).forEach((call) => call()); }},
  on(event, call) {{ calls[event] = [...(calls[event] ?? []), call]; }} }};
window.heard = [];
document.body.addEventListener("keydown", (event) => window.heard.push(event.key));
interactive.render({{ model, el: document.getElementById("place") }});
</script></body></html>"""


@pytest.fixture
def mounted(chromium):
    """mounted(widget, width, theme) -> page; any exception in it fails the test."""
    pages, problems = [], []

    def mount(widget, width=1280, theme="light"):
        page = chromium.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.set_content(PAGE.format(theme=theme, background="#14181e" if theme == "dark" else "#fff", css=widget._css,
                                     module=widget._esm.replace("export default", "const interactive ="), state=json.dumps(widget.state())))
        page.locator(".sdl-summary:not(:empty)").wait_for()
        return page

    yield mount
    for page in pages:
        page.close()
    assert problems == []


def says(page, where: str, words: str):
    page.wait_for_function("([where, words]) => document.querySelector(where).textContent.includes(words)", arg=[where, words])


def axe_faults(page) -> list[str]:
    """What axe-core finds, at any level."""
    page.evaluate((ROOT / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in found]
