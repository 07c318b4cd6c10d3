"""The ⓘ of a caption: it opens the text that says where the numbers come from."""

import re
from html import escape

LABEL = "Where these numbers come from"


def source_note(text: str) -> str:
    """Return an ⓘ that opens `text`, with commands between backticks as code.

    It is a <details>, so it needs neither CSS nor JavaScript.
    """
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(text.split())))
    return (
        f'<details class="sdl-source"><summary aria-label="{LABEL}" title="{LABEL}"><sup>ⓘ</sup>'
        f"</summary><span>{words}</span></details>"
    )
