"""The speedup explorer and the roofline explorer, driven by keyboard and mouse on a wide page and on a phone's."""
import pytest

from mounting import says
from specdec_lite import roofline, theory
from specdec_lite.viz import Explorer
from specdec_lite.viz.roofline import Roofline

WIDTHS = pytest.mark.parametrize("width", [1280, 390])


def press(page, slider: str, key: str, times: int = 1) -> None:
    page.locator(f"input[data-name={slider}]").focus()
    for _ in range(times):
        page.keyboard.press(key)


def value(page, name: str):
    return page.evaluate("(name) => model.get(name)", name)


def drag(page, chart: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """With the left button held; the places are in shares of the plotted area."""
    svg = page.get_by_role("img", name=chart)
    svg.scroll_into_view_if_needed()
    box, left = svg.bounding_box(), 62 if page.locator(".sdl-roofline").count() else 40
    at = lambda x, y: (box["x"] + left + x * (box["width"] - 12 - left), box["y"] + 250 - y * 220)
    page.mouse.move(*at(*start))
    page.mouse.down()
    page.mouse.move(*at(*end), steps=4)
    page.mouse.up()
    page.mouse.move(*at(0.5, 0.5))


def fits(page, width: int) -> bool:
    return page.evaluate("document.documentElement.scrollWidth") <= width


# The speedup explorer ---------------------------------------------------------------------------------------------------

@pytest.mark.browser
@WIDTHS
def test_the_explorers_task_is_solved_by_keyboard(mounted, width):
    alpha = next(a / 100 for a in range(101) if theory.optimal_gamma(a / 100, 0.2, 24)[1] >= 2)
    page = mounted(Explorer(), width)
    says(page, ".sdl-task-state", "Set c to 0.20 first")
    press(page, "c", "ArrowRight", 10)
    says(page, ".sdl-task-state", "Not yet")
    press(page, "alpha", "ArrowRight", round(100 * alpha) - 80 + 1)
    says(page, ".sdl-task-state", "a smaller α still reaches 2×")
    press(page, "alpha", "ArrowLeft")
    says(page, ".sdl-task-state", f"Solved: α = {alpha:.2f}, with γ = {theory.optimal_gamma(alpha, 0.2)[0]}.")
    assert (value(page, "alpha"), value(page, "c"), value(page, "gamma")) == pytest.approx((alpha, 0.2, 4))
    assert page.evaluate("heard") == [] and fits(page, width)


@pytest.mark.browser
@WIDTHS
def test_a_preset_sets_the_explorer_and_a_slider_leaves_it(mounted, width):
    page = mounted(Explorer(overhead=0.2), width)
    menu = page.get_by_label("Start from")
    menu.select_option(label="EnDe, t5-small, T=0")
    assert [value(page, name) for name in ("alpha", "gamma", "c", "overhead")] == [0.75, 7, 0.02, 0]
    numbers = page.locator("dl").inner_text()
    assert f"{theory.walltime_improvement(0.75, 7, 0.02):.2f}×" in numbers and "3.40×" in numbers
    press(page, "gamma", "ArrowLeft")
    assert value(page, "gamma") == 6 and menu.input_value() == "" and "3.40×" not in page.locator("dl").inner_text()
    assert fits(page, width)


@pytest.mark.browser
@WIDTHS
def test_the_explorers_charts_are_dragged(mounted, width):
    page = mounted(Explorer(), width)
    drag(page, "Speedup by draft length", (9.5 / 24, 0.5), (9.5 / 24, 0.9))
    assert value(page, "gamma") == 10
    drag(page, "Speedup by draft length", (2.5 / 24, 0.5), (20.5 / 24, 0.2))
    assert [value(page, name) for name in ("alpha", "gamma", "c")] == [0.8, 21, 0.1]
    says(page, ".sdl-summary", "γ 21")
    drag(page, "Speedup by draft length", (0.5, 0.5), (1.1, 0.5))
    assert value(page, "gamma") == 24
    drag(page, "Where a draft can pay", (0.1, 0.1), (0.5, 0.6))
    assert (value(page, "alpha"), value(page, "c")) == pytest.approx((0.6, 0.6), abs=0.02) and value(page, "gamma") == 24
    says(page, ".sdl-summary", f"α {value(page, 'alpha'):.2f}, γ 24 and c {value(page, 'c'):.2f}")
    assert fits(page, width)


# The roofline explorer --------------------------------------------------------------------------------------------------

@pytest.mark.browser
@WIDTHS
def test_the_rooflines_task_is_solved_by_keyboard(mounted, width):
    free = int(roofline.ridge_tokens(2, 2e12, 312e12) / 8)
    page = mounted(Roofline(), width)
    says(page, ".sdl-task-state", "Set the batch to 8")
    press(page, "batch", "ArrowRight", 7)
    says(page, ".sdl-task-state", "a longer pass would still be free")
    press(page, "tokens", "ArrowRight", free)
    says(page, ".sdl-task-state", "Too many: arithmetic binds")
    press(page, "tokens", "ArrowLeft")
    says(page, ".sdl-task-state", f"Solved: {free}.")
    press(page, "cache", "ArrowRight", 2)
    says(page, ".sdl-task-state", "Leave the KV cache out")
    assert (value(page, "tokens"), value(page, "batch")) == (free, 8) and value(page, "cache") > 0
    assert page.evaluate("heard") == [] and fits(page, width)


@pytest.mark.browser
@WIDTHS
def test_a_preset_sets_the_roofline_and_names_its_source(mounted, width):
    page = mounted(Roofline(tokens=3), width)
    menu = page.get_by_label("Start from")
    menu.select_option(label="NVIDIA T4, fp16")
    says(page, ".sdl-task-state", "Start from the worked example first")
    assert (value(page, "bandwidth"), value(page, "throughput"), value(page, "tokens")) == (320e9, 65e12, 3)
    assert page.get_by_text("Figures from hmc-tech.com").is_visible()
    menu.select_option(label="70B, 2 TB/s, 312 TFLOP/s")
    assert (value(page, "bandwidth"), value(page, "tokens")) == (2e12, 1) and not page.get_by_text("Figures from").is_visible()
    press(page, "bandwidth", "ArrowRight")
    assert menu.evaluate("(menu) => menu.selectedOptions[0].label") == "your own values"
    page.get_by_label("bytes per weight").select_option(label="1 byte: int8, fp8")
    assert value(page, "bytes_per_weight") == 1 and fits(page, width)


@pytest.mark.browser
@WIDTHS
def test_the_rooflines_charts_are_dragged(mounted, width):
    page = mounted(Roofline(), width)
    drag(page, "Time of a pass by its tokens", (3.5 / 32, 0.5), (11.5 / 32, 0.2))
    assert value(page, "tokens") == 12
    says(page, ".sdl-summary[aria-live]", "A pass over 12 tokens")
    drag(page, "The roofline", (0.2, 0.5), (1.9 / 5, 0.5))
    assert value(page, "tokens") == round(10 ** 0.9)
    drag(page, "The roofline", (0.2, 0.5), (0.99, 0.5))
    assert value(page, "tokens") == 32 and value(page, "batch") == 1 and fits(page, width)
