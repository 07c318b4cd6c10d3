"""Grids of cells: their values, labels and readings, and their contrast in both themes."""

import numpy as np
import pytest
from test_viz import contrast

from specdec_book.viz import cells, theme
from specdec_book.viz.cells import LIGHT_TEXT_DEPTH


def test_a_cell_is_at_its_row_and_column_with_its_value():
    fig = cells([[0.125, 1], [None, 0]], [1, 1000], ["p", "q"])
    (trace,) = fig.data
    assert list(trace.x) == ["1", "1000", "1000"] and fig.layout.xaxis.type == "category"
    middles = [base + length / 2 for base, length in zip(trace.base, trace.y)]
    assert middles == pytest.approx([0, 0, 1])
    assert list(trace.text) == ["0.12", "1.00", "0.00"]
    assert list(map(list, trace.customdata)) == [["p", "0.12"], ["p", "1.00"], ["q", "0.00"]]
    low, high = fig.layout.yaxis.range
    assert low > high and list(fig.layout.yaxis.ticktext) == ["p", "q"]


def test_labels_replace_values():
    fig = cells(np.eye(2), "ab", "ab", words=[["yes", "no"], ["no", "yes"]])
    assert list(fig.data[0].text) == ["yes", "no", "no", "yes"]


def test_two_colors_meet_at_the_middle():
    axis = cells([[0.5, 1], [2, 3]], [1, 2], "pq", middle=1).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (-1, 3)
    middle, tone = axis.colorscale[1]
    assert (middle, tone) == (0.5, theme.LIGHT["grid"])


def test_the_ends_of_the_color_scale_can_be_set():
    axis = cells([[0.1, 0.2]], "ab", "p", ends=(0, 0.4)).layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.showscale) == (0, 0.4, False)
    assert cells([[1, 1]], "ab", "p").data[0].textfont.color[0] == theme.BLACK


def test_a_row_of_another_length_is_rejected():
    with pytest.raises(ValueError):
        cells([[1, 2], [3]], "ab", "pq")


def mixed(low: str, high: str, share: float) -> str:
    parts = [[int(tone[i : i + 2], 16) for i in (1, 3, 5)] for tone in (low, high)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*parts))


@pytest.mark.parametrize("tone", theme.DEEP)
@pytest.mark.parametrize("is_dark", [False, True])
def test_text_is_readable_at_every_depth(tone: str, is_dark: bool):
    shades = theme.DARK if is_dark else theme.LIGHT
    pale = theme.dark_data()[theme.BLACK] if is_dark else theme.BLACK
    high = theme.dark_data()[theme.DEEP[tone].lower()] if is_dark else theme.DEEP[tone]
    assert contrast(high, shades["grid"]) >= 3
    least = 4.1 if is_dark else 4.5
    for share in np.linspace(0, 1, 101):
        word = shades["background"] if share > LIGHT_TEXT_DEPTH else pale
        assert contrast(word, mixed(shades["grid"], high, share)) >= least, share
