"""Teach this (teach.md) and Questions that people ask (questions.md): plans that add up, numbers, handles."""

import re

from conftest import ROOT
from scipy.optimize import brentq

from specdec_lite import theory

TEACH = (ROOT / "book" / "teach.md").read_text("utf-8")
QUESTIONS = (ROOT / "book" / "questions.md").read_text("utf-8")


def test_the_minutes_of_each_plan_add_up():
    tables = re.findall(r"(?:^\|.*\n)+", TEACH, flags=re.M)
    sums = [sum(map(int, re.findall(r"^\| (\d+) \|", table, flags=re.M))) for table in tables]
    assert sums == [45, 90, 90, 225]  # half a day with its break


def test_the_rate_of_long_drafts_is_what_one_alpha_explains():
    rounds, drafted = 64 - 51, 171 // (64 - 51)
    alpha = brentq(lambda a: theory.expected_tokens(a, drafted) - 1 - 51 / rounds, 0.1, 0.99)
    assert (
        f"{rounds} rounds with {drafted} drafts each, which α = {alpha:.2f} explains" in QUESTIONS
    )
    assert (round(31 / 33, 2), round(51 / 171, 2)) == (0.94, 0.3)


def test_twelve_questions_each_with_its_thread_and_its_proof():
    asked = re.findall(r"\n## .+\n\nAsked in \[.+?\]\(https://github.com/", QUESTIONS)
    assert len(asked) == QUESTIONS.count("*Proof:*") == 12
