"""The speedup explorer and the roofline explorer, by keyboard, mouse and touch, wide and narrow."""

import pytest
from chosen import one_of
from mounting import open_phone_folds, pause, says

from specdec_book.viz import Explorer
from specdec_book.viz.interactives import Roofline
from specdec_lite import roofline, theory


def press(page, slider: str, key: str, times: int = 1) -> None:
    page.locator(f"input[data-name={slider}]").focus()
    for _ in range(times):
        page.keyboard.press(key)


def value(page, name: str):
    return page.evaluate("(name) => model.get(name)", name)


def top_of(page, slider: str) -> float:
    """Return where a slider is: it does not move when the task is solved."""
    return page.locator(f"input[data-name={slider}]").bounding_box()["y"]


def drag(page, chart: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag with the left button; positions are fractions of the plot's width and height."""
    svg = page.get_by_role("img", name=chart)
    svg.scroll_into_view_if_needed()
    box, left = svg.bounding_box(), 62 if page.locator(".sdl-roofline").count() else 40
    foot, across = box["height"] - 40, box["width"] - 12 - left
    at = lambda x, y: (box["x"] + left + x * across, box["y"] + foot - y * (foot - 30))
    page.mouse.move(*at(*start))
    page.mouse.down()
    page.mouse.move(*at(*end), steps=4)
    page.mouse.up()
    page.mouse.move(*at(0.5, 0.5))


def swipe(page, chart: str, *points: tuple[float, float]) -> None:
    """Touch the first point, move to the others in order, and release; points in pixels."""
    svg = page.get_by_role("img", name=chart)
    svg.scroll_into_view_if_needed()
    box, touches = svg.bounding_box(), page.context.new_cdp_session(page)
    for kind, point in zip(("touchStart", *["touchMove"] * (len(points) - 1)), points):
        touches.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": box["x"] + point[0], "y": box["y"] + point[1]}]},
        )
    touches.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


CHARTS = pytest.mark.parametrize(
    ("widget", "chart", "names"),
    one_of(
        "charts",
        [
            (Explorer, "Speedup by draft length", ["gamma"]),
            (Explorer, "Best speedup by α and c", ["alpha", "c"]),
            (Roofline, "Time of a pass by its tokens", ["tokens"]),
            (Roofline, "The roofline", ["tokens"]),
        ],
    ),
    ids=lambda x: x if isinstance(x, str) else "",
)


@pytest.mark.browser
@CHARTS
def test_a_tap_or_a_sideways_swipe_sets_a_chart_and_others_scroll(mounted, widget, chart, names):
    page = mounted(widget(), 390, has_touch=True, is_mobile=True)
    for fold in page.get_by_text("The best speedup by α and c").all():
        fold.click()
    values = lambda: [value(page, name) for name in names]
    first = values()
    swipe(page, chart, *[(200, y) for y in range(140, 20, -20)])
    assert values() == first
    swipe(page, chart, (250, 120))
    tapped = values()
    assert tapped != first
    swipe(page, chart, *[(x, 120) for x in range(250, 80, -10)])
    assert all(a < b for a, b in zip(values()[-1:], tapped[-1:]))


# The speedup explorer -----------------------------------------------------------------------------


@pytest.mark.browser
def test_the_explorers_task_is_solved_by_keyboard(used):
    alpha = next(a / 100 for a in range(101) if theory.optimal_gamma(a / 100, 0.2, 24)[1] >= 2)
    page = used(Explorer())
    place = top_of(page, "c")
    says(page, ".sdl-task-state", "Set c to 0.20 first")
    press(page, "c", "ArrowRight", 10)
    says(page, ".sdl-task-state", "Not yet")
    press(page, "alpha", "ArrowRight", round(100 * alpha) - 80 + 1)
    says(page, ".sdl-task-state", "a smaller α still reaches 2×")
    press(page, "alpha", "ArrowLeft")
    says(
        page,
        ".sdl-task-state",
        f"Solved: α = {alpha:.2f}, with γ = {theory.optimal_gamma(alpha, 0.2)[0]}.",
    )
    assert (value(page, "alpha"), value(page, "c"), value(page, "gamma")) == pytest.approx(
        (alpha, 0.2, 4)
    )
    assert page.evaluate("heard") == [] and top_of(page, "c") == place


@pytest.mark.browser
def test_a_preset_sets_the_explorer_and_a_slider_or_the_menu_leaves_it(used):
    """Two presets have equal values."""
    page = used(Explorer(overhead=0.2))
    width = page.viewport_size["width"]
    menu = page.get_by_label("Start from")
    menu.select_option(label="EnDe, t5-small, T=0")
    assert [value(page, name) for name in ("alpha", "gamma", "c", "overhead")] == [0.75, 7, 0.02, 0]
    numbers = page.locator("dl").text_content()
    assert f"{theory.walltime_improvement(0.75, 7, 0.02):.2f}×" in numbers and "3.40×" in numbers
    press(page, "gamma", "ArrowLeft")
    assert value(page, "gamma") == 6
    assert menu.input_value() == ""
    assert "3.40×" not in page.locator("dl").text_content()
    for other in ("t5-small, l = 1", "your own values"):
        menu.select_option(label="EnDe, t5-small, T=1")
        assert "2.60×" in page.locator("dl").text_content()
        menu.select_option(label=other)
        page.set_viewport_size({"width": width - 16, "height": 900})
        pause(page, 200)
        assert "measured speedup" not in page.locator("dl").text_content()
        assert (menu.input_value() == "") == (other == "your own values")
        assert value(page, "gamma") == 7
        page.set_viewport_size({"width": width, "height": 900})


@pytest.mark.browser
def test_the_explorers_charts_are_dragged(used):
    page = used(Explorer())
    drag(page, "Speedup by draft length", (9.5 / 24, 0.5), (9.5 / 24, 0.9))
    assert value(page, "gamma") == 10
    drag(page, "Speedup by draft length", (2.5 / 24, 0.5), (20.5 / 24, 0.2))
    assert [value(page, name) for name in ("alpha", "gamma", "c")] == [0.8, 21, 0.1]
    says(page, ".sdl-summary", "γ 21")
    drag(page, "Speedup by draft length", (0.5, 0.5), (1.1, 0.5))
    assert value(page, "gamma") == 24
    page.get_by_text("The best speedup by α and c").click()
    drag(page, "Best speedup by α and c", (0.1, 0.1), (0.5, 0.6))
    assert (value(page, "alpha"), value(page, "c")) == pytest.approx((0.6, 0.6), abs=0.02)
    assert value(page, "gamma") == 24
    says(page, ".sdl-summary", f"α {value(page, 'alpha'):.2f}, γ 24 and c {value(page, 'c'):.2f}")


# The roofline explorer ----------------------------------------------------------------------------


@pytest.mark.browser
def test_the_rooflines_task_is_solved_by_keyboard(used):
    free = int(roofline.ridge_tokens(2, 2e12, 312e12) / 8)
    page = used(Roofline())
    place = top_of(page, "batch")
    says(page, ".sdl-task-state", "Set the batch to 8")
    press(page, "batch", "ArrowRight", 7)
    says(page, ".sdl-task-state", "a longer pass would take no more time")
    press(page, "tokens", "ArrowRight", free)
    says(page, ".sdl-task-state", "Too many: arithmetic limits")
    press(page, "tokens", "ArrowLeft")
    says(page, ".sdl-task-state", f"Solved: {free}.")
    assert top_of(page, "batch") == place
    page.get_by_text("The model and the chip").click()
    press(page, "cache", "ArrowRight", 2)
    says(page, ".sdl-task-state", "Set the KV cache to 0")
    assert (value(page, "tokens"), value(page, "batch")) == (free, 8) and value(page, "cache") > 0
    assert page.evaluate("heard") == []


@pytest.mark.browser
def test_a_preset_sets_the_roofline_and_names_its_source(used):
    page = used(Roofline(tokens=3))
    page.get_by_text("The model and the chip").click()
    menu = page.get_by_label("Start from")
    menu.select_option(label="NVIDIA T4, fp16")
    says(page, ".sdl-task-state", "Start from the worked example")
    assert (value(page, "bandwidth"), value(page, "throughput"), value(page, "tokens")) == (
        320e9,
        65e12,
        3,
    )
    assert page.get_by_text("Figures from hmc-tech.com").is_visible()
    menu.select_option(label="example, 70B")
    assert (value(page, "bandwidth"), value(page, "tokens")) == (2e12, 1)
    assert not page.get_by_text("Figures from").is_visible()
    press(page, "bandwidth", "ArrowRight")
    assert menu.evaluate("(menu) => menu.selectedOptions[0].label") == "your own values"
    page.get_by_label("bytes per weight").select_option(label="1 byte: int8, fp8")
    assert value(page, "bytes_per_weight") == 1


@pytest.mark.browser
def test_the_rooflines_charts_are_dragged(used):
    page = used(Roofline())
    open_phone_folds(page)
    drag(page, "Time of a pass by its tokens", (3.5 / 32, 0.5), (11.5 / 32, 0.2))
    assert value(page, "tokens") == 12
    says(page, ".sdl-summary[aria-live]", "A pass over 12 tokens")
    drag(page, "The roofline", (0.2, 0.5), (1.9 / 5, 0.5))
    assert value(page, "tokens") == round(10**0.9)
    drag(page, "The roofline", (0.2, 0.5), (0.99, 0.5))
    assert value(page, "tokens") == 32 and value(page, "batch") == 1
