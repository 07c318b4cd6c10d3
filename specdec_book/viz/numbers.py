"""How numbers are written in tables and under figures."""

import re

PERCENT = re.compile(r"(?<=\d)%")
SIGNED_ZERO = re.compile(r"(?<![\w.])[+−-](?=0\s?%)")


def spaced_percent(text: str) -> str:
    """Return a text with a no-break space before each % and no sign before 0 %."""
    return SIGNED_ZERO.sub("", PERCENT.sub("\u00a0%", text))
