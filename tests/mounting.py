"""Pages for the fixtures of conftest.py: one interactive alone, outside any built book."""

import json

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


def bare_page(widget, theme: str) -> str:
    """Return HTML that draws one interactive with its state.

    The model is `window.model`; keys that leave the interactive are listed in `window.heard`.
    """
    return PAGE.format(
        theme=theme,
        background="#14181e" if theme == "dark" else "#fff",
        css=widget._css,
        module=widget._esm.replace("export default", "const interactive ="),
        state=json.dumps(widget.state()),
    )


def settle(page) -> None:
    """Wait until every interactive is drawn."""
    page.wait_for_function(
        "[...document.querySelectorAll('.sdl-interactive')].every((place) => place.dataset.mounted)"
    )


def pause(page, milliseconds: int) -> None:
    """Wait for timers and frames of the page: what is due by then has happened, on a busy machine too."""
    page.evaluate(
        """(milliseconds) => new Promise((done) => setTimeout(
        () => requestAnimationFrame(() => requestAnimationFrame(done)), milliseconds))""",
        milliseconds,
    )


def says(page, selector: str, words: str) -> None:
    """Wait until the element's text contains these words."""
    page.wait_for_function(
        "([selector, words]) => document.querySelector(selector).textContent.includes(words)",
        arg=[selector, words],
    )


def outside_the_frame(page, setting: dict) -> list[str]:
    """Return the parts of a drawing that leave the interactive sideways at a setting of its model."""
    page.evaluate("(s) => Object.entries(s).forEach(([n, v]) => model.set(n, v))", setting)
    return page.evaluate(
        """() => {
      const frame = document.querySelector(".sdl").getBoundingClientRect();
      return [...document.querySelectorAll(".sdl svg :is(text, rect, path, circle)")].filter((n) => {
        const r = n.getBoundingClientRect();
        return r.left < frame.left - 1 || r.right > frame.right + 1;
      }).map((n) => n.outerHTML);
    }"""
    )


def open_phone_folds(page) -> None:
    """Open what a phone shows folded; on a wider page nothing is folded."""
    for summary in page.locator(".sdl-phone-fold > summary").all():
        if summary.is_visible():
            summary.click()
