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
    """Return a table as Markdown."""
    texts = [[HYPHEN.sub("−", str(cell)) for cell in row] for row in rows]
    for row in texts:
        if len(row) != len(heads):
            raise ValueError(f"rows holds {row}: must have {len(heads)} cells, has {len(row)}")
    lines = [list(heads), ["---"] * len(heads), *texts]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = f"*{caption}*\n\n{body}" if caption else body
    return Markdown(f"<details><summary>{fold}</summary>\n\n{text}\n\n</details>" if fold else text)


def exit_depth_text(
    tokens: Sequence[str], depths: Sequence[int], layers: int, title: str = ""
) -> HTML:
    """Show a text with a bar below each token: the layers after which its argmax is settled."""
    if len(tokens) != len(depths):
        raise ValueError(
            f"depths has {len(depths)} numbers: must be one for each of {len(tokens)} tokens"
        )
    alt = f"A text of {len(tokens)} tokens, with a depth of 1 to {layers} below each."
    key = f"Bar and number: layers after which the token is settled. A full bar is all {layers}."
    shares = [depth / layers for depth in depths]
    return _text_with_bars(tokens, shares, depths, alt, key, PALETTE["target"], title)


def acceptance_text(tokens: Sequence[str], rates: Sequence[float]) -> HTML:
    """Show a text with a bar below each token: the probability that a draft is accepted there."""
    if len(tokens) != len(rates):
        raise ValueError(
            f"rates has {len(rates)} numbers: must be one for each of {len(tokens)} tokens"
        )
    alt = (
        f"A text of {len(tokens)} tokens with the acceptance rate below each, from"
        f" {min(rates):.0%} to {max(rates):.0%}, {sum(rates) / len(rates):.0%} on average."
    )
    labels = [round(100 * rate) for rate in rates]
    key = "Bar and number: probability in percent that a draft is accepted at this token."
    return _text_with_bars(tokens, rates, labels, alt, key, PALETTE["accepted"])


def _text_with_bars(
    tokens: Sequence[str],
    shares: Sequence[float],
    labels: Sequence[int],
    alt: str,
    key: str,
    color: str,
    title: str = "",
) -> HTML:
    """Show tokens with a bar and a label below each, a title above and the bars' meaning below."""
    spans = []
    for token, share, label in zip(tokens, shares, labels, strict=True):
        word = escape(token).replace("\n", "⏎")
        spans.append(
            '<span style="display: inline-flex; flex-direction: column; align-items: center;'
            f' white-space: pre; margin: 0 1px 8px 0"><span>{word}</span>'
            '<span style="display: flex; align-items: flex-end; width: 100%; min-width: 16px;'
            ' height: 26px; background: color-mix(in srgb, currentColor 12%, transparent)">'
            f'<span style="width: 100%; height: {share:.0%}; background: {color}"></span></span>'
            f'<small style="font-size: 11px; padding-inline: 2px">{label}</small></span>'
        )
    heading = f"<p><strong>{escape(title)}</strong></p>" if title else ""
    return HTML(
        f'{heading}<div style="display: flex; flex-wrap: wrap; line-height: 1.3; font-family:'
        f' ui-monospace, Menlo, Consolas, monospace" role="img" aria-label="{alt}">'
        f"{''.join(spans)}</div><p><small>{escape(key)}</small></p>"
    )
