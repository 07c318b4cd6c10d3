"""The chapters: the committed files, and the notebooks that the book's build has executed."""

import ast
import json
import re
import tomllib
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import nbformat
import yaml
from browsing import parsed
from chapters import CHAPTERS, cells, every_chapter, has_tag, statements, text_of
from conftest import ROOT
from specdec_site import fold_titles
from specdec_site.addresses import inward, moved, outward, tracked

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
ADDRESS = CONFIG["repository"]["url"]
DIRECTIVE = re.compile(r"^\s*(`{3,}|:{3,})\{|\{[a-z:]+\}`", flags=re.M)
FENCED = re.compile(r"^```(?:python)?\n(.*?)^```", flags=re.S | re.M)
REWRITE = "PYTHONPATH=site .venv/bin/python -m specdec_site.addresses"
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")
SECTION = re.compile(r"\]\((\w+\.ipynb)#([^)]+)\)")  # as JupyterLab names it


class Chapter:
    """A chapter's notebook, its code cells and its text."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def cells(self) -> list:
        return cells(self.path)

    @property
    def code(self) -> list:
        return [cell for cell in self.cells if cell.cell_type == "code"]

    @property
    def prose(self) -> list:
        return [cell for cell in self.cells if cell.cell_type == "markdown"]

    @property
    def text(self) -> str:
        return "\n\n".join(cell.source for cell in self.prose)


def test_every_chapter_is_in_the_table_of_contents():
    toc = (ROOT / "_toc.yml").read_text("utf-8")
    listed = {Path(name).stem for name in re.findall(r"file: (notebooks/\S+)", toc)}
    assert listed == {path.stem for path in CHAPTERS} and listed


def is_valid_and_stripped(chapter: Chapter) -> None:
    notebook = nbformat.read(chapter.path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3" and "widgets" not in notebook.metadata
    assert not any(cell.outputs or cell.execution_count is not None for cell in chapter.code)


def reads_in_jupyterlab_and_colab(chapter: Chapter) -> None:
    """It contains no MyST directive or role, and links lead to files of the repository.

    Those that leave the folder are public addresses, because Colab has this notebook alone.
    """
    for cell in chapter.prose:
        assert not DIRECTIVE.search(cell.source), cell.source[:80]
        assert outward(cell.source) == cell.source, f"run: {REWRITE}"
        for target in LINK.findall(inward(cell.source)):
            assert (chapter.path.parent / target.split("#")[0]).exists(), target
        for name, section in SECTION.findall(cell.source):
            headings = fold_titles.HEADING.findall(text_of(chapter.path.parent / name))
            assert section in [heading.replace(" ", "-") for heading in headings]


def code_cells_are_short_and_fit_the_page(chapter: Chapter) -> None:
    """A page 1280 pixels wide shows 95 columns; a reader would have to scroll longer lines."""
    sources = [cell.source for cell in chapter.code]
    assert max(len(source.splitlines()) for source in sources) <= 25
    lengths = sorted(len(source.splitlines()) - ("# @title" in source) for source in sources[1:])
    assert lengths[len(lengths) // 2] <= 12
    shown = [*sources, *FENCED.findall(chapter.text)]
    assert [line for text in shown for line in text.splitlines() if len(line) > 92] == []


def installs_only_where_the_library_is_missing(chapter: Chapter) -> None:
    first = chapter.code[0].source
    guarded = [node for node in statements(first) if isinstance(node, ast.Try)]
    assert guarded and "import specdec_lite" in ast.unparse(guarded[0].body[0])
    handler = ast.unparse(guarded[0].handlers[0])
    command = f'%pip install -q "specdec-lite[book] @ git+{ADDRESS}"'
    assert handler.startswith("except ImportError") and f"git+{ADDRESS}" in handler
    assert first.count(command) == first.count("pip install") == 1
    assert "manual_seed" in first and "device" in first
    assert "Installing" in handler, "an installation of minutes says what it does"
    assert first.count("print(") == 1, "a chapter opens with its subject, not with versions"


SHOWS = re.compile(
    r"^(display\(|figure\(|table\(|sketches\.|arcs\(|\w+_(text|overview)\(|drawing$|[A-Z]\w+[.(])",
    re.M,
)


def begins_with_its_claim_and_its_picture_then_opens_in_colab(chapter: Chapter) -> None:
    """The claim is one sentence; the small line stands below the picture: minutes, what comes
    before, the link to Colab.
    """
    github = ADDRESS.removeprefix("https://github.com/")
    colab, branch = CONFIG["launch_buttons"]["colab_url"], CONFIG["repository"]["branch"]
    link = f"[open in Colab]({colab}/github/{github}/blob/{branch}/notebooks/{chapter.path.name})"
    title, setup, picture, about, *_ = chapter.cells
    claim = re.fullmatch(r"# .+\n\n\*\*(.+)\*\*", title.source)[1]
    assert claim[-1] in ".?" and not re.search(r"[.?!] [A-Z]|\*\*", claim), claim
    assert (title.id, setup.id, picture.cell_type) == ("title", "setup", "code")
    assert has_tag(picture, "hide-input") and not has_tag(picture, "hide-output")
    assert SHOWS.search(picture.source)
    small, _, _ = about.source.partition("\n")
    assert re.fullmatch(r"\*\d+ minutes · .+ · \[.+\)\*", small) and link in small


def asks_complete_quizzes(chapter: Chapter) -> None:
    """Each question has one explanation per option, and the right one begins with "Right"."""
    quiz = r'<div class="sdl-quiz" data-answer="([a-e])">(.*?)</div>'
    quizzes = re.findall(quiz, chapter.text, flags=re.S)
    least = 3 if chapter.path.stem[0].isdigit() else 0  # an appendix need not ask
    assert len(quizzes) == chapter.text.count("sdl-quiz") >= least
    for answer, body in quizzes:
        options, reasons = body.split("<details>")
        asked, explained = (
            re.findall(r"^- \(([a-e])\) (\S+)", part, flags=re.M) for part in (options, reasons)
        )
        assert "**Question" in options
        assert [a for a, _ in asked] == [a for a, _ in explained] == [*"abcde"[: len(asked)]]
        assert dict(explained)[answer].startswith("Right")


PREDICTION = re.compile(
    r'<details class="sdl-predict" data-choices="([^"]+)">\s*<summary>.+?</summary>(.+?)</details>',
    flags=re.S,
)


def answers_every_prediction(chapter: Chapter) -> None:
    """The answer does not ask the reader to run a cell, and begins with the right choice.

    The page reads the right choice from there.
    """
    boxes = PREDICTION.findall(chapter.text)
    assert len(boxes) == chapter.text.count("sdl-predict")
    for choices, answer in boxes:
        beginning = answer.strip().lower()
        assert len(answer.split()) > 5, answer
        assert not beginning.startswith(("run on", "run the", "the next cell"))
        assert beginning.startswith(tuple(map(str.strip, choices.lower().split("|")))), answer


MARK = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>", re.S)  # comments and tags
ASIDE = re.compile(r'<details.*?</details>|<div class="sdl-quiz".*?</div>', re.S)


def main_text(text: str) -> str:
    """Return a chapter's text without folds, predictions, quizzes, exercises and references."""
    sections = re.split(r"^(?=## )", MARK.sub("", ASIDE.sub("", text)), flags=re.M)
    return "".join(s for s in sections if not re.match(r"## .*(Exercises|References)", s))


def test_asides_are_not_main_text():
    aside = '## A\none\n\n<details class="b">two</details>\n\n## Exercises\nthree\n\n## Questions\n'
    quiz = '<div class="sdl-quiz">four</div> five<!-- six -->'
    assert main_text(aside + quiz).split() == ["##", "A", "one", "##", "Questions", "five"]


def is_short(chapter: Chapter) -> None:
    """At most 1,000 words and three boxes, 2,200 words with all asides, 12 visible of 18 cells.

    The cells of exercises are the reader's own and do not count among the visible ones.
    Minutes: 120 words or six visible lines of code each, one a question, eight an exercise.
    """
    text, main = chapter.text, main_text(chapter.text)
    assert len(main.split()) <= 1000 and len(re.findall(r"(?:^|\n)(?:>.*\n?)+", main)) <= 3
    assert len(MARK.sub("", text).split()) <= 2200
    shown = [cell for cell in chapter.code if not has_tag(cell, "hide-input")]
    visible = [cell for cell in shown if "exercise" not in cell.id]
    assert len(visible) <= 12 and len(chapter.code) <= 18
    lines = sum(len(cell.source.splitlines()) for cell in visible)
    asides = sum(map(text.count, ("sdl-quiz", "sdl-predict"))) + 8 * text.count("<summary>Hint")
    needed = len(main.split()) / 120 + lines / 6 + asides
    assert int(re.search(r"\*(\d+) minutes · ", text)[1]) > 0.9 * needed
    assert text.count("> **Takeaway.**") == 1 and "## Summary" not in text


def asks_then_shows_the_cell_and_then_the_hint(chapter: Chapter) -> None:
    """Question, cell, hint and solution follow each other in this order in every chapter."""
    steps = []
    for cell in chapter.cells:
        if cell.cell_type == "code" and "exercises.check_" in cell.source:
            steps.append("cell")
        elif cell.cell_type == "markdown":
            words = re.findall(r"(?m)^\*\*\d\. |<summary>Hint</summary>", cell.source)
            steps += ["hint" if "Hint" in word else "question" for word in words]
    assert all(after == "question" for step, after in pairwise(steps) if step == "hint")


def hides_in_jupyterlab_and_colab_what_the_page_hides(chapter: Chapter) -> None:
    """A fold of outputs says what is in it; long code that draws a figure is hidden."""
    for cell in chapter.code:
        hidden, folded = has_tag(cell, "hide-input"), has_tag(cell, "hide-output")
        lab = cell.metadata.get("jupyter", {})
        assert lab.get("source_hidden", False) == hidden >= folded
        assert (cell.metadata.get("cellView") == "form") == hidden
        assert lab.get("outputs_hidden", False) == folded
        title = cell.metadata.get("mystnb", {}).get("code_prompt_show", "")
        assert title.startswith(("Measured: ", "Derivation: ", "More: ")) == folded
        assert len(title.split()) <= 13
        draws = re.search(r"^(display\()?figure\(", cell.source, flags=re.M)
        assert hidden or not draws or len(cell.source.splitlines()) <= 8
        assert hidden_figures(cell.source) == []


def hidden_figures(source: str) -> list[str]:
    """Return the calls of `figure` that a cell does not show: it shows only its last expression."""
    lines = map(ast.unparse, statements(source)[:-1])
    return [line for line in lines if line.startswith("figure(")]


def test_a_figure_that_a_cell_does_not_show_is_seen():
    assert hidden_figures("figure(fig, alt='a')\nprint(1)") == ["figure(fig, alt='a')"]


def says_in_jupyterlab_and_colab_what_its_folds_are(chapter: Chapter) -> None:
    """Run `PYTHONPATH=site .venv/bin/python -m specdec_site.fold_titles` after a change.

    The published page has these titles and choices in its own form, so the build removes the copies.
    """
    text = chapter.path.read_text("utf-8")
    assert fold_titles.titled(json.loads(text)) == json.loads(text)
    hidden = [cell for cell in chapter.code if has_tag(cell, "hide-input")]
    assert text.count(fold_titles.MARK) == len(hidden) > 0
    assert fold_titles.MARK not in fold_titles.LINE.sub("", text)


def has_one_cell_to_change(chapter: Chapter) -> None:
    """Its code is visible, and the text before it ends by saying what to look for."""
    (at,) = [i for i, cell in enumerate(chapter.cells) if has_tag(cell, "change-and-run")]
    assert not has_tag(chapter.cells[at], "hide-input")
    _, sentence = chapter.cells[at - 1].source.split("### Change this and run again\n")
    assert 5 <= len(sentence.split()) <= 60


FORM = (
    is_valid_and_stripped,
    reads_in_jupyterlab_and_colab,
    code_cells_are_short_and_fit_the_page,
    installs_only_where_the_library_is_missing,
    begins_with_its_claim_and_its_picture_then_opens_in_colab,
    asks_complete_quizzes,
    answers_every_prediction,
    is_short,
    asks_then_shows_the_cell_and_then_the_hint,
    hides_in_jupyterlab_and_colab_what_the_page_hides,
    says_in_jupyterlab_and_colab_what_its_folds_are,
    has_one_cell_to_change,
)


@every_chapter
def test_a_chapter_has_its_form(path: Path):
    chapter = Chapter(path)
    for check in FORM:
        check(chapter)


def test_the_repository_has_one_address():
    """`_config.yml` states it; the command writes it into texts and packaging, and no code has it."""
    owner, name = ADDRESS.split("/")[-2:]
    texts = tracked()
    naming = {path.relative_to(ROOT) for path, text in texts.items() if f"{owner}/{name}" in text}
    code = {path for path in naming if path.suffix in (".py", ".js", ".mjs", ".ts", ".yml", ".c")}
    assert code <= {Path("_config.yml")} and len(naming) > 40
    others = r"github(?:\.com/|\.io/|/)(?:[\w.-]+/)?specdec-lite\b"
    for path, text in texts.items():
        if path.suffix != ".py":
            assert not re.search(others, moved(text, ADDRESS, "https://github.com/class/fork")), (
                path
            )
    book = moved(
        f"git+{ADDRESS} https://{owner}.github.io/{name}/", ADDRESS, "https://github.com/a/b"
    )
    assert book == "git+https://github.com/a/b https://a.github.io/b/"


def test_versions_agree():
    import specdec_lite

    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert specdec_lite.__version__ == version
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == version and cited["abstract"]
    teach = (ROOT / "book" / "teach.md").read_text("utf-8")
    bibtex = re.search(r"^@software\{.*?^\}", teach, flags=re.M | re.S)[0]
    assert all(f"{{{cited[key]}}}" in bibtex for key in ("title", "version", "url")), bibtex


MORE_TABLES = {"19_will_it_pay": 5, "20_claims": 3, "a3_scoreboard": 5}
"""Pages that exist to be looked up, and the tables that they show."""


@every_chapter
def test_a_chapter_has_few_tables(path: Path, book: Path):
    """At most two tables outside folds; a reader compares few numbers, and looks up the rest."""
    page = parsed(book / "notebooks" / f"{path.stem}.html")
    tables = [table for table in page.select("article table") if not table.find_parent("details")]
    assert len(tables) <= MORE_TABLES.get(path.stem, 2), len(tables)


def titled(code: list[ast.stmt], drawing: frozenset[str] = frozenset()) -> bool:
    """Return whether code, outside functions, shows a figure, a table or a finding with a title."""
    lines = (line for line in code if not isinstance(line, ast.FunctionDef))
    calls = [node for line in lines for node in ast.walk(line) if isinstance(node, ast.Call)]
    return any(
        (name := ast.unparse(call.func)) in {"figure", "Sketch", "SketchRow"} | drawing
        or (name == "table" and call.args[2:])
        or "finding" in (keywords := {each.arg for each in call.keywords})
        or (name.endswith("update_layout") and "title" in keywords)
        for call in calls
    )


DRAWING = frozenset(
    name
    for path in (ROOT / "specdec_book" / "viz").glob("*.py")
    for node in ast.walk(ast.parse(path.read_text("utf-8")))
    if isinstance(node, ast.FunctionDef) and titled(node.body)
    for name in (f"{path.stem}.{node.name}", node.name if "_" in node.name else "")
) - {"", "speeds_of", "gpu_report.pairs_table"}
"""Functions that write a title. The captions of the last two say how a table was made, no more."""


def test_the_title_of_a_figure_or_a_table_is_asserted_where_it_is_drawn():
    """A reader sets what a cell to change shows, and its title says that."""
    assert titled(statements("display(table(heads, rows, 'T'))"))
    assert not titled(statements("table(heads, rows)"))
    assert {"published.laptop", "exit_acceptance", "sketches.overlap"} < DRAWING
    unasserted = {
        f"{path.stem.partition('_')[0]} {cell.id}"
        for path in CHAPTERS
        for cell in cells(path, "code")
        if titled(statements(cell.source), DRAWING) and "assert" not in cell.source
        if not has_tag(cell, "change-and-run")
    }
    assert unasserted == set()


AGING = re.compile(r"DeprecationWarning|FutureWarning|is deprecated|will be removed")


@every_chapter
def test_every_cell_ran(path: Path, book: Path):
    """The book's build executed every code cell, in order, and none raised an error."""
    executed = book.parent / "jupyter_execute" / "notebooks" / path.name
    source, result = cells(path, "code"), cells(executed, "code")
    untitled = lambda cell: re.sub(rf"^{fold_titles.MARK}.*\n", "", cell.source)
    assert [*map(untitled, source)] == [*map(untitled, result)]
    assert [cell.execution_count for cell in result] == list(range(1, len(result) + 1))
    outputs = [out for cell in result for out in cell.outputs]
    assert [out.ename for out in outputs if out.output_type == "error"] == []
    warned = [out.text for out in outputs if out.get("name") == "stderr" and AGING.search(out.text)]
    assert warned == [], "a library announces that something goes"
