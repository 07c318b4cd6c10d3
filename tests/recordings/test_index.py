"""The index of recordings lists every recording, with the pages that show it."""

import contextlib
import io
import json
import re
import shlex
import subprocess

import nbformat
import pytest

from benchmarks import index
from benchmarks.experiment import MODULES, find, parser_of
from specdec_book import recordings

UNSHOWN = {"head-bits-smollm2", "parallel-heads-smollm2"}
"""Experiments that no page shows: they support a setting of the library."""


def test_every_other_recording_is_shown_on_a_page():
    shown = set().union(*index.pages().values())
    unshown = index.by_experiment().keys() - shown - UNSHOWN
    assert not unshown, "delete these recordings and their experiments, or show them"


def test_the_index_is_up_to_date():
    written = index.PATH.read_text(encoding="utf-8")
    assert written == index.markdown(), "run: python -m benchmarks index"
    rows = [line for line in written.splitlines() if line.startswith("| [")]
    assert [row.split("]")[0][3:] for row in rows] == recordings.names()


def words_of(command: str) -> list[str]:
    """Return the words of a command after the variables that it sets."""
    return [word for word in shlex.split(command) if not re.match("[A-Z_]+=", word)]


def runs_today(command: str) -> bool:
    """Return whether the module of a command exists, and reads its options."""
    _, *words = words_of(command)
    if words[:3] == ["-m", "benchmarks", "run"] and words[3] in MODULES:
        with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            return bool(parser_of(find(words[3])).parse_args(words[4:]))
    return words[0] != "-m" and (index.ROOT / words[0]).is_file() or words[1].startswith("specdec")


def git(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", "-C", index.ROOT, *words], capture_output=True, text=True)


@pytest.mark.parametrize("name", recordings.names())
def test_every_command_runs_today_or_at_the_commit_that_is_named(name):
    recording = recordings.load(name)
    assert re.fullmatch(r"[0-9a-f]{7,40}|\d+\.\d+.*", recording.commit), "record a clean checkout"
    if runs_today(recording.command):
        return
    if git("cat-file", "-e", recording.commit).returncode:
        pytest.skip("this clone is shallow")
    program, _, module = words_of(recording.command)[:3]
    path = module.replace(".", "/") + ("" if "." in module else "/__main__") + ".py"
    source = git("show", f"{recording.commit}:{path}").stdout
    assert "__main__" in path + source and program == "python"
    if (words := words_of(recording.command)[3:]) and words[0] == "run":
        listed = [
            f"{recording.commit}:benchmarks/{name}.py" for name in ("catalogue", "experiment")
        ]
        assert f'"{words[1]}"' in "".join(git("show", each).stdout for each in listed)


def test_a_page_is_found_however_it_names_a_recording(tmp_path):
    code = {
        'recordings.load("pass-times")': {"pass-times"},
        "for each in recordings.names('speed'): ...": {"speed"},
        'results.load("race/amd-epyc").data': {"race"},
        "NextWord.load()": {"next-words"},
        'board.load("pair")': {"scoreboard-counts", "scoreboard-clocks", "humaneval-counts"}
        | {f"{name}-smollm2" for name in ("scoreboard-counts", "scoreboard-clocks")}
        | {"humaneval-counts-smollm2"},
        "<!-- recorded: longer-training: data -->": {"longer-training"},
        'print("memory")': set(),
    }
    for source, names in code.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
        (tmp_path / "page.ipynb").write_text(nbformat.writes(notebook), encoding="utf-8")
        assert index.shown(tmp_path / "page.ipynb") == names, source
    page = tmp_path / "page.md"
    page.write_text("```{interactive} race\n:recording: race\n```\nrecordings.load('pass-times')\n")
    assert index.shown(page) == {"race"}


def test_every_chapter_of_the_book_that_reads_a_recording_is_listed():
    readers = index.pages()
    for path, names in readers.items():
        if path.endswith(".ipynb"):
            cells = json.loads((index.ROOT / path).read_text(encoding="utf-8"))["cells"]
            source = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
            reads = "recordings.load(" in source or "recordings.names(" in source
            assert not reads or names, path
