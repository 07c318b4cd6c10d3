"""The bibliography's labels: authors and year, as the chapters cite papers."""

from collections import Counter
from collections.abc import Iterator

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as Plain
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx

NAME = "specdec"


def label(entry: Entry) -> str:
    """Return authors and year of an entry, such as "Leviathan et al., 2023"."""
    names = [
        " ".join(str(name) for name in person.rich_prelast_names + person.rich_last_names)
        for person in entry.persons["author"]
    ]
    authors = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
    return f"{authors}, {entry.fields['year']}"


class AuthorYear(BaseLabelStyle):
    """Labels of authors and year; equal labels get a letter after the year."""

    def format_labels(self, sorted_entries: list[Entry]) -> Iterator[str]:
        """Yield the label of each entry, in the order of the entries."""
        labels = [label(entry) for entry in sorted_entries]
        totals, counts = Counter(labels), Counter()
        for text in labels:
            counts[text] += 1
            yield text + ("abcdefgh"[counts[text] - 1] if totals[text] > 1 else "")


class Style(Plain):
    """pybtex's plain style, with labels of authors and year."""

    default_label_style = AuthorYear
    default_sorting_style = "author_year_title"


def register(app: Sphinx) -> None:
    """Make this style the default of the bibliography."""
    register_plugin("pybtex.style.formatting", NAME, Style)
    app.connect(
        "config-inited",
        lambda app, config: setattr(config, "bibtex_default_style", NAME),
        priority=100,
    )
