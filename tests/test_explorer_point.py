"""A measured speedup among the explorer's presets is drawn at its γ, and said in words."""
import json

import pytest

from specdec_lite.viz import Explorer

PAGE = """<!doctype html><style>{css}</style><body><div id="place" style="width: 900px"></div><script>
{module}
const state = {state};
const model = {{ get: (name) => state[name], set() {{}}, save_changes() {{}}, on() {{}}, off() {{}} }};
explorer.render({{ model, el: document.getElementById("place") }});
</script></body>"""


def shown(chromium, presets):
    page = chromium.new_page(viewport={"width": 1000, "height": 900})
    state = Explorer(alpha=0.6, gamma=4, c=0.3, presets=presets).state()
    page.set_content(PAGE.format(css=Explorer._css, module=Explorer._esm.replace("export default", "const explorer ="), state=json.dumps(state)))
    page.wait_for_function("document.querySelector('[aria-live]').textContent.length > 20")
    found = page.evaluate("""[...document.querySelectorAll('.sdl-measured')].map((box) => [+box.getAttribute('x') + 6, +box.getAttribute('y') + 6])""")
    you = page.evaluate("""(() => { const dots = [...document.querySelectorAll('circle[r="6.5"]')]; return [+dots[0].getAttribute('cx'), +dots[0].getAttribute('cy')]; })()""")
    words = page.locator("[aria-live]").inner_text()
    page.close()
    return found, you, words


@pytest.mark.browser
def test_a_measured_point_stands_at_its_gamma_and_speedup(chromium):
    measured = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 0.5}
    found, you, words = shown(chromium, [measured, {"label": "not measured", "alpha": 0.5, "gamma": 2, "c": 0.1}])
    assert len(found) == 1 and found[0][0] == pytest.approx(you[0]) and found[0][1] > you[1]   # slower than the formula says: below
    assert "Measured, here: 0.50× at γ 4." in words


@pytest.mark.browser
def test_without_a_measurement_nothing_is_drawn(chromium):
    found, _, words = shown(chromium, [])
    assert found == [] and "Measured" not in words
