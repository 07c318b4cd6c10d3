"""The theme's icons as drawings in the page.

The theme draws its fifteen icons with a script that holds two thousand, and fetches two fonts until
that has run: more than half of what a page would weigh. Here each icon becomes the same inline SVG
at build, and the script leaves the book.
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
    """The part of the theme's script that holds each set of icons; a set's name follows its icons."""
    parts = SET_ENDS.split(SOURCE.read_text("utf-8"))
    found: dict[str, str] = {}
    for text, name in zip(parts[::2], parts[1::2]):
        found.setdefault(name, text)
    return found


@functools.cache
def drawing(kind: str, name: str) -> tuple[str, str, str]:
    """Width, height and outline of one icon."""
    found = re.search(ICON.format(name=re.escape(name)), sets()[kind])
    if found is None:
        raise ExtensionError(f"the theme has no icon {name!r} in its set {kind!r}")
    return found.groups()


def draw(soup: BeautifulSoup) -> None:
    """Puts a drawing in the place of every icon of the page, and takes the script that would do so
    in the browser out of it.
    """
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


def drop_script(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for name in (SCRIPT, f"{SCRIPT}.map"):
            (Path(app.outdir) / "_static" / name).unlink(missing_ok=True)


def register(app: Sphinx) -> None:
    app.connect("build-finished", drop_script)
