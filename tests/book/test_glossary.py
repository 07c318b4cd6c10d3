"""The glossary has no entry that no page uses."""

import re

from chapters import CHAPTERS, text_of
from conftest import ROOT
from specdec_site.terms import Term


def entries() -> list[str]:
    """Return the terms of the glossary's source."""
    text = (ROOT / "book" / "glossary.md").read_text("utf-8")
    body = text.partition("```{glossary}\n:sorted:\n")[2].partition("\n```")[0]
    return re.findall(r"^(\S.*)$", body, flags=re.M)


def prose() -> str:
    """Return the text of every page except the glossary."""
    pages = [path for path in (ROOT / "book").glob("*.md") if path.stem != "glossary"]
    return "\n".join([path.read_text("utf-8") for path in pages] + [*map(text_of, CHAPTERS)])


def test_every_term_is_used_on_a_page():
    text, terms = prose(), entries()
    assert len(terms) == len(set(terms)) > 80
    assert [term for term in terms if not Term(term, "", "").pattern.search(text)] == []


def test_every_letter_leads_to_its_first_term():
    text, first = (ROOT / "book" / "glossary.md").read_text("utf-8"), {}
    for term in sorted(entries(), key=str.lower):
        first.setdefault(term[0].upper(), re.sub(r"[^A-Za-z0-9]+", "-", term).strip("-"))
    assert dict(re.findall(r'<a href="#term-(.+?)">(.)</a>', text)) == {
        name: letter for letter, name in first.items()
    }
