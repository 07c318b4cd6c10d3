"""What the build does to finished pages: traces keep their whitespace, terms lead to the glossary,
formulas say themselves in words, chapters have their numbers.
"""

import sys
from pathlib import Path

import pytest
from browsing import CHAPTERS, PAGES, parsed
from bs4 import BeautifulSoup
from conftest import ROOT

sys.path.insert(0, str(ROOT / "site"))
from specdec_site import mend as mending  # noqa: E402
from specdec_site.numbering import number  # noqa: E402
from specdec_site.terms import Term, glossary, link_terms, plain  # noqa: E402

PAGE = "<html><head><title>t</title></head><body><article>{}</article></body></html>"
TRACE = (
    '<div class="sdl-text"><span class="sdl-token">if x:<span class="sdl-newline">⏎</span>\n'
    '    </span><ins class="sdl-token">    </ins><del>\n  y</del></div>'
)


def soup_of(text: str) -> BeautifulSoup:
    return BeautifulSoup(PAGE.format(text), "html.parser", preserve_whitespace_tags={"span", "ins"})


def test_a_trace_keeps_its_indentation():
    mended = mending.mended(PAGE.format(TRACE), "https://example.org/")
    assert TRACE in str(mended)
    lost = str(BeautifulSoup(PAGE.format(TRACE), "html.parser"))
    assert TRACE not in lost, "what parsing without care does to it"


@pytest.mark.parametrize(
    "tex, words",
    [
        (r"\(\mathrm{norm}(\max(0, p - q))\)", "norm(max(0, p - q))"),
        (r"\(\beta\)", "β"),
        (r"\(T(\gamma + 1)/T(1)\)", "T(γ + 1)/T(1)"),
        (r"\[\frac{1-\alpha^{\gamma+1}}{1-\alpha}\]", "(1-α^γ+1)/(1-α)"),
        (r"\(\alpha \le \tau\)", "α ≤ τ"),
        (r"\(\big(p - q\big)^+\)", "(p - q)+"),
    ],
)
def test_a_formula_says_itself_in_words(tex, words):
    assert plain(tex) == words


TERMS = [
    Term("token tree", "term-token-tree", "Drafted tokens that may share prefixes."),
    Term("token", "term-token", "A piece of text."),
    Term("KV cache", "term-KV-cache", "Keys and values."),
]


def test_the_first_use_of_a_term_is_linked_and_only_there():
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
    again = str(soup)
    link_terms(soup, TERMS, "../book/glossary.html")
    assert str(soup) == again


def test_a_definition_is_short_and_without_marks_of_its_own(tmp_path: Path):
    page = tmp_path / "glossary.html"
    page.write_text(
        '<dl class="glossary"><dt id="term-residual">residual</dt><dd><p>'
        r'<span class="math">\(\mathrm{norm}((p - q)^+)\)</span>, the part [Sun et al., 2025] '
        f"that is left. {'More words. ' * 40}</p></dd><dt id='term-draw'>draw</dt><dd>x</dd></dl>",
        encoding="utf-8",
    )
    (term,) = glossary(page)
    assert term.definition.startswith("norm((p - q)+), the part that is left. More words.")
    assert len(term.definition) <= 262
    assert glossary(tmp_path / "none.html") == []


def test_numbers_are_those_of_the_files(tmp_path: Path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "06_why.ipynb").touch()
    names = {
        "notebooks/04_blocks": "4",
        "notebooks/07b_rules": "7b",
        "notebooks/10_better": "10",
        "notebooks/a1_small": "A1",
        "book/03_story": "3",
        "book/06_proofs": None,
        "book/glossary": None,
    }
    assert {page: number(page, tmp_path) for page in names} == names


@pytest.mark.parametrize("page_name", CHAPTERS)
def test_a_chapter_shows_its_number_and_explains_its_words(book: Path, page_name: str):
    page = parsed(book / page_name)
    shown = f"{number(page_name, ROOT)}. "
    assert page.h1.get_text().startswith(shown)
    current = page.select_one(".bd-sidebar-primary a.current.reference")
    assert current.get_text(strip=True).startswith(shown.strip())
    links = page.select("article a.sdl-term")
    assert links and len({link["href"] for link in links}) == len(links)
    entries = parsed(book / "book" / "glossary.html")
    for link in links:
        assert entries.find(id=link["href"].partition("#")[2]), link["href"]
        assert link["data-definition"].strip()


def test_built_traces_are_indented(book: Path):
    """A line of generated Python begins where it began."""
    texts = [
        trace.get_text()
        for name in PAGES
        if (book / name).exists()
        for trace in BeautifulSoup(
            (book / name).read_text("utf-8"), "html.parser", preserve_whitespace_tags={"div"}
        ).select(".sdl-trace .sdl-text")
    ]
    assert len(texts) > 2 and all("⏎\n" in text for text in texts)
    assert sum("⏎\n    " in text for text in texts) > 1, "those of generated code"


@pytest.mark.browser
def test_a_term_shows_its_definition_to_pointer_and_keyboard(open_page):
    page = open_page(CHAPTERS[0])
    term = page.locator("a.sdl-term").first
    tip = page.locator("#sdl-tip")
    assert not tip.is_visible()
    term.hover()
    assert tip.inner_text() == term.get_attribute("data-definition")
    assert term.get_attribute("aria-describedby") == "sdl-tip"
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("Tab")
    page.locator("a.sdl-term").nth(1).focus()
    assert tip.is_visible()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "glossary.html#term-" in url)


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [CHAPTERS[0]])
def test_a_prediction_gets_a_verdict(open_page, page_name: str):
    page = open_page(page_name)
    box = page.locator(".sdl-predict-box").first
    verdicts = []
    for choice in box.locator(".sdl-choice").all():
        choice.click()
        verdicts.append(choice.get_attribute("data-verdict"))
        assert box.locator(".sdl-said").inner_text()[0] == ("✓" if verdicts[-1] == "right" else "✗")
    assert sorted(verdicts) == ["right", "wrong", "wrong"]


@pytest.mark.browser
def test_search_quotes_no_tex(open_page):
    page = open_page("search.html?q=residual")
    quotes = page.locator("#search-results .context")
    quotes.first.wait_for()
    assert all("\\" not in text for text in quotes.all_inner_texts())
