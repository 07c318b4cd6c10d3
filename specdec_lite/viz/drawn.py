"""The drawings of a round: what two laws share, and what one pass of the target returns.

What lives here: plain SVG that needs no kernel and no script, in colours that hold on a light and
on a dark page. What does not: figures with axes (`theme`), anything that moves (`round`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from specdec_lite.viz.theme import PALETTE


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG with its text alternative and a caption; a notebook and a page show it."""

    parts: tuple[str, ...]
    width: int
    height: int
    alt: str
    caption: str

    def _repr_html_(self) -> str:
        return (
            '<figure class="sdl-drawing" style="margin: 1rem 0">'
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.alt)}"'
            f' style="display: block; width: 100%; max-width: {1.5 * self.width:g}px; font: 12px'
            f' system-ui, sans-serif">{"".join(self.parts)}</svg>'
            f'<figcaption style="color: inherit; font-size: 0.9em; text-align: start">'
            f"{escape(self.caption)}</figcaption></figure>"
        )

    def __repr__(self) -> str:
        return self.alt


def _text(x: float, y: float, words: str, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="700"' * bold
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="currentColor"{weight}>'
        f"{escape(words)}</text>"
    )


def _box(x: float, y: float, width: float, height: float, kind: str, style: str = "") -> str:
    """A bar: "filled" by default; style may thin it out or outline it."""
    colour = PALETTE[kind]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{max(0, width):g}" height="{height:g}" fill="{colour}"'
        f' stroke="{colour}" stroke-width="1.5"{style}/>'
    )


HOLLOW = ' fill-opacity="0.12"'
DASHED = ' fill-opacity="0.25" stroke-dasharray="4 3"'


def overlap(words: Sequence[str], p: Sequence[float], q: Sequence[float]) -> Drawing:
    """Each word's two bars on each other: what both share, what the draft has too much of, and what
    the target has left over.

    words, p, q: of one length; p and q sum to 1.
    """
    room, left, high = 205, 62, 38
    scale = room / max(*p, *q)
    parts = []
    for i, word in enumerate(words):
        y = 6 + i * high
        both = min(p[i], q[i])
        more = "recovered" if p[i] > q[i] else "rejected"
        parts += [_text(left - 8, y + 19, word, "end"), _box(left, y, scale * both, 26, "accepted")]
        extra = abs(p[i] - q[i])
        if extra > 1e-9:
            parts.append(_box(left + scale * both, y, scale * extra, 26, more, DASHED))
            name = "overhang" if p[i] > q[i] else "too much"
            x = left + scale * (both + extra) + 6
            parts.append(_text(x, y + 17, f"{name} {extra:.2g}".replace("0.", "."), "start"))
        parts.append(_text(left + scale * both / 2, y + 17, f"{both:.2g}".replace("0.", ".")))
    shares = ", ".join(f"{word} {min(a, b):.2g}" for word, a, b in zip(words, p, q))
    return Drawing(
        tuple(parts),
        360,
        6 + high * len(words),
        f"Bars of target and draft laid on each other. Shared: {shares}. What the draft has too much"
        " of equals what the target has left over.",
        "Solid: what both bars share. Dashed: the draft's excess on one word is the target's"
        " overhang on others; the two sum to the same.",
    )


def verify_pass(gamma: int = 4) -> Drawing:
    """What goes into one target pass, what comes out, and which row judges which draft."""
    step, left = 66, 14
    middle = lambda i: left + step * i + step / 2
    parts = []
    for i in range(gamma + 1):
        kind = "target" if i == 0 else "draft"
        parts.append(_box(middle(i) - 28, 16, 56, 24, kind, HOLLOW))
        parts.append(_text(middle(i), 32, "last" if i == 0 else f"x{i}"))
        parts.append(f'<path d="M{middle(i):g} 40v12M{middle(i):g} 76v14" stroke="currentColor"/>')
        parts.append(_box(middle(i) - 28, 90, 56, 22, "target", HOLLOW))
        parts.append(_text(middle(i), 105, f"row {i}"))
        parts.append(
            f'<path d="M{middle(i) + 6:g} 112L{middle(i + 1) - 6:g} 131m-7-.6l7 .6l-3-6.4"'
            ' fill="none" stroke="currentColor"/>'
        )
        name = f"judges x{i + 1}" if i < gamma else "bonus"
        parts.append(_text(middle(i + 1), 144, name, bold=i == gamma))
    parts.append(_box(left, 52, step * (gamma + 1), 24, "target", HOLLOW))
    parts.append(_text(left + step * (gamma + 1) / 2, 68, "one pass of the target", bold=True))
    return Drawing(
        tuple(parts),
        2 * left + step * (gamma + 2),
        150,
        f"Into one pass go the last token and {gamma} drafts; out come {gamma + 1} rows. Row 0 judges"
        f" the first draft, row 1 the second, and row {gamma} is left for a bonus token.",
        f"In: the last token and {gamma} drafts. Out: {gamma + 1} rows. The row behind a token says"
        " what comes next, so it judges the draft one place further.",
    )
