"""Drawings made by hand: SVG files (`static/drawings`) in one style, for notebooks and pages."""

import re

from specdec_book.viz.interactive import STATIC
from specdec_book.viz.sketch import framed

FOLDER = STATIC / "drawings"


def drawings() -> list[str]:
    """Return the names of all drawings, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.svg"))


class Drawing:
    """One of the book's drawings, shown by a notebook or put on a page.

    The SVG's `aria-label` is the text alternative; its comment `<!-- caption: … -->` the caption,
    of which the first sentence is the finding.

    Args:
        name: Stem of a file in `static/drawings`.

    Raises:
        ValueError: There is no drawing of this name.
    """

    def __init__(self, name: str):
        if name not in drawings():
            raise ValueError(f"name={name!r}: must be one of {', '.join(drawings())}")
        self.name = name
        text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        self.caption = re.search(r"<!-- caption: (.*?) -->", text, re.S)[1]
        self.svg = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
        self.alt = re.search(r'aria-label="([^"]*)"', text)[1]

    def __repr__(self) -> str:
        return f"{self.caption} ({self.alt})"

    def html(self) -> str:
        """Return the drawing with its finding and caption."""
        return framed("sdl-drawing", self.svg, self.caption, f"fig-{self.name}")

    def _repr_html_(self) -> str:
        style = (STATIC / "drawing.css").read_text(encoding="utf-8")
        return f"<style>{style}</style>{self.html()}"
