"""What the colors of a figure's traces claim, and whether the figure's words agree."""

import re
from collections.abc import Iterator

from specdec_book.viz.theme import PALETTE

WORDS = {
    "target": r"\btarget|\bp\b|\bverif|\bplain\b",
    "draft": r"\bdraft|\bq\b|\bguess|\bheads?\b",
    "accepted": r"\baccept|α",
    "rejected": r"\breject",
    "recovered": r"\brecovered\b|\bresidual\b|\brejection",
    "bonus": r"\bbonus\b",
    "you": r"\byou",
}
"""Role of a token → the words of which one must be in the name of a trace in the role's color."""
ROLE = {PALETTE[role].lower(): role for role in WORDS}


def colors(part) -> Iterator[str]:
    """Yield every color in a trace or shape of a figure, in lower case."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key.endswith("color") and isinstance(value, str):
                yield value.lower()
            elif key.endswith("color") and isinstance(value, (list, tuple)):
                yield from (color.lower() for color in value if isinstance(color, str))
            else:
                yield from colors(value)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from colors(value)


def title_of(part: dict) -> str:
    """Return the text of the title of a layout or an axis."""
    title = part.get("title") or ""
    return title.get("text") or "" if isinstance(title, dict) else title


def role_faults(fig: dict) -> list[str]:
    """Return the traces and lines whose color means something else than their words."""
    layout = fig["layout"]
    axes = " ".join(title_of(layout[key]) for key in layout if key[1:].startswith("axis"))
    parts = [trace for trace in fig["data"] if trace.get("type") != "heatmap"]
    used = [{ROLE[color] for color in colors(part) if color in ROLE} for part in parts]
    drawn = set().union(*used) if used else set()
    faults = []
    for part, roles in zip(parts, used):
        # a single role may also be named by an axis or the title; two roles need their own names
        name = part.get("name") or ""
        words = name if len(drawn) > 1 and name else f"{name} {axes} {title_of(layout)}"
        faults += [
            f"{name or part.get('type')}: is drawn as {role}"
            for role in roles
            if not re.search(WORDS[role], words, flags=re.I)
        ]
        if name in WORDS and drawn and roles != {name}:
            faults.append(f"{name}: is not drawn in its own color")
    for shape in layout.get("shapes") or ():
        faults += [
            f"shape: is drawn as {ROLE[color]}"
            for color in colors(shape)
            if color in ROLE and not re.search(WORDS[ROLE[color]], f"{axes} {title_of(layout)}")
        ]
    return faults
