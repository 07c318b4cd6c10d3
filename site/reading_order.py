"""List the files that decode, in reading order: the table "The library in an evening".

`python site/reading_order.py` writes the table into README.md, which the book's page includes.
"""

import ast
import io
import tokenize
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "specdec_lite"
FILES = """sampling tree proposal acceptance/protocol acceptance/exact acceptance/greedy contract
speculation options decoding engine/cache engine/models engine/native engine/transformer
drafters/lengths drafters/chain drafters/models transfer checks acceptance/__init__
drafters/__init__ __init__ _lazy""".split()
"""What `generate` with a `ModelDrafter` imports; a test compares the list with a real import.
An `__init__` that is only a docstring is left out."""
BEGIN, END = "<!-- reading order: begin -->", "<!-- reading order: end -->"
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Row(NamedTuple):
    """One file of the table, by its path below the library's folder.

    Its lines to read include docstrings and comments and no blank lines; `code` counts code alone.
    """

    path: str
    summary: str
    lines: int
    code: int


def code_lines(source: str) -> int:
    """Return the number of lines that hold code: no blank lines, comments or docstrings."""
    docstrings = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        number
        for token in tokens
        if token.type not in SKIPPED
        for number in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def row(path: str) -> Row:
    """Return the row of a file."""
    source = (LIBRARY / path).read_text(encoding="utf-8")
    documentation = ast.get_docstring(ast.parse(source)) or ""
    sentence = " ".join(documentation.split("\n\n")[0].split())
    lines = sum(bool(line.strip()) for line in source.splitlines())
    return Row(path, sentence.split(". ")[0].rstrip("."), lines, code_lines(source))


def rows() -> list[Row]:
    """Return the rows in reading order."""
    return [row(f"{name}.py") for name in FILES]


def markdown() -> str:
    """Return the table as README.md shows it."""
    table, repository = rows(), yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]
    folder = f"{repository['url']}/blob/{repository['branch']}/specdec_lite"
    lines = ["| file | what it does | lines | of code |", "|---|---|--:|--:|"]
    lines += [
        f"| [`{each.path}`]({folder}/{each.path}) | {each.summary} | {each.lines} | {each.code} |"
        for each in table
    ]
    total, code = sum(each.lines for each in table), sum(each.code for each in table)
    return "\n".join([*lines, f"| **{len(table)} files** | | **{total:,}** | **{code:,}** |"])


def updated(readme: str) -> str:
    """Return a README's text with the current table between its two markers."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main() -> None:
    """Write the table into README.md."""
    path = ROOT / "README.md"
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
