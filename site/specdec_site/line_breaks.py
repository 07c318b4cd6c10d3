"""Line breaks on finished pages: where names and formulas may break, and where they may not."""

import re
from collections.abc import Iterator

from bs4 import BeautifulSoup, NavigableString, PageElement

from . import terms

LONG_NAME = re.compile(r"\w{3,}[_./(\[]\w{3,}")
AFTER_MARK = re.compile(r"(?<=[_/(\[])|(?<=\.)(?=[a-z])")
OWN_TABLES = re.compile(r"^sdl-(?!stack)")  # in figures and interactives
INTERVAL = r"(?<=\d), (?=[+−-]?[\d.]+\])"
UNIT = r"(?<=\d) (?=(?:%|(?:GB|MB|kB|ms|µs|s)(?![\w-])))"
VALUE = re.compile(
    rf"(?<=\w) = (?=[\d.])|(?<=\)) / (?=\w+\()|{UNIT}"
    rf"|{INTERVAL}|(?<=\d) to (?=[\d.]+×?$)"
)
"""The spaces in T = 0, T(4) / T(1), 16 GB, an interval [1.3, 1.5] and a range 1.3 to 1.5."""
QUANTITY = re.compile(rf"{UNIT}|{INTERVAL}|(?<=\d) (?=tokens/s\b)|(?<=\bsection) (?=\d)")
"""The spaces that stay on one line in the text; a table has less room."""
DOT = re.compile(r" (?=· )")
OPTION = re.compile(r"(?<![\w-])(--?\w+)(?=-)")
COLUMNS = re.compile(r"\S {2,}\S|[│├└█]")  # in printed output
SHORT_END = re.compile(
    r"(\b\w+-\w\b(?!-)|\b[γk] [+−] 1\b|\b\w = \.?\d[\d.]*\b)"
)  # top-k, γ + 1, α = 0.8
LONG_FORMULA = 40  # characters of TeX: it may need more than one line
TEX = re.compile(r"\\[a-zA-Z]+|\\.|.", re.S)
RELATIONS = frozenset(
    "= < > \\le \\ge \\leq \\geq \\ne \\approx \\to \\Rightarrow \\propto".split()
)
DEPTH = dict.fromkeys(("(", "[", "{", "\\{"), 1) | dict.fromkeys((")", "]", "}", "\\}"), -1)
PUNCTUATION = re.compile(r"[.,;:!?)\]”’]+")


def break_names(soup: BeautifulSoup) -> None:
    """Let long names in tables break after their punctuation, so that the last column fits."""
    names = [
        text for code in soup.select("article td code") for text in terms.words(code, LONG_NAME)
    ]
    for name in names:
        first, *rest = (part for part in AFTER_MARK.split(str(name)) if part)
        name.replace_with(
            NavigableString(first),
            *(node for part in rest for node in (soup.new_tag("wbr"), NavigableString(part))),
        )


DRAWN = ["code", "pre", "script", "style", "svg"]
TOGETHER = (
    (VALUE, "table", ["code", "pre", "script"], OWN_TABLES),
    (
        QUANTITY,
        "article",
        ["td", "th", "mjx-container", *DRAWN],
        ["sdl", "math", "sdl-interactive"],
    ),
    (SHORT_END, "article", ["dt", "mjx-container", *DRAWN], ["sdl", "sdl-nobreak", "math"]),
    (DOT, "article", DRAWN, []),
    (OPTION, "code", ["pre"], []),
)
"""(what stays on one line, the element around it, elements and classes that are not around it)."""


def keep_together(soup: BeautifulSoup) -> None:
    """Break no line within a value, a quantity, a short name or an option.

    A value in a table stays with its name or unit (T = 0, 16 GB), a number in the text with its unit
    or interval, a name that ends in one letter or digit is whole (top-k, γ + 1), a dot stays with the
    part before it, and an option keeps its hyphens.
    """
    for pattern, around, tags, classes in TOGETHER:
        for text in terms.words(soup.article, pattern) if soup.article else ():
            outside = text.find_parent(tags) or (classes and text.find_parent(class_=classes))
            if text.find_parent(around) and not outside:
                text.replace_with(*unbroken(soup, text, pattern))


def unbroken(soup: BeautifulSoup, text: str, pattern: re.Pattern) -> Iterator[PageElement]:
    """Yield a text in which no line breaks at the spaces of a pattern, or in the names of its group."""
    if not pattern.groups:
        yield NavigableString(pattern.sub(lambda spaces: spaces[0].replace(" ", "\u00a0"), text))
        return
    for i, part in enumerate(pattern.split(text)):
        attributes = {"class": "sdl-nobreak"}
        yield (
            soup.new_tag("span", attrs=attributes, string=part) if i % 2 else NavigableString(part)
        )


def split_at_relations(tex: str) -> list[str]:
    """Return a formula in parts that end before a relation outside brackets.

    These are the places at which TeX itself would break the line.
    """
    parts, depth = [""], 0
    for symbol in TEX.findall(tex):
        depth += DEPTH.get(symbol, 0)
        if depth == 0 and symbol in RELATIONS and parts[-1].strip():
            parts.append("")
        parts[-1] += symbol
    return parts


def break_formulas(soup: BeautifulSoup) -> None:
    """Split long formulas in the text, and keep punctuation on the line of its formula.

    MathJax breaks no line, so a long formula becomes several shorter ones.
    """
    for formula in soup.select("span.math:not(.sdl-formula *, [data-plain])"):
        whole = soup.new_tag("span", attrs={"class": "sdl-formula"})
        end = PUNCTUATION.match(str(formula.next_sibling or ""))
        tex = formula.get_text().removeprefix(r"\(").removesuffix(r"\)")
        parts = split_at_relations(tex) if len(tex) > LONG_FORMULA else [tex]
        if len(parts) == 1 and not end:
            continue
        formula.insert_before(whole)
        for part in parts:
            whole.extend(
                [soup.new_tag("span", attrs=dict(formula.attrs), string=rf"\({part}\)"), " "]
            )
        whole.contents[-1].extract()
        formula.extract()
        if end:
            rest, last = whole.next_sibling, whole.contents[-1]
            nobreak = soup.new_tag("span", attrs={"class": "sdl-nobreak"})
            last.insert_before(nobreak)
            nobreak.extend([last.extract(), end.group()])
            rest.replace_with(NavigableString(str(rest)[end.end() :]))


def split_displays(soup: BeautifulSoup) -> None:
    r"""Split a displayed formula at each \qquad, so that the parts can wrap onto several rows."""
    for formula in soup.select("div.math:not([data-plain], :has(.eqno))"):
        tex = formula.get_text().strip().removeprefix(r"\[").removesuffix(r"\]")
        parts = tex.split(r"\qquad")
        if len(parts) == 1 or r"\begin" in tex:
            continue
        formula["data-plain"] = terms.plain(formula.get_text())
        formula["class"] = [*formula["class"], "sdl-rows"]
        formula.clear()
        formula.extend(soup.new_tag("span", string=rf"\[{part.strip()}\]") for part in parts)


def wrap_output(soup: BeautifulSoup) -> None:
    """Let lines of a cell's printed output wrap on a phone, unless they form columns."""
    for output in soup.select(".cell_output pre:not(.sdl-words)"):
        if not COLUMNS.search(output.get_text()):
            output["class"] = [*output.get("class", []), "sdl-words"]
