"""The bibliography's labels: authors and year, as the chapters cite them, in place of letters like
[LKM23].
"""

from collections import Counter

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as Plain
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx

NAME = "specdec"


def label(entry: Entry) -> str:
    """Leviathan et al., 2023."""
    names = [
        " ".join(str(name) for name in person.rich_prelast_names + person.rich_last_names)
        for person in entry.persons["author"]
    ]
    shown = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
    return f"{shown}, {entry.fields['year']}"


class AuthorYear(BaseLabelStyle):
    """Labels that are still one another's twins get a letter behind the year."""

    def format_labels(self, sorted_entries: list[Entry]):
        labels = [label(entry) for entry in sorted_entries]
        twins, seen = Counter(labels), Counter()
        for text in labels:
            seen[text] += 1
            yield text + ("abcdefgh"[seen[text] - 1] if twins[text] > 1 else "")


class Style(Plain):
    default_label_style = AuthorYear
    default_sorting_style = "author_year_title"


def register(app: Sphinx) -> None:
    register_plugin("pybtex.style.formatting", NAME, Style)
    app.connect(
        "config-inited",
        lambda app, config: setattr(config, "bibtex_default_style", NAME),
        priority=100,
    )
