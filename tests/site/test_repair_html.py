"""Finished pages: whitespace, line breaks, tables, formulas, bundles, figures and numbers."""

from pathlib import Path

import cards
import pytest
import tinycss2
from browsing import FIRST_CHAPTER, START
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


def repaired(text: str) -> BeautifulSoup:
    return repair(PAGE.format(text), "https://example.org/")


def table_of(*rows: list[str]) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table><thead><tr>{lines[0]}</tr></thead><tbody>{body}</tbody></table>"


FOLD = (
    '<details class="admonition hide {}"><summary><p class="collapsed">{}</p>'
    '<p class="expanded">Hide the code</p></summary></details>'
)
MARK = "<!-- recorded: norms: EAGLE-1, T = 0, some.long_name.of_a_value(16 GB), γ + 1 -->"
WIDE = [["model", *(f"at k = {k}" for k in range(9))], *[["float32", *["0.123456"] * 9]] * 10]
REPAIRS = {
    "a trace keeps its indentation": (
        '<div class="sdl-text"><span>if x:<span>⏎</span>\n    </span><ins>    </ins><del>\n  y</del>'
        "</div>",
        {".sdl-text": ["if x:⏎\n        \n  y"]},
    ),
    "a paragraph with a source is a caption": (
        '<p><em>finding</em> <details class="sdl-source"><summary>i</summary></details></p>',
        {"article > div.sdl-caption > details": ["i"], "article > p": []},
    ),
    "printed text wraps, printed columns do not": (
        "<div class='cell_output'><pre>a text\n  of words</pre><pre>a  1\nb  2</pre></div>",
        {"pre.sdl-words": ["a text\n  of words"]},
    ),
    "formulas beside each other are split": (
        r'<div class="math">\[a = 1, \qquad b = 2.\]</div>'
        r'<div class="math">\[\begin{aligned} c \qquad d \end{aligned}\]</div>',
        {".math span": [r"\[a = 1,\]", r"\[b = 2.\]"], ".sdl-rows[data-plain^='a = 1']": ...},
    ),
    "a short name is on one line": (
        "<h2>Top-p, top-k and γ + 1</h2><dt>top-k</dt><pre>top-k</pre>",
        {".sdl-nobreak": ["Top-p", "top-k", "γ + 1"], "h2": ["Top-p, top-k and γ + 1"]},
    ),
    "a dot stays with the part before it": (
        "<p><em>a</em> · <a>open</a></p><pre>1 · 2</pre>",
        {"p": ["a\u00a0· open"], "pre": ["1 · 2"]},
    ),
    "a number stays with its unit, and an interval is whole": (
        "<p>reads in 2 ms, 58 % of [1.47, 1.72], 8 rows; section 2</p><pre>2 ms</pre>",
        {
            "p": ["reads in 2\u00a0ms, 58\u00a0% of [1.47,\u00a01.72], 8 rows; section\u00a02"],
            "pre": ["2 ms"],
        },
    ),
    "a value in a table is whole": (
        table_of(["a", "b"], ["question, T = 0", "16 GB"]),
        {"tbody td": ["question, T\u00a0=\u00a00", "16\u00a0GB"]},
    ),
    "an option keeps its hyphens": (
        "<p><code>--draft-max 4</code></p><pre>--draft-max</pre>",
        {"code .sdl-nobreak": ["--draft"], "code": ["--draft-max 4"], "pre span": []},
    ),
    "an open fold of an output keeps its title": (
        FOLD.format("below-input", "Measured: a table") + FOLD.format("above-input", "Show"),
        {
            "[data-kind=measured]": ["Measured:"] * 2,
            ".expanded": ["Measured: a table", "Hide the code"],
        },
    ),
    "a prediction's choices are buttons": (
        '<details class="sdl-predict" data-choices="6 % | 1 %"><summary>Which? <em>6 % / 1 %</em>'
        "</summary><p>1 % it is.</p></details>",
        {
            ".sdl-question": ["Which? "],
            ".sdl-choice": ["6\u00a0%", "1\u00a0%"],
            "details p": ["1\u00a0% it is."],
        },
    ),
    "a mark of a quoted number stays a comment": (
        f"<p>From .34{MARK} to .43.</p>{table_of(['a'], [f'.34{MARK}'], [f'<code>b.c{MARK}</code>'])}",
        {"p": ["From .34 to .43."], "tbody td": [".34", "b.c"]},
    ),
    "a table of numbers becomes cards if it is wide and short": (
        table_of(*WIDE[:2]) + table_of(*WIDE) + table_of(["model", "k = 1"], ["float32", "0.12"]),
        {".sdl-stack td:first-child": ["model", "float32"], "td.sdl-brief": ["0.123456"] * 9},
    ),
}


@pytest.mark.parametrize("text, shown", REPAIRS.values(), ids=REPAIRS)
def test_a_page_is_repaired(text: str, shown: dict[str, list[str]]):
    """Each selector has elements with these texts."""
    soup = repaired(text)
    for selector, texts in shown.items():
        found = [part.get_text() for part in soup.select(selector)]
        assert found == texts if texts is not ... else found, selector
    is_comment = lambda string: isinstance(string, Comment)
    assert len(soup.article.find_all(string=is_comment)) == text.count("<!--")


def test_a_built_page_gets_its_own_card_when_the_cards_are_drawn():
    built = str(repaired("<p>text</p>"))
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


def test_a_long_table_has_fixed_column_widths_that_break_no_word():
    heads, row = (
        [*"aaaaaa", "predicted"],
        ["question, T = 0", "16 GB", *["some words, and more"] * 5],
    )
    long, short = repaired(table_of(heads, *[row] * 12) + table_of(heads, *[row] * 11)).select(
        "table"
    )
    widths = [float(col["style"].split()[1].rstrip("%")) for col in long.select("col")]
    assert abs(sum(widths) - 100) < 0.4 and widths[1] < widths[2]
    assert widths[0] > 100 * len("question,") / phone_tables.LINE
    assert widths[6] > 100 * len("predicted") / phone_tables.LINE
    assert not short.select("col") and "sdl-stack" in short["class"]


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
