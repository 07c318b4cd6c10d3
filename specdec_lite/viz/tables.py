"""Tables of results: Markdown, which every place that shows a notebook sets as a table; and a text
with a number below each of its tokens.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

from IPython.display import HTML, Markdown

from specdec_lite.viz.theme import PALETTE

HYPHEN = re.compile(r"((?<![\w.])|(?<=\de))-(?=\d)")  # before a negative number


def table(heads: Sequence[str], rows: Iterable[Sequence], caption: str = "") -> Markdown:
    """A table as Markdown.

    heads: of the columns. rows: cells are shown by `str`, with a minus sign before a negative
    number; ValueError where a row has other columns.
    caption: a line above it, such as a recording's source.
    """
    rows = [[HYPHEN.sub("−", str(cell)) for cell in row] for row in rows]
    odd = next((row for row in rows if len(row) != len(heads)), None)
    if odd is not None:
        raise ValueError(f"rows: one has {len(odd)} cells, the table {len(heads)} columns: {odd}")
    lines = [list(heads), ["---"] * len(heads), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return Markdown(f"*{caption}*\n\n{body}" if caption else body)


def settled_text(tokens: Sequence[str], depths: Sequence[int], layers: int) -> HTML:
    """A text with the depth below each token from which on the argmax was the final one.

    ValueError where there are not as many depths as tokens.
    """
    if len(tokens) != len(depths):
        raise ValueError(f"depths holds {len(depths)} numbers for {len(tokens)} tokens")
    alt = f"A text of {len(tokens)} tokens, with a depth of 1 to {layers} below each."
    return _marked_text(tokens, [depth / layers for depth in depths], depths, alt)


def accepted_text(tokens: Sequence[str], rates: Sequence[float]) -> HTML:
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
    return _marked_text(tokens, [1 - rate for rate in rates], labels, alt)


def _marked_text(
    tokens: Sequence[str], shares: Sequence[float], labels: Sequence[int], alt: str
) -> HTML:
    """Tokens with a label and a line below each, from green (share 0) to red (share 1)."""
    spans = []
    for token, part, label in zip(tokens, shares, labels, strict=True):
        share = round(60 * part)
        word = escape(token).replace("\n", "⏎")
        spans.append(
            '<span style="display: inline-flex; flex-direction: column; align-items: center;'
            f" white-space: pre; border-bottom: 4px solid color-mix(in srgb,"
            f" {PALETTE['rejected']} {share}%, {PALETTE['accepted']} {60 - share}%); "
            f'margin: 0 1px 6px 0"><span>{word}</span>'
            f'<small style="font-size: 11px; padding-inline: 2px">{label}</small></span>'
        )
    return HTML(
        '<div style="display: flex; flex-wrap: wrap; line-height: 1.3; font-family:'
        f' ui-monospace, Menlo, Consolas, monospace" role="img" aria-label="{alt}">'
        f"{''.join(spans)}</div>"
    )
