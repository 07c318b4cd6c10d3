"""A measured speedup among the explorer's presets is drawn at its γ; bricks show each token's probability."""

import pytest

from specdec_book.viz import Explorer


@pytest.mark.browser
def test_a_measured_point_is_at_its_gamma_and_speedup(mounted):
    measured = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 0.5}
    other = {"label": "not measured", "alpha": 0.5, "gamma": 2, "c": 0.1}
    page = mounted(Explorer(alpha=0.6, gamma=4, c=0.3, presets=[measured, other]), 1000)
    (x, y), (left, top) = page.evaluate(
        """['circle[r="6.5"]', '.sdl-measured'].map((mark) => document.querySelector(mark))
        .map((mark) => ["cx", "cy", "x", "y"].map((name) => mark.getAttribute(name)).filter(Boolean))"""
    )
    assert float(left) + 6 == pytest.approx(float(x)) and float(top) + 6 > float(y), (
        "slower than the formula says: below"
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", [870, 358])
def test_a_brick_per_token_fades_with_its_probability_on_a_fixed_scale(mounted, width):
    page = mounted(Explorer(alpha=0.5, gamma=3, c=0.2), width)
    bricks = lambda color: page.evaluate(
        "(color) => [...document.querySelectorAll(`rect[fill='var(--sdl-${color})']`)].map((box) =>"
        " [+box.getAttribute('width'), +box.getAttribute('fill-opacity')])",
        color,
    )
    (unit, _), *rest = bricks("accepted")
    assert [each / unit for each, _ in rest] == pytest.approx([0.5, 0.25, 0.125])
    shades = [shade for _, shade in bricks("accepted")]
    assert shades == sorted(shades, reverse=True) and len({*shades}) == 4
    assert bricks("draft")[0][0] == pytest.approx(3 * 0.2 * unit)
    assert bricks("target")[0][0] == pytest.approx(unit)
    page.evaluate("model.set('gamma', 9)")
    assert bricks("target")[0][0] == pytest.approx(unit), "a change of γ does not rescale the bars"


@pytest.mark.browser
@pytest.mark.parametrize("c", [0.0, 0.005, 0.01])
def test_the_cheapest_drafts_are_drawn(mounted, c):
    """Some orange remains visible: the lines between drafts do not cover them."""
    page = mounted(Explorer(alpha=0.8, gamma=12, c=c), 1000)
    (width,) = page.evaluate(
        "[...document.querySelectorAll(`rect[fill='var(--sdl-draft)']`)].map((b) => b.getAttribute('width'))"
    )
    assert float(width) >= 2 and page.locator("line[stroke='var(--sdl-surface)']").count() == 0
