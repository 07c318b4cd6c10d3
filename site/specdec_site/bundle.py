"""One style sheet and one script for the whole book, in place of the dozen of each that the theme
and its extensions ask for on every page.

The font is asked for at once. An interactive's module stays where it is drawn. What a page does not
use leaves it, rules that match nothing in the book leave the sheet, and what only the search needs
stays on its page. Runs on finished pages and may run twice: the bundles name their parts in their
first line.
"""

import hashlib
import re
from pathlib import Path

import tinycss2
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
WORD = re.compile(r"[\w-]+")
FONT = (
    "vendor/font/latin.woff2"  # `page.css` sets the text in it; asked for before the sheet is read
)
ICON_FONT = "fontawesome/webfonts"  # `icons` draws them: 150 kB that a link's mark would fetch
OWN = ("page.css", "interactives/")  # their classes are made up of parts by our own scripts
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


def wanted(rules, words: set[str]) -> str:
    """The rules of a style sheet that can apply where classes and ids are among `words`; the font
    of the icons goes.
    """
    kept = ""
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [part for part in _parts(rule.prelude) if _names(part) <= words]
            if selectors:
                heads = ",".join(tinycss2.serialize(part).strip() for part in selectors)
                kept += f"{heads}{{{tinycss2.serialize(rule.content).strip()}}}\n"
        elif rule.type == "at-rule" and rule.at_keyword in ("media", "supports") and rule.content:
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if body := wanted(inner, words):
                kept += f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{body}}}\n"
        elif not (rule.type == "at-rule" and ICON_FONT in rule.serialize()):
            kept += rule.serialize()
    return kept


def _parts(prelude: list) -> list[list]:
    """The selectors of a rule, between its commas."""
    parts: list[list] = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _names(selector: list) -> set[str]:
    """The classes and ids without which a selector matches nothing; those in brackets are left out."""
    classes = (
        word for dot, word in zip(selector, selector[1:]) if dot == "." and word.type == "ident"
    )
    return {word.value for word in classes} | {
        word.value for word in selector if word.type == "hash"
    }


def joined(static: Path, target: str, names: list[str], soups: list[BeautifulSoup]) -> str:
    """Write `target` from its parts, those that an earlier build put into it too; its address. Of
    the theme's style sheets only what the pages and the scripts can use is kept.
    """
    made = static / target
    earlier = PARTS.match(made.read_text("utf-8")) if made.exists() else None
    names = list(dict.fromkeys([*(earlier[1].split() if earlier else ()), *names]))
    if target == SCRIPT:
        texts = [(static / name).read_text("utf-8") for name in names]
        text = SOURCE_MAP.sub("", "\n;".join(texts))
    else:
        words = set(WORD.findall((static / SCRIPT).read_text("utf-8")))
        words = words.union(*(WORD.findall(str(soup)) for soup in soups))
        sheets = [(name, style(static, name)) for name in names]
        text = "\n".join(
            sheet
            if name.startswith(OWN)
            else wanted(tinycss2.parse_stylesheet(sheet, True, True), words)
            for name, sheet in sheets
        )
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
    run = joined(static, SCRIPT, [name for name in scripts if name != SCRIPT], soups)
    made = joined(static, SHEET, [name for name in sheets if name != SHEET], soups)
    for soup in soups:
        root = soup.html["data-content_root"]
        soup.head.find("script", attrs={"data-cfasync": True}).insert_after(
            soup.new_tag(
                "link",
                attrs={"rel": "preload", "as": "font", "type": "font/woff2", "crossorigin": ""},
                href=f"{root}_static/{FONT}",
            ),
            soup.new_tag("link", rel="stylesheet", href=f"{root}_static/{made}"),
            soup.new_tag("script", defer="", src=f"{root}_static/{run}"),
        )
    for file in static.rglob("*.map"):
        file.unlink()
