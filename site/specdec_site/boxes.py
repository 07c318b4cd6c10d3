"""Block quotes that begin with **Pitfall**, **Note**, **Takeaway** or **Limits** become boxes; in
JupyterLab and Colab they stay plain quotes.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

KINDS = ("pitfall", "note", "takeaway", "limits")


def mark(app: Sphinx, doctree: nodes.document) -> None:
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
    app.connect("doctree-read", mark)
