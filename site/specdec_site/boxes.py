"""Turn block quotes that begin with **Pitfall**, **Note**, **Takeaway** or **Limits** into boxes.

In JupyterLab and Colab they remain plain quotes.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

KINDS = ("pitfall", "note", "takeaway", "limits")


def mark_boxes(app: Sphinx, doctree: nodes.document) -> None:
    """Give each such quote of a page the classes of its box."""
    for quote in doctree.findall(nodes.block_quote):
        lead = quote.next_node(nodes.strong)
        word = (
            re.match(r"\w+", lead.astext())
            if lead and quote.astext().startswith(lead.astext())
            else None
        )
        if word and word[0].lower() in KINDS:
            quote["classes"] += ["sdl-box", f"sdl-{word[0].lower()}"]


def register(app: Sphinx) -> None:
    """Connect the boxes to a Sphinx application."""
    app.connect("doctree-read", mark_boxes)
