"""Terms lead to the glossary, citations show their papers, and formulas have plain text."""

from pathlib import Path

import pytest
from browsing import CHAPTERS
from bs4 import BeautifulSoup
from specdec_site import citations
from specdec_site.terms import Term, glossary, link_terms, plain

PAGE = "<html><head><title>t</title></head><body><article>{}</article></body></html>"


def soup_of(text: str) -> BeautifulSoup:
    return BeautifulSoup(PAGE.format(text), "html.parser", preserve_whitespace_tags={"span", "ins"})


@pytest.mark.parametrize(
    "tex, text",
    [
        (r"\(\mathrm{norm}(\max(0, p - q))\)", "norm(max(0, p - q))"),
        (r"\(\beta\)", "β"),
        (r"\(T(\gamma + 1)/T(1)\)", "T(γ + 1)/T(1)"),
        (r"\[\frac{1-\alpha^{\gamma+1}}{1-\alpha}\]", "(1-α^γ+1)/(1-α)"),
        (r"\(\alpha \le \tau\)", "α ≤ τ"),
        (r"\(1 - \tfrac12 \tau\)", "1 - 1/2 τ"),
        (r"\(\big(p - q\big)^+\)", "(p - q)+"),
        (r"\[\begin{aligned}\beta &= 1 \\ &= \tau\end{aligned}\]", "β = 1 = τ"),
    ],
)
def test_a_formula_has_plain_text(tex, text):
    assert plain(tex) == text


TERMS = [
    Term("token tree", "term-token-tree", "Drafted tokens that may share prefixes."),
    Term("token", "term-token", "A piece of text."),
    Term("KV cache", "term-KV-cache", "Keys and values."),
]


def test_only_the_first_use_of_a_term_is_linked():
    soup = soup_of(
        "<h2>A token</h2><p>Two tokens, <code>token</code> and <b>a</b> token tree.</p>"
        '<p>Tokenizers are no tokens.</p><div class="sdl-quiz"><p>KV cache?</p></div>'
        "<ul><li><p>The KV cache, and a KV cache.</p></li></ul>"
    )
    before = soup.get_text()
    link_terms(soup, TERMS, "../book/glossary.html")
    links = soup.select("a.sdl-term")
    assert [link.get_text() for link in links] == ["tokens", "token tree", "KV cache"]
    assert links[0]["href"] == "../book/glossary.html#term-token"
    assert links[0]["data-definition"] == "A piece of text."
    assert soup.get_text() == before


def test_plurals_are_uses_of_a_term():
    words = {"padded vocabulary": "Padded vocabularies may differ", "KV cache": "two KV caches"}
    assert all(Term(name, "", "").pattern.search(text) for name, text in words.items())
    assert not Term("policy", "", "").pattern.search("policyholder")


def test_a_definition_is_short_plain_text(tmp_path: Path):
    page = tmp_path / "glossary.html"
    page.write_text(
        '<dl class="glossary"><dt id="term-residual">residual</dt><dd><p>'
        r'<span class="math">\(\mathrm{norm}((p - q)^+)\)</span>, the part [Sun et al., 2025] '
        f"that is left; K in Sun et al. [2025]. {'More words. ' * 40}</p></dd>"
        '<dt id="term-draw">draw</dt><dd>x</dd></dl>',
        encoding="utf-8",
    )
    (term,) = glossary(page)
    assert term.definition.startswith(
        "norm((p - q)+), the part that is left; K in Sun et al. More words."
    )
    assert len(term.definition) <= 262
    assert glossary(tmp_path / "none.html") == []


@pytest.mark.browser
def test_a_term_shows_its_definition_on_hover_and_focus(open_page):
    page = open_page(CHAPTERS[0])
    term = page.locator("a.sdl-term").first
    tip = page.locator("#sdl-tip")
    assert not tip.is_visible()
    term.hover()
    tip.wait_for()
    assert tip.inner_text() == term.get_attribute("data-definition")
    assert term.get_attribute("aria-describedby") == "sdl-tip"
    page.keyboard.press("Escape")
    tip.wait_for(state="hidden")
    page.keyboard.press("Tab")
    page.locator("a.sdl-term").nth(1).focus()
    tip.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "glossary.html#term-" in url)


def test_a_citation_carries_the_title_of_its_paper(tmp_path: Path):
    page = tmp_path / citations.BIBLIOGRAPHY
    page.write_text(
        '<div class="citation" id="id5"><span class="label">[Li et al., 2024b]</span><p>Li. EAGLE-2.'
        ' 2024. URL: <a class="external" href="https://x.org/2">https://x.org/2</a>.</p></div>',
        encoding="utf-8",
    )
    references = citations.bibliography(page)
    soup = soup_of(
        '<p><a href="bibliography.html#id5" title="old">2024</a> <a href="https://x.org/2">2</a>'
        '<a href="bibliography.html#id5">Li et al., 2024</a><a href="https://x.org/3">3</a></p>'
    )
    citations.add_cards(soup, references)
    first, second, whole, third = soup.select("a")
    assert first.get_text() == "2024b" and second.get_text() == "2"
    assert whole.get_text() == "Li et al., 2024b"
    for link in (first, second, whole):
        assert link["data-definition"] == "Li. EAGLE-2. 2024."
        assert link["data-address"] == "https://x.org/2" and "title" not in link.attrs
    assert third.attrs == {"href": "https://x.org/3"}


@pytest.mark.browser
def test_a_citation_shows_its_paper_and_tab_reaches_the_link(open_page):
    page = open_page("book/06_proofs.html")
    mark = page.locator("a.sdl-cite").first
    mark.hover()
    link = page.locator("#sdl-tip a")
    assert link.get_attribute("href") == mark.get_attribute("data-address")
    page.keyboard.press("Tab")
    mark.focus()
    page.keyboard.press("Tab")
    assert link.evaluate("(link) => link === document.activeElement")
