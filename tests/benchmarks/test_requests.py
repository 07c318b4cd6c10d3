"""The rule that decides which answers are worth showing, and the recording of its verdicts."""

from collections import Counter

import pytest

from benchmarks.requests import KINDS, REQUESTS, repeats
from specdec_book import recordings

GOOD = {
    "question": "Paris is the capital of France. It is known for the Eiffel Tower.",
    "code": "```python\ndef double(x):\n    return 2 * x\n```\n",
    "json": '{"title": "Emma", "author": "Austen", "year": 1815}',
    "summary": "A library has a garden where children hear stories.",
    "story": "A cat slept. It woke. The cat ran away.",
}
"""An answer that does what the first request of its kind asks."""
BAD = {
    "question": "London is a large city.",
    "code": "```python\ndef twice(x):\n    return 2 * x\n```\n",
    "json": '{"title": "Emma"}',
    "summary": "It opens on Monday.",
    "story": "A cat slept.",
}


def first(kind: str):
    return next(request for request in REQUESTS if request.kind == kind)


def test_there_are_twenty_requests_of_each_kind():
    assert Counter(request.kind for request in REQUESTS) == dict.fromkeys(KINDS, 20)
    assert len({request.text for request in REQUESTS}) == 120


@pytest.mark.parametrize("kind", GOOD)
def test_an_answer_passes_only_if_it_does_what_was_asked_and_ends(kind: str):
    request = first(kind)
    assert request.passes(GOOD[kind], ended=True)
    assert not request.passes(GOOD[kind], ended=False)
    assert not request.passes(BAD[kind], ended=True)


def test_an_edit_must_leave_the_rest_as_it_is():
    request = first("edit")
    text = request.text.partition("\n\n")[2]
    short = text[: text.rstrip(".").rindex(".") + 1]
    assert request.passes(short, ended=True)
    assert not request.passes(text, ended=True)
    assert not request.passes(short.replace("two", "three"), ended=True)


def test_six_words_in_a_row_may_not_occur_twice():
    assert repeats("The birds came back home again. The birds came back home again.")
    assert not repeats("The birds came back home. The birds came back.")


def test_the_recording_follows_the_rule():
    """Every verdict follows from the recorded answer, and all requests are recorded."""
    answers = recordings.load("answers").data["answers"]
    rules = {request.text: request for request in REQUESTS}
    assert {row["request"] for row in answers} == {*rules}
    for row in answers:
        assert row["passes"] == rules[row["request"]].passes(row["answer"], row["ends"])
