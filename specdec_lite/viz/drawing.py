"""Plain drawings: SVG files in the book's one style, the same in JupyterLab, in Colab and on a page.

What lives here: how a drawing gets its style, its caption and its words. What does not: the
drawings (`static/drawings/<name>.svg`, one file each), and anything drawn from data.
"""

import re

from specdec_lite.viz.interactive import STATIC

FOLDER = STATIC / "drawings"


def drawings() -> list[str]:
    """The names of all drawings, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.svg"))


class Drawing:
    """One of the book's drawings, shown by a notebook or put on a page.

    Args:
        name: The stem of a file in `static/drawings`; ValueError for another one.

    Its text alternative is the SVG's `aria-label`, its caption the text behind `<!-- caption:`.
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
        """The drawing with its caption."""
        return (
            f'<figure class="sdl-drawing" id="fig-{self.name}">{self.svg}'
            f"<figcaption>{self.caption}</figcaption></figure>"
        )

    def _repr_html_(self) -> str:
        style = (STATIC / "drawing.css").read_text(encoding="utf-8")
        return f"<style>{style}</style>{self.html()}"
