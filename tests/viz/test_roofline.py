"""The roofline: its presets, and the ticks of its axes, which have round steps and one unit."""

import re

import pytest
from javascript import formula

from specdec_book.viz import Roofline
from specdec_book.viz.interactive import source
from specdec_book.viz.interactives import WIDTHS
from specdec_lite import roofline

TICKS = """() => [...document.querySelectorAll("svg")].at(-1).querySelectorAll("text.sdl-faint")
  .values().map((text) => text.textContent).toArray()"""


def is_even(ticks: list[str]) -> bool:
    """Return whether ticks start at 0, have one unit and steps of 1, 2 or 5 times a power of ten."""
    numbers = [float(tick.split()[0]) for tick in ticks]
    units = {tick.split()[1] for tick in ticks[1:]}
    step = numbers[1]
    steps_are_equal = numbers == pytest.approx([i * step for i in range(len(numbers))])
    return steps_are_equal and len(units) == 1 and re.fullmatch(r"[125]\.0+e.*", f"{step:e}")


@pytest.mark.browser
@pytest.mark.parametrize(
    "setting", [{}, {"parameters": 1e12}, {"parameters": 3e6}, {"batch": 256, "tokens": 32}]
)
def test_the_time_axis_has_round_ticks(mounted, setting):
    page = mounted(Roofline(**setting), 1000)
    ticks = [tick for tick in page.evaluate(TICKS) if re.fullmatch(r"0|[\d.e+]+ \w+", tick)]
    assert len(ticks) >= 3 and is_even(ticks), ticks


def test_the_check_recognizes_uneven_ticks():
    assert not is_even(["0", "28 ms", "56 ms"]) and not is_even(["0", "500 ms", "1 s"])
    assert is_even(["0", "20 ms", "40 ms"])


def test_presets_stay_on_the_sliders_and_name_their_source():
    presets = formula("roofline", "presets")
    numbers = set(Roofline.class_traits())
    for preset in presets:
        Roofline(**{name: value for name, value in preset.items() if name in numbers})
        assert "Datasheet" not in preset["group"] or all(
            re.fullmatch(r"[\w.-]+/[\w/-]+", part) for part in preset["source"].split(" and ")
        )
    example = presets[0]
    reading, computing = roofline.pass_seconds(
        example["parameters"],
        example["bytes_per_weight"],
        example["bandwidth"],
        example["throughput"],
    )
    assert reading == pytest.approx(0.07) and computing / reading == pytest.approx(0.0064, abs=5e-5)
    offered = re.findall(r"\[([\d.]+), \"[\d½] byte", source("roofline"))
    assert tuple(map(float, offered)) == WIDTHS
