"""Every exercise of every chapter: its stub counts as unwritten, its solution passes, and each
mistake that its check declares is named."""

import json
import random
import re

import pytest
from conftest import ROOT
from solutions import CHAPTERS, exercises

from specdec_book.exercises import answer, decoding, eagle, memory
from specdec_book.exercises.check import HINT, UNWRITTEN, Check
from specdec_book.exercises.lossless import check_lossless, shy_residual
from specdec_lite import theory

NAMES = {exercise.check: f"{exercise.chapter[:3]}{exercise.asked}" for exercise in exercises()}
CHECKS = [*NAMES]
# check_lossless enumerates a rule instead; its mistakes are the rows of WRONG.
COMPARING = [check for check in CHECKS if isinstance(check, Check)]
MISTAKES = [(check, *mistake) for check in COMPARING for mistake in check.mistakes]

every_exercise = pytest.mark.parametrize("exercise", exercises(), ids=str)
every_check = pytest.mark.parametrize("check", CHECKS, ids=NAMES.get)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_asks_for_three_and_has_a_hint_for_each(path):
    """A line, a function, an open one."""
    assert len([exercise for exercise in exercises() if exercise.chapter == path.stem]) == 3
    assert path.read_text("utf-8").count("<details><summary>Hint</summary>") == 3


@every_exercise
def test_an_untouched_exercise_is_told_to_be_unwritten(exercise):
    """Neutrally, with a call that shows the types of the arguments."""
    outcome = exercise.check(exercise.stub)
    assert not outcome and not outcome.begun and repr(outcome).startswith("○ "), outcome
    if UNWRITTEN in outcome.message:
        assert f"{exercise.name}(" in outcome.message or "check_lossless" in str(exercise.check)


@every_exercise
def test_solution_passes(exercise):
    outcome = exercise.check(exercise.solution)
    assert outcome and repr(outcome).startswith("✓"), outcome


def test_every_check_knows_a_mistake():
    assert {check for check, *_ in MISTAKES} == set(COMPARING)
    assert len(CHECKS) == len(COMPARING) + 1


@pytest.mark.parametrize(
    "check, formula, said", MISTAKES, ids=[f"{NAMES[c]}-{said[:40]}" for c, _, said in MISTAKES]
)
def test_a_mistake_is_told_apart_from_the_others_and_named(check, formula, said):
    as_list = lambda x: x.tolist() if hasattr(x, "tolist") else x
    outcome = check(lambda *case: formula(*map(as_list, case)))
    assert not outcome and outcome.message.removesuffix(f" {HINT}") == said
    assert outcome.begun


@every_check
@pytest.mark.parametrize("given, said", [(None, "`return`"), (..., UNWRITTEN), ("three", "three")])
def test_an_answer_that_is_no_answer_is_told(check, given, said):
    outcome = check(lambda *case: given)
    assert not outcome and said in outcome.message


@every_check
@pytest.mark.parametrize(
    "broken, said", [(lambda *case: 1 / 0, "ZeroDivisionError"), (lambda: 1, "TypeError")]
)
def test_error_in_the_answer_is_shown_and_not_raised(check, broken, said):
    outcome = check(broken)
    assert not outcome and said in outcome.message


def test_a_gap_inside_an_answer_is_found_and_whole_numbers_are_shown_whole():
    assert repr(eagle.check_pairs(lambda n: [[0, ...]])).startswith(f"○ {UNWRITTEN}")
    wrong = decoding.check_cache_lengths(lambda *case: (1, 1)).message
    assert "the answer is [10, 10]; your function returns [1, 1]" in wrong


def test_the_call_that_went_wrong_is_shown_as_it_is_written():
    def my_free_tokens(bytes_per_weight, bandwidth, throughput, batch):
        return 1

    said = memory.check_free_tokens(my_free_tokens).message
    call = "my_free_tokens(bytes_per_weight=2, bandwidth=2e+12, throughput=3.12e+14, batch=1)"
    assert said.startswith(f"{call}: the answer is 156"), said


def test_a_line_left_open_is_named_whatever_python_says_of_it(check=CHECKS[0]):
    def open_line(*case):
        row = ...
        row[0] = 1

    assert UNWRITTEN in check(open_line).message


def test_claim_the_notebooks_tables_are_the_published_ones():
    published = json.loads((ROOT / "results" / "published.json").read_text(encoding="utf-8"))
    notebook = json.loads((ROOT / "notebooks" / "07_how_fast.ipynb").read_text(encoding="utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    scope: dict = {}
    for name in ("table_1", "table_2"):
        lines = re.search(rf"^{name} = \[.*?\]$|^{name} = \[.*?\)\]$", text, re.S | re.M)
        exec(lines[0], scope)
    assert [list(row) for row in scope["table_1"]] == published["leviathan2023_table1"]["rows"]
    given = [
        (f"t5-{draft}", gamma, alpha, c, expected, measured)
        for draft, gamma, alpha, c, expected, measured in scope["table_2"]
    ]
    assert given == [(row[1], *row[3:]) for row in published["leviathan2023_table2"]["rows"]]


# Chapter 6's open exercise: any exact rule passes, and learns how much of the draft it keeps --------


def speculative(p, q, x, rng):
    return x if rng.flip((p[x] / q[x]).item()) else rng.draw(theory.residual(p, q))


def shy(p, q, x, rng):
    return (
        x
        if rng.flip(0.9 * min(1, (p[x] / q[x]).item()))
        else rng.draw(p.new_tensor(shy_residual(p.numpy(), q.numpy(), 0.9)))
    )


def match(p, q, x, rng):
    return rng.draw(p)


def test_exact_rules_pass_and_differ_in_what_they_keep():
    outcomes = [check_lossless(rule) for rule in (speculative, shy, match)]
    kept = [float(outcome.message.split("token ")[1].split(" of")[0]) for outcome in outcomes]
    assert all(outcomes) and kept[0] > kept[1] > kept[2]


def exact_or(recover):
    """The right test, with a replacement of one's own."""
    return lambda p, q, x, rng: x if rng.flip((p[x] / q[x]).item()) else recover(p, q, rng)


def again(scale):
    """Draws from q until a draft is accepted with p/(scale·q); it has no last outcome."""

    def rule(p, q, x, rng):
        while not rng.flip((p[x] / q[x] / scale(p, q)).item()):
            x = rng.draw(q)
        return x

    return rule


def likeliest(p, q, x, rng):
    """Chapter 5's first rule, with the refill that is exact wherever q is at most p at its peak."""
    missing = (p - q * (p == p.max())).clamp(min=0)
    return x if x == int(p.argmax()) else rng.draw(missing / missing.sum())


WRONG = [
    (likeliest, "target's likeliest token"),
    (exact_or(lambda p, q, rng: rng.draw(p)), "recovering from p"),
    (exact_or(lambda p, q, rng: rng.draw(q)), "replacement from q"),
    (exact_or(lambda p, q, rng: int((p - q).argmax())), "should emit p"),
    (lambda p, q, x, rng: x, "every draft is kept"),
    (again(lambda p, q: 1.0), "min(p, q) divided by its sum"),
    (again(lambda p, q: (p / q).max()), "textbook rejection sampling"),
    (exact_or(lambda p, q, rng: rng.draw((p - q).clamp(min=0))), "Divide the missing mass"),
    (lambda p, q, x, rng: 7, "return a token"),
    (lambda p, q, x, rng: x if random.random() < p[x] / q[x] else 0, "all randomness from rng"),
    (lambda p, q, x, rng: 1 / 0, "ZeroDivisionError in line"),
]


@pytest.mark.parametrize("rule, said", WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_rule_is_told_what_is_wrong(rule, said):
    outcome = check_lossless(rule)
    assert not outcome and said in outcome.message, outcome


def test_a_rule_that_never_ends_is_stopped(monkeypatch):
    def endless(p, q, x, rng):
        while True:
            x += 1

    monkeypatch.setattr(answer, "SECONDS", 0.2)
    assert "was stopped after 0.2 seconds in line" in check_lossless(endless).message
