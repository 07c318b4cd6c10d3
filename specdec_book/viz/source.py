"""The ⓘ of a caption: it opens the text that says where the numbers come from."""

from html import escape

LABEL = "Where these numbers come from"


def source_note(text: str) -> str:
    """Return an ⓘ that opens `text`. It is a <details>, so it needs neither CSS nor JavaScript."""
    return (
        f'<details class="sdl-source"><summary aria-label="{LABEL}" title="{LABEL}"><sup>ⓘ</sup>'
        f"</summary><span>{escape(' '.join(text.split()))}</span></details>"
    )
