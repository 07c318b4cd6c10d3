"""The next word: its JavaScript held against `Sampling` on the same logits, its recording, its state
and its task in a browser.
"""

import json

import pytest
import torch
import traitlets
from javascript import evaluate
from mounting import says

from specdec_lite import results
from specdec_lite.sampling import Sampling
from specdec_lite.viz import NextWord
from specdec_lite.viz.interactive import MIME
from specdec_lite.viz.next_word import WORDS, recorded

CONTEXTS = results.load("next_words").data["contexts"]
SETTINGS = [
    (1.0, 0, 1.0),
    (0.0, 0, 1.0),
    (0.3, 0, 1.0),
    (2.0, 0, 1.0),
    (1.0, 1, 1.0),
    (1.0, 3, 1.0),
    (1.5, 50, 1.0),
    (1.0, 0, 0.7),
    (1.8, 0, 0.95),
    (1.2, 20, 0.5),
    (0.0, 5, 0.3),
]


def whole(context) -> torch.Tensor:
    """All logits of a recorded context, the tail as it was counted."""
    tail = [logit for logit, count in context["tail"] for _ in range(count)]
    return torch.tensor([logit for _, logit in context["words"]] + tail, dtype=torch.float64)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context["prompt"][:12])
def test_law_equals_the_librarys(context):
    given = evaluate(
        "next_word",
        [{"name": "law", "args": [context["words"], context["tail"], *s]} for s in SETTINGS],
    )
    for (temperature, top_k, top_p), law in zip(SETTINGS, given, strict=True):
        right = Sampling(temperature, top_k or None, top_p)(whole(context))
        assert law["probs"] == pytest.approx(right[:WORDS].tolist(), abs=1e-9)
        assert law["rest"] == pytest.approx(right[WORDS:].sum().item(), abs=1e-9)
        assert law["kept"] == int((right > 0).sum()), (temperature, top_k, top_p)


def test_a_nucleus_that_stops_before_its_mass_would_be_seen():
    """The published mistake: the token that carries the mass over top_p is left out."""
    words, tail = [["a", 2.0], ["b", 1.0], ["c", 0.0]], []
    (law,) = evaluate("next_word", [{"name": "law", "args": [words, tail, 1, 0, 0.7]}])
    right = Sampling(1.0, None, 0.7)(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    assert law["kept"] == 2 and law["probs"] == pytest.approx(right.tolist())


def test_the_point_hits_the_word_whose_stretch_holds_it():
    probs, points = [0.665, 0.0, 0.245], [0.0, 0.664, 0.666, 0.9, 0.95]
    hits = evaluate("next_word", [{"name": "hit", "args": [probs, u]} for u in points])
    assert hits == [0, 0, 2, 2, 3]


def test_a_word_stands_clear_of_the_mark_where_its_stretch_has_room():
    places = [(10, 100, 40, 12), (10, 100, 40, 50), (10, 100, 40, 75), (10, 60, 40, 40)]
    calls = [{"name": "clear", "args": list(place)} for place in places]
    assert evaluate("next_word", calls) == [60, 80, 42.5, 40]


def test_a_recording_keeps_all_mass_and_says_how_many_there_are():
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0)) * 3

    class Letters:
        def decode(self, ids):
            return str(ids[0])

    kept = recorded("so far", logits, Letters())
    assert len(kept["words"]) == WORDS and sum(count for _, count in kept["tail"]) == 500 - WORDS
    steps = [logit for _, logit in kept["words"]] + [logit for logit, _ in kept["tail"]]
    assert steps == sorted(steps, reverse=True)
    own, rounded = (Sampling()(row.double()).topk(WORDS).values for row in (logits, whole(kept)))
    assert torch.allclose(own, rounded, atol=1e-3)


def test_state_and_bounds():
    widget = NextWord.load()
    data, _ = widget._repr_mimebundle_()
    assert data[MIME]["module"] == "next_word" and json.dumps(data[MIME])
    assert len(json.dumps(data[MIME])) < 40_000
    assert {"contexts", "context", "temperature", "top_k", "top_p", "u"} == set(widget.state())
    for bad in ({"temperature": -1}, {"top_k": 51}, {"top_p": 0.0}, {"u": 1.0}):
        with pytest.raises(traitlets.TraitError):
            NextWord(**bad)
    with pytest.raises(traitlets.TraitError, match="contexts"):
        NextWord(contexts=CONTEXTS, context=len(CONTEXTS))


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_task_is_solved_by_keyboard(mounted, width):
    page = mounted(NextWord(contexts=CONTEXTS), width)
    says(page, ".sdl-task-state", "raise it")
    page.locator("input[data-name=temperature]").focus()
    page.keyboard.press("End")
    says(page, ".sdl-task-state", "Now lower top-p")
    page.locator("input[data-name=top_p]").focus()
    page.keyboard.press("Home")
    says(page, ".sdl-task-state", "Solved")
    says(page, ".sdl-summary", "falls on")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_fits_a_laptops_screen_and_the_line_is_dragged(mounted):
    page = mounted(NextWord(contexts=CONTEXTS), 1000)
    box = page.locator(".sdl-next-word").bounding_box()
    assert box["height"] <= 640
    line = page.get_by_role("img", name="The line of length 1").bounding_box()
    page.mouse.click(line["x"] + 0.9 * line["width"], line["y"] + 40)
    assert page.evaluate("model.get('u')") == pytest.approx(0.9, abs=0.02)
