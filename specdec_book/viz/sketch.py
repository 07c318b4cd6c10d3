"""Sketches: SVG drawings of a few boxes, lines and words, for notebooks and pages."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from specdec_book.viz.interactive import STATIC

WIDTH = 360
"""Width of a sketch in units; text is 11 units high, so a phone shows it at about its own size."""


def visible(token: str) -> str:
    """Return a token with visible line ends, and with visible spaces if it has nothing else."""
    return (token.replace(" ", "␣") if token.isspace() else token).replace("\n", "⏎")


class Sketch:
    """A drawing of width × height units, to which boxes, lines and words are added.

    Kinds of boxes and lines are the names of the palette.

    Args:
        height: Height in units.
        alt: One or two sentences that say what the drawing shows, as its text alternative.
        caption: Its first sentence is the finding, shown above the drawing, the rest is below it.
        width: Width in units.

    Raises:
        ValueError: `alt` is empty.
    """

    def __init__(self, height: float, alt: str, caption: str = "", width: float = WIDTH):
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError(f"alt={alt!r}: must say in words what the drawing shows")
        self.width = width
        self.height = height
        self.alt = alt.strip()
        self.caption = caption
        self.parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        words: str = "",
        dashed: bool = False,
        fill: int = 22,
    ):
        """Add a box with words in its middle."""
        color = "var(--sdl-muted)" if kind in ("empty", "neutral") else f"var(--sdl-{kind})"
        tint = "none" if kind == "empty" else f"color-mix(in srgb, {color} {fill}%, transparent)"
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"{dash}'
            f' style="fill: {tint}; stroke: {color}; stroke-width: 1.2"/>'
        )
        return self.words(x + width / 2, y + height / 2 + 4, words) if words else self

    def words(
        self, x: float, y: float, words: str, anchor: str = "middle", faint=False, bold=False
    ):
        """Add words."""
        style = ' class="sdl-faint"' * faint + ' font-weight="600"' * bold
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'
        )
        return self

    def line(
        self, *points: Sequence[float], kind: str = "neutral", dashed=False, arrow=False, thick=1.5
    ):
        """Add a line."""
        color = "var(--sdl-muted)" if kind == "neutral" else f"var(--sdl-{kind})"
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}"{dash} style="fill: none; stroke: {color}; stroke-width: {thick}"/>'
        )
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
            dx, dy = 6 * (x1 - x0) / length, 6 * (y1 - y0) / length
            self.parts.append(
                f'<path d="M{x1:g} {y1:g}l{-dx - dy / 2:.1f} {-dy + dx / 2:.1f}'
                f'l{dy:.1f} {-dx:.1f}z" style="fill: {color}"/>'
            )
        return self

    def svg(self) -> str:
        """Return the drawing alone."""
        return (
            f'<svg role="img" viewBox="0 0 {self.width:g} {self.height:g}"'
            f' aria-label="{escape(self.alt)}">{"".join(self.parts)}</svg>'
        )

    def html(self) -> str:
        """Return the drawing with its finding and caption."""
        return framed("sdl sdl-sketch", self.svg(), escape(self.caption))

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return f"{style()}{self.html()}"


class SketchRow(tuple):
    """Sketches side by side in one figure, each at its own width as far as the page has room.

    The row's own caption is that of a sketch; the captions of its sketches are below each of them.
    """

    caption: str

    def __new__(cls, sketches: Iterable[Sketch], caption: str) -> "SketchRow":
        """Return a row of sketches with a caption for all of them."""
        row = super().__new__(cls, sketches)
        row.caption = caption
        return row

    def __repr__(self) -> str:
        return " ".join(sketch.alt for sketch in self)

    def _repr_html_(self) -> str:
        sketches = "".join(
            f'<div style="flex: 1 1 {sketch.width:g}px; max-width: {1.4 * sketch.width:g}px">'
            f"{sketch.svg()}<p>{escape(sketch.caption)}</p></div>"
            for sketch in self
        )
        row = f'<div class="sdl-sketches">{sketches}</div>'
        return f"{style()}{framed('sdl sdl-sketch sdl-row-of', row, escape(self.caption))}"


def framed(kind: str, picture: str, caption: str, name: str = "") -> str:
    """Return a picture as every figure looks: a bold finding above it, the rest of its caption below.

    The finding is the first sentence of the caption. A page numbers the caption.
    """
    finding, _, rest = re.sub(r"(?<=[.!?]) (?=[A-Z(])", "\n", caption, count=1).partition("\n")
    title = f'<p class="sdl-finding"><strong>{finding}</strong></p>' if finding else ""
    place = f' id="{name}"' if name else ""
    note = f"<figcaption>{rest}</figcaption>" if caption else ""
    return f'<figure class="{kind}"{place}>{title}{picture}{note}</figure>'


def style() -> str:
    """Return the interactives' style sheet, which defines the colors of both themes."""
    return f"<style>{(STATIC / 'interactive.css').read_text(encoding='utf-8')}</style>"
