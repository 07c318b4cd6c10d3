"""Tables of results: Markdown, which every place that shows a notebook sets as a table."""

from collections.abc import Iterable, Sequence

from IPython.display import Markdown


def table(heads: Sequence[str], rows: Iterable[Sequence], caption: str = "") -> Markdown:
    """A table as Markdown.

    heads: of the columns. rows: cells are shown by `str`; ValueError where a row has other columns.
    caption: a line above it, such as a recording's source.
    """
    rows = [list(map(str, row)) for row in rows]
    odd = next((row for row in rows if len(row) != len(heads)), None)
    if odd is not None:
        raise ValueError(f"rows: one has {len(odd)} cells, the table {len(heads)} columns: {odd}")
    lines = [list(heads), ["---"] * len(heads), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return Markdown(f"*{caption}*\n\n{body}" if caption else body)
