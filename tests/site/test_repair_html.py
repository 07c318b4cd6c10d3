"""Finished pages: whitespace, line breaks, tables, formulas, bundles, figures and numbers."""

from pathlib import Path

import cards
import pytest
import tinycss2
from browsing import CHAPTERS, FIRST_CHAPTER, PAGES, START, parsed
from bs4 import BeautifulSoup, Comment
from conftest import ROOT
from docutils import nodes
from docutils.utils import new_document
from specdec_site import bundle, formulas, outputs, phone_tables
from specdec_site.numbering import number, number_figures
from specdec_site.repair_html import repair
from sphinx import addnodes
from sphinx.errors import ExtensionError
from test_terms import PAGE, soup_of

TRACE = (
    '<div class="sdl-text"><span class="sdl-token">if x:<span class="sdl-newline">⏎</span>\n'
    '    </span><ins class="sdl-token">    </ins><del>\n  y</del></div>'
)


def test_a_trace_keeps_its_indentation():
    assert TRACE in str(repair(PAGE.format(TRACE), "https://example.org/"))
    plain = str(BeautifulSoup(PAGE.format(TRACE), "html.parser"))
    assert TRACE not in plain, "the parser's default keeps the whitespace too"


def test_a_paragraph_with_a_source_is_a_caption():
    text = '<p><em>finding</em> <details class="sdl-source"><summary>i</summary></details></p>'
    line = repair(PAGE.format(text), "https://example.org/").select_one("article > *")
    assert (line.name, line["class"]) == ("div", "sdl-caption") and line.details


def test_a_built_page_gets_its_own_card_when_the_cards_are_drawn():
    built = str(repair(PAGE.format("<p>text</p>"), "https://example.org/"))
    own = cards.with_own_card(built, "13_eagle")
    assert '"https://example.org/_static/cards/13_eagle.png"' in own
    assert own.replace("/cards/13_eagle.png", "/card.png") == built


def test_page_numbers_come_from_the_file_names(tmp_path: Path):
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


def test_built_traces_are_indented(book: Path):
    """A line of generated Python keeps its indentation."""
    texts = [
        trace.get_text()
        for name in PAGES
        if (book / name).exists()
        for trace in BeautifulSoup(
            (book / name).read_text("utf-8"), "html.parser", preserve_whitespace_tags={"div"}
        ).select(".sdl-trace .sdl-text")
    ]
    assert sum("⏎" in text for text in texts) > 1
    assert all("⏎\n" in text for text in texts if "⏎" in text)
    assert sum("⏎\n    " in text for text in texts) > 1, "those of generated code"


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [CHAPTERS[0]])
def test_a_prediction_shows_whether_it_is_right(open_page, page_name: str):
    page = open_page(page_name)
    box = page.locator(".sdl-predict-box").first
    assert " / " not in box.locator(".sdl-question").inner_text(), "the choices are buttons"
    verdicts = []
    for choice in box.locator(".sdl-choice").all():
        choice.click()
        verdicts.append(choice.get_attribute("data-verdict"))
        assert box.locator(".sdl-said").inner_text()[0] == ("✓" if verdicts[-1] == "right" else "✗")
    assert sorted(verdicts) == ["right", "wrong", "wrong"]


@pytest.mark.parametrize("page_name", PAGES)
def test_a_page_has_drawn_formulas_one_sheet_without_the_icons_font_and_one_script(
    book: Path, page_name: str
):
    page = parsed(book / page_name)
    for formula in page.select(".math"):
        assert formula.select("mjx-container > svg")
        assert formula.select_one("mjx-assistive-mml > math")
    glyphs = {path["id"] for path in page.select("body > svg path[id]")}
    assert {use["href"][1:] for use in page.select(".math use")} <= glyphs
    assert "mathjax" not in " ".join(s.get("src", "") for s in page.select("script")).lower()
    sheets = [link["href"].partition("?")[0] for link in page.select("link[rel=stylesheet]")]
    assert [sheet.rpartition("/")[2] for sheet in sheets if "sphinx-design" not in sheet] == [
        bundle.SHEET
    ]
    files = [book / page_name / ".." / sheet for sheet in sheets]
    assert not any(bundle.ICON_FONT in file.resolve().read_text("utf-8") for file in files)
    first = page.head.find(["script", "link"])
    assert first.name == "script" and "prefers-color-scheme" in first.string, "before any sheet"
    assert len(page.select(".logo__image")) == 1


def test_formulas_share_glyphs_and_invalid_tex_is_an_error():
    modules = ROOT / "node_modules"
    (page,) = formulas.typeset([[("p + p", False), (r"\frac{p}{q}", True)]], modules)
    assert page["glyphs"].count("<path") == 3 and page["formulas"][0].count("<use") == 3
    with pytest.raises(ExtensionError, match="close brace"):
        formulas.typeset([[(r"\frac{p", False)]], modules)


def test_the_sheet_contains_only_rules_that_can_match():
    sheet = (
        ".a, .gone{x:y} .a .gone{x:y} #b:not(.gone){x:y} p[class=gone]{x:y}"
        "@media print{.gone{x:y} p{x:y}} @media screen{.gone{x:y}} @keyframes gone{0%{x:y}}"
        "@font-face{src:url(../fontawesome/webfonts/fa.woff2)}"
    )
    rules = bundle.used_rules(tinycss2.parse_stylesheet(sheet, True, True), {"a", "b"})
    assert "".join(rules.split()) == (
        ".a{x:y}#b:not(.gone){x:y}p[class=gone]{x:y}@mediaprint{p{x:y}}@keyframesgone{0%{x:y}}"
    )


def test_a_finished_page_loads_the_new_bundle_of_the_same_parts(tmp_path: Path):
    (tmp_path / "own.css").write_text(".shown{x:y} .gone{x:y}")
    (tmp_path / "own.js").write_text("first()")
    parts = (
        '<link rel="stylesheet" href="_static/own.css?v=1"><script src="_static/own.js"></script>'
    )
    head = f'<script data-cfasync="false"></script>{parts}'
    raw = f'<html data-content_root="./"><head>{head}</head><p class="shown"></p></html>'
    soup = BeautifulSoup(raw, "html.parser")
    names = bundle.replace_parts(soup, tmp_path)
    assert names == ["own.css", "own.js"] and not bundle.has_bundles(raw)
    page = bundle.write_bundles(tmp_path, names, [str(soup)])(str(soup))
    assert bundle.has_bundles(page) and "own." not in page
    sheet = (tmp_path / bundle.SHEET).read_text()
    assert ".shown" in sheet and ".gone" not in sheet
    (tmp_path / "own.js").write_text("second()")
    again = bundle.write_bundles(tmp_path, [], [page])(page)
    assert "second()" in (tmp_path / bundle.SCRIPT).read_text()
    assert again != page and again.partition("<p")[2] == page.partition("<p")[2]
    assert again.count(f"_static/{bundle.SCRIPT}?v=") == again.count(f"{bundle.SHEET}?v=") == 1


def test_only_a_long_table_has_fixed_column_widths():
    row = "<tr><td>p</td><td>many words in one cell here</td><td>some more words there</td></tr>"
    table = lambda rows: (
        "<table><thead><tr><td>a</td><td>b</td><td>c</td></tr></thead>"
        f"<tbody>{row * rows}</tbody></table>"
    )
    (long, short) = repair(PAGE.format(table(12) + table(11)), "https://example.org/").select(
        "table"
    )
    widths = [float(col["style"].split()[1].rstrip("%")) for col in long.select("col")]
    assert abs(sum(widths) - 100) < 0.2 and widths[0] < widths[2] < widths[1]
    assert not short.select("col") and "sdl-stack" in short["class"]


def table_of(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table><thead><tr>{lines[0]}</tr></thead><tbody>{body}</tbody></table>"


def test_a_table_of_numbers_becomes_cards_only_if_it_is_wide_and_short():
    wide = [["model", *(f"at k = {k}" for k in range(9))]]
    row = ["float32", *["0.123456"] * 9]
    tables = [[*wide, row], wide + [row] * 9, [["model", "k = 1"], ["float32", "0.12"]]]
    page = PAGE.format("".join(map(table_of, tables)))
    tables = repair(page, "https://example.org/").select("table")
    assert ["sdl-stack" in table.get("class", []) for table in tables] == [True, False, False]
    brief = ["sdl-brief" in cell.get("class", []) for cell in tables[0].select("tbody td")]
    assert brief == [False] + [True] * 9


def test_printed_text_wraps_but_printed_columns_do_not():
    output = "<div class='cell_output'><pre>a text\n  of words</pre><pre>a  1\nb  2</pre></div>"
    words, columns = repair(PAGE.format(output), "https://example.org/").select("pre")
    assert "sdl-words" in words["class"] and not columns.get("class")


def test_formulas_beside_each_other_are_split_and_short_names_are_not():
    text = (
        r'<h2>Top-p, top-k and γ + 1</h2><dt>top-k</dt><div class="math">\[a = 1, \qquad b = 2.\]</div>'
        r'<div class="math">\[\begin{aligned} c \qquad d \end{aligned}\]</div><pre>top-k</pre>'
    )
    soup = repair(PAGE.format(text), "https://example.org/")
    assert [span.get_text() for span in soup.select(".math span")] == [r"\[a = 1,\]", r"\[b = 2.\]"]
    assert soup.select_one(".sdl-rows")["data-plain"].startswith("a = 1")
    names = [name.get_text() for name in soup.select(".sdl-nobreak")]
    assert names == ["Top-p", "top-k", "γ + 1"] and not soup.select("dt span")
    assert soup.h2.get_text() == "Top-p, top-k and γ + 1" and not soup.select("pre span")


def test_a_dot_stays_with_the_part_before_it():
    soup = repair(PAGE.format("<p><em>a</em> · <a>open</a></p><pre>1 · 2</pre>"), "https://e.org/")
    assert "\u00a0· " in soup.p.get_text() and soup.pre.get_text() == "1 · 2"


def test_a_comment_stays_a_comment():
    """The marks of quoted numbers are comments; one with a name or a value became text."""
    mark = "<!-- recorded: norms: EAGLE-1, T = 0, some.long_name.of_a_value(16 GB), γ + 1 -->"
    page = f"""<html><head><title>t</title></head><body><article><p>From .34{mark} to .43.</p>
      <table><tr><td>.34{mark}</td><td><code>a.name{mark}</code></td></tr></table></article></body></html>"""
    repaired = repair(page, "https://example.org/")
    assert len(repaired.find_all(string=lambda text: isinstance(text, Comment))) == 3
    assert "recorded" not in repaired.get_text()


def test_a_number_in_the_text_stays_with_its_unit_and_an_interval_is_whole():
    text = "<p>reads in 2 ms, 58 % of [1.47, 1.72], 8 rows; section 2</p><pre>2 ms</pre>"
    soup = repair(PAGE.format(text), "https://example.org/")
    assert soup.p.get_text() == (
        "reads in 2\u00a0ms, 58\u00a0% of [1.47,\u00a01.72], 8 rows; section\u00a02"
    )
    assert soup.pre.get_text() == "2 ms"


def test_an_option_keeps_its_hyphens_and_no_other_character():
    text = "<p><code>--draft-max 4</code></p><pre>--draft-max</pre>"
    soup = repair(PAGE.format(text), "https://example.org/")
    assert soup.select_one("code .sdl-nobreak").get_text() == "--draft"
    assert soup.code.get_text() == "--draft-max 4" and not soup.select("pre span")


def test_an_open_fold_of_an_output_keeps_its_title():
    fold = (
        '<details class="admonition hide {}"><summary><p class="collapsed">{}</p>'
        '<p class="expanded">Hide the code</p></summary></details>'
    )
    text = fold.format("below-input", "Measured: a table") + fold.format("above-input", "Show")
    page = repair(PAGE.format(text), "https://example.org/")
    assert [kind.get_text() for kind in page.select("[data-kind=measured]")] == ["Measured:"] * 2
    titles = page.select(".expanded")
    assert [title.get_text() for title in titles] == ["Measured: a table", "Hide the code"]


def test_a_long_table_breaks_no_word_and_no_value():
    row = (
        "<tr><td>question, T = 0</td><td>16 GB</td>" + "<td>some words, and more</td>" * 5 + "</tr>"
    )
    heads = "<td>a</td>" * 6 + "<td>predicted</td>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{row * 12}</tbody></table>"
    soup = repair(PAGE.format(table), "https://example.org/")
    widths = [float(col["style"].split()[1].rstrip("%")) for col in soup.select("col")]
    assert widths[0] > 100 * len("question,") / phone_tables.LINE
    assert widths[6] > 100 * len("predicted") / phone_tables.LINE
    assert soup.td.find_next("tbody").td.get_text() == "question, T\u00a0=\u00a00"
    assert soup.select_one("tbody td + td").get_text() == "16\u00a0GB"


@pytest.mark.browser
def test_the_first_colors_of_a_page_are_those_of_the_reader(new_page, server: str):
    """The script in the head sets them before any other script has loaded."""
    page = new_page((server,), color_scheme="dark")
    page.route("**/book.js*", lambda route: route.abort())
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => { globalThis.first ="
        " document.documentElement.dataset.theme; })"
    )
    page.goto(server + START)
    assert page.evaluate("globalThis.first") == "dark"
    page.problems.clear()


SHIFTS = """(() => {
  globalThis.sdlShift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) sdlShift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
})()"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html", "notebooks/07_how_fast.html"])
def test_nothing_moves_while_a_page_loads(chromium, server: str, page_name: str, width: int):
    page = chromium.new_page(viewport={"width": width, "height": 800}, bypass_csp=True)
    page.add_init_script(SHIFTS)
    page.goto(server + page_name, wait_until="networkidle")
    assert page.evaluate("sdlShift") <= 0.05, "up to 0.1 counts as good"
    page.close()


@pytest.mark.browser
def test_every_button_of_the_header_shows_its_focus(open_page):
    page = open_page(FIRST_CHAPTER)
    page.keyboard.press("Tab")  # the keyboard is in use
    faults = page.evaluate("""() => [...document.querySelectorAll(".bd-header-article :is(button, a)")]
      .filter((button) => button.checkVisibility())
      .filter((button) => {
        button.focus({ focusVisible: true });
        const { outlineStyle, outlineWidth } = getComputedStyle(button);
        return outlineStyle === "none" || parseFloat(outlineWidth) < 2;
      }).map((button) => button.outerHTML.slice(0, 100))""")
    assert faults == []


FIGURE = {
    "data": [{"type": "scatter", "x": [1], "y": [2]}],
    "layout": {
        "meta": {"alt": "One point & no more.", "name": "point"},
        "title": {"text": "A point is < two"},
        "height": 380,
    },
}


def test_a_figure_has_its_finding_above_and_its_caption_below():
    figure = BeautifulSoup(outputs.figure_html(FIGURE), "html.parser").figure
    texts = [figure.select_one(part).get_text() for part in (".sdl-finding", "figcaption")]
    assert texts == ["A point is < two", "One point & no more."]
    plot = figure.select_one(".sdl-plot")
    assert plot["aria-label"] == texts[0] and figure["id"] == "fig-point"
    assert "title" not in plot.script.string and "height:336px" in plot["style"]
    with pytest.raises(ValueError, match="text alternative"):
        outputs.figure_html({"data": [], "layout": {}})


def test_figures_are_numbered_and_links_show_the_numbers():
    figure = '<figure id="fig-{}"><figcaption>{}</figcaption></figure>'
    soup = soup_of(
        figure.format("a", "First.")
        + '<p><a href="#fig-b">below</a></p>'
        + figure.format("b", "Next.")
    )
    for _ in range(2):  # running it twice does no harm
        number_figures(soup, "7b")
    texts = [caption.get_text() for caption in soup.select("figcaption")]
    assert texts == ["Figure 7b.1. First.", "Figure 7b.2. Next."]
    assert soup.a.get_text() == "Figure 7b.2"
    explorer = '<div class="sdl-interactive" data-module="explorer"></div>'
    number_figures(soup_of(f'{explorer}<a href="#explorer:gamma=20">γ = 20</a>'), "2")
    for address in ("#fig-c", "#explorer-2:gamma=20", "#roofline:gamma=20"):
        with pytest.raises(ExtensionError, match=f"no figure or interactive {address}"):
            number_figures(soup_of(f'{explorer}<a href="{address}">gone</a>'), "2")


def test_a_handle_is_a_link_to_the_settings_of_an_interactive():
    handle = addnodes.pending_xref("", nodes.Text("γ = 20"), reftarget="explorer:gamma=20")
    other = addnodes.pending_xref("", nodes.Text("below"), reftarget="setup")
    document = new_document("page")
    document += nodes.paragraph("", "", handle, other)
    outputs.keep_handles(None, document)
    link, rest = document[0]
    assert (link["refuri"], link.astext(), rest) == ("#explorer:gamma=20", "γ = 20", other)
