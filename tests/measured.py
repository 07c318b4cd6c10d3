"""Sentences of prose with a measured number, and which of these numbers are supported.

A number is measured if it has a unit of speed, time or share (%, ×, times, ms, µs, tokens per
second, per pass or per round) or two digits after a point. It is supported

- if a mark follows it: `recorded` and `computed` are compared with the recording or the formula
  (see `benchmarks/quote.py`), and `<!-- given -->` says that the author chose
  the number, as an assumption or a setting;
- if its paragraph, list item or table names a source outside the project;
- if its paragraph or table has the mark `<!-- checked: tests/... -->`, naming a test of this page.

`python tests/measured.py` lists the sentences without support; a test allows none.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNIT = r"%|×(?! ?[\d$(])|ms\b|[µμ]s\b|times\b|tokens?(?:/s| (?:per|a) (?:second|pass|round))"
MEASURED = re.compile(
    rf"(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:{UNIT})|(?<![\w.])\d+\.\d+ tokens\b"
    r"|(?<![\w.])\d*\.\d\d+(?!\.?\w)"
)
SUPPORTED = re.compile(r"\s*\**†")
MARK = re.compile(
    r"(?:\d+\.\d+× \[[^\]\n]*\])?<!-- (?:recorded: |computed: |given ).*?-->", re.DOTALL
)
"""Replaced by † in what `prose` returns."""
CHECKED = re.compile(r"<!-- checked: (\S+) -->")
SETTING = re.compile(
    r"95 % (?:bootstrap )?intervals?|intervals? (?:are )?of 95 %|80 % band|\d+(?:\.\d+){2,}|"
    r"(?:Python|in|transformers|PyTorch|vLLM|SGLang) \d+\.\d+\b(?!\.\d| ?[%×])"
)
CITED = re.compile(r"\]\(https?://(?!(?:colab|specdec-lite|github\.com/specdec-lite))|\{cite")
TITLE = r'\b(?:title|alt|finding|caption)=\(?f?"([^"]+)"'
SKIPPED_HEADING = re.compile(r"(?m)^#+ .*(?:Exercises|References|questions|Questions)")
HEADING = re.compile(r"(?m)^(?=#{1,2} )")
FENCE = re.compile(r"(?P<ticks>`{3,})(?P<info>.*)")
ITEM = re.compile(r"(?m)^(?=\s*(?:[-*] |\d+\. |\|))")
END = re.compile(r"(?<=[.!?:])\**\s+(?=[A-Z*`\[(“\"])")


def prose(source: str) -> str:
    """Return Markdown without code, formulas, quizzes and exercises, with † for each mark."""
    source = MARK.sub("†", source)
    source = re.sub(r'<div class="sdl-quiz".*?</div>', "", source, flags=re.DOTALL)
    source = re.sub(r" <em>[^<]* / [^<]*</em></summary>", "</summary>", source)  # choices
    parts = HEADING.split(source)
    source = "".join(part for part in parts if not SKIPPED_HEADING.match(part))
    lines, closing = [], ""
    for line in source.splitlines():
        fence = FENCE.match(line)
        if closing:
            closing = "" if line.startswith(closing) else closing
        elif fence and not re.search(r"\{(dropdown|note|tip|margin)\}", fence["info"]):
            closing = fence["ticks"] if fence["info"] else ""
        elif not fence:
            lines.append(line)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$|`[^`\n]+`", "x", "\n".join(lines), flags=re.DOTALL)
    return re.sub(r"<!-- (?!checked).*?-->|</?[a-z][^>]*>", "", text, flags=re.DOTALL)


def unsupported(source: str) -> Iterator[str]:
    """Yield the sentences with a measured number that has neither a mark nor a cited source."""
    before = ""  # a table's source may be named by the paragraph before it
    for block in re.split(r"\n\s*\n", prose(source)):
        is_table = block.lstrip().startswith("|")
        source_of_table = f"{before} {block}" if is_table else ""
        before = block
        for item in ITEM.split(block):
            if any(each.search(source_of_table or item) for each in (CITED, CHECKED)):
                continue
            for sentence in END.split(" ".join(item.split())):
                text = re.sub(r"\]\([^)]*\)", "]", SETTING.sub("", sentence))
                if any(not SUPPORTED.match(text, n.end()) for n in MEASURED.finditer(text)):
                    yield sentence.replace("†", "").strip("*| ")


def pages() -> dict[str, str]:
    """Return {page: Markdown} of the files for readers of the repository, the pages and chapters."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    texts = {}
    for file in sorted(files):
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            kinds = {"markdown": r"(?s).+", "code": TITLE}
            text = "\n\n".join(
                part
                for cell in cells
                for part in re.findall(kinds[cell["cell_type"]], "".join(cell["source"]))
            )
        texts[file.relative_to(ROOT).as_posix()] = text
    return texts


def main() -> None:
    """List the sentences without support."""
    for page, text in pages().items():
        for sentence in unsupported(text):
            print(f"{page}: {sentence}")


if __name__ == "__main__":
    main()
