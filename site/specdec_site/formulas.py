"""Formulas set when the book is built, as drawings with MathML beside them for screen readers: no
page ships a typesetter or its fonts, and none moves when a formula is set.

Lives here: which formulas a page has, and what stands in their place. Not here: MathJax
(`typeset.js`, run once for the whole book), line breaks and words (`mend`, `terms`).
"""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString
from sphinx.errors import ExtensionError

SCRIPT = Path(__file__).with_name("typeset.js")
TEX = re.compile(r"\s*\\([(\[])(.*)\\[)\]]\s*", re.S)


def unset(soup: BeautifulSoup) -> list[tuple[NavigableString, str, bool]]:
    """The formulas of a page that are still TeX: (text, its TeX, whether in a line of its own)."""
    texts = [text for math in soup.select(".math") for text in math.find_all(string=TEX)]
    found = ((text, TEX.fullmatch(text)) for text in texts)
    return [(text, tex[2].strip(), tex[1] == "[") for text, tex in found if tex]


def typeset(pages: Sequence[Sequence[tuple[str, bool]]], node_modules: Path) -> list[dict]:
    """What MathJax makes of the formulas of some pages, (TeX, whether in a line of its own): for
    each page its `formulas` and the `glyphs` that these share, as HTML. ExtensionError where it
    does not understand one.
    """
    run = subprocess.run(
        ["node", SCRIPT, node_modules.resolve()],
        input=json.dumps(pages),
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise ExtensionError(f"a formula cannot be set: {run.stderr.strip()}")
    return json.loads(run.stdout)


def draw(soups: Sequence[BeautifulSoup], node_modules: Path) -> None:
    """Put drawings in the place of all formulas of some pages."""
    found = [unset(soup) for soup in soups]
    pages = [[(tex, display) for _, tex, display in formulas] for formulas in found]
    for soup, formulas, made in zip(soups, found, typeset(pages, node_modules)):
        for (text, _, _), drawing in zip(formulas, made["formulas"]):
            text.replace_with(BeautifulSoup(drawing, "html.parser"))
        if formulas:
            soup.body.insert(0, BeautifulSoup(made["glyphs"], "html.parser"))
