"""Repairs of the theme's HTML: what would ask another host goes, and so does what breaks an accessibility rule.

Each repair names the axe-core rule it serves. They run on finished pages and may run twice without harm.
"""

from pathlib import Path

from bs4 import BeautifulSoup
from sphinx.application import Sphinx


def drop_live_code(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Thebe's files and the saved state of live widgets leave the page: published pages run without a kernel."""

    def wanted(file) -> bool:
        attributes = getattr(file, "attributes", {})
        text = f"{getattr(file, 'filename', file)} {attributes.get('type', '')} {attributes.get('body', '')}"
        return "thebe" not in text and "widget-state" not in text

    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if wanted(file)]


def drop_live_code_settings(soup: BeautifulSoup) -> None:
    for script in soup.find_all("script"):
        if script.get("type") == "text/x-thebe-config" or script.get_text().startswith("kernelName ="):
            script.decompose()


def name_landmarks(soup: BeautifulSoup) -> None:
    """region: all content stands in a landmark; landmark-unique: each has its own name."""
    for sidebar in soup.select("#pst-primary-sidebar"):
        sidebar["role"], sidebar["aria-label"] = "region", "Book"


def name_buttons(soup: BeautifulSoup) -> None:
    """label-content-name-mismatch: a button's name contains the text it shows; icons with a title are decoration."""
    for button in soup.select(".search-button-field[aria-label]"):
        del button["aria-label"]
    for icon in soup.select(".theme-switch-button i"):
        icon.attrs.pop("title", None)
        icon["aria-hidden"] = "true"


def list_citations(soup: BeautifulSoup) -> None:
    """aria-required-children: what stands in a list is a list item."""
    for citation in soup.select('.citation-list [role="doc-biblioentry"]'):
        citation["role"] = "listitem"


REPAIRS = (drop_live_code_settings, name_landmarks, name_buttons, list_citations)


def mend(page: str) -> str:
    """The HTML of one page, repaired."""
    soup = BeautifulSoup(page, "html.parser")
    for repair in REPAIRS:
        repair(soup)
    return str(soup)


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            if "_static" not in path.relative_to(app.outdir).parts:
                path.write_text(mend(path.read_text("utf-8")), "utf-8")


def register(app: Sphinx) -> None:
    app.connect("html-page-context", drop_live_code, priority=900)
    app.connect("build-finished", mend_pages)
