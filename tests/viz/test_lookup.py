"""The lookup explorer: its rounds against the library's, and its use by keyboard and mouse."""

import random
from itertools import product

import pytest
from javascript import evaluate, formula
from letters import Letters
from mounting import pause, says
from test_formulas import differences

from specdec_book.viz.interactives import Lookup
from specdec_lite.drafters import PromptLookupDrafter
from specdec_lite.measure.replay import replay
from specdec_lite.proposal import Step

DRAWS = random.Random(4)
PROMPT = [DRAWS.randrange(5) for _ in range(30)]
ANSWER = [*PROMPT[4:20], *(DRAWS.randrange(5) for _ in range(10)), *PROMPT[2:24]]
IDS, START = [*PROMPT, *ANSWER], len(PROMPT)
SETTINGS = [*product(range(1, 6), range(1, 17), (True, False))]


@pytest.fixture(scope="module")
def explorer():
    return Lookup.of({"copy": (PROMPT, ANSWER), "none": ([1], [2, 3])}, Letters())


@pytest.fixture(scope="module")
def replayed():
    """The rounds of the library's drafter at every setting."""
    drafter = lambda n, gamma, latest: PromptLookupDrafter(gamma, n, latest=latest)
    return [replay(drafter(*setting), PROMPT, ANSWER, 24) for setting in SETTINGS]


def counts(steps: list[Step]) -> dict:
    drafting = [len(step.tokens) for step in steps if len(step.tree)]
    return {
        "rounds": len(steps),
        "tokens": len(ANSWER),
        "tau": len(ANSWER) / len(steps),
        "tauDrafting": sum(drafting) / len(drafting),
        "wasted": sum(len(step.tree) - step.accepted for step in steps),
        "empty": len(steps) - len(drafting),
    }


def is_allowed(count: dict) -> bool:
    return count["wasted"] <= count["tokens"]


def test_rounds_and_counts_equal_the_drafters(replayed):
    found = evaluate("lookup", "rounds", [[IDS, START, *setting] for setting in SETTINGS])
    for rounds, steps in zip(found, replayed, strict=True):
        at = START
        for shown, step in zip(rounds, steps, strict=True):
            copied = IDS[shown["source"] :][: shown["drafted"]]
            assert copied == step.tree.tokens.tolist()
            assert (shown["at"], shown["accepted"]) == (at, step.accepted)
            at += len(step.tokens)
    given = evaluate("lookup", "counts", [[rounds] for rounds in found])
    assert differences(given, [counts(steps) for steps in replayed]) == []
    best = max(count["tau"] for count in map(counts, replayed) if is_allowed(count))
    assert formula("lookup", "best", IDS, START, 1) == pytest.approx(best)


def test_widget_carries_its_texts_and_rejects_empty_ones(explorer):
    text = explorer.texts[0]
    assert text["ids"] == IDS and text["start"] == START
    assert "".join(text["tokens"]) == Letters().decode(IDS)
    with pytest.raises(ValueError, match="'a'=0"):
        Lookup.of({"a": ([1], [])}, Letters())


SEEN = """() => [...document.querySelectorAll(".sdl-lookup-text")].every((pane) => {
  const frame = pane.getBoundingClientRect();
  const marked = [...pane.querySelectorAll(".sdl-source, .sdl-here")].slice(0, 1);
  return marked.every((word) => {
    const { top, bottom } = word.getClientRects()[0];
    return top >= frame.top && bottom <= frame.bottom;
  });
})"""


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(explorer, used):
    page = used(explorer)
    page.get_by_label("Round", exact=True).focus()
    page.keyboard.press("Home")
    says(page, ".sdl-summary", "Round 1")
    rounds = formula("lookup", "rounds", IDS, START, 3, 8, True)
    for number, found in enumerate(rounds):
        page.evaluate(f"model.set('round', {number})")
        assert page.locator(".sdl-arc").count() == (found["drafted"] > 0), "this round's alone"
        assert page.evaluate(SEEN) is True, "the copy and its source are in view"
    page.evaluate("model.set('round', 0)")
    page.get_by_label("Round", exact=True).focus()
    page.keyboard.press("ArrowRight")
    says(page, ".sdl-summary", "Round 2")
    page.get_by_label("γ").focus()
    page.keyboard.press("Home")
    assert page.evaluate("model.get('gamma')") == 1
    page.get_by_label("Occurrence to copy").select_option("earliest")
    assert page.evaluate("model.get('latest')") is False
    page.locator(".sdl-lookup-text .sdl-token").last.click()
    last = len(formula("lookup", "rounds", IDS, START, 3, 1, False))
    says(page, ".sdl-summary", f"Round {last}")
    page.get_by_label("Text", exact=True).select_option("none")
    says(page, ".sdl-summary", "without a draft")


@pytest.mark.browser
def test_only_the_best_setting_solves_the_task(explorer, replayed, mounted):
    page = mounted(explorer)
    found = [*map(counts, replayed)]
    best = max(count["tau"] for count in found if is_allowed(count))
    solves = [is_allowed(count) and count["tau"] >= best - 1e-9 for count in found]
    for solved in (True, False):
        chosen = dict(zip(("n", "gamma", "latest"), SETTINGS[solves.index(solved)]))
        page.evaluate("(s) => Object.entries(s).forEach((pair) => model.set(...pair))", chosen)
        pause(page, 400)
        assert ("Solved" in page.locator(".sdl-task-state").inner_text()) == solved
