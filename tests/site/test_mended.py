"""What the build does to finished pages: traces keep their whitespace, terms lead to the glossary,
formulas say themselves in words, chapters have their numbers.
"""

import sys
from pathlib import Path

import pytest
import tinycss2
from browsing import CHAPTERS, FIRST_CHAPTER, PAGES, START, parsed
from bs4 import BeautifulSoup
from conftest import ROOT
from sphinx.errors import ExtensionError

from benchmarks.site import shift

sys.path.insert(0, str(ROOT / "site"))
from specdec_site import (  # noqa: E402
    bundle,
    captions,
    citations,
    formulas,
    mend as mending,  # noqa: E402
    outputs,
)
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
    texts = quotes.all_inner_texts()
    assert all("\\" not in text and "the code" not in text for text in texts)
    assert not any(text.startswith("...") for text in texts), "cut within a word"


@pytest.mark.browser
def test_results_come_while_a_reader_types(open_page):
    page = open_page("search.html")
    field = page.locator("main form.bd-search input")
    field.press_sequentially("lenience", delay=30)
    page.locator("#search-results li").first.wait_for()
    page.wait_for_function("location.search === '?q=lenience'")
    field.fill("xyzzy")
    page.wait_for_function("!document.querySelector('#search-results li')")
    assert page.locator("#search-results h2").count() == 1


@pytest.mark.parametrize("page_name", PAGES)
def test_a_page_brings_its_formulas_drawn_and_one_sheet_and_one_script(book: Path, page_name: str):
    page = parsed(book / page_name)
    for formula in page.select(".math"):
        assert formula.select("mjx-container > svg") and formula.select_one(
            "mjx-assistive-mml > math"
        )
    glyphs = {path["id"] for path in page.select("body > svg path[id]")}
    assert {use["href"][1:] for use in page.select(".math use")} <= glyphs
    assert "mathjax" not in " ".join(s.get("src", "") for s in page.select("script")).lower()
    sheets = [link["href"].partition("?")[0] for link in page.select("link[rel=stylesheet]")]
    assert [sheet.rpartition("/")[2] for sheet in sheets if "sphinx-design" not in sheet] == [
        bundle.SHEET
    ]
    first = page.head.find(["script", "link"])
    assert first.name == "script" and "prefers-color-scheme" in first.string, "before any sheet"
    assert len(page.select(".logo__image")) == 1


def test_formulas_share_their_glyphs_and_wrong_tex_is_an_error():
    modules = ROOT / "node_modules"
    (page,) = formulas.typeset([[("p + p", False), (r"\frac{p}{q}", True)]], modules)
    assert page["glyphs"].count("<path") == 3 and page["formulas"][0].count("<use") == 3
    with pytest.raises(ExtensionError, match="close brace"):
        formulas.typeset([[(r"\frac{p", False)]], modules)


def test_only_rules_that_can_match_stay_in_the_sheet():
    sheet = (
        ".a, .gone{x:y} .a .gone{x:y} #b:not(.gone){x:y} p[class=gone]{x:y}"
        "@media print{.gone{x:y} p{x:y}} @media screen{.gone{x:y}} @keyframes gone{0%{x:y}}"
        "@font-face{src:url(../fontawesome/webfonts/fa.woff2)}"
    )
    kept = bundle.wanted(tinycss2.parse_stylesheet(sheet, True, True), {"a", "b"})
    assert "".join(kept.split()) == (
        ".a{x:y}#b:not(.gone){x:y}p[class=gone]{x:y}@mediaprint{p{x:y}}@keyframesgone{0%{x:y}}"
    )


def test_a_long_table_has_its_columns_widths_and_a_short_one_has_not():
    row = "<tr><td>p</td><td>many words in one cell here</td><td>some more words there</td></tr>"
    made = lambda rows: (
        "<table><thead><tr><td>a</td><td>b</td><td>c</td></tr></thead>"
        f"<tbody>{row * rows}</tbody></table>"
    )
    (long, short) = mending.mended(PAGE.format(made(12) + made(11)), "https://example.org/").select(
        "table"
    )
    widths = [float(col["style"].split()[1].rstrip("%")) for col in long.select("col")]
    assert abs(sum(widths) - 100) < 0.2 and widths[0] < widths[2] < widths[1]
    assert not short.select("col") and "sdl-stack" in short["class"]


def table_of(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table><thead><tr>{lines[0]}</tr></thead><tbody>{body}</tbody></table>"


def test_numbers_stand_in_cards_only_where_a_phone_has_no_room_for_their_few_rows():
    wide = [["model", *(f"at k = {k}" for k in range(9))]]
    row = ["float32", *["0.123456"] * 9]
    made = [[*wide, row], wide + [row] * 9, [["model", "k = 1"], ["float32", "0.12"]]]
    page = PAGE.format("".join(map(table_of, made)))
    tables = mending.mended(page, "https://example.org/").select("table")
    assert ["sdl-stack" in table.get("class", []) for table in tables] == [True, False, False]
    brief = ["sdl-brief" in cell.get("class", []) for cell in tables[0].select("tbody td")]
    assert brief == [False] + [True] * 9


def test_printed_words_may_be_broken_and_columns_may_not():
    printed = "<div class='cell_output'><pre>a text\n  of words</pre><pre>a  1\nb  2</pre></div>"
    words, columns = mending.mended(PAGE.format(printed), "https://example.org/").select("pre")
    assert "sdl-words" in words["class"] and not columns.get("class")


def test_formulas_side_by_side_are_set_one_by_one_and_short_names_stay_whole():
    text = (
        r'<h2>Top-p, top-k and γ + 1</h2><dt>top-k</dt><div class="math">\[a = 1, \qquad b = 2.\]</div>'
        r'<div class="math">\[\begin{aligned} c \qquad d \end{aligned}\]</div><pre>top-k</pre>'
    )
    soup = mending.mended(PAGE.format(text), "https://example.org/")
    assert [span.get_text() for span in soup.select(".math span")] == [r"\[a = 1,\]", r"\[b = 2.\]"]
    assert soup.select_one(".sdl-rows")["data-plain"].startswith("a = 1")
    names = [name.get_text() for name in soup.select(".sdl-nobreak")]
    assert names == ["Top-p", "top-k", "γ + 1"] and not soup.select("dt span")
    assert soup.h2.get_text() == "Top-p, top-k and γ + 1" and not soup.select("pre span")


def test_a_long_table_keeps_its_words_and_values_whole():
    row = (
        "<tr><td>question, T = 0</td><td>16 GB</td>" + "<td>some words, and more</td>" * 5 + "</tr>"
    )
    heads = "<td>a</td>" * 6 + "<td>predicted</td>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{row * 12}</tbody></table>"
    soup = mending.mended(PAGE.format(table), "https://example.org/")
    widths = [float(col["style"].split()[1].rstrip("%")) for col in soup.select("col")]
    assert widths[0] > 100 * len("question,") / mending.LINE
    assert widths[6] > 100 * len("predicted") / mending.LINE
    assert soup.td.find_next("tbody").td.get_text() == "question, T\u00a0=\u00a00"
    assert soup.select_one("tbody td + td").get_text() == "16\u00a0GB"


@pytest.mark.parametrize("page_name", PAGES)
def test_no_sheet_fetches_the_font_of_the_icons(book: Path, page_name: str):
    sheets = parsed(book / page_name).select("link[rel=stylesheet]")
    files = [book / page_name / ".." / sheet["href"].partition("?")[0] for sheet in sheets]
    assert files and not any(
        bundle.ICON_FONT in file.resolve().read_text("utf-8") for file in files
    )


def test_a_citation_names_its_paper(tmp_path: Path):
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
    citations.show(soup, references)
    first, second, whole, third = soup.select("a")
    assert first.get_text() == "2024b" and second.get_text() == "2"
    assert whole.get_text() == "Li et al., 2024b"
    for link in (first, second, whole):
        assert link["data-definition"] == "Li. EAGLE-2. 2024."
        assert link["data-address"] == "https://x.org/2" and "title" not in link.attrs
    assert third.attrs == {"href": "https://x.org/3"}


@pytest.mark.browser
def test_a_citation_shows_its_paper_and_tab_leads_to_it(open_page):
    page = open_page("book/06_proofs.html")
    mark = page.locator("a.sdl-cite").first
    mark.hover()
    link = page.locator("#sdl-tip a")
    assert link.get_attribute("href") == mark.get_attribute("data-address")
    page.keyboard.press("Tab")
    mark.focus()
    page.keyboard.press("Tab")
    assert link.evaluate("(link) => link === document.activeElement")


@pytest.mark.browser
def test_the_first_colours_of_a_page_are_those_of_the_reader(new_page, server: str):
    """With every sheet and script but the head's own still on their way."""
    page = new_page((server,), color_scheme="dark")
    page.route("**/book.js*", lambda route: route.abort())
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => { globalThis.first ="
        " document.documentElement.dataset.theme; })"
    )
    page.goto(server + START)
    assert page.evaluate("globalThis.first") == "dark"
    page.problems.clear()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html", "notebooks/07_how_fast.html"])
def test_nothing_moves_while_a_page_is_loaded(chromium, server: str, page_name: str, width: int):
    assert shift(chromium, server, page_name, width) <= 0.05


@pytest.mark.browser
def test_every_button_of_the_header_shows_its_focus(open_page):
    page = open_page(FIRST_CHAPTER)
    page.keyboard.press("Tab")  # the keyboard is in use
    faults = page.evaluate("""() => [...document.querySelectorAll(".bd-header-article :is(button, a)")]
      .filter((one) => one.checkVisibility())
      .filter((one) => {
        one.focus({ focusVisible: true });
        const { outlineStyle, outlineWidth } = getComputedStyle(one);
        return outlineStyle === "none" || parseFloat(outlineWidth) < 2;
      }).map((one) => one.outerHTML.slice(0, 100))""")
    assert faults == []


@pytest.mark.browser
def test_a_link_to_an_interactive_brings_its_state(open_page):
    page = open_page("notebooks/07_how_fast.html")
    gamma = page.locator("[data-module=explorer] input[data-name=gamma]").first
    gamma.fill("7")
    page.locator("[data-module=explorer] .sdl-share").first.click()
    page.wait_for_function("location.hash.includes('gamma=7')")
    there = page.evaluate("location.hash")
    assert there.startswith("#explorer:")
    other = open_page(f"notebooks/07_how_fast.html{there}")
    place = other.locator("[data-module=explorer]").first
    assert place.evaluate("(place) => place.sdlModel.get('gamma')") == 7
    other.evaluate("location.hash = '#explorer:gamma=99999,nothing=1,alpha=x'")
    other.wait_for_function("location.hash.includes('99999')")
    most = place.locator("input[data-name=gamma]").get_attribute("max")
    assert place.evaluate("(place) => place.sdlModel.get('gamma')") <= int(most), "the slider's end"


@pytest.mark.browser
def test_a_link_to_the_bench_brings_every_bar(open_page):
    page = open_page("notebooks/06_why_lossless.html")
    page.get_by_label("p(C)").press("Home")
    page.get_by_label("q(A)").press("ArrowRight")
    page.locator("[data-module=bench] .sdl-share").click()
    page.wait_for_function("location.hash.includes('laws=')")
    laws = (
        "() => ['p', 'q'].map((x) => document.querySelector('[data-module=bench]').sdlModel.get(x))"
    )
    other = open_page(f"notebooks/06_why_lossless.html{page.evaluate('location.hash')}")
    for dragged, shown in zip(page.evaluate(laws), other.evaluate(laws)):
        assert shown == pytest.approx(dragged, abs=1e-3)
    now = other.evaluate(laws)
    for bad in ("0.5_0.5~1_0", "1_x_0~1_0_0", "9_-1_0~1_0_0", "1_0_0"):
        other.evaluate("bad => { location.hash = `#bench:laws=${bad}`; }", bad)
        assert other.evaluate(laws) == now


@pytest.mark.browser
def test_the_live_page_has_an_address_for_its_settings(open_page):
    page = open_page("book/live.html#live:gamma=5,seed=7,preset=4")
    page.wait_for_function("document.querySelector('.sdl-live [id$=-gamma]')?.value === '5'")
    assert page.locator(".sdl-live [id$=-seed]").input_value() == "7"
    page.locator(".sdl-live [id$=-gamma]").fill("3")
    page.locator(".sdl-share").click()
    page.wait_for_function("location.hash === '#live:preset=4,gamma=3,seed=7'")


FIGURE = {
    "data": [{"type": "scatter", "x": [1], "y": [2]}],
    "layout": {
        "meta": {"alt": "One point & no more.", "name": "point"},
        "title": {"text": "A point is < two"},
        "height": 380,
    },
}


def test_a_figure_says_its_finding_above_and_its_caption_below():
    figure = BeautifulSoup(outputs.figure_html(FIGURE), "html.parser").figure
    words = [figure.select_one(part).get_text() for part in (".sdl-finding", "figcaption")]
    assert words == ["A point is < two", "One point & no more."]
    place = figure.select_one(".sdl-plot")
    assert place["aria-label"] == words[0] and figure["id"] == "fig-point"
    assert "title" not in place.script.string and "height:336px" in place["style"]
    with pytest.raises(ValueError, match="text alternative"):
        outputs.figure_html({"data": [], "layout": {}})


def test_figures_are_numbered_and_the_text_refers_to_them():
    drawn = '<figure id="fig-{}"><figcaption>{}</figcaption></figure>'
    soup = soup_of(
        drawn.format("a", "First.")
        + '<p><a href="#fig-b">below</a></p>'
        + drawn.format("b", "Next.")
    )
    for _ in range(2):  # it may run twice without harm
        captions.number_figures(soup, "7b")
    said = [caption.get_text() for caption in soup.select("figcaption")]
    assert said == ["Figure 7b.1. First.", "Figure 7b.2. Next."]
    assert soup.a.get_text() == "Figure 7b.2"
    with pytest.raises(ExtensionError, match="no figure #fig-c"):
        captions.number_figures(soup_of('<a href="#fig-c">gone</a>'), "2")
