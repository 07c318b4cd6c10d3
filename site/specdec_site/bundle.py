"""One style sheet and one script for the whole book, in place of the dozen of each that the theme
and its extensions ask for on every page.

An interactive's module stays where it is drawn. What a page does not use leaves it; what only the search needs stays on its page. Runs on finished
pages and may run twice: the bundles name their parts in their first line.
"""

import hashlib
import re
from pathlib import Path

from bs4 import BeautifulSoup, Tag

SHEET, SCRIPT = "book.css", "book.js"
# files of the theme's extensions, and the elements without which they do nothing
ONLY_FOR = {
    "sphinx-design": "[class^=sd-], [class*=' sd-']",
    "design-tabs": ".sd-tab-set",
    "togglebutton": ".toggle, .admonition.dropdown",
}
SEARCH = ("searchtools.js", "language_data.js", "searchindex.js")
INLINE = ("documentation_options.js", "interactives.js")  # small, and needed while a page is read
IMPORT = re.compile(r"""@import\s+(?:url\()?["']?([^"')]+)["']?\)?\s*;""")
ADDRESS = re.compile(r"""url\((["']?)(?!data:|#|https?:|/)([^"')]+)\1\)""")
SOURCE_MAP = re.compile(r"(//|/\*)# sourceMappingURL=\S+( \*/)?\s*$", re.M)
PARTS = re.compile(r"/\* Made of: (.*) \*/")


def local(part: Tag) -> str | None:
    """The file in _static that a link or a script leads to, without what stands behind its name."""
    address = (part.get("href") or part.get("src") or "").partition("?")[0]
    return address.partition("_static/")[2] or (address.rpartition("/")[2] or None)


def style(static: Path, name: str) -> str:
    """A style sheet with what it imports, its addresses seen from `static`."""
    folder = Path(name).parent
    text = (static / name).read_text("utf-8")
    text = ADDRESS.sub(lambda found: f"url({found[1]}{_from(folder, found[2])}{found[1]})", text)
    return IMPORT.sub(lambda found: style(static, _from(folder, found[1])), text)


def _from(folder: Path, address: str) -> str:
    """An address in a file of `folder`, as seen from the folder above."""
    if address.startswith(("http", "/")) or folder == Path("."):
        return address
    parts: list[str] = []
    for part in (folder / address).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def joined(static: Path, target: str, names: list[str]) -> str:
    """Write `target` from its parts, those that an earlier build put into it too; its address."""
    made = static / target
    earlier = PARTS.match(made.read_text("utf-8")) if made.exists() else None
    names = list(dict.fromkeys([*(earlier[1].split() if earlier else ()), *names]))
    read = style if target == SHEET else lambda static, name: (static / name).read_text("utf-8")
    texts = [SOURCE_MAP.sub("", read(static, name)) for name in names]
    text = "\n;".join(texts) if target == SCRIPT else "\n".join(texts)
    made.write_text(f"/* Made of: {' '.join(names)} */\n{text}", "utf-8")
    return f"{target}?v={hashlib.sha1(made.read_bytes()).hexdigest()[:8]}"


def gather(soups: list[BeautifulSoup], static: Path) -> None:
    """Put the two bundles, made in `static`, in the place of what the pages ask for."""
    sheets: dict[str, None] = {}
    scripts: dict[str, None] = {}
    for soup in soups:
        for part in soup.select('link[rel="preload"], script[src], link[rel="stylesheet"]'):
            name = local(part)
            users = next((ONLY_FOR[key] for key in ONLY_FOR if name.startswith(key)), None)
            if users and soup.select_one(users):
                continue
            if users or "preload" in part.get("rel", ()):
                part.decompose()
            elif name in INLINE:
                part.attrs.clear()
                part.string = (static / name).read_text("utf-8")
            elif name.startswith("interactives/") and part.name == "script":
                continue
            elif name in SEARCH:
                if soup.select_one("#search-results"):
                    part["defer"] = ""
                    part.extract()
                    soup.head.append(part)
                else:
                    part.decompose()
            else:
                (scripts if part.name == "script" else sheets)[name] = None
                part.decompose()
    made = joined(static, SHEET, [name for name in sheets if name != SHEET])
    run = joined(static, SCRIPT, [name for name in scripts if name != SCRIPT])
    for soup in soups:
        root = soup.html["data-content_root"]
        soup.head.find("script", attrs={"data-cfasync": True}).insert_after(
            soup.new_tag("link", rel="stylesheet", href=f"{root}_static/{made}"),
            soup.new_tag("script", defer="", src=f"{root}_static/{run}"),
        )
    for file in static.rglob("*.map"):
        file.unlink()
