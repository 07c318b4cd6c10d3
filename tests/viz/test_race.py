"""The race: its recording, its formulas and its use in a browser. No test asserts a duration."""

import json

import pytest
import traitlets
from browsing import accessibility_faults
from chosen import one_of
from javascript import evaluate
from letters import Letters, tiny
from mounting import bare_page, says

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


def test_another_text_is_not_called_the_same(race):
    other = json.loads(json.dumps(race))
    other["lanes"]["speculative"][-1]["words"][-1][1] = "?"
    assert not formula("isSame", other)
    assert "the same text, word for word" in formula("result", race)[0]
    assert "differ" in formula("result", other)[0]


def test_the_verdict_says_who_waits(race):
    plain, fast = (formula("seconds", race["lanes"][name]) for name in ("plain", "speculative"))
    first, last = sorted((plain, fast))
    name = "Speculative" if fast < plain else "Plain"
    assert "waits" not in formula("standing", race, 0)
    assert formula("standing", race, (first + last) / 2).startswith(name)
    assert "Comparing" in formula("standing", race, last)


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


COUNTS = """() => [...document.querySelectorAll(".sdl-race-lane")].map((lane) =>
  [lane.querySelector(".sdl-race-count strong").textContent, lane.querySelectorAll(".sdl-race-on").length]
    .map(Number))"""
LINES = """() => [...document.querySelectorAll(".sdl-race-text")].map((text) => {
  const own = text.getBoundingClientRect();
  return [...text.children].map((word) => Math.round(word.getBoundingClientRect().top - own.top));
})"""
"""Distance of each word from the top of its lane."""


@pytest.mark.browser
@pytest.mark.parametrize("width, theme", one_of(__name__, [(1366, "light"), (390, "dark")]))
def test_both_lanes_hold_the_whole_text_with_the_same_lines(mounted, width, theme):
    page = mounted(Race.load(), width, theme)
    for index, race in enumerate(Race.load().races):
        page.get_by_role("combobox").select_option(str(index))
        says(page, ".sdl-race-request", race["request"][:30])
        plain, speculative = page.evaluate(LINES)
        assert plain == speculative and len(plain) == formula("tokens", race["lanes"]["plain"])
        assert [count for count, _ in page.evaluate(COUNTS)] == [len(plain)] * 2
        inner = "box => getComputedStyle(box).overflowY === 'visible'"
        assert all(box.evaluate(inner) for box in page.locator(".sdl-race-text").all())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert accessibility_faults(page) == []


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(mounted):
    page = mounted(Race.load())
    says(page, ".sdl-race-verdict", "the same text")
    page.get_by_role("button", name="Play").press("Enter")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Reset").click()
    assert [count for count, _ in page.evaluate(COUNTS)] == [0, 0]
    page.get_by_role("button", name="Step").click()
    assert sum(count for count, _ in page.evaluate(COUNTS)) > 0
    page.get_by_role("button", name="slow motion").click()
    assert page.evaluate("model.get('slow')") is True


@pytest.mark.browser
def test_the_quicker_lane_is_ahead_and_the_words_are_compared(new_page):
    """It starts by itself; nothing moves while the texts fill; at the end a band marks equal words.

    In the first tenth of a race, few rounds are finished, and a rejected guess may cost the lead.
    """
    race = Race.load(autoplay=True)
    page = new_page(viewport={"width": 1366, "height": 700})
    page.clock.install(time=0)
    page.set_content(bare_page(race, "light"))
    page.clock.pause_at(600_000)
    page.get_by_role("button", name="Reset").click()
    lines = page.evaluate(LINES)
    page.get_by_role("button", name="Play").click()
    lanes = race.races[race.race]["lanes"]
    ends = [formula("seconds", lanes[name]) for name in ("plain", "speculative")]
    seen = []
    steps = int(max(ends) * 10) + 2
    for step in range(steps):
        page.clock.run_for(100)
        (plain, filled), (speculative, _) = page.evaluate(COUNTS)
        assert plain == filled and page.evaluate(LINES) == lines
        assert speculative >= plain or (step < steps / 10 and speculative >= plain - 2)
        seen.append(page.locator(".sdl-race-verdict").inner_text())
    assert any("waits" in words for words in seen) and "Comparing" in seen[-1]
    page.clock.run_for(400)
    assert page.locator(".sdl-race-equal").count() > 2
    page.clock.run_for(1500)
    assert page.locator(".sdl-race-equal").count() == 0
    says(page, ".sdl-race-verdict", "word for word")


@pytest.mark.browser
def test_with_reduced_motion_every_press_is_one_pass(mounted):
    page = mounted(Race.load(autoplay=True), reduced_motion="reduce")
    says(page, ".sdl-race-verdict", "the same text")
    assert page.get_by_role("button", name="slow motion").count() == 0
    step = page.get_by_role("button", name="Step")
    counts = []
    for _ in range(4):
        step.click()
        counts.append([count for count, _ in page.evaluate(COUNTS)])
    assert counts == sorted(counts) and len({*map(tuple, counts)}) == 4 and counts[-1] > [0, 0]
