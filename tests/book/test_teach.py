"""Teach this (teach.md) and Questions that people ask (questions.md): plans that add up, numbers, handles."""

import re
from pathlib import Path

from scipy.optimize import brentq

from specdec_lite import theory

ROOT = Path(__file__).resolve().parents[2]
TEACH = (ROOT / "book" / "teach.md").read_text("utf-8")
QUESTIONS = (ROOT / "book" / "questions.md").read_text("utf-8")


def test_the_minutes_of_each_plan_add_up():
    tables = re.findall(r"(?:^\|.*\n)+", TEACH, flags=re.M)
    sums = [sum(map(int, re.findall(r"^\| (\d+) \|", table, flags=re.M))) for table in tables]
    assert sums == [45, 90, 90, 225]  # half a day with its break


def test_the_rate_of_long_drafts_is_what_one_alpha_explains():
    accepted = 96 / (1378 / 64)
    alpha = brentq(lambda a: theory.expected_tokens(a, 64) - 1 - accepted, 0.1, 0.99)
    assert f"it accepted {accepted:.1f} of them, which α = {alpha:.2f} explains" in QUESTIONS
    assert round(96 / 1378, 2) == 0.07


def test_twelve_questions_each_with_its_thread_and_its_proof():
    asked = re.findall(r"\n## .+\n\nAsked in \[.+?\]\(https://github.com/", QUESTIONS)
    assert len(asked) == QUESTIONS.count("*Proof:*") == 12


def test_a_prepared_state_names_an_interactive_of_that_chapter():
    handle = r"notebooks/(\w+\.ipynb)#([a-z_]+):[\w=,.-]+\)"
    for chapter, module in re.findall(handle, TEACH + QUESTIONS):
        source = (ROOT / "notebooks" / chapter).read_text("utf-8")
        assert re.search(rf"\b{module.title().replace('_', '')}[(.]", source), (chapter, module)
