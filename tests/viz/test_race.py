"""The race: its recording, its formulas and its use in a browser. No test asserts a duration."""

import json

import pytest
import traitlets
from browsing import accessibility_faults
from javascript import evaluate
from letters import Letters, tiny
from mounting import outside_the_frame, says

from specdec_book import recordings
from specdec_book.viz import Race
from specdec_book.viz.interactive import MIME
from specdec_book.viz.race import record_race
from specdec_lite import generate
from specdec_lite.drafters import ModelDrafter

PROMPT = [3, 1, 4, 1, 5]
TOKENS = 24


@pytest.fixture(scope="module")
def race():
    drafter = ModelDrafter(tiny(0, 0.15), gamma=3)
    return {
        "kind": "story",
        "request": "Write a story.",
        **record_race(tiny(0), drafter, Letters(), PROMPT, TOKENS, turns=3),
    }


def formula(name, *args):
    return evaluate("race", [{"name": name, "args": [*args]}])[0]


def test_both_lanes_write_the_text_of_generate(race):
    text = Letters().decode(generate(tiny(0), PROMPT, None, TOKENS).tokens.tolist())
    for lane in race["lanes"].values():
        assert formula("textOf", lane) == text and formula("tokens", lane) == TOKENS
        times = [each["at"] for each in lane]
        assert times == sorted(times) and times[0] > 0
    assert len(race["lanes"]["plain"]) == TOKENS > len(race["lanes"]["speculative"])
    assert len(race["speedups"]) == 3 and formula("isSame", race)


def test_another_text_is_not_called_identical(race):
    other = json.loads(json.dumps(race))
    other["lanes"]["speculative"][-1]["words"][-1][1] = "?"
    assert not formula("isSame", other)
    assert "identical" in formula("result", race)[0]
    assert "identical" not in formula("result", other)[0]


def test_a_slower_race_is_called_slower(race):
    slow = json.loads(json.dumps(race))
    for each in slow["lanes"]["speculative"]:
        each["at"] *= 1e3
    assert formula("speedup", slow) < 1 and "slower" in formula("result", slow)[0]


def test_passes_appear_at_their_times(race):
    lane = race["lanes"]["speculative"]
    assert formula("passesAt", lane, 0) == 0
    assert formula("passesAt", lane, lane[1]["at"]) == 2
    assert formula("passesAt", lane, 1e9) == len(lane)


def test_summary_covers_all_texts(race):
    plain, speculative = ([{"at": at, "words": [["sampled", "a"]]}] for at in (1.0, 1.0))
    even = {"kind": "even", "lanes": {"plain": plain, "speculative": speculative}, "speedups": [1]}
    double = {
        "kind": "double",
        "lanes": {"plain": [{**plain[0], "at": 4.0}], "speculative": speculative},
        "speedups": [4],
    }
    text = formula("overall", [even, double])
    assert "1.00× (even)" in text and "4.00× (double)" in text and "mean 2.00×" in text


def test_bad_input_is_rejected():
    with pytest.raises(ValueError, match="turns=2"):
        record_race(tiny(0), ModelDrafter(tiny(1), gamma=2), Letters(), PROMPT, 4, turns=2)
    with pytest.raises(traitlets.TraitError):
        Race(race=-1)


def test_the_books_races_write_equal_texts():
    widget = Race.load()
    assert widget.race < len(widget.races)
    assert all(evaluate("race", [{"name": "isSame", "args": [each]} for each in widget.races]))
    assert recordings.load("race").machine in widget.about
    assert widget._repr_mimebundle_()[0][MIME]["module"] == "race"


@pytest.mark.browser
@pytest.mark.parametrize("width, theme, most", [(1366, "light", 640), (390, "dark", 800)])
def test_used_by_keyboard_and_mouse(mounted, width, theme, most):
    page = mounted(Race.load(), width, theme)
    says(page, ".sdl-race-headline", "identical")
    height = page.locator(".sdl-race .sdl-frame").bounding_box()["height"]
    assert height <= most
    page.get_by_role("button", name="Race").press("Enter")
    page.get_by_role("button", name="Show the end").click()
    says(page, ".sdl-race-headline", "identical")
    page.get_by_role("button", name="slow motion").click()
    assert page.evaluate("model.get('slow')") is True
    page.get_by_role("combobox").select_option("2")
    says(page, ".sdl-race-request", Race.load().races[2]["request"][:30])
    assert page.locator(".sdl-race .sdl-frame").bounding_box()["height"] == pytest.approx(
        height, abs=2
    )
    assert outside_the_frame(page, {"race": 3}) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert accessibility_faults(page) == []


@pytest.mark.browser
def test_starts_by_itself_unless_motion_is_reduced(mounted):
    page = mounted(Race.load(autoplay=True))
    says(page, ".sdl-row button", "Show the end")
    calm = mounted(Race.load(autoplay=True), reduced_motion="reduce")
    says(calm, ".sdl-race-headline", "identical")
    assert calm.get_by_role("button", name="slow motion").count() == 0
