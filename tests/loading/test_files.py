"""What is written is whole or not there; `test_pairs` has what is refused before it is read."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from specdec_lite.loading.files import check_counts, written_whole
from specdec_lite.loading.pairs import SHIPPED


def test_large_sizes_that_are_no_numbers_of_modules_are_read():
    sizes = dict(vocab_size=300_000, shared_expert_intermediate_size=20_480, block_size=131_072)
    check_counts(sizes | {"num_hidden_layers": 160, "n_routed_experts": 512, "layer_types": ["a"]})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path, error):
    path = tmp_path / "a[1].json"  # a name that is also a pattern
    path.write_text("old")
    with pytest.raises(type(error)), written_whole(path) as part:
        part.write_text("ne")
        raise error
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(path.name, "old")]
    with written_whole(path) as part:
        part.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
    (other := tmp_path / "b").touch()  # no file of its user alone
    assert path.stat().st_mode == other.stat().st_mode


def test_what_killed_processes_left_is_removed_a_day_later(tmp_path):
    path = tmp_path / "weights.safetensors"
    parts = [path.with_name(f"{path.name}.{number}.part") for number in (1, 2)]
    for part, age in zip(parts, (200_000, 10)):
        part.write_text("unfinished")
        os.utime(part, (time.time() - age,) * 2)
    with written_whole(path) as own:
        own.write_text("new")
    assert sorted(tmp_path.iterdir()) == sorted([path, parts[1]])


def without_utf8(code: str) -> subprocess.CompletedProcess:
    """Run code in a Python that neither its locale nor its own mode gives UTF-8."""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | plain, capture_output=True, cwd=ROOT
    )


def test_a_python_without_utf8_says_so_in_one_line(tmp_path):
    folder = tmp_path / "my bücher"  # a name that needs UTF-8
    shutil.copytree(SHIPPED / "draft", folder)
    code = f"""
from specdec_lite import load_pair
try:
    folder = {os.fsencode(folder)!r}.decode("ascii", "surrogateescape")
    load_pair(folder, folder)
except ValueError as error:
    print(error)
import specdec_lite.__main__ as commands
commands.main(["explain", "accept len: 2.54"])
"""
    done = without_utf8(code)
    first, *reading = done.stdout.decode("ascii").splitlines()
    assert done.returncode == 0 and not done.stderr, done.stderr.decode()
    assert first.endswith("this Python runs without UTF-8; set PYTHONUTF8=1 and start again")
    assert any("\\u03c4, tokens per round" in line and "2.54" in line for line in reading)
