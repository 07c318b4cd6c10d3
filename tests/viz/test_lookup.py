"""The lookup explorer: its rounds against the library's, and its use by keyboard and mouse."""

import json
import random
from functools import partial

import pytest
from javascript import evaluate, formula
from letters import Letters
from mounting import pause, says

from specdec_book.viz.interactives import Lookup
from specdec_lite.drafters import PromptLookupDrafter
from specdec_lite.measure.replay import replay

DRAWS = random.Random(4)
PROMPT = [DRAWS.randrange(5) for _ in range(30)]
ANSWER = [*PROMPT[4:20], *(DRAWS.randrange(5) for _ in range(10)), *PROMPT[2:24]]
SETTINGS = [
    (n, gamma, latest) for n in (1, 3, 5) for gamma in (1, 4, 16) for latest in (True, False)
]


@pytest.fixture(scope="module")
def explorer():
    return Lookup.of({"copy": (PROMPT, ANSWER), "none": ([1], [2, 3])}, Letters())


call = partial(formula, "lookup")


def test_rounds_equal_the_drafters():
    ids = [*PROMPT, *ANSWER]
    found = evaluate("lookup", "rounds", [[ids, len(PROMPT), *setting] for setting in SETTINGS])
    for (n, gamma, latest), rounds in zip(SETTINGS, found, strict=True):
        steps = replay(PromptLookupDrafter(gamma, n, latest=latest), PROMPT, ANSWER, 24)
        assert [(r["drafted"], r["accepted"]) for r in rounds] == [
            (len(step.tree), step.accepted) for step in steps
        ]
        at = len(PROMPT)
        for found, step in zip(rounds, steps):
            source = found["source"]
            copied = ids[source : source + found["drafted"]]
            assert found["at"] == at and copied == step.tree.tokens.tolist()
            at += len(step.tokens)


def test_counts_and_the_best_setting_equal_pythons():
    rounds = [
        {"at": 3, "source": 0, "order": 1, "drafted": 4, "accepted": 3},
        {"at": 7, "source": -1, "order": 0, "drafted": 0, "accepted": 0},
        {"at": 8, "source": 2, "order": 2, "drafted": 4, "accepted": 0},
    ]
    assert call("counts", rounds) == {
        "rounds": 3,
        "tokens": 6,
        "tau": 2,
        "tauDrafting": 2.5,
        "wasted": 5,
        "empty": 1,
    }
    ids = [*PROMPT, *ANSWER]
    found = []
    for n in range(1, 6):
        for gamma in range(1, 17):
            for latest in (True, False):
                steps = replay(PromptLookupDrafter(gamma, n, latest=latest), PROMPT, ANSWER, 24)
                wasted = sum(len(step.tree) - step.accepted for step in steps)
                found += [len(ANSWER) / len(steps)] if wasted <= len(ANSWER) else []
    assert call("best", ids, len(PROMPT), 1) == pytest.approx(max(found))


def test_widget_carries_its_texts_and_rejects_empty_ones(explorer):
    text = explorer.texts[0]
    assert text["ids"] == [*PROMPT, *ANSWER] and text["start"] == len(PROMPT)
    assert "".join(text["tokens"]) == Letters().decode([*PROMPT, *ANSWER])
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
    rounds = call("rounds", [*PROMPT, *ANSWER], len(PROMPT), 3, 8, True)
    for number, found in enumerate(rounds):
        page.evaluate(f"model.set('round', {number})")
        assert page.locator(".sdl-arc").count() == (found["drafted"] > 0), (
            "the chosen round's alone"
        )
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
    last = len(call("rounds", [*PROMPT, *ANSWER], len(PROMPT), 3, 1, False))
    says(page, ".sdl-summary", f"Round {last}")
    page.get_by_label("Text", exact=True).select_option("none")
    says(page, ".sdl-summary", "without a draft")


@pytest.mark.browser
def test_only_the_best_setting_solves_the_task(explorer, mounted):
    page = mounted(explorer)
    ids = [*PROMPT, *ANSWER]
    best = call("best", ids, len(PROMPT), 1)
    settings = [(n, g, latest) for n in range(1, 6) for g in range(1, 17) for latest in (1, 0)]
    rounds = evaluate("lookup", "rounds", [[ids, len(PROMPT), *setting] for setting in settings])
    counts = evaluate("lookup", "counts", [[each] for each in rounds])
    solves = {
        setting: found["wasted"] <= found["tokens"] and found["tau"] >= best - 1e-9
        for setting, found in zip(settings, counts, strict=True)
    }
    assert {*solves.values()} == {True, False}
    for solved in (True, False):
        n, gamma, latest = next(setting for setting, found in solves.items() if found == solved)
        chosen = {"n": n, "gamma": gamma, "latest": bool(latest)}
        page.evaluate(f"Object.entries({json.dumps(chosen)}).forEach((x) => model.set(...x))")
        pause(page, 400)
        assert ("Solved" in page.locator(".sdl-task-state").inner_text()) == solved
