"""Tables of results in Markdown, and texts with a number below each token."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.metadata import metadata
from urllib.parse import urljoin

from IPython.display import HTML, Markdown

from specdec_book.viz.captions import source_note, spaced_percent
from specdec_book.viz.sketch import style
from specdec_book.viz.theme import PALETTE

HYPHEN = re.compile(r"((?<![\w.])|(?<=\de))-(?=\d)")  # before a negative number
PIECES = re.compile(r"\\.|(`+)(?!`).*?(?<!`)\1(?!`)|`+|[^\\`]+", re.DOTALL)
"""Escaped characters, code (between equal runs of backticks), backticks without an end, and words."""
TAG = re.compile(r"<(?=[a-zA-Z/!?])(?!br>)")
RELATIVE = re.compile(r"(?<=\]\()(?!\w+:|#)[^)]+")


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence],
    caption: str = "",
    fold: str = "",
    source: str = "",
) -> Markdown:
    """Return a table as Markdown.

    Args:
        heads: One heading per column.
        rows: One sequence of cells per row. A cell is Markdown; HTML only if it is an `HTML`.
        caption: The finding, above the table.
        fold: Heading under which the table is folded.
        source: Where the numbers come from: a text that the caption's ⓘ opens.

    Raises:
        ValueError: If a row has more or fewer cells than there are heads.
    """
    texts = [[cell_text(cell) for cell in row] for row in rows]
    for row in texts:
        if len(row) != len(heads):
            raise ValueError(f"rows holds {row}: must have {len(heads)} cells, has {len(row)}")
    lines = [[cell_text(head) for head in heads], ["---"] * len(heads), *texts]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    title = f"*{spaced_words(without_tags(caption))}*" if caption else ""
    if source:
        title = f'<div class="sdl-caption">\n\n{title}\n\n{source_note(source)}\n\n</div>'
    text = f"{title}\n\n{body}" if title else body
    if not fold:
        return Markdown(text)
    return Markdown(f"<details><summary>{without_tags(fold)}</summary>\n\n{text}\n\n</details>")


def cell_text(cell: object) -> str:
    """Return a cell as Markdown that can neither start HTML nor end the cell."""
    if isinstance(cell, HTML):
        return str(cell.data)
    text = spaced_words(without_tags(HYPHEN.sub("−", str(cell))))
    if "google.colab" in sys.modules:  # an output has another host there than its notebook
        text = RELATIVE.sub(lambda link: in_colab(link[0]), text)
    return re.sub(r"(?<!\\)\|", r"\|", text).replace("\n", "<br>")


def in_colab(path: str) -> str:
    """Return the address of a file, given relative to the notebooks, for a reader in Colab."""
    is_chapter = path.partition("#")[0].endswith(".ipynb")
    source = dict(url.split(", ") for url in metadata("specdec-lite").get_all("Project-URL", []))
    folder = f"{source['Source']}/blob/main/notebooks/"
    if is_chapter:
        folder = folder.replace("https://github.com", "https://colab.research.google.com/github")
    return urljoin(folder, path)


def without_tags(text: str) -> str:
    """Return Markdown in which no < starts HTML; code and line breaks stay as they are."""
    return outside_code(lambda words: TAG.sub("&lt;", words), text)


def spaced_words(text: str) -> str:
    """Return Markdown with a space before each % outside code."""
    return outside_code(spaced_percent, text)


def outside_code(change: Callable[[str], str], text: str) -> str:
    """Return Markdown whose words are changed; code and escaped characters stay as they are."""
    return PIECES.sub(lambda part: part[0] if part[0][0] in "\\`" else change(part[0]), text)


def exit_depth_text(
    tokens: Sequence[str], depths: Sequence[int], layers: int, title: str = ""
) -> HTML:
    """Show a text with a bar below each token: the layers after which its argmax is settled."""
    alt = f"A text of {len(tokens)} tokens, with a depth of 1 to {layers} below each."
    key = f"Bar and number: layers after which the token is settled. A full bar is all {layers}."
    shares = [depth / layers for depth in depths]
    return _text_with_bars(tokens, shares, depths, alt, key, PALETTE["target"], title)


def acceptance_text(tokens: Sequence[str], rates: Sequence[float]) -> HTML:
    """Show a text with a bar below each token: the probability that a draft is accepted there."""
    alt = (
        f"A text of {len(tokens)} tokens with the acceptance rate below each, from"
        f" {min(rates):.0%} to {max(rates):.0%}, {sum(rates) / len(rates):.0%} on average."
    )
    labels = [round(100 * rate) for rate in rates]
    key = "Bar and number: probability in percent that a draft is accepted at this token."
    return _text_with_bars(tokens, rates, labels, alt, key, PALETTE["accepted"])


def authors_text(pieces: Iterable[tuple[str, str]], kinds: dict[str, str], title: str) -> HTML:
    """Show a text whose pieces have the color and the line of their authors.

    Args:
        pieces: For each round its text and its author.
        kinds: Author → name of a color of the interactives.
        title: The finding.
    """
    dashes = dict(zip(kinds, ("solid", "double", "dotted")))
    look = lambda author: (
        f"border-bottom: 3px {dashes[author]} var(--sdl-{kinds[author]}); margin-right: 3px;"
        f" background: color-mix(in srgb, var(--sdl-{kinds[author]}) 18%, transparent)"
    )
    mark = lambda words, author: f'<span style="{look(author)}">{escape(words)}</span>'
    words = "".join(mark(words, author) for words, author in pieces)
    key = " · ".join(mark(f"drafted by {author}", author) for author in kinds)
    return HTML(
        f'{style()}<figure class="sdl sdl-sketch" style="max-width: none">'
        f"<p><strong>{escape(title)}</strong></p>"
        '<div style="white-space: pre-wrap; line-height: 1.7; font: 0.85rem/1.7 ui-monospace,'
        f' Menlo, Consolas, monospace">{words}</div><figcaption>{key} · one piece per round'
        "</figcaption></figure>"
    )


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
