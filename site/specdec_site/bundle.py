"""Join the book's style sheets into one file, and its scripts into another.

The theme and its extensions load a dozen of each on every page. The bundles leave out files that a
page does not use and rules that match nothing in the book. Files for the search stay on its page, an
interactive's module stays beside the interactive, and the font is preloaded. Runs on finished pages
and may run twice, because the bundles name their parts in their first line.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import tinycss2
from bs4 import BeautifulSoup, Tag

SHEET, SCRIPT = "book.css", "book.js"
# files of the theme's extensions → selector of the elements that they act on
ONLY_FOR = {
    "sphinx-design": "[class^=sd-], [class*=' sd-']",
    "design-tabs": ".sd-tab-set",
    "togglebutton": ".toggle, .admonition.dropdown",
}
SEARCH = ("searchtools.js", "language_data.js", "searchindex.js")
INLINE = ("documentation_options.js", "interactives.js")  # small, and needed while a page loads
IMPORT = re.compile(r"""@import\s+(?:url\()?["']?([^"')]+)["']?\)?\s*;""")
ADDRESS = re.compile(r"""url\((["']?)(?!data:|#|https?:|/)([^"')]+)\1\)""")
SOURCE_MAP = re.compile(r"(//|/\*)# sourceMappingURL=\S+( \*/)?\s*$", re.M)
WORD = re.compile(r"[\w-]+")
FONT = "vendor/font/latin.woff2"  # the font of `page.css`, preloaded before the sheet is parsed
ICON_FONT = "fontawesome/webfonts"  # 150 kB; `icons` draws the icons instead
OWN = ("page.css", "interactives/")  # never filtered: our scripts compose their class names
PARTS = re.compile(r"/\* Made of: (.*) \*/")


def static_name(part: Tag) -> str | None:
    """Return the path below _static of a link's or script's file, without its query."""
    address = (part.get("href") or part.get("src") or "").partition("?")[0]
    return address.partition("_static/")[2] or (address.rpartition("/")[2] or None)


def style_sheet(static: Path, name: str) -> str:
    """Return a style sheet with its imports inserted and its addresses relative to `static`."""
    folder = Path(name).parent
    text = (static / name).read_text("utf-8")
    text = ADDRESS.sub(lambda url: f"url({url[1]}{_relative(folder, url[2])}{url[1]})", text)
    return IMPORT.sub(lambda url: style_sheet(static, _relative(folder, url[1])), text)


def _relative(folder: Path, address: str) -> str:
    """Return an address in a file of `folder`, relative to the folder above."""
    if address.startswith(("http", "/")) or folder == Path("."):
        return address
    parts: list[str] = []
    for part in (folder / address).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def used_rules(rules: Iterable, words: set[str]) -> str:
    """Return the rules of a style sheet that can match, without the icons' font."""
    text = ""
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [part for part in _selectors(rule.prelude) if _names(part) <= words]
            if selectors:
                heads = ",".join(tinycss2.serialize(part).strip() for part in selectors)
                text += f"{heads}{{{tinycss2.serialize(rule.content).strip()}}}\n"
        elif rule.type == "at-rule" and rule.at_keyword in ("media", "supports") and rule.content:
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if body := used_rules(inner, words):
                text += f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{body}}}\n"
        elif not (rule.type == "at-rule" and ICON_FONT in rule.serialize()):
            text += rule.serialize()
    return text


def _selectors(prelude: list) -> list[list]:
    """Return the selectors of a rule, which commas separate."""
    parts: list[list] = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _names(selector: list) -> set[str]:
    """Return the classes and ids that a selector requires, without those in brackets."""
    classes = (
        word for dot, word in zip(selector, selector[1:]) if dot == "." and word.type == "ident"
    )
    return {word.value for word in classes} | {
        word.value for word in selector if word.type == "hash"
    }


def write_bundle(static: Path, target: str, names: list[str], soups: list[BeautifulSoup]) -> str:
    """Write a bundle and return its address relative to `static`, with a hash of its content.

    The parts of an earlier build's bundle remain in it. Rules of the theme's style sheets that the
    pages and scripts cannot use are left out.
    """
    path = static / target
    earlier = PARTS.match(path.read_text("utf-8")) if path.exists() else None
    names = list(dict.fromkeys([*(earlier[1].split() if earlier else ()), *names]))
    if target == SCRIPT:
        texts = [(static / name).read_text("utf-8") for name in names]
        text = SOURCE_MAP.sub("", "\n;".join(texts))
    else:
        words = set(WORD.findall((static / SCRIPT).read_text("utf-8")))
        words = words.union(*(WORD.findall(str(soup)) for soup in soups))
        sheets = [(name, style_sheet(static, name)) for name in names]
        text = "\n".join(
            sheet
            if name.startswith(OWN)
            else used_rules(tinycss2.parse_stylesheet(sheet, True, True), words)
            for name, sheet in sheets
        )
    path.write_text(f"/* Made of: {' '.join(names)} */\n{text}", "utf-8")
    return f"{target}?v={hashlib.sha1(path.read_bytes()).hexdigest()[:8]}"


def bundle_files(soups: list[BeautifulSoup], static: Path) -> None:
    """Write the two bundles, and let the pages load them instead of their parts."""
    sheets: dict[str, None] = {}
    scripts: dict[str, None] = {}
    for soup in soups:
        for part in soup.select('link[rel="preload"], script[src], link[rel="stylesheet"]'):
            name = static_name(part)
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
    script = write_bundle(static, SCRIPT, [name for name in scripts if name != SCRIPT], soups)
    sheet = write_bundle(static, SHEET, [name for name in sheets if name != SHEET], soups)
    for soup in soups:
        root = soup.html["data-content_root"]
        soup.head.find("script", attrs={"data-cfasync": True}).insert_after(
            soup.new_tag(
                "link",
                attrs={"rel": "preload", "as": "font", "type": "font/woff2", "crossorigin": ""},
                href=f"{root}_static/{FONT}",
            ),
            soup.new_tag("link", rel="stylesheet", href=f"{root}_static/{sheet}"),
            soup.new_tag("script", defer="", src=f"{root}_static/{script}"),
        )
    for file in static.rglob("*.map"):
        file.unlink()
