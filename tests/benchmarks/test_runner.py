"""Run a small experiment: options, resuming, parts, the stamp, and wrong input."""

import json
from collections.abc import Sequence
from functools import partial

import pytest

from benchmarks import __main__ as command, experiment
from benchmarks.experiment import Run, execute
from specdec_book import recordings
from specdec_lite.measure import stamps

CALLS: list[int] = []
"""The numbers that were squared."""
FAILS: set[int] = set()
"""Numbers at which the run is interrupted."""


def square(number: int) -> int:
    if number in FAILS:
        raise KeyboardInterrupt
    CALLS.append(number)
    return number**2


@experiment.experiment(
    "squares",
    "squares of numbers",
    time="a second",
    quick={"numbers": (2,)},
    unrelated=("minutes",),
)
def squares(
    run: Run,
    *,
    numbers: Sequence[int] = (2, 3, 4),
    minutes: float | None = None,
    apart: bool = False,
) -> dict:
    """Return the squares and their sum.

    Args:
        numbers: what is squared
        apart: one after the other
    """
    if 13 in numbers:
        raise ValueError("--numbers 13: must not be unlucky")
    parts = {f"of {number}": partial(square, number) for number in numbers}
    groups = [{part: parts[part]} for part in parts] if apart else [parts]
    rows = {part: row for group in groups for part, row in run(group).items()}
    return {"sum": sum(rows.values()), "squares": rows}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) -> the path of the recording; results/ is an empty folder."""
    monkeypatch.setattr(recordings, "FOLDER", tmp_path / "results")
    CALLS.clear(), FAILS.clear()
    kind = experiment.KNOWN["squares"]
    return lambda *words: execute(kind, [*words, "--work", str(tmp_path / "work")])


def interrupt(run, *words):
    FAILS.add(4)
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    FAILS.clear()


def test_a_recording_has_the_rows_of_all_parts_and_a_stamp(run, tmp_path):
    for words in ([], ["--apart"]):
        CALLS.clear()
        path = run(*words)
        machine = stamps.slug(stamps.machine_name())
        assert path == tmp_path / "results" / "squares" / f"{machine}.json"
        recording = recordings.load("squares")
        assert recording.data == {"sum": 29, "squares": {"of 2": 4, "of 3": 9, "of 4": 16}}
        assert "python -m benchmarks run squares" in recording.command
        assert recording.commit == stamps.commit()
        assert len(recording.process["load_average"]) == 1 + 3  # before, and after each part
        assert CALLS == [2, 3, 4]


def test_an_interrupted_run_resumes(run, tmp_path):
    interrupt(run)
    run("--numbers", "5")  # a run with other options has parts of its own
    assert CALLS == [2, 3, 5] and recordings.load("squares").data["sum"] == 25
    run("--minutes", "3")  # an option that does not change what is measured
    assert CALLS == [2, 3, 5, 4] and recordings.load("squares").data["sum"] == 29
    run()
    assert CALLS[4:] == [2, 3, 4], "a finished run is not resumed"
    interrupt(run)
    run("--fresh")
    assert CALLS[7:] == [2, 3, 2, 3, 4]


def test_a_quick_run_leaves_the_recordings_alone(run, tmp_path):
    path = run("--quick")
    assert tmp_path / "work" in path.parents and recordings.names() == []
    assert json.loads(path.read_text())["sum"] == 4
    assert json.loads(run("--quick", "--numbers", "3").read_text())["sum"] == 9


@pytest.mark.parametrize(
    "words, named",
    [
        ("--numbers 0", "--numbers 0: must be at least 1"),
        ("--numbers 13", "--numbers 13: must not be unlucky"),
        ("--minutes -1", "--minutes -1.0: must be at least 0"),
        ("--out .", "--out .: must be a file"),
        ("--other", "--other"),
    ],
)
def test_wrong_options_are_named(run, words, named, capsys):
    with pytest.raises(SystemExit):
        run(*words.split())
    assert named in capsys.readouterr().err.splitlines()[-1] and CALLS == []


@pytest.mark.parametrize(
    "words, named",
    [
        ("scoreboard-counts --prompts 3", "--prompts 3: must be a multiple of 4"),
        ("scoreboard-counts --new-tokens 1", "--new-tokens 1: must be at least 2"),
        ("scoreboard-counts --share 3/2", "--share '3/2': must be K/N"),
        ("scoreboard-counts --rows nothing", "--rows 'nothing': must be among draft model"),
        ("scoreboard-clocks --turns 1", "--turns 1: must be at least 2"),
        ("scoreboard-clocks --check-share 2", "--check-share 2.0: must be in [0, 1]"),
        ("scoreboard-clocks --rows nothing", "--rows 'nothing': must be among draft model"),
    ],
)
def test_wrong_options_of_an_experiment_are_named(words, named, tmp_path, capsys):
    name, *options = words.split()
    with pytest.raises(SystemExit):
        execute(name, [*options, "--work", str(tmp_path)])
    assert named in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", ["run speedy", "lists", "run nothing-like-it"])
def test_an_unknown_name_gets_one_line(words):
    with pytest.raises(SystemExit) as error:
        command.main(words.split())
    assert len(str(error.value).splitlines()) == 1 and words.split()[-1] in str(error.value)


def test_every_experiment_has_a_name_a_quick_form_and_options_with_a_use(capsys):
    for name in experiment.MODULES:
        kind = experiment.find(name)
        assert kind.name == name and kind.what and {*kind.quick, *kind.least} <= {*kind.options}
        options = experiment.parser_of(kind, quick=True).parse_args(["--quick"])
        experiment.check(kind, {option: getattr(options, option) for option in kind.options})
    command.main(["speeds"])
    assert "PARD, one pass" in capsys.readouterr().out
    command.main(["list"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in experiment.MODULES)


# The quick form of every experiment -----------------------------------------------------------------

SAMPLE = ("scoreboard-counts", "scoreboard-clocks")


def quick(name, tmp_path):
    path = execute(name, ["--quick", "--work", str(tmp_path)])
    stamps.validate(name, json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_quick_run(name, tmp_path):
    quick(name, tmp_path)


@pytest.mark.weekly
@pytest.mark.parametrize("name", sorted({*experiment.MODULES} - {*SAMPLE}))
def test_every_quick_run(name, tmp_path):
    quick(name, tmp_path)
