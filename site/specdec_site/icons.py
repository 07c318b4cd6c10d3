"""Replace the theme's icons by inline drawings.

The theme draws its fifteen icons with a script that contains two thousand, and fetches two fonts
until the script has run: more than half of a page's weight. Here each icon becomes the same inline
SVG during the build, and the script is removed from the book.
"""

import functools
import re
from pathlib import Path

import pydata_sphinx_theme
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SCRIPT = "scripts/fontawesome.js"
SOURCE = (
    Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static" / SCRIPT
)
SETS = {
    "fab": "fab",
    "fa-brands": "fab",
    "far": "far",
    "fa-regular": "far",
    "fas": "fas",
    "fa-solid": "fas",
}
SET_ENDS = re.compile(r'\("(fa[brs])",\w+\)')
ICON = r'[{{,]"?{name}"?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]'


@functools.cache
def sets() -> dict[str, str]:
    """Return the part of the theme's script that contains each set of icons, by name of the set."""
    parts = SET_ENDS.split(SOURCE.read_text("utf-8"))
    by_name: dict[str, str] = {}
    for text, name in zip(parts[::2], parts[1::2]):  # a set's name follows its icons
        by_name.setdefault(name, text)
    return by_name


@functools.cache
def drawing(kind: str, name: str) -> tuple[str, str, str]:
    """Return width, height and outline of an icon."""
    match = re.search(ICON.format(name=re.escape(name)), sets()[kind])
    if match is None:
        raise ExtensionError(f"the theme has no icon {name!r} in its set {kind!r}")
    return match.groups()


def draw_icons(soup: BeautifulSoup) -> None:
    """Replace every icon of a page by a drawing, and remove the script that would draw it."""
    for icon in soup.select(", ".join(f".{kind}" for kind in SETS)):
        kind = next(SETS[word] for word in icon["class"] if word in SETS)
        name = next(
            word.removeprefix("fa-")
            for word in icon["class"]
            if word.startswith("fa-") and word not in (*SETS, "fa-lg")
        )
        width, height, outline = drawing(kind, name)
        classes = ["svg-inline--fa", *(word for word in icon["class"] if word not in SETS)]
        svg = soup.new_tag(
            "svg",
            attrs=icon.attrs
            | {
                "class": classes,
                "viewBox": f"0 0 {width} {height}",
                "aria-hidden": "true",
                "focusable": "false",
            },
        )
        svg.append(soup.new_tag("path", attrs={"fill": "currentColor", "d": outline}))
        icon.replace_with(svg)
    for script in soup.select(f'script[src*="{SCRIPT}"]'):
        script.decompose()


def delete_script(app: Sphinx, error: Exception | None) -> None:
    """Delete the theme's script from the finished book."""
    if error is None and app.builder.format == "html":
        for name in (SCRIPT, f"{SCRIPT}.map"):
            (Path(app.outdir) / "_static" / name).unlink(missing_ok=True)


def register(app: Sphinx) -> None:
    """Connect the deletion to a Sphinx application."""
    app.connect("build-finished", delete_script)
