"""A measured speedup among the explorer's presets is drawn at its γ and stated in the summary."""

import pytest
from mounting import says

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
    words = page.locator("[aria-live=polite]").inner_text()
    assert "The measured speedup of here is 0.50× at γ 4." in words


@pytest.mark.browser
def test_the_square_disappears_when_a_slider_moves(mounted):
    measured = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 0.5}
    page = mounted(Explorer(alpha=0.6, gamma=4, c=0.3, presets=[measured]), 1000)
    words, squares = page.locator("[aria-live=polite]"), page.locator(".sdl-measured")
    page.get_by_label("Start from").select_option(label="EnDe, t5-large, T=0")
    says(page, "[aria-live=polite]", "1.70× at γ 7")
    assert squares.count() == 1 and "here" not in words.inner_text()
    page.evaluate("model.set('c', 0.3)")
    page.locator("input[data-name=c]").press("ArrowRight")
    page.wait_for_function("!document.querySelector('.sdl-measured')")
    says(page, "[aria-live=polite]", "c 0.")
    page.wait_for_function(
        "!document.querySelector('[aria-live=polite]').textContent.includes('measured')"
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
    assert page.evaluate(
        """() => {
      const bars = [...document.querySelectorAll("rect[fill='var(--sdl-draft)']")];
      const free = (bar) => {
        const box = (n, a) => Number(n.getAttribute(a));
        const [left, width] = [box(bar, "x"), box(bar, "width")];
        const lines = [...bar.parentNode.querySelectorAll("line[stroke='var(--sdl-surface)']")]
          .filter((n) => box(n, "x1") > left && box(n, "x1") < left + width
            && box(n, "y1") === box(bar, "y"));
        return width - 1.5 * lines.length;
      };
      return bars.length === 1 && free(bars[0]) >= 2;
    }"""
    )


@pytest.mark.browser
def test_a_measured_pair_stays_while_one_lever_moves(mounted):
    pair = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 1.0, "by": "We."}
    pair |= {"source": "https://example.org/", "facts": [["T(1)", "7 ms"]]}
    page = mounted(Explorer.of_pairs([pair, pair | {"label": "there", "c": 0.5}]), 1000)
    assert page.get_by_label("Pair").locator("option").all_inner_texts() == ["here", "there"]
    assert (
        "Predicted 1.05×, measured 1.00×: 5 % too high."
        in page.locator(".sdl-explorer").inner_text()
    )
    page.get_by_text("About this pair").click()
    text = page.locator(".sdl-explorer").inner_text()
    assert "here. We. source." in text
    assert "7 ms" in text
    assert page.get_by_role("link", name="source").count() == 1
    page.locator("input[data-name=c]").press("Home")
    says(page, ".sdl-task-state", "Solved with c = 0.00")
    assert page.locator(".sdl-measured").count() == 1
    page.locator("input[data-name=alpha]").press("End")
    says(page, ".sdl-task-state", "Move one slider only")


@pytest.mark.browser
def test_a_pair_measured_later_is_offered_and_chosen(mounted):
    pair = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 1.0, "by": "We."}
    page = mounted(Explorer.of_pairs([pair]), 1000)
    later = pair | {"label": "mine", "c": 0.2, "measured": 1.2, "by": "I."}
    page.evaluate("later => { model.set('c', 0.2); model.set('presets', [later]); }", later)
    assert page.get_by_label("Pair").locator("option:checked").inner_text() == "mine"
    assert "measured 1.20×" in page.locator(".sdl-explorer").inner_text()
