"""The charts of the speedup explorer and of the roofline explorer, by touch."""

import pytest
from chosen import one_of

from specdec_book.viz import Explorer
from specdec_book.viz.interactives import Roofline


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
    values = lambda: [page.evaluate("(name) => model.get(name)", name) for name in names]
    first = values()
    swipe(page, chart, *[(200, y) for y in range(140, 20, -20)])
    assert values() == first
    swipe(page, chart, (250, 120))
    tapped = values()
    assert tapped != first
    swipe(page, chart, *[(x, 120) for x in range(250, 80, -10)])
    assert all(a < b for a, b in zip(values()[-1:], tapped[-1:]))
