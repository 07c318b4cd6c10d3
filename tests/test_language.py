"""Code and pages are plain English: none of the turns of phrase that readers stumbled over."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from measured import pages

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("specdec_lite", "specdec_book", "site", "benchmarks", "tests")
PHRASES = {
    r"[Ss]o many\b(?! \w+ that)": "name the number",
    r"\bbeforehand\b": "in advance",
    r"\bin turns\b": "alternating",
    r"\bdear(er)?\b": "costs more",
    r"\bowed\b": "residual",
    r"\bjudg(e|es|ed|ing|ment)\b": "verify or evaluate",
    r"\b(refused|struck) (token|draft|node)": "rejected",
    r"\blaws?\b(?![:\"]| of large numbers)": "distribution",
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
"""Pattern → what to write instead."""
COMMENT = re.compile(r'#.*|"""[^"]*"""')
SHARE = re.compile(r"\d%(?!\w)")
"""A share without the space that the book writes before the sign."""
BARE = re.compile(r"(?<![\w./\\)\]}\d])\.\d")
"""A number without the zero before its point; only labels of drawings leave it out."""
MODEL = re.compile(
    r"\b[Dd]raft['’]s\b|\b(?:[Ss]mall|[Tt]rained|[Ss]hipped|[Pp]erfect) drafts?\b(?! model)"
    r"|\bdraft and target\b|\btarget and draft\b(?! (?:model|draw))"
)
"""The word for drafted tokens, used for what drafts them."""


def prose_of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every line that is not in a block of code, without comments."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"<!--.*?-->", "", line)


def prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment and docstring."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.lineno, " ".join(node.value.value.split())


def prose_of_notebook(source: str) -> Iterator[tuple[int, str]]:
    """Yield (cell, text) of every line of Markdown, and of every comment and docstring in code."""
    for number, cell in enumerate(json.loads(source)["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from ((number, line) for _, line in prose_of_markdown(text))
        else:
            yield from ((number, note) for note in COMMENT.findall(text))


def faults(files: Iterable[Path], prose: Callable[[str], Iterable]) -> list[str]:
    """Return the place, the words and what is better of every turn of phrase."""
    return [
        f"{file.relative_to(ROOT)}:{line}: {found.group(0)!r}: {better}"
        for file in sorted(files)
        for line, text in prose(file.read_text(encoding="utf-8"))
        for pattern, better in PHRASES.items()
        if (found := re.search(pattern, text))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings_are_plain_english(folder: str):
    files = [file for file in ROOT.glob(f"{folder}/**/*.py") if file != Path(__file__)]
    assert files and not (found := faults(files, prose_of_python)), "\n".join(found)


def test_the_guides_the_pages_and_the_chapters_are_plain_english():
    files = [*ROOT.glob("*.md"), *ROOT.glob("book/*.md")]
    chapters = [*ROOT.glob("notebooks/*.ipynb")]
    assert len(files) > 10 and len(chapters) > 25
    found = faults(files, prose_of_markdown) + faults(chapters, prose_of_notebook)
    assert not found, "\n".join(found)


def test_a_draft_is_tokens_and_a_draft_model_or_drafter_makes_it():
    drawings = ROOT.glob("specdec_book/viz/static/drawings/*.svg")
    texts = pages() | {path.name: path.read_text("utf-8") for path in drawings}
    assert [(name, m[0]) for name, text in texts.items() for m in MODEL.finditer(text)] == []


@pytest.mark.parametrize("wrong", [SHARE, BARE])
def test_a_number_is_written_as_everywhere(wrong):
    """Text writes 74 % and 0.3; tables and captions get the space from `numbers.spaced_percent`."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    found = [
        f"{file.name}:{place}: {line}"
        for file in files
        for place, line in (prose_of_notebook if file.suffix == ".ipynb" else prose_of_markdown)(
            file.read_text(encoding="utf-8")
        )
        if wrong.search(re.sub(r"`[^`]*`|<[^>]*>|https?:\S*|^[.#\w].*\{.*\}.*$", "", line))
    ]
    assert found == [], "\n".join(found)
