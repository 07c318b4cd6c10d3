"""Repair the theme's HTML on finished pages.

The repairs remove what would request another host and what breaks an accessibility rule; each of the
latter names its rule of axe-core.
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.parallel import ParallelTasks, SerialTasks, parallel_available

from . import (
    addresses,
    bundle,
    citations,
    formulas,
    icons,
    line_breaks,
    numbering,
    phone_tables,
    policy,
    terms,
)
from .execution import PROCESSES

# their whitespace is text: the indentation of a trace is inside spans
PRESERVED = {"pre", "textarea", "span", "del", "ins"}
THEME = """{
  const page = document.documentElement;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.mode = localStorage.getItem("mode") || "auto";
  page.dataset.theme = page.dataset.mode === "auto" ? (isDark ? "dark" : "light") : page.dataset.mode;
}"""


def remove_live_code(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Remove the files of MathJax and live widgets from a page.

    Published pages run without a kernel, and their formulas are typeset during the build.
    """

    def is_used(file) -> bool:
        attributes = getattr(file, "attributes", {})
        text = (
            f"{getattr(file, 'filename', file)} {attributes.get('type', '')}"
            f" {attributes.get('body', '')}"
        )
        return not any(word in text for word in ("widget-state", "mathjax", "MathJax"))

    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if is_used(file)]


def name_landmarks(soup: BeautifulSoup) -> None:
    """Give the sidebar a role and a name (rules region and landmark-unique)."""
    for sidebar in soup.select("#pst-primary-sidebar"):
        sidebar["role"], sidebar["aria-label"] = "region", "Book"


def name_buttons(soup: BeautifulSoup) -> None:
    """Let a button's name contain the text that it shows (rule label-content-name-mismatch).

    Icons with a title become decoration.
    """
    for button in soup.select(
        ".search-button-field[aria-label], details.hide > summary[aria-label]"
    ):
        del button["aria-label"]
    for icon in soup.select(".theme-switch-button i"):
        icon.attrs.pop("title", None)
        icon["aria-hidden"] = "true"


def name_sections(soup: BeautifulSoup) -> None:
    """Number the outputs of one kind on a page (rule landmark-unique)."""
    counts: dict[str, int] = {}
    for section in soup.select("section[aria-label]"):
        label = section["aria-label"]
        counts[label] = counts.get(label, 0) + 1
        if counts[label] > 1:
            section["aria-label"] = f"{label} {counts[label]}"


def keep_titles(soup: BeautifulSoup) -> None:
    """Let a folded output keep its title when it is opened: it shows more than code."""
    for summary in soup.select("details.hide.below-input > summary"):
        closed, opened = summary.select_one(".collapsed"), summary.select_one(".expanded")
        if closed and opened:
            opened.string = closed.get_text()


def mark_folds(soup: BeautifulSoup) -> None:
    """Begin a fold's title with a mark of its kind."""
    for title in soup.select("summary:not(:has(> p)), summary > p"):
        if kind := re.match(r"(Measured|Derivation|More|Hint)\b:?", title.get_text()):
            words = title.find(string=True)
            mark = soup.new_tag("span", attrs={"class": "sdl-kind"}, string=kind[0])
            mark["data-kind"] = kind[1].lower()
            words.replace_with(mark, words[kind.end() :])


def replace_empty_heads(soup: BeautifulSoup) -> None:
    """Turn an empty table heading into a plain cell (rule empty-table-header)."""
    for head in soup.find_all("th"):
        if not head.get_text(strip=True) and not head.find("img"):
            head.name = "td"


def list_citations(soup: BeautifulSoup) -> None:
    """Give the entries of the bibliography the role of list items (rule aria-required-children)."""
    for citation in soup.select('.citation-list [role="doc-biblioentry"]'):
        citation["role"] = "listitem"


def remove_repeated_ids(soup: BeautifulSoup) -> None:
    """Remove the id that all boxes of theorems share (rule duplicate-id); no link uses it."""
    for part in soup.select("#proof-content, section#proof"):
        del part["id"]


def set_theme_early(soup: BeautifulSoup) -> None:
    """Make a page light or dark before anything is drawn.

    The theme has no colors for "auto", and its own script runs last. Without scripts the page is
    light.
    """
    soup.html["data-theme"] = "light"
    for script in soup.head.find_all("script", attrs={"data-cfasync": True}):
        script.string = THEME


def ask_predictions(soup: BeautifulSoup) -> None:
    """Show the question and the choices of each prediction above its folded answer.

    learn.js only listens to the choices, so that nothing moves when it has loaded.
    """
    for details in soup.select("details.sdl-predict"):
        details.wrap(soup.new_tag("div", attrs={"class": "sdl-predict-box"}))
        question = soup.new_tag("p", attrs={"class": "sdl-question"})
        choices = [each.strip() for each in details.get("data-choices", "").split("|") if each]
        if (last := details.summary.find("em", string=" / ".join(choices))) is not None:
            last.decompose()  # the choices in words, for JupyterLab and Colab
        question.extend([*details.summary.contents])
        details.summary.string = "Show the answer"
        details.insert_before(question)
        if choices:
            attributes = {"class": "sdl-choices", "role": "group", "aria-label": "Your prediction"}
            question.insert_after(group := soup.new_tag("div", attrs=attributes))
            for choice in choices:
                about = {"type": "button", "class": "sdl-choice", "aria-pressed": "false"}
                group.append(soup.new_tag("button", attrs=about, string=choice))


def add_metadata(soup: BeautifulSoup, home: str) -> None:
    """Add what search engines and shared links show: first paragraph, title and the book's card."""
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


def caption_sources(soup: BeautifulSoup) -> None:
    """Make a paragraph with an ⓘ a caption: a browser would end the paragraph before the ⓘ."""
    for line in soup.select("article p:has(> details.sdl-source)"):
        line.name, line["class"] = "div", "sdl-caption"


def mount_interactives(soup: BeautifulSoup) -> None:
    """Draw each interactive before anything below it, so that the page does not move."""
    root = soup.html.get("data-content_root", "")
    loaded = {script["src"] for script in soup.select("article script[src]")}
    for interactive in soup.select("article .sdl-interactive"):
        source = f"{root}_static/interactives/{interactive['data-module']}.js"
        if source not in loaded:
            interactive.insert_before(soup.new_tag("script", src=source))
            loaded.add(source)
        call = "sdlMount(document.currentScript.previousElementSibling)"
        interactive.insert_after(soup.new_tag("script", string=call))


REPAIRS = (
    name_landmarks,
    name_buttons,
    name_sections,
    replace_empty_heads,
    keep_titles,
    mark_folds,
    ask_predictions,  # before their spaces differ from those of the choices
    line_breaks.break_names,
    line_breaks.keep_together,
    line_breaks.break_formulas,
    line_breaks.split_displays,
    terms.add_plain_formulas,
    phone_tables.stack_tables,
    line_breaks.wrap_output,
    phone_tables.fix_widths,
    list_citations,
    remove_repeated_ids,
    set_theme_early,
    caption_sources,
    mount_interactives,
    icons.draw_icons,
    policy.restrict,
)


def repair(
    page: str,
    home: str,
    glossary: Sequence[terms.Term] = (),
    references: dict[str, dict[str, str]] | None = None,
    chapter: str | None = None,
) -> BeautifulSoup:
    """Return a page with all repairs; its formulas are still TeX."""
    soup = BeautifulSoup(page, "html.parser", preserve_whitespace_tags=PRESERVED)
    for step in REPAIRS:
        step(soup)
    terms.link_terms(soup, glossary, "../book/glossary.html")
    citations.add_cards(soup, references or {})
    if chapter is not None:
        numbering.number_figures(soup, chapter)
    add_metadata(soup, home)
    return soup


def redirect_page(address: str, title: str) -> str:
    """Return a page that redirects to another page, and keeps the fragment of the address."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta'
        f' charset="utf-8"><title>{title}</title>\n<script>location.replace("{address}" +'
        ' location.hash)</script>\n<meta http-equiv="refresh" content="0;'
        f' url={address}"></head>\n<body><p><a href="{address}">{title}</a></p></body>\n</html>\n'
    )


def pages_of_theme(out: Path) -> dict[Path, str]:
    """Return the HTML of a book's pages by file, without files that only redirect."""
    files = (path for path in sorted(out.rglob("*.html")) if "_static" not in path.parts)
    texts = {path: path.read_text("utf-8") for path in files}
    return {path: text for path, text in texts.items() if "data-content_root" in text}


def finish(app: Sphinx, glossary: Sequence, references: dict, pages: Sequence[Path]) -> list:
    """Return (page, its final HTML, the files that it loaded) for pages that Sphinx has written."""
    out, root = Path(app.outdir), Path(app.srcdir)
    home = app.config.html_baseurl or addresses.prefixes()[0]
    soups = []
    for path in pages:
        chapter = numbering.number(path.relative_to(out).as_posix(), root)
        terms_of_page = glossary if chapter is not None else ()
        soups.append(repair(path.read_text("utf-8"), home, terms_of_page, references, chapter))
    formulas.draw_formulas(soups, root / "node_modules")
    parts = [bundle.replace_parts(soup, out / "_static") for soup in soups]
    return [(path, str(soup), names) for path, soup, names in zip(pages, soups, parts)]


def repair_pages(app: Sphinx, error: Exception | None) -> None:
    """Finish the pages that this build has written, and bundle the files of all pages.

    A page is repaired, its formulas are typeset, and it loads the bundles. Some processes share the
    pages.
    """
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    glossary = terms.glossary(out / "book" / "glossary.html")
    references = citations.bibliography(out / "book" / citations.BIBLIOGRAPHY)
    texts = pages_of_theme(out)
    new = [path for path, text in texts.items() if not bundle.has_bundles(text)]
    new.sort(key=lambda path: -len(texts[path]))  # so that the shares are equal
    finished: list[tuple[Path, str, list[str]]] = []
    tasks = (ParallelTasks if parallel_available else SerialTasks)(PROCESSES)
    for share in filter(None, (new[start::PROCESSES] for start in range(PROCESSES))):
        task = functools.partial(finish, app, glossary, references, share)
        tasks.add_task(task, result_func=lambda *result: finished.extend(result[-1]))
    tasks.join()
    pages = texts | {path: text for path, text, _ in finished}
    parts = (name for _, _, names in sorted(finished) for name in names)
    addressed = bundle.write_bundles(out / "_static", parts, pages.values())
    for path, text in pages.items():
        if (page := addressed(text)) != texts[path]:
            path.write_text(page, "utf-8")
    first = redirect_page(f"{app.config.root_doc}.html", app.config.html_title)
    (out / "index.html").write_text(first, "utf-8")


def register(app: Sphinx) -> None:
    """Connect the repairs to a Sphinx application, after the theme has written its sheets."""
    app.connect("html-page-context", remove_live_code, priority=900)
    app.connect("build-finished", repair_pages, priority=700)
