"""An interactive of a page whose state is laid over a recording."""

import json
import sys

import pytest
from conftest import ROOT
from docutils.core import publish_doctree
from docutils.parsers.rst import directives
from docutils.utils import SystemMessage

sys.path.insert(0, str(ROOT / "site"))
from specdec_site.outputs import InteractiveDirective  # noqa: E402

from specdec_lite.measure import results  # noqa: E402

directives.register_directive("interactive", InteractiveDirective)


def state(options: str, body: str) -> dict:
    page = f".. interactive:: round\n   :label: a round\n{options}\n   {body}\n"
    tree = publish_doctree(page, settings_overrides={"halt_level": 3, "report_level": 5})
    written = tree.astext().partition('application/json">')[2].partition("</script>")[0]
    return json.loads(written.replace("\\u003c", "<"))


def test_a_page_lays_its_state_over_a_recording():
    shown = state("   :recording: round\n", '{"plays": true, "seed": 7}')
    data = results.load("round").data
    assert shown["rounds"] == data["rounds"] and shown["plays"] is True and shown["seed"] == 7
    assert state("", '{"plays": true}') == {"plays": True}


def test_a_recording_that_is_not_there_stops_the_build():
    with pytest.raises((SystemMessage, ValueError), match="no such recording"):
        state("   :recording: nothing\n", "{}")
