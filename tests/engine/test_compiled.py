"""The C product is compiled once for each processor, and a machine without it loses only speed."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from specdec_lite.engine import compiled

GOOD = "int answer(void) { return ANSWER; }\n"


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A C file, and an empty cache folder."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "answer.c"
    path.write_text(GOOD.replace("ANSWER", "42"))
    return path


def stored() -> list[Path]:
    return sorted(Path(os.environ["SPECDEC_CACHE"]).glob("compiled/*"))


def test_the_environment_determines_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("SPECDEC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert compiled.cache_folder() == tmp_path / ".cache" / "specdec_lite"
    for name, folder in (
        ("XDG_CACHE_HOME", tmp_path / "specdec_lite"),
        ("SPECDEC_CACHE", tmp_path),
    ):
        monkeypatch.setenv(name, str(tmp_path))
        assert compiled.cache_folder() == folder


needs_compiler = pytest.mark.skipif(not compiled.compiler(), reason="needs a C compiler")


@needs_compiler
def test_a_file_is_compiled_once(source, monkeypatch):
    first = compiled.library(source)
    assert first is not None and first.answer() == 42
    assert len(stored()) == 1
    monkeypatch.setattr(compiled, "build", None)  # a second compilation would fail
    second = compiled.library(source)
    assert second is not None and second.answer() == 42


@needs_compiler
@pytest.mark.parametrize("change", ["source", "flags", "processor", "compiler"])
def test_what_it_depends_on_is_part_of_its_name(source, change, monkeypatch):
    assert compiled.library(source) is not None
    flags = ()
    if change == "source":
        source.write_text(GOOD.replace("ANSWER", "43"))
    if change == "flags":
        flags = ("-O1",)
    if change == "processor":
        monkeypatch.setattr(compiled, "processor", lambda: "another")
    if change == "compiler":
        monkeypatch.setenv("CC", f"{compiled.compiler()[0]} -g0")
    again = compiled.library(source, flags)
    assert again is not None and again.answer() == (43 if change == "source" else 42)
    assert len(stored()) == 2


def test_without_a_compiler_nothing_is_compiled_or_said(source, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.library(source) is None
        monkeypatch.delenv("CC")
        monkeypatch.setenv(compiled.OFF, "0")
        assert compiled.library(source) is None
    assert not stored()


@needs_compiler
def test_a_broken_compiler_is_reported_in_one_line(source, tmp_path, monkeypatch):
    source.write_text("int answer(void) { return nothing; }\n")
    with pytest.warns(UserWarning, match="answer.c could not be compiled.*error.*nothing") as seen:
        assert compiled.library(source) is None
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'no disk' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.warns(UserWarning, match="no disk") as more:
        assert compiled.library(source) is None
    assert len(seen) == len(more) == 1
    assert all("\n" not in str(each.message) for each in (*seen, *more))
    assert not stored()


@needs_compiler
def test_a_cache_that_cannot_be_written_is_reported(source, monkeypatch):
    blocked = source.parent / "file"
    blocked.write_text("")
    monkeypatch.setenv("SPECDEC_CACHE", str(blocked))
    with pytest.warns(UserWarning, match="could not be compiled"):
        assert compiled.library(source) is None


@needs_compiler
def test_a_library_that_others_may_write_is_not_loaded(source):
    assert compiled.library(source) is not None
    stored()[0].chmod(0o777)
    with pytest.warns(UserWarning, match="others may write"):
        assert compiled.library(source) is None


@needs_compiler
def test_several_processes_may_compile_at_the_same_time(source):
    code = (
        "from pathlib import Path; from specdec_lite.engine import compiled;"
        f"print(compiled.library(Path({str(source)!r})).answer())"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [run.communicate()[0].strip() for run in runs] == ["42"] * 3
    assert len(stored()) == 1


def test_a_broken_compiler_breaks_no_model(tmp_path):
    """The whole path in a process of its own: a warning, and PyTorch's product."""
    code = """
import torch
from specdec_lite.engine.int4 import Codes, attach, product
layer = torch.nn.Linear(64, 32, bias=False).bfloat16().requires_grad_(False)
attach(layer, Codes(torch.full((32, 64), 9, dtype=torch.uint8), torch.ones(32, 2), torch.ones(32, 2)))
with torch.inference_mode():
    print(product(), layer(torch.ones(1, 64).bfloat16()).unique().tolist())
"""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    settings = os.environ | {"CC": str(broken), "SPECDEC_CACHE": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["None", "[128.0]"]
    assert run.stderr.count("could not be compiled") == 1
