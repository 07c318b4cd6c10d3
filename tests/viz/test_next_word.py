"""The next word: its JavaScript against `Sampling`, its recording, its state and its task."""

import json

import pytest
import torch
import traitlets
from chosen import one_of
from javascript import evaluate
from mounting import says

from specdec_book import recordings
from specdec_book.viz import NextWord
from specdec_book.viz.interactive import MIME
from specdec_lite.sampling import Sampling

CONTEXTS = recordings.load("next-words").data["contexts"]
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
    """Return all logits of a recorded context, with each tail logit repeated by its count."""
    tail = [logit for logit, count in context["tail"] for _ in range(count)]
    return torch.tensor([logit for _, logit in context["words"]] + tail, dtype=torch.float64)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context["prompt"][:12])
def test_the_adjusted_distribution_equals_the_librarys(context):
    results = evaluate(
        "next_word",
        [{"name": "adjust", "args": [context["words"], context["tail"], *s]} for s in SETTINGS],
    )
    for (temperature, top_k, top_p), result in zip(SETTINGS, results, strict=True):
        right = Sampling(temperature, top_k or None, top_p)(whole(context))
        assert result["probs"] == pytest.approx(right[: len(context["words"])].tolist(), abs=1e-9)
        assert result["rest"] == pytest.approx(
            right[len(context["words"]) :].sum().item(), abs=1e-9
        )
        assert result["count"] == int((right > 0).sum()), (temperature, top_k, top_p)


def test_top_p_includes_the_token_that_reaches_the_mass():
    """A published mistake leaves out the token whose mass reaches top_p."""
    words, tail = [["a", 2.0], ["b", 1.0], ["c", 0.0]], []
    (result,) = evaluate("next_word", [{"name": "adjust", "args": [words, tail, 1, 0, 0.7]}])
    right = Sampling(1.0, None, 0.7)(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    assert result["count"] == 2 and result["probs"] == pytest.approx(right.tolist())


def test_u_selects_the_word_whose_interval_contains_it():
    probs, points = [0.665, 0.0, 0.245], [0.0, 0.664, 0.666, 0.9, 0.95]
    hits = evaluate("next_word", [{"name": "hit", "args": [probs, u]} for u in points])
    assert hits == [0, 0, 2, 2, 3]


def test_a_label_avoids_the_mark_if_there_is_room():
    labels = [(10, 100, 40, 12), (10, 100, 40, 50), (10, 100, 40, 75), (10, 60, 40, 40)]
    calls = [{"name": "labelMiddle", "args": list(label)} for label in labels]
    assert evaluate("next_word", calls) == [60, 80, 42.5, 40]


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
@pytest.mark.parametrize("width", one_of(__name__, [1280, 390]))
def test_the_task_is_solved_by_keyboard(mounted, width):
    page = mounted(NextWord(contexts=CONTEXTS), width)
    says(page, ".sdl-task-state", "raise the temperature")
    page.locator("input[data-name=temperature]").focus()
    page.keyboard.press("End")
    says(page, ".sdl-task-state", "Now lower top-p")
    page.locator("input[data-name=top_p]").focus()
    page.keyboard.press("Home")
    says(page, ".sdl-task-state", "Solved")
    says(page, ".sdl-summary", "falls on")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_the_line_is_dragged(mounted):
    page = mounted(NextWord(contexts=CONTEXTS), 1000)
    line = page.get_by_role("img", name="The line of length 1").bounding_box()
    page.mouse.click(line["x"] + 0.9 * line["width"], line["y"] + 40)
    assert page.evaluate("model.get('u')") == pytest.approx(0.9, abs=0.02)
