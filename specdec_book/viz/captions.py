"""How numbers are written in tables and under figures, and the ⓘ of a caption."""

import re
from html import escape

PERCENT = re.compile(r"(?<=\d)%")
SIGNED_ZERO = re.compile(r"(?<![\w.])[+−-](?=0\s?%)")
LABEL = "Where these numbers come from"


def spaced_percent(text: str) -> str:
    """Return a text with a no-break space before each % and no sign before 0 %."""
    return SIGNED_ZERO.sub("", PERCENT.sub("\u00a0%", text))


def source_note(text: str) -> str:
    """Return an ⓘ that opens `text`, with commands between backticks as code.

    It is a <details>, so it needs neither CSS nor JavaScript.
    """
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(text.split())))
    return (
        f'<details class="sdl-source"><summary aria-label="{LABEL}" title="{LABEL}"><sup>ⓘ</sup>'
        f"</summary><span>{words}</span></details>"
    )
