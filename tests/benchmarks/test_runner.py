"""Run a small experiment: resuming, parts, the stamp, and wrong input."""

import json

import pytest

from benchmarks import __main__ as command, catalogue, experiment
from benchmarks.experiment import Experiment, execute
from specdec_book import recordings
from specdec_lite.measure import stamps


class Squares(Experiment):
    """Squares of numbers; `calls` are the measured parts, and `fails` is a part that raises."""

    name = "squares"
    what = "squares of numbers"
    quick = ("--numbers", "2")
    unrelated = ("minutes",)
    calls: list = []
    fails: set = set()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--numbers", type=int, nargs="+", default=[2, 3, 4])
        parser.add_argument("--minutes", type=float)

    def check(self):
        if min(self.options.numbers) < 1:
            raise ValueError("--numbers: must be at least 1")

    def parts(self):
        return [f"of {number}" for number in self.options.numbers]

    def run(self, part):
        if part in self.fails:
            raise KeyboardInterrupt
        self.calls.append(part)
        return int(part.split()[1]) ** 2

    def summarise(self, rows):
        return {"sum": sum(rows.values()), "squares": dict(rows)}

    def restore(self, data):
        return data["squares"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) -> the path of the recording; results/ is an empty folder."""
    monkeypatch.setattr(recordings, "FOLDER", tmp_path / "results")
    Squares.calls, Squares.fails = [], set()
    return lambda *arguments: execute(Squares, [*arguments, "--work", str(tmp_path / "work")])


def stored(tmp_path):
    return list((tmp_path / "work" / "squares").glob("*.jsonl"))


def test_a_recording_has_the_rows_of_all_parts_and_a_stamp(run, tmp_path):
    path = run()
    machine = stamps.slug(stamps.machine_name())
    assert path == tmp_path / "results" / "squares" / f"{machine}.json"
    recording = recordings.load("squares")
    assert recording.data == {"sum": 29, "squares": {"of 2": 4, "of 3": 9, "of 4": 16}}
    assert recording.command.startswith("python -m benchmarks run squares --work")
    assert len(recording.process["load_average"]) == 1 + 3  # before, and after each part
    assert Squares.calls == ["of 2", "of 3", "of 4"] and stored(tmp_path) == []


def test_an_interrupted_run_resumes(run, tmp_path):
    Squares.fails = {"of 4"}
    with pytest.raises(KeyboardInterrupt):
        run()
    (file,) = stored(tmp_path)
    whole = file.read_text()
    file.write_text(whole[:-6])  # the interruption cut the last line short
    Squares.fails = set()
    run("--minutes", "3")  # an option that does not change what is measured
    assert Squares.calls == ["of 2", "of 3", "of 3", "of 4"]
    assert recordings.load("squares").data["sum"] == 29


def test_parts_of_a_run_with_other_options_are_kept(run, tmp_path, capsys):
    Squares.fails = {"of 4"}
    with pytest.raises(KeyboardInterrupt):
        run()
    (file,) = stored(tmp_path)
    before = file.read_text()
    with pytest.raises(SystemExit):
        run("--numbers", "5")
    assert file.read_text() == before
    error = capsys.readouterr().err.splitlines()[-1]
    assert "2 finished parts" in error and "numbers" in error and "--fresh" in error
    run("--numbers", "5", "--fresh")
    assert recordings.load("squares").data["sum"] == 25
    (kept,) = (tmp_path / "work" / "squares" / "old").iterdir()
    assert kept.read_text() == before


def test_one_part_is_measured_again_and_the_others_are_retained(run, tmp_path):
    path = run()
    data = json.loads(path.read_text())
    data["squares"]["of 3"] = 100
    path.write_text(json.dumps(data))
    run("--only", "of 2")
    recording = recordings.load("squares")
    assert recording.data["squares"] == {"of 2": 4, "of 3": 100, "of 4": 16}
    assert recording.command == data["command"]
    (newer,) = recording.data["measured_again"]
    assert newer["parts"] == ["of 2"] and "--only" in newer["command"]


def test_parts_can_be_measured_one_by_one(run, tmp_path, capsys):
    assert run("--only", "of 2") is None and run("--only", "of 3") is None
    assert "of 4 were never measured" in capsys.readouterr().out
    assert recordings.names() == []
    run()
    assert (
        Squares.calls == ["of 2", "of 3", "of 4"] and recordings.load("squares").data["sum"] == 29
    )


def test_a_replaced_recording_is_kept(run, tmp_path):
    before = run().read_text()
    run("--numbers", "7")
    (kept,) = (tmp_path / "work" / "squares" / "old").iterdir()
    assert kept.read_text() == before and recordings.load("squares").data["sum"] == 49


def test_a_quick_run_leaves_the_recordings_alone(run, tmp_path):
    path = run("--quick")
    assert tmp_path / "work" in path.parents and recordings.names() == []
    assert json.loads(path.read_text())["sum"] == 4
    assert json.loads(run("--quick", "--numbers", "3").read_text())["sum"] == 9


@pytest.mark.parametrize(
    "content, named", [('{"what": "other"}', "date"), ('{"what": ', "Expecting value")]
)
def test_a_file_of_another_kind_is_not_touched(run, tmp_path, capsys, content, named):
    path = tmp_path / "other.json"
    stamps.save(path, stamps.stamp("another thing", "a command"), {"rows": [1]})
    path.write_text(before := content or path.read_text())
    with pytest.raises(SystemExit):
        run("--only", "of 2", "--out", str(path))
    error = capsys.readouterr().err.splitlines()[-1]
    assert "is not a recording of squares" in error and named in error
    assert path.read_text() == before and Squares.calls == []


@pytest.mark.parametrize(
    "words, named",
    [
        ("--numbers 0", "--numbers"),
        ("--only nothing", "--only"),
        ("--out .", "--out"),
        ("--other", "--other"),
    ],
)
def test_wrong_options_are_named(run, words, named, capsys):
    with pytest.raises(SystemExit):
        run(*words.split())
    assert named in capsys.readouterr().err.splitlines()[-1] and Squares.calls == []


@pytest.mark.parametrize("words", ["run speedy", "lists", "run nothing-like-it"])
def test_an_unknown_name_gets_one_line(words):
    with pytest.raises(SystemExit) as error:
        command.main(words.split())
    assert len(str(error.value).splitlines()) == 1 and words.split()[-1] in str(error.value)


def test_every_experiment_has_a_name_and_a_quick_form(capsys):
    for name in catalogue.EXPERIMENTS:
        kind = catalogue.find(name)
        assert kind.name == name and kind.what and kind.quick
        experiment.parser_of(kind).parse_args([*kind.quick, "--quick"])
    command.main(["list"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in catalogue.EXPERIMENTS)


def test_the_status_names_recordings_and_unfinished_runs(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "WORK", tmp_path / "work")
    monkeypatch.setitem(catalogue.EXPERIMENTS, "squares", "")
    Squares.fails = {"of 4"}
    with pytest.raises(KeyboardInterrupt):
        run()
    command.main(["status"])
    assert "2 of 3" in capsys.readouterr().out


# The quick form of every experiment -----------------------------------------------------------------

NEEDS_MORE = {
    "live-page": "book",
    "live-smollm2": "book",
    "page-sizes": "book",
    "engines": ".engines",
}
"""Experiments that need more than the installed packages."""
SAMPLE = ("next-words", "rounds")


def quick(name, tmp_path):
    path = execute(catalogue.find(name), ["--quick", "--work", str(tmp_path)])
    stamps.validate(name, json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_quick_run(name, tmp_path):
    quick(name, tmp_path)


@pytest.mark.weekly
@pytest.mark.parametrize("name", sorted({*catalogue.EXPERIMENTS} - {*SAMPLE, *NEEDS_MORE}))
def test_every_quick_run(name, tmp_path):
    quick(name, tmp_path)


@pytest.mark.weekly
@pytest.mark.browser
@pytest.mark.parametrize("name", ("live-page", "live-smollm2", "page-sizes"))
def test_a_quick_run_in_the_built_book(name, tmp_path, book):
    arguments = ["--quick", "--work", str(tmp_path), "--book", str(book)]
    assert execute(catalogue.find(name), arguments)
