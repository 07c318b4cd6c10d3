"""Repairs of the theme's HTML: what would ask another host goes, and so does what breaks an
accessibility rule.

Each repair names the axe-core rule it serves. They run on finished pages and may run twice without
harm.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString
from sphinx.application import Sphinx

from . import bundle, captions, citations, formulas, icons, numbering, terms

LONG_NAME = re.compile(r"\w{3,}[_./(\[]\w{3,}")
AFTER_MARK = re.compile(r"(?<=[_/(\[])|(?<=\.)(?=[a-z])")
OWN_TABLES = re.compile(r"^sdl-(?!stack)")  # in figures and interactives
AS_IT_IS = {"pre", "textarea", "span", "del", "ins"}  # a trace's indentation stands in spans
WORDY = 16  # letters in its longest cell: a column of words
LONG_CODE = 40  # letters: beside another column a phone would break it everywhere
LONG_TABLE = 12  # rows
BRIEF = 11  # letters: a third of a phone's line, in which three such columns stand
FEW = 3  # rows that are read one by one as well as side by side
PHONE = 52  # letters that a phone's line has room for beside a table's edges
LINE = 84  # letters that a table's row has room for beside its cells' edges
EDGES = 3  # of a cell, in letters
LONGEST = 16  # letters of a word that a cell keeps whole
VALUE = re.compile(r"(?<=\w) = (?=[\d.])|(?<=\)) / (?=\w+\()|(?<=\d) (?=(?:%|(?:GB|MB|ms|µs|s)\b))")
IN_COLUMNS = re.compile(r"\S {2,}\S|[│├└█]")  # of what is printed
SHORT_END = re.compile(
    r"\b\w+-\w\b(?!-)|\b[γk] [+−] 1\b|\b\w = \.?\d[\d.]*\b"
)  # top-k, γ + 1, α = .8
LONG_FORMULA = 40  # characters of TeX: too long to be sure of a place in one line
TEX = re.compile(r"\\[a-zA-Z]+|\\.|.", re.S)
RELATIONS = frozenset(
    "= < > \\le \\ge \\leq \\geq \\ne \\approx \\to \\Rightarrow \\propto".split()
)
DEPTH = dict.fromkeys(("(", "[", "{", "\\{"), 1) | dict.fromkeys((")", "]", "}", "\\}"), -1)
THEME = """{
  const page = document.documentElement;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.mode = localStorage.getItem("mode") || "auto";
  page.dataset.theme = page.dataset.mode === "auto" ? (isDark ? "dark" : "light") : page.dataset.mode;
}"""
PUNCTUATION = re.compile(r"[.,;:!?)\]”’]+")


def drop_live_code(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Thebe's files and the saved state of live widgets leave the page, for published pages run
    without a kernel; so does MathJax, which has set the formulas when the book was built.
    """

    def wanted(file) -> bool:
        attributes = getattr(file, "attributes", {})
        text = (
            f"{getattr(file, 'filename', file)} {attributes.get('type', '')}"
            f" {attributes.get('body', '')}"
        )
        return not any(word in text for word in ("thebe", "widget-state", "mathjax", "MathJax"))

    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if wanted(file)]


def drop_live_code_settings(soup: BeautifulSoup) -> None:
    for script in soup.find_all("script"):
        if script.get("type") == "text/x-thebe-config" or script.get_text().startswith(
            "kernelName ="
        ):
            script.decompose()


def name_landmarks(soup: BeautifulSoup) -> None:
    """region: all content stands in a landmark; landmark-unique: each has its own name."""
    for sidebar in soup.select("#pst-primary-sidebar"):
        sidebar["role"], sidebar["aria-label"] = "region", "Book"


def name_buttons(soup: BeautifulSoup) -> None:
    """label-content-name-mismatch: a button's name contains the text it shows; icons with a title
    are decoration.
    """
    for button in soup.select(
        ".search-button-field[aria-label], details.hide > summary[aria-label]"
    ):
        del button["aria-label"]
    for icon in soup.select(".theme-switch-button i"):
        icon.attrs.pop("title", None)
        icon["aria-hidden"] = "true"


def name_sections(soup: BeautifulSoup) -> None:
    """landmark-unique: outputs of one kind on one page are told apart by a number."""
    seen: dict[str, int] = {}
    for section in soup.select("section[aria-label]"):
        label = section["aria-label"]
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            section["aria-label"] = f"{label} {seen[label]}"


def empty_heads(soup: BeautifulSoup) -> None:
    """empty-table-header: the corner of a table without a word in it is a cell, not a heading."""
    for head in soup.find_all("th"):
        if not head.get_text(strip=True) and not head.find("img"):
            head.name = "td"


def break_names(soup: BeautifulSoup) -> None:
    """Long names in tables may break after their own marks, so that the last column stays in sight."""
    for piece in [
        text for code in soup.select("article td code") for text in code.find_all(string=LONG_NAME)
    ]:
        first, *rest = (part for part in AFTER_MARK.split(str(piece)) if part)
        piece.replace_with(
            NavigableString(first),
            *(node for part in rest for node in (soup.new_tag("wbr"), NavigableString(part))),
        )


def join_values(soup: BeautifulSoup) -> None:
    """A value in a table stays with its name or its unit, a ratio on its line: T = 0, 16 GB, T(4) / T(1)."""
    for table in soup.select("article table"):
        for text in [] if table.find_parent(class_=OWN_TABLES) else table.find_all(string=VALUE):
            if not text.find_parent(["code", "pre", "script"]):
                joined = VALUE.sub(lambda found: found.group().replace(" ", "\u00a0"), text)
                text.replace_with(NavigableString(joined))


def join_names(soup: BeautifulSoup) -> None:
    """A name that ends in one letter or digit stays on one line: top-k, EAGLE-3, γ + 1."""
    for text in soup.select_one("article").find_all(string=SHORT_END) if soup.article else ():
        if text.find_parent(["code", "dt", "pre", "script", "style", "svg", "mjx-container"]):
            continue
        if text.find_parent(class_=["sdl", "sdl-nobreak", "math"]):
            continue
        names, rest = SHORT_END.findall(text), SHORT_END.split(text)
        pieces = [NavigableString(rest[0])]
        for name, after in zip(names, rest[1:]):
            pieces += [soup.new_tag("span", attrs={"class": "sdl-nobreak"}), NavigableString(after)]
            pieces[-2].string = name
        text.replace_with(*pieces)


def at_relations(tex: str) -> list[str]:
    """A formula in parts, each but the first beginning with a relation that stands in no brackets:
    where TeX would break the line.
    """
    parts, depth = [""], 0
    for symbol in TEX.findall(tex):
        depth += DEPTH.get(symbol, 0)
        if depth == 0 and symbol in RELATIONS and parts[-1].strip():
            parts.append("")
        parts[-1] += symbol
    return parts


def break_formulas(soup: BeautifulSoup) -> None:
    """Formulas in the text: MathJax breaks no line, so a long one stands in parts; and what ends a
    clause stays with its formula.
    """
    for formula in soup.select("span.math:not(.sdl-formula *, [data-plain])"):
        whole = soup.new_tag("span", attrs={"class": "sdl-formula"})
        end = PUNCTUATION.match(str(formula.next_sibling or ""))
        tex = formula.get_text().removeprefix(r"\(").removesuffix(r"\)")
        parts = at_relations(tex) if len(tex) > LONG_FORMULA else [tex]
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
            kept = soup.new_tag("span", attrs={"class": "sdl-nobreak"})
            last.insert_before(kept)
            kept.extend([last.extract(), end.group()])
            rest.replace_with(NavigableString(str(rest)[end.end() :]))


def part_formulas(soup: BeautifulSoup) -> None:
    """Formulas side by side in a line of their own stand in rows where there is no room: each is
    set by itself.
    """
    for formula in soup.select("div.math:not([data-plain], :has(.eqno))"):
        tex = formula.get_text().strip().removeprefix(r"\[").removesuffix(r"\]")
        parts = tex.split(r"\qquad")
        if len(parts) == 1 or r"\begin" in tex:
            continue
        formula["data-plain"] = terms.plain(formula.get_text())
        formula["class"] = [*formula["class"], "sdl-rows"]
        formula.clear()
        formula.extend(soup.new_tag("span", string=rf"\[{part.strip()}\]") for part in parts)


def stack_tables(soup: BeautifulSoup) -> None:
    """Tables of words are marked, and their cells labelled, so that a phone can show a row as a
    card; the roles stay those of a table.
    """
    for table in soup.select("article table:not(.sdl-stack):not(.dataframe)"):
        heads = [head.get_text(" ", strip=True) for head in table.select("thead tr > *")]
        rows = [row.find_all(["td", "th"], recursive=False) for row in table.select("tbody > tr")]
        if (
            table.find_parent(class_=OWN_TABLES)
            or len(heads) < 2
            or any(len(row) != len(heads) for row in rows)
        ):
            continue
        wordy = [
            max((sum(map(str.isalpha, row[i].get_text())) for row in rows), default=0) >= WORDY
            for i in range(len(heads))
        ]
        dense = any(len(code.get_text()) >= LONG_CODE for code in table.select("td code"))
        columns = zip(table.select("thead tr > *"), *rows)
        wide = sum(1.5 + max(map(_longest_word, column)) for column in columns) > PHONE
        worded = sum(wordy) >= 2 and (len(heads) > 2 or table.find("code"))
        if not (dense or worded or wide and (any(wordy) or len(rows) <= FEW)):
            continue  # two columns of plain words fit side by side, many rows of numbers scroll
        table["class"] = [*table.get("class", []), "sdl-stack"]
        table["role"] = "table"
        for row in table.select("tr"):
            row["role"] = "row"
        for head in table.select("thead tr > *"):
            head["role"] = "columnheader" if head.get_text(strip=True) else "cell"
        brief = [
            i > 0 and max(map(_letters, column)) <= BRIEF
            for i, column in enumerate(zip(table.select("thead tr > *"), *rows))
        ]
        for flows, run in groupby(range(len(heads)), brief.__getitem__):
            run = list(run)
            look = ["sdl-brief", *["sdl-fourth"][: len(run) % 3 == 1]]  # none is left alone
            for cell in (row[i] for row in rows for i in run if flows and len(run) >= 3):
                cell["class"] = [*cell.get("class", []), *look]
        for cell, label in ((cell, label) for row in rows for cell, label in zip(row, heads)):
            cell["role"] = "rowheader" if cell.name == "th" else "cell"
            if cell.get_text(strip=True):
                cell["data-label"] = label


def wrap_prints(soup: BeautifulSoup) -> None:
    """What a cell printed is marked where it is no columns but words, whose lines a phone may break."""
    for printed in soup.select(".cell_output pre:not(.sdl-words)"):
        if not IN_COLUMNS.search(printed.get_text()):
            printed["class"] = [*printed.get("class", []), "sdl-words"]


def steady_tables(soup: BeautifulSoup) -> None:
    """A long table of words gets its columns' widths from the build: a browser that shows the first
    rows while others are on their way would move them with every longer word. A column is as wide
    as its longest word, and the rest goes to those with more to say.
    """
    for table in soup.select("article table.sdl-stack:not(.sdl-steady)"):
        rows = table.select("tbody > tr")
        if len(rows) < LONG_TABLE:
            continue
        cells = [row.find_all(["td", "th"], recursive=False) for row in [*rows, table.thead.tr]]
        columns = list(zip(*cells))
        needs = [EDGES + max(map(_longest_word, column)) for column in columns]
        wishes = [max(map(_length, column)) ** 0.5 for column in columns]
        rest = max(0, LINE - sum(needs)) / sum(wishes)
        weights = [need + rest * wish for need, wish in zip(needs, wishes)]
        columns = soup.new_tag("colgroup")
        for weight in weights:
            columns.append(soup.new_tag("col", style=f"width: {100 * weight / sum(weights):.1f}%"))
        for old in table.select("colgroup"):
            old.decompose()
        table.insert(0, columns)
        table["class"] = [*table["class"], "sdl-steady"]


def _longest_word(cell) -> int:
    text = re.sub(r"\\[a-z]+", "x", cell.get_text(" ", strip=True))  # of a formula
    words = re.split(r"[\s\-–]+", text.replace("\u00a0", "x"))
    return min(LONGEST, max(map(len, words)))


def _letters(cell) -> int:
    return len(cell.get_text(" ", strip=True))


def _length(cell) -> int:
    """Letters of a cell as they are read: a formula counts as its words."""
    formulas = cell.select(".math[data-plain]")
    spoken = sum(len(one["data-plain"]) - len(one.get_text()) for one in formulas)
    return max(4, len(cell.get_text(" ", strip=True)) + spoken)


def list_citations(soup: BeautifulSoup) -> None:
    """aria-required-children: what stands in a list is a list item."""
    for citation in soup.select('.citation-list [role="doc-biblioentry"]'):
        citation["role"] = "listitem"


def distinct(soup: BeautifulSoup) -> None:
    """duplicate-id: the boxes of theorems all have one and the same; no link leads to it."""
    for part in soup.select("#proof-content, section#proof"):
        del part["id"]


def settle_theme(soup: BeautifulSoup) -> None:
    """The page is light or dark before anything of it is drawn: the theme has no colours for
    "auto", and its own script comes last. Where no script runs, the page is light.
    """
    soup.html["data-theme"] = "light"
    for script in soup.head.find_all("script", attrs={"data-cfasync": True}):
        script.string = THEME


def single_logo(soup: BeautifulSoup) -> None:
    """One picture serves light and dark."""
    for logo in soup.select(".logo__image.only-dark"):
        logo.decompose()
    for logo in soup.select(".logo__image.only-light"):
        logo["class"] = ["logo__image"]


def introduce(soup: BeautifulSoup, home: str) -> None:
    """What a search engine and a shared link show: the page's first paragraph, its title and the
    book's card.
    """
    first = soup.select_one("article p")
    text = " ".join(first.get_text(" ").split()) if first else ""
    summary = text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " …"
    title = soup.title.get_text(" ").strip()
    properties = {
        "og:type": "article",
        "og:title": title,
        "og:description": summary,
        "og:image": f"{home}_static/card.png",
    }
    tags = [{"name": "description", "content": summary}]
    tags += [{"property": name, "content": content} for name, content in properties.items()]
    tags += [{"name": "twitter:card", "content": "summary_large_image"}]
    for attributes in tags:
        key = "name" if "name" in attributes else "property"
        if not soup.head.find("meta", {key: attributes[key]}):
            soup.head.append(soup.new_tag("meta", attrs=attributes))


def name_authors(soup: BeautifulSoup) -> None:
    """The footer's authors stand within a sentence."""
    for line in soup.select("footer .component-author"):
        line.string = " ".join(line.get_text().split()).replace("By The ", "By the ")


def mount_interactives(soup: BeautifulSoup) -> None:
    """Each interactive is drawn where it stands, before anything below it: the page does not move."""
    root = soup.html.get("data-content_root", "")
    fetched = {script["src"] for script in soup.select("article script[src]")}
    for place in soup.select("article .sdl-interactive:not(:has(+ script))"):
        source = f"{root}_static/interactives/{place['data-module']}.js"
        if source not in fetched:
            place.insert_before(soup.new_tag("script", src=source))
            fetched.add(source)
        call = "sdlMount(document.currentScript.previousElementSibling)"
        place.insert_after(soup.new_tag("script", string=call))


REPAIRS = (
    drop_live_code_settings,
    name_landmarks,
    name_buttons,
    name_sections,
    empty_heads,
    break_names,
    join_values,
    join_names,
    break_formulas,
    part_formulas,
    terms.speak_formulas,
    stack_tables,
    wrap_prints,
    steady_tables,
    list_citations,
    distinct,
    settle_theme,
    single_logo,
    name_authors,
    mount_interactives,
    icons.draw,
)


def mended(
    page: str,
    home: str,
    glossary: Sequence[terms.Term] = (),
    references: Sequence[citations.Reference] = (),
    chapter: str | None = None,
) -> BeautifulSoup:
    """One page, repaired; its formulas are still TeX. `home`: the address at which the book will
    stand. glossary: the terms that the page links to, in ../book/glossary.html. references: what
    its citations can mean. chapter: its number, where it has one.
    """
    soup = BeautifulSoup(page, "html.parser", preserve_whitespace_tags=AS_IT_IS)
    for repair in REPAIRS:
        repair(soup)
    terms.link_terms(soup, glossary, "../book/glossary.html")
    citations.show(soup, references)
    if chapter is not None:
        captions.number_figures(soup, chapter)
    introduce(soup, home)
    return soup


def home_address(app: Sphinx) -> str:
    """`html.baseurl` where it is set, else the pages address that belongs to the repository."""
    if app.config.html_baseurl:
        return app.config.html_baseurl.rstrip("/") + "/"
    owner, name = app.config.html_theme_options["repository_url"].rstrip("/").split("/")[-2:]
    return f"https://{owner}.github.io/{name}/"


def front_door(app: Sphinx) -> str:
    """index.html: a page in its own right that leads to the book's root page."""
    root, title = f"{app.config.root_doc}.html", app.config.html_title
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta'
        f' charset="utf-8"><title>{title}</title>\n<meta http-equiv="refresh" content="0;'
        f' url={root}"></head>\n<body><p><a href="{root}">{title}</a></p></body>\n</html>\n'
    )


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    home, out = home_address(app), Path(app.outdir)
    glossary = terms.glossary(out / "book" / "glossary.html")
    references = citations.bibliography(out / "book" / citations.BIBLIOGRAPHY)
    pages = {}
    for path in out.rglob("*.html"):
        page = path.relative_to(out)
        if "_static" not in page.parts and path.name != "index.html":
            chapter = numbering.number(page.as_posix(), Path(app.srcdir))
            terms_of_page = glossary if chapter is not None else ()
            pages[path] = mended(path.read_text("utf-8"), home, terms_of_page, references, chapter)
    formulas.draw(list(pages.values()), Path(app.srcdir) / "node_modules")
    bundle.gather(list(pages.values()), out / "_static")
    for path, soup in pages.items():
        path.write_text(str(soup), "utf-8")
    (out / "index.html").write_text(front_door(app), "utf-8")


def register(app: Sphinx) -> None:
    app.connect("html-page-context", drop_live_code, priority=900)
    app.connect("build-finished", mend_pages, priority=700)  # when the theme has written its sheets
