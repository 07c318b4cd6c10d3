"""Tables of results in Markdown, and texts with a number below each token."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from IPython.display import HTML, Markdown

from specdec_book.viz.theme import PALETTE

HYPHEN = re.compile(r"((?<![\w.])|(?<=\de))-(?=\d)")  # before a negative number


def table(
    heads: Sequence[str], rows: Iterable[Sequence], caption: str = "", fold: str = ""
) -> Markdown:
    """Return a table as Markdown.

    Args:
        heads: Titles of the columns.
        rows: Cells of each row, shown by `str`; a hyphen before a number becomes a minus sign.
        caption: Line above the table, such as a recording's source.
        fold: Title of a fold around the table; "" for an open table.

    Raises:
        ValueError: A row has another number of cells than the table has columns.
    """
    texts = [[HYPHEN.sub("−", str(cell)) for cell in row] for row in rows]
    for row in texts:
        if len(row) != len(heads):
            raise ValueError(f"rows holds {row}: must have {len(heads)} cells, has {len(row)}")
    lines = [list(heads), ["---"] * len(heads), *texts]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = f"*{caption}*\n\n{body}" if caption else body
    return Markdown(f"<details><summary>{fold}</summary>\n\n{text}\n\n</details>" if fold else text)


def exit_depth_text(tokens: Sequence[str], depths: Sequence[int], layers: int) -> HTML:
    """Show a text with a depth below each token: from there on, the argmax no longer changes.

    Args:
        tokens: Texts of the tokens.
        depths: For each token the number of layers, 1 … `layers`.
        layers: Number of layers of the model.

    Raises:
        ValueError: There are not as many depths as tokens.
    """
    if len(tokens) != len(depths):
        raise ValueError(
            f"depths has {len(depths)} numbers: must be one for each of {len(tokens)} tokens"
        )
    alt = f"A text of {len(tokens)} tokens, with a depth of 1 to {layers} below each."
    return _marked_text(tokens, [depth / layers for depth in depths], depths, alt)


def acceptance_text(tokens: Sequence[str], rates: Sequence[float]) -> HTML:
    """Show a text with the probability below each token, in percent, that a draft is accepted.

    Args:
        tokens: Texts of the tokens.
        rates: Acceptance probability at each token, 0 … 1.

    Raises:
        ValueError: There are not as many rates as tokens.
    """
    if len(tokens) != len(rates):
        raise ValueError(
            f"rates has {len(rates)} numbers: must be one for each of {len(tokens)} tokens"
        )
    alt = (
        f"A text of {len(tokens)} tokens with the acceptance rate below each, from"
        f" {min(rates):.0%} to {max(rates):.0%}, {sum(rates) / len(rates):.0%} on average."
    )
    labels = [round(100 * rate) for rate in rates]
    return _marked_text(tokens, [1 - rate for rate in rates], labels, alt)


def _marked_text(
    tokens: Sequence[str], shares: Sequence[float], labels: Sequence[int], alt: str
) -> HTML:
    """Show tokens with a label and a line below each, from green (share 0) to red (share 1)."""
    spans = []
    for token, share, label in zip(tokens, shares, labels, strict=True):
        red = round(60 * share)
        word = escape(token).replace("\n", "⏎")
        spans.append(
            '<span style="display: inline-flex; flex-direction: column; align-items: center;'
            f" white-space: pre; border-bottom: 4px solid color-mix(in srgb,"
            f" {PALETTE['rejected']} {red}%, {PALETTE['accepted']} {60 - red}%); "
            f'margin: 0 1px 6px 0"><span>{word}</span>'
            f'<small style="font-size: 11px; padding-inline: 2px">{label}</small></span>'
        )
    return HTML(
        '<div style="display: flex; flex-wrap: wrap; line-height: 1.3; font-family:'
        f' ui-monospace, Menlo, Consolas, monospace" role="img" aria-label="{alt}">'
        f"{''.join(spans)}</div>"
    )
