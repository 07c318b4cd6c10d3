"""A reader's function is run so that a page continues, whatever the function does."""

import threading
import time
import warnings

import numpy as np
import pytest

from specdec_book.exercises import answer, decoding
from specdec_book.exercises.check import HINT, UNWRITTEN, Check

DOUBLED = Check("fn(x) → 2 · x", lambda x: 2 * x, [(1,), (2,)], {})


def endless(x):
    while True:
        x = x + 1


def deaf(x):
    while True:
        try:
            x = x + 1
        except Exception:
            pass


def thrice(x):
    triple = 3 * y  # noqa: F821
    return triple


def leaves(x):
    raise SystemExit


def interrupts(x):
    raise KeyboardInterrupt


def told(fn) -> str:
    """Return what a check of doubling a number says of a function."""
    outcome = DOUBLED(fn)
    assert not outcome
    return outcome.message


@pytest.mark.parametrize("fn", [endless, deaf])
def test_an_endless_loop_ends_with_a_sentence_and_its_line(fn, monkeypatch):
    monkeypatch.setattr(answer, "SECONDS", 0.2)
    message = told(fn)
    assert "was stopped after 0.2 seconds in line" in message and "`" in message, message


def test_an_endless_loop_ends_in_any_thread(monkeypatch):
    """A kernel may run cells outside the main thread, where no signal arrives."""
    monkeypatch.setattr(answer, "SECONDS", 0.2)
    messages = []
    thread = threading.Thread(target=lambda: messages.append(told(endless)), daemon=True)
    thread.start()
    thread.join(60)
    assert "was stopped" in messages[0]


def test_no_exception_arrives_after_an_answer_in_time(monkeypatch):
    """The limit is lifted with the answer, also if the answer needs nearly all of its time."""
    monkeypatch.setattr(answer, "SECONDS", 0.02)

    def slow(x):
        time.sleep(0.019)
        return 2 * x

    for _ in range(20):
        DOUBLED(slow)
    time.sleep(0.05)
    assert sum(range(10_000)) == 49_995_000


def test_an_exception_shows_the_readers_own_line():
    message = told(thrice)
    assert "raises NameError in line" in message and "`triple = 3 * y" in message
    assert " in line" not in told(lambda: 1), "a wrong number of arguments has no line"


def test_an_exception_below_a_library_shows_the_line_that_called_it():
    def sorts(x):
        return sorted([x, "a"], key=lambda each: each.lower())

    assert "`return sorted(" in told(sorts)


def test_leaving_and_interrupting_are_told_like_errors():
    assert "raises SystemExit" in told(leaves) and "was interrupted" in told(interrupts)


def test_a_forgotten_return_is_no_unwritten_exercise():
    def prints(x):
        print(2 * x)

    def unwritten(x):
        """Return twice x."""
        ...

    def begun(x):
        ...
        print(2 * x)

    assert "is its `return` missing?" in told(prints) and "`return`" in told(begun)
    assert UNWRITTEN in told(unwritten) and "unwritten(x=1)" in told(unwritten)


def test_an_ellipsis_between_brackets_is_no_gap():
    def last(x):
        import numpy as np

        return np.array([[0, x]])[..., 1]

    assert "the answer is 2" in told(last)


def test_an_answer_that_changes_its_arguments_changes_no_case():
    def empties(ratios, uniforms):
        ratios.clear()
        return 0

    for _ in range(2):
        assert "ratios=[2, 0.5, 0.9]" in decoding.check_accepted(empties).message


def test_a_hint_is_offered_after_two_wrong_answers():
    def my_double(x):
        return x

    messages = [told(my_double) for _ in range(3)]
    assert [HINT in message for message in messages] == [False, True, True]
    assert DOUBLED(lambda x: 2 * x)


def test_an_answer_in_numpy_or_torch_prints_no_warning():
    def my_round(tokens, p, q, uniforms, last):
        return [int(np.array(p)[0].argmax())]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoding.check_round(my_round)
    assert caught == []
