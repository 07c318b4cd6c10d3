"""Two drawings of a model that drafts for itself: what each method leaves out, and how deep each
token of a text needed it. Plain HTML and SVG in the page's own ink; what colour says is said by
dashes and numbers too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from specdec_lite.viz.theme import PALETTE

BLOCKS = 8
METHODS = {
    "early exit": "stops after the first blocks, and goes straight to the head",
    "skipped sublayers": "leaves out an attention here, an MLP there",
    "fewer bits": "all of it, with weights of 8 or 4 bits",
    "look-ahead rows": "all of it, asked about several places at once",
    "sparse cache": "all of it, reading only a part of the keys and values",
}
SKIPPED = {(2, 0), (3, 1), (5, 0), (5, 1), (6, 0)}


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """HTML that a notebook or a page shows. alt: what it says, in words."""

    html: str
    alt: str

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return self.html


def box(x: float, y: float, width: float, height: float, runs: bool = True) -> str:
    style = (
        f'fill="{PALETTE["target"]}" fill-opacity=".3" stroke="{PALETTE["target"]}"'
        if runs
        else 'fill="none" stroke="currentColor" stroke-opacity=".45" stroke-dasharray="3 3"'
    )
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" {style}/>'


def tower(method: str) -> str:
    """One SVG of 120 × 190: input below, blocks of an attention and an MLP, head, cache beside."""
    thin = 10 if method == "fewer bits" else 0
    shapes = [box(14 + thin / 2, 6, 64 - thin, 14)]
    for block in range(BLOCKS):
        y = 154 - 16 * block
        for part in (0, 1):
            exited = method == "early exit" and block > 2
            skipped = method == "skipped sublayers" and (block, part) in SKIPPED
            x = 14 + 33 * part + thin / 4
            shapes.append(box(x, y, 31 - thin / 2, 12, not (exited or skipped)))
    for entry in range(BLOCKS):
        seen = method != "sparse cache" or entry in (0, BLOCKS - 2, BLOCKS - 1)
        shapes.append(box(92, 154 - 16 * entry, 14, 12, seen))
    if method == "early exit":
        shapes.append(
            '<path d="M46 118V26" stroke="currentColor" stroke-width="2"/>'
            '<path d="M46 21l-5 8h10z" fill="currentColor"/>'
        )
    places = 4 if method == "look-ahead rows" else 1
    for place in range(places):
        solid = "currentColor" if place == 0 else "none"
        x = 46 - 9 * (places - 1) + 18 * place
        shapes.append(f'<circle cx="{x}" cy="181" r="5" stroke="currentColor" fill="{solid}"/>')
    said = f"{method}: {METHODS[method]}"
    return (
        f'<svg viewBox="0 0 120 192" width="120" height="192" role="img" aria-label="{said}">'
        f"{''.join(shapes)}</svg>"
    )


def parts() -> Drawing:
    """What each of five methods leaves out of the target while it drafts."""
    figures = "".join(
        '<figure style="flex: 1 1 130px; max-width: 170px; margin: 0">'
        f"{tower(method)}<figcaption><strong>{method}</strong>: {words}</figcaption></figure>"
        for method, words in METHODS.items()
    )
    alt = "Five towers of blocks. " + ". ".join(f"{m}: {words}" for m, words in METHODS.items())
    legend = (
        "<p>From below: the tokens fed, eight blocks (attention left, MLP right), the head; at the"
        " side the cache. Dashed: left out while drafting.</p>"
    )
    return Drawing(
        f'<div style="display: flex; flex-wrap: wrap; gap: 16px">{figures}</div>{legend}', alt
    )


def settled_text(tokens: Sequence[str], depths: Sequence[int], layers: int) -> Drawing:
    """A text with the depth below each token from which on the argmax was the final one.

    ValueError where there are not as many depths as tokens.
    """
    if len(tokens) != len(depths):
        raise ValueError(f"depths holds {len(depths)} numbers for {len(tokens)} tokens")
    alt = f"A text of {len(tokens)} tokens, with a depth of 1 to {layers} below each."
    return marked_text(tokens, [depth / layers for depth in depths], depths, alt)


def accepted_text(tokens: Sequence[str], rates: Sequence[float]) -> Drawing:
    """A text with the chance below each token, in percent, that a draft there is accepted.

    rates: 0 … 1. ValueError where there are not as many rates as tokens.
    """
    if len(tokens) != len(rates):
        raise ValueError(f"rates holds {len(rates)} numbers for {len(tokens)} tokens")
    alt = (
        f"A text of {len(tokens)} tokens with the acceptance below each, from"
        f" {min(rates):.0%} to {max(rates):.0%}, {sum(rates) / len(rates):.0%} on average."
    )
    labels = [round(100 * rate) for rate in rates]
    return marked_text(tokens, [1 - rate for rate in rates], labels, alt)


def marked_text(tokens: Sequence[str], shares: Sequence[float], labels, alt: str) -> Drawing:
    """Tokens with a label and a line below each, from green (share 0) to red (share 1)."""
    spans = []
    for token, part, label in zip(tokens, shares, labels):
        share = round(60 * part)
        word = escape(token).replace("\n", "⏎")
        spans.append(
            '<span style="display: inline-flex; flex-direction: column; align-items: center;'
            f" white-space: pre; border-bottom: 4px solid color-mix(in srgb,"
            f" {PALETTE['rejected']} {share}%, {PALETTE['accepted']} {60 - share}%); "
            f'margin: 0 1px 6px 0"><span>{word}</span>'
            f'<small style="font-size: 11px">{label}</small></span>'
        )
    return Drawing(
        '<div style="display: flex; flex-wrap: wrap; line-height: 1.3; font-family:'
        f' ui-monospace, Menlo, Consolas, monospace" role="img" aria-label="{alt}">'
        f"{''.join(spans)}</div>",
        alt,
    )
