"""Words of the text that set an interactive beside them: links such as #explorer:gamma=20."""

import browser
import pytest
from conftest import ROOT
from mounting import says, settle
from specdec_site.assets import classic_script
from specdec_site.outputs import interactive_html

from specdec_book.viz import Explorer
from specdec_book.viz.interactive import source

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>t</title>
<script>{mount}</script><script>{module}</script>
<article><p><a href="#explorer:gamma=20">γ = 20</a> <a href="#explorer:gamma=2,alpha=0.5">few</a></p>
<details><summary>fold</summary>{widget}</details></article>
<script>sdlMount(document.querySelector(".sdl-interactive"))</script></html>"""


@pytest.mark.browser
def test_a_handle_sets_its_interactive_every_time_and_opens_the_fold_around_it(new_page, tmp_path):
    widget = Explorer(alpha=0.8, gamma=4, c=0.2, finding="The ratio has a peak.")
    text = PAGE.format(
        mount=(ROOT / "site" / "static" / "interactives.js").read_text(encoding="utf-8"),
        module=classic_script("explorer", source("explorer")),
        widget=interactive_html("explorer", widget.state(), widget.label),
    )
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    with browser.served(tmp_path) as address:
        page = new_page((address,))
        page.goto(f"{address}index.html")
        settle(page)
        gamma = lambda: page.evaluate(
            "document.querySelector('.sdl-interactive').sdlModel.get('gamma')"
        )
        for _ in range(2):  # the second time the address is the same
            page.get_by_text("γ = 20").press("Enter")
            assert gamma() == 20 and page.locator("details").first.get_attribute("open") == ""
            says(page, "[aria-live=polite]", "20")
            page.evaluate("document.querySelector('.sdl-interactive').sdlModel.set('gamma', 3)")
        page.get_by_text("few").click()
        assert gamma() == 2 and page.evaluate("location.hash") == "#explorer:gamma=2,alpha=0.5"
        page.get_by_text("The ratio has a peak.").wait_for()
