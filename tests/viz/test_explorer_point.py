"""A measured speedup among the explorer's presets is drawn at its γ, and said in words."""

import pytest

from specdec_lite.viz import Explorer


def shown(mounted, presets):
    page = mounted(Explorer(alpha=0.6, gamma=4, c=0.3, presets=presets), 1000)
    found = page.evaluate(
        "[...document.querySelectorAll('.sdl-measured')].map((box) => [+box.getAttribute('x') + 6,"
        " +box.getAttribute('y') + 6])"
    )
    you = page.evaluate(
        """(() => {
      const dot = document.querySelector('circle[r="6.5"]');
      return [+dot.getAttribute('cx'), +dot.getAttribute('cy')];
    })()"""
    )
    return found, you, page.locator("[aria-live=polite]").inner_text()


@pytest.mark.browser
def test_a_measured_point_stands_at_its_gamma_and_speedup(mounted):
    measured = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 0.5}
    found, you, words = shown(
        mounted, [measured, {"label": "not measured", "alpha": 0.5, "gamma": 2, "c": 0.1}]
    )
    assert (
        len(found) == 1 and found[0][0] == pytest.approx(you[0]) and found[0][1] > you[1]
    )  # slower than the formula says: below
    assert "Measured, here: 0.50× at γ 4." in words


@pytest.mark.browser
def test_without_a_measurement_nothing_is_drawn(mounted):
    found, _, words = shown(mounted, [])
    assert found == [] and "Measured" not in words
