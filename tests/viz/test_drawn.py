"""The drawings of a round: what their words and lengths say."""

import re

import pytest

from specdec_lite.viz import PALETTE, drawn


def lengths(html: str, colour: str) -> list[float]:
    bars = re.findall(r"<rect [^>]*>", html)
    return [float(re.search(r' width="([\d.]+)"', bar)[1]) for bar in bars if colour in bar]


def test_solid_bars_are_the_overlap_and_dashed_ones_sum_to_the_same_on_both_sides():
    p, q = [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]
    html = drawn.overlap(["tea", "soup", "toast"], p, q)._repr_html_()
    solid = lengths(html, PALETTE["accepted"])
    assert [x / solid[0] for x in solid] == pytest.approx([1, 1, 2 / 3], rel=1e-4)
    (over,), (excess,) = lengths(html, PALETTE["recovered"]), lengths(html, PALETTE["rejected"])
    assert over == pytest.approx(excess) == pytest.approx(solid[0] * 2 / 3, rel=1e-4)
    assert "overhang .2" in html and "too much .2" in html


@pytest.mark.parametrize("gamma", [1, 4])
def test_every_row_judges_the_draft_one_place_further(gamma):
    drawing = drawn.verify_pass(gamma)
    html = drawing._repr_html_()
    assert [int(n) for n in re.findall(r"judges x(\d+)", html)] == list(range(1, gamma + 1))
    assert len(re.findall(r">row \d+<", html)) == gamma + 1 and ">bonus<" in html
    assert f"{gamma + 1} rows" in drawing.alt and repr(drawing) == drawing.alt
