"""Plain drawings: a few boxes, lines and words in the book's colours, the same in a notebook and on
a page.

What lives here: `Sketch`, one SVG with a text alternative, and sketches side by side. What does
not: drawings made by hand (`drawing`), figures with axes (`theme.figure`), anything that moves (the
interactives).
"""

from collections.abc import Sequence
from html import escape

from specdec_lite.viz.interactive import STATIC

WIDTH = 360
"""Units from left to right; a letter is 11 high, so that a phone shows it at about its size."""


def seen(token: str) -> str:
    """A token as it is drawn: line ends are marked, and so are spaces where nothing else is."""
    return (token.replace(" ", "␣") if token.isspace() else token).replace("\n", "⏎")


class Sketch:
    """A drawing of width × height units.

    alt: one or two sentences that tell a reader who cannot see it what it shows; ValueError if
    empty. caption: the finding, shown beneath. Kinds are the names of the palette.
    """

    def __init__(self, height: float, alt: str, caption: str = "", width: float = WIDTH):
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError(f"alt must say in words what the drawing shows, got {alt!r}")
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
        """A box with words in its middle, tinted by so many per cent; kind "empty" is an outline."""
        colour = "var(--sdl-muted)" if kind in ("empty", "neutral") else f"var(--sdl-{kind})"
        tint = "none" if kind == "empty" else f"color-mix(in srgb, {colour} {fill}%, transparent)"
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"{dash}'
            f' style="fill: {tint}; stroke: {colour}; stroke-width: 1.2"/>'
        )
        return self.words(x + width / 2, y + height / 2 + 4, words) if words else self

    def words(
        self, x: float, y: float, words: str, anchor: str = "middle", faint=False, bold=False
    ):
        """Words on a line whose foot is at y; anchor: start, middle or end."""
        style = ' class="sdl-faint"' * faint + ' font-weight="600"' * bold
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'
        )
        return self

    def line(
        self, *points: Sequence[float], kind: str = "neutral", dashed=False, arrow=False, thick=1.5
    ):
        """A line through points (x, y); with an arrow's head at its end, in its last direction."""
        colour = "var(--sdl-muted)" if kind == "neutral" else f"var(--sdl-{kind})"
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}"{dash} style="fill: none; stroke: {colour}; stroke-width: {thick}"/>'
        )
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
            dx, dy = 6 * (x1 - x0) / length, 6 * (y1 - y0) / length
            self.parts.append(
                f'<path d="M{x1:g} {y1:g}l{-dx - dy / 2:.1f} {-dy + dx / 2:.1f}'
                f'l{dy:.1f} {-dx:.1f}z" style="fill: {colour}"/>'
            )
        return self

    def html(self) -> str:
        """The drawing with its caption."""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return (
            '<figure class="sdl sdl-sketch"><svg role="img"'
            f' viewBox="0 0 {self.width:g} {self.height:g}" aria-label="{escape(self.alt)}">'
            f"{''.join(self.parts)}</svg>{caption}</figure>"
        )

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return f"{style()}{self.html()}"


class SketchRow(tuple):
    """Sketches side by side, each as wide as its units and as the page leaves room for."""

    def __repr__(self) -> str:
        return ". ".join(sketch.alt for sketch in self)

    def _repr_html_(self) -> str:
        shown = "".join(
            f'<div style="flex: 1 1 {sketch.width:g}px; max-width: {1.4 * sketch.width:g}px">'
            f"{sketch.html()}</div>"
            for sketch in self
        )
        return f'{style()}<div style="display: flex; flex-wrap: wrap; gap: 8px">{shown}</div>'


def style() -> str:
    """The interactives' style, which holds the colours of both modes."""
    return f"<style>{(STATIC / 'interactive.css').read_text(encoding='utf-8')}</style>"
