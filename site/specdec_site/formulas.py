"""Formulas typeset while the book is built, as drawings with MathML for screen readers.

No page loads a typesetter or its fonts, and nothing moves when a formula appears. `typeset.js` runs
MathJax once for the whole book.
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


def tex_formulas(soup: BeautifulSoup) -> list[tuple[NavigableString, str, bool]]:
    """Return the formulas of a page that are still TeX."""
    texts = [text for math in soup.select(".math") for text in math.find_all(string=TEX)]
    matches = ((text, TEX.fullmatch(text)) for text in texts)
    return [(text, tex[2].strip(), tex[1] == "[") for text, tex in matches if tex]


def typeset(pages: Sequence[Sequence[tuple[str, bool]]], node_modules: Path) -> list[dict]:
    """Typeset the formulas of some pages with MathJax."""
    run = subprocess.run(
        ["node", SCRIPT, node_modules.resolve()],
        input=json.dumps(pages),
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise ExtensionError(f"a formula cannot be typeset: {run.stderr.strip()}")
    return json.loads(run.stdout)


def draw_formulas(soups: Sequence[BeautifulSoup], node_modules: Path) -> None:
    """Replace all formulas of some pages by drawings."""
    formulas = [tex_formulas(soup) for soup in soups]
    sources = [[(tex, display) for _, tex, display in page] for page in formulas]
    for soup, page, result in zip(soups, formulas, typeset(sources, node_modules)):
        for (text, _, _), drawing in zip(page, result["formulas"]):
            text.replace_with(BeautifulSoup(drawing, "html.parser"))
        if page:
            soup.body.insert(0, BeautifulSoup(result["glyphs"], "html.parser"))
