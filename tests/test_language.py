"""The code's prose is plain English: none of the turns of phrase that readers stumbled over."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("specdec_lite", "specdec_book", "site", "benchmarks", "tests")
PHRASES = {
    "What lives here": "say in one sentence what the module does",
    r"What does not:": "say in one sentence what the module does",
    r"[Ss]o many\b(?! \w+ that)": "name the number",
    r"\bbeforehand\b": "in advance",
    r"\bin turns\b": "alternating",
    r"\bdear(er)?\b": "costs more",
    r"\bowed\b": "residual",
    r"\bjudg(e|es|ed|ing|ment)\b": "verify or evaluate",
    r"\b(refused|struck) (token|draft|node)": "rejected",
    r"\blaws?\b(?![:\"])": "distribution",
    r"\bspeaks? of\b": "refers to",
    r"\bnobody\b|\bnowise\b": "name who or what",
    r"\bfor nothing\b|\bcosts nothing\b": "is free, adds no cost",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bstands? (here|there|in|behind|beside)\b": "is",
    r"\bis told\b|\btold by\b": "is given, is stated by",
    r"\bgoes on\b": "continues",
    r"\bat once\b": "immediately",
    r"\bby lot\b": "at random",
    r"\bthe many\b|\bthe quick\b": "most, fast",
    r"\bleft over\b(?! from)": "residual or remaining",
}
"""Pattern → what to write instead. The full list is in the style guide's table of words."""


def sources() -> list[Path]:
    files = (file for folder in FOLDERS for file in ROOT.glob(f"{folder}/**/*.py"))
    return sorted(file for file in files if file != Path(__file__))


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment and docstring of a Python file."""
    source = file.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.lineno, " ".join(node.value.value.split())


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings_are_plain_english(folder: str):
    faults = [
        f"{file.relative_to(ROOT)}:{line}: {found.group(0)!r}: {better}"
        for file in sources()
        if file.relative_to(ROOT).parts[0] == folder
        for line, text in prose(file)
        for pattern, better in PHRASES.items()
        if (found := re.search(pattern, text))
    ]
    assert not faults, "\n".join(faults)


def test_the_patterns_see_what_they_are_for(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text('"""What lives here: so many laws."""\n# judged in turns\n')
    texts = [text for _, text in prose(file)]
    seen = [pattern for pattern in PHRASES for text in texts if re.search(pattern, text)]
    assert len(seen) == 5
