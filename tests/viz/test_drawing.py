"""The plain drawings: each has words, a caption and the house's classes, and is well-formed."""

import re
from xml.etree import ElementTree

import pytest

from specdec_lite.viz import Drawing
from specdec_lite.viz.drawing import drawings
from specdec_lite.viz.interactive import STATIC

STYLE = (STATIC / "drawing.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", drawings())
def test_a_drawing_is_whole(name):
    drawing = Drawing(name)
    root = ElementTree.fromstring(drawing.svg)
    assert root.get("role") == "img" and len(drawing.alt.split()) > 15
    assert drawing.caption.strip() and drawing.caption in repr(drawing)
    assert f"<style>{STYLE}" in drawing._repr_html_() and "figcaption" in drawing._repr_html_()
    width = float(root.get("viewBox").split()[2])
    assert width <= 460, "wider, and a phone could not read it"
    classes = {name for part in root.iter() for name in (part.get("class") or "").split()}
    assert all(f".{name}" in STYLE for name in classes)
    assert not re.search(r"fill=\"#|stroke=\"#|style=", drawing.svg), "colours are the sheet's"
    for part in root.iter("{*}text"):
        assert 0 <= float(part.get("x")) <= width


def test_another_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="cache, heads"):
        Drawing("nothing")
