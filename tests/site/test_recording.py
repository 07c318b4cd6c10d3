"""An interactive of a page whose state is laid over a recording."""

import json

import pytest
from docutils.core import publish_doctree
from docutils.parsers.rst import directives
from docutils.utils import SystemMessage
from specdec_site.outputs import InteractiveDirective

from specdec_book import recordings

directives.register_directive("interactive", InteractiveDirective)


def state(options: str, body: str) -> dict:
    page = f".. interactive:: round\n   :label: a round\n{options}\n   {body}\n"
    tree = publish_doctree(page, settings_overrides={"halt_level": 3, "report_level": 5})
    written = tree.astext().partition('application/json">')[2].partition("</script>")[0]
    return json.loads(written.replace("\\u003c", "<"))


def test_a_page_lays_its_state_over_a_recording():
    shown = state("   :recording: rounds\n", '{"autoplay": true, "seed": 7}')
    data = recordings.load("rounds").data
    assert shown["rounds"] == data["rounds"] and shown["autoplay"] is True and shown["seed"] == 7
    assert state("", '{"autoplay": true}') == {"autoplay": True}


def test_a_recording_that_is_not_there_stops_the_build():
    with pytest.raises((SystemMessage, ValueError), match="no such recording"):
        state("   :recording: nothing\n", "{}")
