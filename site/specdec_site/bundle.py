"""Join the book's style sheets into one file, and its scripts into another.

The theme and its extensions load a dozen of each on every page. The bundles leave out files that a
page does not use and rules that match nothing in the book. Files for the search stay on its page, an
interactive's module stays beside the interactive, and the font is preloaded. Runs on finished pages
and may run twice, because the bundles name their parts in their first line.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from posixpath import normpath

import tinycss2
from bs4 import BeautifulSoup, Tag

SHEET, SCRIPT = "book.css", "book.js"
# files of the theme's extensions → selector of the elements that they act on
ONLY_FOR = {"sphinx-design": "[class^=sd-], [class*=' sd-']", "design-tabs": ".sd-tab-set"}
SEARCH = ("searchtools.js", "language_data.js", "searchindex.js")
INLINE = ("documentation_options.js", "interactives.js")  # small, and needed while a page loads
IMPORT = re.compile(r"""@import\s+(?:url\()?["']?([^"')]+)["']?\)?\s*;""")
ADDRESS = re.compile(r"""url\((["']?)(?!data:|#|https?:|/)([^"')]+)\1\)""")
SOURCE_MAP = re.compile(r"(//|/\*)# sourceMappingURL=\S+( \*/)?\s*$", re.M)
WORD = re.compile(r"[\w-]+")
FONT = "vendor/font/latin.woff2"  # the font of `page.css`, preloaded before the sheet is parsed
PRELOAD = """if (location.protocol !== "file:") document.head.append(Object.assign(
  document.createElement("link"),
  { rel: "preload", as: "font", type: "font/woff2", crossOrigin: "", href: "%s" },
));"""
"""A page from a folder preloads no font: browsers refuse it, and report an error."""
ICON_FONT = "fontawesome/webfonts"  # 150 kB; `icons` draws the icons instead
OWN = ("page.css", "interactives/")  # never filtered: our scripts compose their class names
LOADED = re.compile(r"(?<=_static/)(book\.(?:css|js))\?v=\w*")
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
    return address if address.startswith(("http", "/")) else normpath((folder / address).as_posix())


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


def all_parts(bundle: Path, names: Iterable[str]) -> list[str]:
    """Return the parts of an earlier build's bundle, which remain in it, and further ones."""
    earlier = PARTS.match(bundle.read_text("utf-8")) if bundle.exists() else None
    return list(dict.fromkeys([*(earlier[1].split() if earlier else ()), *names]))


def write_script(path: Path, names: Iterable[str]) -> None:
    """Write the bundle of scripts."""
    names = all_parts(path, names)
    texts = [(path.parent / name).read_text("utf-8") for name in names]
    text = SOURCE_MAP.sub("", "\n;".join(texts))
    path.write_text(f"/* Made of: {' '.join(names)} */\n{text}", "utf-8")


def write_sheet(path: Path, names: Iterable[str], words: set[str]) -> None:
    """Write the bundle of style sheets.

    Rules of the theme's sheets that pages and scripts cannot use, because these have not all of a
    rule's words, are left out.
    """
    names, sheets = all_parts(path, names), []
    for name in names:
        sheet = style_sheet(path.parent, name)
        rules = tinycss2.parse_stylesheet(sheet, True, True)
        sheets.append(sheet if name.startswith(OWN) else used_rules(rules, words))
    text = "\n".join(sheets)
    path.write_text(f"/* Made of: {' '.join(names)} */\n{text}", "utf-8")


def address(bundle: Path) -> str:
    """Return the name of a bundle with a hash of its content."""
    return f"{bundle.name}?v={hashlib.sha1(bundle.read_bytes()).hexdigest()[:8]}"


def replace_parts(soup: BeautifulSoup, static: Path) -> list[str]:
    """Let a page load the bundles instead of their parts, and return the parts' names."""
    names: dict[str, None] = {}
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
            names[name] = None
            part.decompose()
    root = soup.html["data-content_root"]
    soup.head.find("script", attrs={"data-cfasync": True}).insert_after(
        soup.new_tag("script", string=PRELOAD % f"{root}_static/{FONT}"),
        soup.new_tag("link", rel="stylesheet", href=f"{root}_static/{SHEET}?v="),
        soup.new_tag("script", defer="", src=f"{root}_static/{SCRIPT}?v="),
    )
    return list(names)


def has_bundles(page: str) -> bool:
    """Return whether the HTML of a page loads the bundles, so an earlier build has finished it."""
    return f"_static/{SCRIPT}?v=" in page


def write_bundles(static: Path, parts: Iterable[str], pages: Iterable[str]) -> Callable:
    """Write the two bundles; return a function that gives a page's HTML their new addresses.

    Args:
        static: The book's folder `_static`.
        parts: Names of what new pages load; earlier bundles know the other pages' parts.
        pages: HTML of all pages.
    """
    script, sheet = static / SCRIPT, static / SHEET
    parts = list(dict.fromkeys(parts))
    write_script(script, (name for name in parts if name.endswith(".js")))
    words = set(WORD.findall(script.read_text("utf-8")))
    words = words.union(*(WORD.findall(LOADED.sub("", page)) for page in pages))
    write_sheet(sheet, (name for name in parts if not name.endswith(".js")), words)
    for file in static.rglob("*.map"):
        file.unlink()
    names = {bundle.name: address(bundle) for bundle in (script, sheet)}
    return lambda page: LOADED.sub(lambda found: names[found[1]], page)
