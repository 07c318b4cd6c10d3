"""What the directive of an interactive gives it, and what a page shows if it cannot be drawn."""

import json

import pytest
from browsing import START
from docutils.core import publish_doctree
from docutils.parsers.rst import directives
from docutils.utils import SystemMessage
from mounting import settle
from specdec_site.outputs import InteractiveDirective

from specdec_book import recordings, viz

directives.register_directive("interactive", InteractiveDirective)


def state(options: str, body: str, module: str = "round") -> dict:
    page = f".. interactive:: {module}\n   :label: a round\n{options}\n   {body}\n"
    tree = publish_doctree(page, settings_overrides={"halt_level": 3, "report_level": 5})
    written = tree.astext().partition('application/json">')[2].partition("</script>")[0]
    return json.loads(written.replace("\\u003c", "<"))


def test_a_page_lays_its_state_over_a_recording_or_over_the_class():
    data = recordings.load("rounds").data
    given = {"autoplay": True, "about": "recorded"}
    shown = state("   :recording: rounds\n", json.dumps(given))
    assert shown == viz.Round(rounds=data["rounds"], **given).state()
    assert state("", '{"batch": 8}', "advice") == viz.Advice(batch=8).state()
    assert state("", '{"question": "?"}', "ask") == {"question": "?"}, "it has no class"


def test_a_recording_that_is_not_there_stops_the_build():
    with pytest.raises((SystemMessage, ValueError), match="no such recording"):
        state("   :recording: nothing\n", "{}")


@pytest.mark.browser
def test_what_cannot_be_drawn_says_so_and_fails_a_test_at_once(open_page):
    page = open_page(START)
    page.evaluate("""() => {
      const place = document.querySelector(".sdl-interactive");
      place.innerHTML = '<script type="application/json">{}</script>';
      sdlInteractives[place.dataset.module].render = () => { throw new Error("no races"); };
      try { sdlMount(place); } catch { /* the page goes on */ }
    }""")
    with pytest.raises(AssertionError, match="could not be drawn: Error: no races"):
        settle(page)
