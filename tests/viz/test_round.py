"""One round as a picture: its recording, its formulas and its use in a browser.

The library's rule and the JavaScript must both reach the recorded verdicts.
"""

import re

import numpy as np
import pytest
import torch
from browsing import accessibility_faults
from chosen import one_of
from javascript import evaluate, formula
from mounting import bare_page
from test_properties import Replay

from specdec_book import recordings
from specdec_book.viz import Round
from specdec_lite import Proposal, TokenTree
from specdec_lite.acceptance import speculative_sampling

BOOK, START = (recordings.load(name).data["rounds"] for name in ("rounds", "rounds-start"))


def library_verdict(record: dict) -> dict:
    """Return the number of accepted drafts and that of the added word, by the library's own rule."""
    size = max(len(row["words"]) for row in record["rows"])
    tests = [test for row in record["rows"] for test in row["tests"]]
    rows = [test["q"] for test in tests], [row["p"] for row in record["rows"]]
    q, p = (
        torch.tensor([each + [0.0] * (size - len(each)) for each in masses], dtype=torch.float64)
        for masses in rows
    )
    uniforms = [test["u"] for test in tests if test["u"] is not None] + [record["token"]["u"]]
    proposal = Proposal(TokenTree.chain([test["word"] for test in tests]), q)
    verdict = speculative_sampling(proposal, p, Replay(uniforms))
    return {"accepted": len(verdict.path), "word": verdict.token}


def verdicts(rounds: list[dict]) -> list[dict]:
    """Return the verdicts of some rounds, in which both languages agree."""
    found = [library_verdict(record) for record in rounds]
    assert evaluate("round", "verdict", [[record] for record in rounds]) == found
    return found


def moments(rounds: list[dict]) -> list[dict]:
    return formula("round", "moments", rounds)


def drawn_round(rng: np.random.Generator) -> dict:
    """Return a round of random rows, drafts and uniforms, with the number of drafts that it keeps."""
    rows, accepted = [], 0
    for position in range(4):
        p, q = rng.dirichlet(np.ones(3), 2).tolist()
        test = {"word": int(rng.integers(3)), "q": q, "u": None, "kept": None}
        if accepted == position:  # the drafts before it are kept
            test["u"] = rng.random()
            test["kept"] = test["u"] < p[test["word"]] / q[test["word"]]
            accepted += test["kept"]
        rows.append({"words": ["a", "b", "c"], "p": p, "tests": [test]})
    rows.append(rows[0] | {"tests": []})
    return {"rows": rows, "accepted": accepted, "token": {"word": 0, "u": rng.random()}}


@pytest.mark.parametrize("rounds", [BOOK, START], ids=["book", "start"])
def test_recorded_rounds_have_the_verdicts_of_the_rule(rounds):
    recorded = [{"accepted": r["accepted"], "word": r["token"]["word"]} for r in rounds]
    assert verdicts(rounds) == recorded
    assert recordings.find("rounds").stat().st_size < 60_000


def test_the_rounds_show_short_and_long_ones_and_the_start_page_an_easy_one():
    """Its first round keeps only what the large model likes as much, and its first draft is a word."""
    assert {record["accepted"] for record in BOOK} >= {0, 2, 4}
    rows = START[0]["rows"][: START[0]["accepted"] + 1]
    tests = [(row, row["tests"][0]) for row in rows]
    likes = [row["p"][test["word"]] >= test["q"][test["word"]] for row, test in tests]
    assert likes == [test["kept"] for _, test in tests] == [True] * (len(rows) - 1) + [False]
    assert rows[0]["words"][tests[0][1]["word"]].strip().isalpha()


def test_verdicts_of_many_rounds_agree_in_both_languages():
    rng = np.random.default_rng(0)
    rounds = [drawn_round(rng) for _ in range(50)]
    accepted = [record["accepted"] for record in rounds]
    assert {*accepted} == {*range(5)}
    assert [found["accepted"] for found in verdicts(rounds)] == accepted


def test_every_row_sums_to_one():
    for row in (row for record in BOOK for row in record["rows"]):
        assert sum(row["p"]) == pytest.approx(1, abs=1e-4)
        assert all(sum(test["q"]) == pytest.approx(1, abs=1e-4) for test in row["tests"])
        assert len(set(row["words"])) == len(row["words"]), "two words that look alike"


def test_every_round_has_all_its_moments_and_cache_lengths_that_continue():
    shown = moments(BOOK)
    for at, record in enumerate(BOOK):
        tested = sum(test["kept"] is not None for row in record["rows"] for test in row["tests"])
        residual = ["residual"] * (record["token"]["kind"] == "recovered")
        kinds = ["text", *["draft"] * 4, "pass", *["test", "verdict"] * tested, *residual]
        assert [m["kind"] for m in shown if m["round"] == at] == [*kinds, "token", "cut"]
        drafts, before = sum(bool(row["tests"]) for row in record["rows"]), record["context"]
        lengths = [before - 1, before + drafts, before + record["accepted"]]
        assert record["caches"]["target"] == lengths
        for following in BOOK[at + 1 : at + 2]:
            assert following["caches"]["target"][0] == lengths[-1]


# In a browser --------------------------------------------------------------------------------------

SUMMARY = ".sdl-round .sdl-summary"


def first_of(kind: str, **values) -> int:
    wanted = {"kind": kind, **values}
    return next(i for i, moment in enumerate(moments(BOOK)) if wanted.items() <= moment.items())


@pytest.mark.browser
@pytest.mark.parametrize(
    "width, height, theme", one_of(__name__, [(1366, 640, "light"), (390, 760, "dark")])
)
def test_fits_and_keeps_its_height_at_every_moment(mounted, width, height, theme):
    page = mounted(Round.load(), min(width, 790), theme)
    sizes = []
    for at in range(len(moments(BOOK))):
        page.evaluate(f"model.set('moment', {at})")
        sizes.append(page.locator(".sdl-round").bounding_box()["height"])
        assert page.locator(".sdl-round-main rect").count() > 2, "an empty stage"
    assert max(sizes) == min(sizes) and max(sizes) <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside = page.evaluate(
        """[...document.querySelectorAll('.sdl-round-side')].every((box) =>
        box.scrollHeight <= box.getBoundingClientRect().height + 1)"""
    )
    assert inside and accessibility_faults(page) == []


@pytest.mark.browser
def test_the_rows_light_up_at_the_pass(mounted):
    page = mounted(Round.load(), 790)
    at = first_of("pass")
    page.evaluate(f"model.set('moment', {at})")
    assert page.locator(".sdl-lit").count() == len(BOOK[0]["rows"])
    rows = page.locator(".sdl-round-row svg").element_handles()
    page.evaluate(f"model.set('moment', {at + 1})")
    assert page.locator(".sdl-lit").count() == 0
    assert all(row.evaluate("(row) => row.isConnected") for row in rows), "drawn once per round"


DART = """() => {
  const dart = document.querySelector(".sdl-round-main svg > g:last-of-type path");
  const [x, y] = dart.getAttribute("d").match(/M([\\d.]+) ([\\d.]+)/).slice(1).map(Number);
  const covers = (rect) => {
    const at = (name) => Number(rect.getAttribute(name));
    const inside = (value, from, size) => at(from) <= value && value <= at(from) + at(size);
    return inside(x, "x", "width") && inside(y, "y", "height");
  };
  return [...document.querySelectorAll(".sdl-round-main svg rect")].filter(covers)
    .map((rect) => rect.getAttribute("fill").includes("target"));
}"""
"""Of the bars under the tip of the dart, whether each is the target's."""


@pytest.mark.browser
@pytest.mark.parametrize("rounds", [BOOK, START], ids=["book", "start"])
def test_the_dart_falls_on_the_drafts_bar_and_blue_decides(mounted, rounds):
    page = mounted(Round(rounds=rounds, numbers=False, caches=False), 790)
    words = ""
    for at, moment in enumerate(moments(rounds)):
        page.evaluate(f"model.set('moment', {at})")
        words += page.locator(SUMMARY).inner_text() + " "
        if moment["kind"] != "verdict":
            continue
        test = rounds[moment["round"]]["rows"][moment["row"]]["tests"][0]
        colors = page.evaluate(DART)
        assert False in colors and (True in colors) == test["kept"], (at, colors)
    assert not re.search(r"\b(draft|target|cache|residual|row)|\b[pqu]\b", words), "no letters"


@pytest.mark.browser
def test_playing_pauses_at_a_question(new_page):
    page = new_page(viewport={"width": 790, "height": 800})
    page.clock.install()
    page.set_content(bare_page(Round.load(autoplay=True), "light"))
    page.get_by_role("button", name="Pause").wait_for()
    page.clock.run_for(120_000)
    question = page.locator(".sdl-round-ask strong")
    assert question.is_visible()
    moment = page.evaluate("model.get('moment')")
    page.get_by_role("button", name="show me").click()
    page.clock.run_for(4000)
    assert page.evaluate("model.get('moment')") > moment
    page.get_by_role("button", name="Step").click()
    assert page.get_by_role("button", name="Play").is_visible(), "stepping by hand stops playing"


@pytest.mark.browser
def test_without_optional_parts_and_with_reduced_motion(mounted):
    greedy = [each | {"token": each["token"] | {"u": None}} for each in BOOK]
    widget = Round(rounds=greedy, caches=False, numbers=False, autoplay=True)
    page = mounted(widget, 790, reduced_motion="reduce")
    page.evaluate("model.set('moment', 6)")
    assert page.get_by_role("button", name="Play").count() == 0
    assert page.locator(".sdl-round-cell").count() == 0
    assert page.locator("circle").count() == 0
    assert " | " not in page.locator(".sdl-round-main").inner_text()
