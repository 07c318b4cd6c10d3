"""The race: its recording, its formulas and its use in a browser. No test asserts a duration."""

import json
from functools import partial

import pytest
from javascript import evaluate, formula
from mounting import bare_page, says

from specdec_book import recordings
from specdec_book.viz import Race
from specdec_book.viz.interactive import MIME


@pytest.fixture(scope="module")
def race():
    """The recorded race of which the start page's film is made."""
    return Race.load().races[Race.load().race]


of_race = partial(formula, "race")


def test_both_lanes_write_the_same_text(race):
    plain, speculative = race["lanes"].values()
    for lane in (plain, speculative):
        assert of_race("textOf", lane) == of_race("textOf", plain)
        assert of_race("tokens", lane) == len(plain) > len(speculative)
        times = [each["at"] for each in lane]
        assert times == sorted(times) and times[0] > 0
    assert of_race("isSame", race)


def test_another_text_and_a_slower_race_are_called_so(race):
    assert "the same text, word for word" in of_race("result", race)[0]
    other, slow = json.loads(json.dumps([race, race]))
    other["lanes"]["speculative"][-1]["words"][-1][1] = "?"
    assert not of_race("isSame", other) and "differ" in of_race("result", other)[0]
    for each in slow["lanes"]["speculative"]:
        each["at"] *= 1e3
    assert of_race("speedup", slow) < 1 and "slower" in of_race("result", slow)[0]


def test_the_film_is_slow_at_first_and_then_has_the_recorded_speed(race):
    """A pass of the large model lasts 0.9 s in both lanes; the verdict says who waits."""
    (plain, fast) = (race["lanes"][name] for name in ("plain", "speculative"))
    slowness = of_race("slowness", race)
    assert slowness * of_race("pass", race) == pytest.approx(0.9)
    assert of_race("recorded", race, 4.5) == pytest.approx(4.5 / slowness)
    assert of_race("recorded", race, 10) - of_race("recorded", race, 9) == pytest.approx(1)
    assert "times slower" in of_race("standing", race, 1)
    last = max(plain[-1]["at"], fast[-1]["at"])
    name = "helper" if fast[-1]["at"] < last else "alone"
    assert name in of_race("standing", race, 9 + last - of_race("recorded", race, 9))
    quarter = of_race("pass", race) / 4
    for lane in (plain, fast):
        long = min(4 * quarter, lane[2]["at"] - lane[1]["at"])
        shown = of_race("share", race, lane, lane[2]["at"] - quarter)
        assert shown == pytest.approx(1 - quarter / long)


def test_every_round_of_the_race_opens_as_the_round_that_it_was(race):
    """The picture of a round derives the same verdict from it, and its words are those of the text."""
    for each_race in (race, *Race.load().races):
        lane, text = each_race["lanes"]["speculative"], ""
        rounds = [of_race("roundOf", each_race, i) for i in range(len(lane))]
        verdicts = evaluate("round", "verdict", [[each] for each in rounds])
        for i, (each, verdict, row) in enumerate(zip(rounds, verdicts, lane, strict=True)):
            assert verdict == {"accepted": each["accepted"], "word": each["token"]["word"]}
            line, *_ = each_race["request"].split("\n\n")
            assert each["before"] == (text or f"{line} ▸")
            text += "".join(w for kind, w in row["words"] if kind not in ("rejected", "unused"))
            kinds = [kind for kind, _ in row["words"]]
            ends = {"accepted", "unused"} >= {*kinds}  # a kept guess ended the text
            assert each["accepted"] == kinds.count("accepted") - ends, i


def test_passes_appear_at_their_times(race):
    lane = race["lanes"]["speculative"]
    assert of_race("passesAt", lane, 0) == 0
    assert of_race("passesAt", lane, lane[1]["at"]) == 2
    assert of_race("passesAt", lane, 1e9) == len(lane)


def test_summary_covers_all_texts():
    lane = lambda seconds: [{"at": seconds, "words": [["sampled", "a"]]}]
    race = lambda kind, seconds: {
        "kind": kind,
        "lanes": {"plain": lane(seconds), "speculative": lane(1.0)},
        "speedups": [seconds],
    }
    text = of_race("overall", [race("even", 1.0), race("double", 4.0)])
    assert "1.00× (even)" in text and "4.00× (double)" in text and "mean 2.00×" in text


def test_the_books_races_write_equal_texts():
    widget = Race.load()
    assert widget.race < len(widget.races)
    assert all(evaluate("race", "isSame", [[each] for each in widget.races]))
    assert recordings.load("race").machine in widget.about
    assert widget._repr_mimebundle_()[0][MIME]["module"] == "race"


COUNTS = """() => [...document.querySelectorAll(".sdl-race-lane")].map((lane) =>
  [+lane.querySelector(".sdl-race-count strong").textContent,
    lane.querySelectorAll(".sdl-race-text .sdl-race-pass > span").length,
    lane.querySelectorAll(".sdl-race-brick").length,
    lane.querySelectorAll(".sdl-race-pass").length])"""
WORDS = """() => [...document.querySelectorAll(".sdl-race-text")].map((lane) =>
  [...lane.querySelectorAll(".sdl-race-pass > span")].map((word) => word.textContent))"""


@pytest.mark.browser
def test_both_lanes_end_with_the_same_words_and_no_text_moves_the_page(used):
    page = used(Race.load(autoplay=True), reduced_motion="reduce")  # it shows the end
    heights = set()
    for index, race in enumerate(Race.load().races):
        page.get_by_role("combobox").select_option(str(index))
        says(page, ".sdl-race-request", race["request"][:30])
        plain, speculative = page.evaluate(WORDS)
        assert plain == speculative and len(plain) == of_race("tokens", race["lanes"]["plain"])
        shown = zip(page.evaluate(COUNTS), race["lanes"].values())
        for (count, words, bricks, boxes), lane in shown:
            assert count == words == len(plain) and bricks == boxes == len(lane)
        heights.add(page.locator(".sdl-race").bounding_box()["height"])
    assert len(heights) == 1, "the height never jumps"
    bars = [bar.bounding_box()["width"] for bar in page.locator(".sdl-race-bar").all()]
    assert bars[0] == bars[1], "a pass is as wide over one word as over several"


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(mounted):
    page = mounted(Race.load())
    says(page, ".sdl-race-verdict", "the same text")
    page.get_by_role("button", name="Play").press("Enter")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Reset").click()
    assert [row[:2] for row in page.evaluate(COUNTS)] == [[0, 0], [0, 0]]
    counts = []
    for _ in range(4):  # every press is a pass
        page.get_by_role("button", name="Step").click()
        counts.append([count for count, *_ in page.evaluate(COUNTS)])
    assert counts == sorted(counts) and len({*map(tuple, counts)}) == 4 and counts[-1] > [0, 0]
    page.evaluate("addEventListener('sdl-round', (event) => { globalThis.round = event.detail; })")
    brick = page.locator(".sdl-race-speculative .sdl-race-brick").first
    brick.press("ArrowRight")
    page.keyboard.press("Enter")
    lanes = Race.load().races[Race.load().race]["lanes"]["speculative"]
    first = "".join(text for kind, text in lanes[0]["words"] if kind not in ("rejected", "unused"))
    assert page.evaluate("globalThis.round.before") == first, "the second pass"
    page.get_by_role("combobox").select_option("0")
    page.get_by_role("button", name="Pause").wait_for()  # a chosen text runs


@pytest.mark.browser
def test_words_keep_their_identity_and_the_film_repeats_until_touched(new_page):
    """It starts when it has been in view, kept guesses move into the text, and the lower lane leads."""
    race = Race.load(autoplay=True)
    page = new_page(viewport={"width": 1366, "height": 700})
    page.clock.install(time=0)
    page.set_content(bare_page(race, "light"))
    page.wait_for_timeout(0)
    page.clock.run_for(1500)
    page.get_by_role("button", name="Pause").wait_for()
    lanes = race.races[race.race]["lanes"]
    kept = next(i for i, row in enumerate(lanes["speculative"]) if row["words"][0][0] == "accepted")
    for _ in range(300):
        if page.evaluate(COUNTS)[1][2] == kept:
            break
        page.clock.run_for(50)
    chip = page.locator(".sdl-race-speculative .sdl-race-chip:not(.sdl-race-falls)").first
    handle = chip.element_handle()
    for _ in range(60):
        (_, _, _, _), (_, _, bricks, _) = page.evaluate(COUNTS)
        if bricks > kept:
            break
        page.clock.run_for(50)
    where = "(word) => word.isConnected && word.parentElement.className"
    assert handle.evaluate(where) == "sdl-race-pass", "the same element moved into the text"
    seen = set()
    for _ in range(80):
        page.clock.run_for(250)
        seen.add(page.locator(".sdl-race-verdict").inner_text())
        (plain, *_), (speculative, *_) = page.evaluate(COUNTS)
        assert speculative >= plain - 2
        if any("word for word" in words for words in seen):
            break
    assert {"Now at the recorded speed.", "With the helper it has finished, and waits."} <= seen
    page.clock.run_for(4500)
    page.get_by_role("button", name="Pause").wait_for()  # it begins again
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(40_000)
    assert page.get_by_role("button", name="Play").count() == 1, "touched: it stays at its end"
