"""The drawings made by hand: each is well-formed and has an alternative text and a caption."""

import re
from xml.etree import ElementTree

import pytest

from specdec_book.viz import Drawing
from specdec_book.viz.drawing import drawings
from specdec_book.viz.interactive import STATIC

STYLE = (STATIC / "drawing.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", drawings())
def test_a_drawing_is_complete(name):
    drawing = Drawing(name)
    root = ElementTree.fromstring(drawing.svg)
    assert root.get("role") == "img" and len(drawing.alt.split()) > 15
    assert drawing.caption.strip() and drawing.caption in repr(drawing)
    assert f"<style>{STYLE}" in drawing._repr_html_() and "figcaption" in drawing._repr_html_()
    width = float(root.get("viewBox").split()[2])
    assert width <= 460, "a phone cannot show a wider drawing at a readable size"
    classes = {name for part in root.iter() for name in (part.get("class") or "").split()}
    assert all(f".{name}" in STYLE for name in classes)
    assert not re.search(r"fill=\"#|stroke=\"#|style=", drawing.svg), (
        "colors come from the style sheet"
    )
    for part in root.iter("{*}text"):
        assert 0 <= float(part.get("x")) <= width


def test_an_unknown_name_is_rejected_with_the_known_names():
    with pytest.raises(ValueError, match="cache, heads"):
        Drawing("nothing")
