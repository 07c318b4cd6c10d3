"""Student notebooks without solutions, and marks: right answers, natural mistakes, bad submissions."""

import json
import re
import subprocess
import sys

import nbformat
import pytest
from solutions import ASKED, SOLUTION, exercises, filled

from specdec_book import classroom
from specdec_book.exercises.check import UNWRITTEN
from specdec_book.exercises.speed import check_expected_tokens
from specdec_lite.theory import expected_tokens

(CHAPTER,) = classroom.published("05")
STUBS = [source for source in classroom.sources(CHAPTER) if ASKED.search(source)]


def solved() -> list[str]:
    """Return the chapter's code with the published solutions."""
    solutions = SOLUTION.findall("\n".join(classroom.sources(CHAPTER, "markdown")))
    parts = [(stub, ASKED.search(stub), text) for stub, text in zip(STUBS, solutions)]
    right = {stub: filled(stub[: end.start()], text) + end[0] for stub, end, text in parts}
    return [right.get(source, source) for source in classroom.sources(CHAPTER)]


def submit(path, *code):
    """Write a submission with these code cells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [nbformat.v4.new_code_cell(source) for source in code]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def marks(folder):
    """Return student → [(passed, message) of each exercise]."""
    table: dict = {}
    for student, _, *result in classroom.grade(folder, 7):
        table.setdefault(student, []).append(result)
    return table


def test_a_student_notebook_has_every_exercise_and_no_solution():
    assert len(classroom.published()) > 25
    for path in classroom.published():
        cells = json.loads(classroom.student_copy(path))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        given = "\n".join(classroom.sources(path, "markdown"))
        for _, check, name in classroom.exercises_of(path):
            assert f"exercises.{check}({name})" in text
        assert not any(solution.strip() in text for solution in SOLUTION.findall(given))
        assert text.count("<details") == text.count("</details>")
        assert not re.search("<summary>[^<]*solution", text, flags=re.I)


@pytest.mark.parametrize("seed", [1, 2027])
def test_published_solutions_pass_the_drawn_cases(seed: int):
    modules = classroom, classroom.lossless, classroom.checking
    before = [{**vars(module)} for module in modules]
    for exercise in exercises():
        with classroom.drawn_cases(exercise.asked, seed):
            assert exercise.check(exercise.solution), exercise
    assert [{**vars(module)} for module in modules] == before  # the other checks stay as they were


def test_a_table_of_the_published_answers_fails_the_drawn_cases():
    """A seed repeats its cases, another seed has others, and they end with the block."""
    calls: list = []
    right = lambda alpha, gamma: calls.append((alpha, gamma)) or expected_tokens(alpha, gamma)
    assert check_expected_tokens(right)
    answers, drawn = {case: expected_tokens(*case) for case in calls}, []
    for seed in (1, 1, 2):
        calls.clear()
        with classroom.drawn_cases("check_expected_tokens", seed):
            assert check_expected_tokens(right)
            assert not check_expected_tokens(lambda *case: answers.get(case, 0.0))
        drawn.append([*calls])
    assert drawn[0] == drawn[1] != drawn[2]
    assert check_expected_tokens(lambda *case: answers[case])


@pytest.mark.slow
def test_right_answers_mistakes_and_bad_input_are_told_apart(tmp_path):
    name, right = CHAPTER.name, solved()
    submit(tmp_path / "right" / name, "print('{\"value\": 0}')\n%matplotlib", *right)
    change = lambda text: text.replace("u >= r", "u > r").replace("my_cache_lengths", "lengths")
    wrong = (change(source) for source in right if "my_round" not in source)  # a deleted cell
    submit(tmp_path / "wrong" / name, *wrong)
    submit(tmp_path / "untouched" / name, *STUBS)
    bodies = ("while True: pass", "return 1 / 0", "import os; os._exit(0)")
    bad = [re.match(r"def .*:\n", stub)[0] + f"    {body}" for stub, body in zip(STUBS, bodies)]
    submit(tmp_path / "bad" / name, *bad)
    submit(tmp_path / "other.ipynb", "print(1)")
    (tmp_path / "broken.ipynb").write_text("{", "utf-8")
    table = marks(tmp_path)
    assert [passed for passed, _ in table["right"]] == 3 * [True], table["right"]
    accepted, lengths, deleted = table["wrong"]
    assert not accepted[0] and "at u = p/q the draft is rejected too" in accepted[1]
    assert lengths[0] and "is called lengths" in lengths[1] and "missing" in deleted[1]
    assert all(UNWRITTEN in message for _, message in table["untouched"])
    told = ("stopped after", "ZeroDivisionError", "ended its process")
    assert all(words in message for words, (_, message) in zip(told, table["bad"]))
    assert "no exercise of" in str(table["other"]) and "is no notebook" in str(table["broken"])


@pytest.mark.slow
def test_a_submission_reads_neither_checks_nor_notebooks():
    bodies = (
        "from specdec_book.exercises import decoding",
        f"open({str(classroom.HERE / 'exercises' / 'decoding.py')!r})",
        f"open({bytes(classroom.HERE / 'exercises' / 'decoding.py')!r})",
        f"open({str(CHAPTER)!r})",
        "import __main__; return __main__.lossless.shy_residual",
        "import subprocess; subprocess.run(['true'])",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
    )
    code = [f"def f{number}():\n    {body}" for number, body in enumerate(bodies)]
    submission = classroom.Submission([*code, "ROW = [1, -2.5]\ndef right():\n    return ROW"])
    for number in range(len(bodies)):
        with pytest.raises(classroom.Refused, match="not part of a|is not allowed in|no attribute"):
            submission.call(f"f{number}", [])
    assert submission.call("right", []) == [1, -2.5]
    submission.stop()


@pytest.mark.slow
def test_open_rules_and_the_two_assignments(tmp_path):
    """A rule takes its chance from the grader; the loop as handed out fails, and a right one passes."""
    residual = "missing = (p - q).clamp(min=0)\n    return rng.draw(missing / missing.sum())"
    rule = f"    if rng.flip(float(p[x] / q[x])):\n        return x\n    {residual}"
    submit(tmp_path / "ann" / "06_why_lossless.ipynb", f"def my_rule(p, q, x, rng):\n{rule}")
    setup, loop, *_ = classroom.sources(*classroom.published("loop"))
    loop = loop.replace("broken_round", "my_round")
    head = "def my_round(p, q, text, gamma, rng):\n    "
    plain = f"{head}return [rng.draw(p[text])]"
    endless, number = f"{head}while not rng.flip(0.5): pass", f"{head}return text[0]"
    right = loop.replace("- row)", "- rows[i])")
    for student, code in zip(
        ("ann", "bob", "cy", "di", "ed"), (loop, right, endless, number, plain)
    ):
        submit(tmp_path / student / "loop.ipynb", setup, code)
    drafter = "from specdec_lite.drafters import PromptLookupDrafter as D\n"
    submit(tmp_path / "bob" / "drafter.ipynb", f"{drafter}make_drafter = lambda target: D(2)")
    table = marks(tmp_path)
    (rule, told), (loop, differs) = (each for each in table["ann"] if "missing" not in each[1])
    assert rule and "Exact on all" in told and not loop and "under your loop" in differs, table
    assert [passed for passed, _ in table["bob"]] == [True, True] and "τ = " in table["bob"][0][1]
    assert "not ended after 16 draws" in str(table["cy"]) and "returns 2, not" in str(table["di"])
    assert "1.0000 tokens per round instead of" in str(table["ed"])
    command = [sys.executable, "-m", "specdec_book.classroom", "grade", "--seed", "7"]
    printed = subprocess.run([*command, tmp_path / "ann"], capture_output=True, check=True).stdout
    assert differs in printed.decode()  # the same seed gives the same cases


def test_the_commands_write_files_and_name_what_they_cannot_read(tmp_path, capsys):
    classroom.main(["student", "05", "loop", "--to", str(tmp_path / "out")])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {CHAPTER.name, "loop.ipynb"}
    submit(tmp_path / "one" / "=cmd.ipynb", "print(1)")
    submit(tmp_path / "one" / "._macos.ipynb", "print(1)")
    classroom.main(["grade", str(tmp_path / "one"), "--seed", "1", "--to", str(tmp_path / "t.csv")])
    rows = (tmp_path / "t.csv").read_text("utf-8-sig").splitlines()
    assert len(rows) == 2 and rows[1].startswith("'=cmd,")  # a spreadsheet would run it
    for bad in (["student", "99", "--to", "x"], ["grade", str(tmp_path / "gone"), "--seed", "1"]):
        with pytest.raises(SystemExit):
            classroom.main(bad)
        assert "error: " in capsys.readouterr().err
