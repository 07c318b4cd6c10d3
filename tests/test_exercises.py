"""The exercises' checks: the notebooks' own stubs fail with a hint, their own solutions pass, known mistakes are named."""
import json
import re
from pathlib import Path

import pytest

from specdec_lite import exercises, theory

NOTEBOOK = json.loads((Path(__file__).parents[1] / "notebooks" / "07_how_fast.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}
CHAPTER = {"my_expected_tokens": exercises.check_expected_tokens, "my_optimal_gamma": exercises.check_optimal_gamma,
           "my_tokens_from_profile": exercises.check_tokens_from_profile}
SOLUTIONS = {name: block for block in re.findall(r"```python\n(.*?)```", "\n".join(CELLS.values()), re.S)
             for name in re.findall(r"^def (\w+)", block, re.M)}


def define(source: str, name: str):
    """The function `name` that a piece of a notebook defines."""
    scope = {"exercises": exercises, "walltime_improvement": theory.walltime_improvement}
    exec(source, scope)
    return scope[name]


@pytest.mark.parametrize("name", CHAPTER)
def test_the_notebooks_stub_fails_and_says_why(name):
    stub = next(source for cell, source in CELLS.items() if cell.startswith("exercise-") and f"def {name}" in source and "exercises.check" in source)
    outcome = CHAPTER[name](define(stub, name))
    assert not outcome and "your function" in outcome.message and repr(outcome).startswith("✗")


@pytest.mark.parametrize("name", CHAPTER)
def test_the_notebooks_solution_passes(name):
    outcome = CHAPTER[name](define(SOLUTIONS[name], name))
    assert outcome and repr(outcome).startswith("✓")


RIGHT = {
    exercises.check_expected_tokens: theory.expected_tokens, exercises.check_walltime_improvement: theory.walltime_improvement,
    exercises.check_optimal_gamma: lambda a, c: theory.optimal_gamma(a, c)[0], exercises.check_tokens_from_profile: theory.tokens_from_profile,
    exercises.check_acceptance_rate: theory.acceptance_rate, exercises.check_residual: theory.residual,
    exercises.check_lenient_acceptance_rate: theory.lenient_acceptance_rate,
}


@pytest.mark.parametrize("check", RIGHT)
def test_every_check_accepts_the_librarys_function(check):
    assert check(RIGHT[check])


MISTAKES = [
    (exercises.check_expected_tokens, lambda a, g: sum(a**i for i in range(1, g + 1)), "recovered or bonus"),
    (exercises.check_expected_tokens, lambda a, g: 1 + a * g, "behind a rejection"),
    (exercises.check_expected_tokens, lambda a, g: sum(a**i for i in range(g)), "one term is missing"),
    (exercises.check_expected_tokens, lambda a, g: (1 - a ** (g + 1)) / (1 - a), "ZeroDivisionError"),
    (exercises.check_walltime_improvement, lambda a, g, c: theory.expected_tokens(a, g) / (1 + c), "γ times"),
    (exercises.check_walltime_improvement, lambda a, g, c: (1 + g * c) / theory.expected_tokens(a, g), "inverse"),
    (exercises.check_optimal_gamma, lambda a, c: max(1, theory.optimal_gamma(a, c)[0]), "draft nothing"),
    (exercises.check_tokens_from_profile, lambda profile: 1 + sum(profile), "multiply along the way"),
    (exercises.check_acceptance_rate, lambda p, q: sum(a * b for a, b in zip(p, q)), "Σ min"),
    (exercises.check_acceptance_rate, lambda p, q: 1 - sum(abs(a - b) for a, b in zip(p, q)), "halve"),
    (exercises.check_residual, lambda p, q: [max(0, a - b) for a, b in zip(p, q)], "divided by its sum"),
    (exercises.check_lenient_acceptance_rate, lambda p, q, l: theory.acceptance_rate(p, q) / l, "at most 1"),
    (exercises.check_expected_tokens, lambda a, g: "three", "not a number"),
    (exercises.check_expected_tokens, lambda a, g: 2.0, "the answer is"),
    (exercises.check_expected_tokens, lambda a: a, "TypeError"),
]


@pytest.mark.parametrize("check, wrong, said", MISTAKES)
def test_mistakes_are_named(check, wrong, said):
    outcome = check(wrong)
    assert not outcome and said in outcome.message


def test_claim_the_notebooks_tables_are_the_published_ones():
    published = json.loads((Path(__file__).parents[1] / "results" / "published.json").read_text(encoding="utf-8"))
    scope: dict = {}
    for cell, name in (("table-1", "table_1"), ("table-2", "table_2")):
        exec(re.search(rf"^{name} = \[.*?\]$|^{name} = \[.*?\)\]$", CELLS[cell], re.S | re.M)[0], scope)
    assert [list(row) for row in scope["table_1"]] == published["leviathan2023_table1"]["rows"]
    given = [(f"t5-{draft}", gamma, alpha, c, expected, measured) for draft, gamma, alpha, c, expected, measured in scope["table_2"]]
    assert given == [(row[1], *row[3:]) for row in published["leviathan2023_table2"]["rows"]]
