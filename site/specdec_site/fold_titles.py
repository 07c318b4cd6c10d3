"""What folded parts of a chapter say in JupyterLab and Colab, which do not read the page's titles.

The first line of a hidden cell is its title, `# @title Measured: …`: JupyterLab shows the first line
of a folded cell, and Colab makes it a heading. A prediction's question ends with its choices
in words. The published page has both in its own form, so the build removes these copies.
`PYTHONPATH=site python -m specdec_site.fold_titles` writes them into all notebooks.
"""

import re

from sphinx.application import Sphinx

from .addresses import inward, rewrite

MARK = "# @title "
LINE = re.compile(rf'^ *"{MARK}(?:[^"\\]|\\.)*\\n",\n', flags=re.M)
HEADING = re.compile(r"^#+ (.+)$", flags=re.M)
PREDICTION = re.compile(
    r'(data-choices="([^"]+)">\s*<summary>.+?)(?: <em>[^<]* / [^<]*</em>)?(</summary>)'
)
KINDS = {"Table": r"^(display\()?table\(", "Check": r"\bprint\("}
"""The kind of a hidden cell by what it shows; any other cell draws a picture."""


def in_words(choices: str) -> str:
    """Return the choices of a prediction, "a|b", as a notebook shows them."""
    return " / ".join(choice.strip() for choice in choices.split("|"))


def title(cell: dict, heading: str) -> str:
    """Return the title of a hidden cell: the one on the page, else its kind and its section."""
    if cell["id"] == "setup":
        return "Set-up: run this first"
    source = "".join(cell["source"])
    kinds = (kind for kind, pattern in KINDS.items() if re.search(pattern, source, flags=re.M))
    own = cell["metadata"].get("mystnb", {}).get("code_prompt_show")
    return own or f"{next(kinds, 'Picture')}: {heading}"


def titled(notebook: dict) -> dict:
    """Return a notebook with the titles of its hidden cells and its predictions' choices."""
    heading, cells = "", []
    for cell in notebook["cells"]:
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            text = PREDICTION.sub(
                lambda found: f"{found[1]} <em>{in_words(found[2])}</em>{found[3]}", "".join(source)
            )
            heading = [heading, *HEADING.findall(text)][-1]
            source = text.splitlines(keepends=True)
        elif "hide-input" in cell["metadata"].get("tags", ()):
            code = source[1:] if source and source[0].startswith(MARK) else source
            source = [f"{MARK}{title(cell | {'source': code}, heading)}\n", *code]
        cells.append(cell | {"source": source})
    return notebook | {"cells": cells}


def read_for_the_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Give Sphinx a chapter without the lines that only a notebook shows, and with links to files."""
    if page.startswith("notebooks/"):
        source[0] = inward(LINE.sub("", source[0]))


def register(app: Sphinx) -> None:
    """Connect to a Sphinx application, after the executed chapter is put in place."""
    app.connect("source-read", read_for_the_page, priority=600)


if __name__ == "__main__":
    rewrite(titled)
