"""Every page of the published book, in a real browser with every other host blocked: drawn,
readable, accessible, light.
"""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from browsing import (
    CHAPTERS,
    FIGURES,
    FIRST_CHAPTER,
    PAGES,
    START,
    accessibility_faults,
    drawing_faults,
    figure_faults,
    inks,
    layout_faults,
    look,
    pages_with,
    parsed,
    scroll_through,
    show,
    unfold,
)

from benchmarks import browser
from benchmarks.site import weight
from specdec_lite import results


@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_built(book: Path, page_name: str):
    assert (book / page_name).is_file()


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_sound(open_page, page_name: str):
    """Light, dark and on a phone, with every fold open: all is drawn, nothing scrolls sideways,
    axe-core finds nothing at any level; figures have words and numbers, and follow the theme.
    """
    page = open_page(page_name, width=1280, scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    unfold(page)
    scroll_through(page)
    faults = drawing_faults(page) + layout_faults(page) + accessibility_faults(page, "light")
    light = inks(page)
    show(page, "dark")
    faults += drawing_faults(page) + accessibility_faults(page, "dark")
    faults += [
        f"figure {i} keeps its ink in the dark"
        for i, (before, after) in enumerate(zip(light, inks(page), strict=True), 1)
        if before == after
    ]
    page.set_viewport_size({"width": 390, "height": 844})
    unfold(page)
    scroll_through(page)
    faults += figure_faults(page) + layout_faults(page) + accessibility_faults(page, "390 px")
    assert faults == []


@pytest.mark.parametrize("page_name", pages_with(FIGURES))
def test_no_two_traces_differ_by_colour_alone(book: Path, page_name: str):
    """Of those that the legend names: another line, symbol, pattern or width tells each from the
    others.
    """
    same = []
    for place in parsed(book / page_name).select(FIGURES):
        named = [
            trace
            for trace in json.loads(place.script.string)["data"]
            if trace.get("showlegend", True)
        ]
        same += [
            f"{place['aria-label'][:60]}: {a.get('name')} and {b.get('name')}"
            for a, b in combinations(named, 2)
            if look(a) == look(b)
        ]
    assert same == []


# Finite verbs of the findings; a new finding may add its own.
VERBS = set(
    """are ask asks be beats begin begins binds bring brings came can climbs come comes cost costs do
    does falls feel feels fill fills find finds gains get gets give gives go goes grow grows
    halves has have help helps is keep keeps level levels lie lies lose loses make makes may meet
    meets miss move moves need needs narrow narrows outlast outweigh outweighs pay pays reach
    reaches read reads rise rises rose save saves say says sees shrinks stand stands stay stays
    stop stops take takes tell tells tie ties turn turns waits win wins write writes""".split()
)


def is_sentence(title: str) -> bool:
    """Four words and a verb among them: no label of what is drawn."""
    words = re.findall(r"[^\W\d_]+", title.lower())
    return len(words) >= 4 and not VERBS.isdisjoint(words)


def test_labels_are_no_sentences():
    assert is_sentence("Later positions need not be harder")
    assert not is_sentence("Tokens a pass, at temperature 1") and not is_sentence("It pays")


@pytest.mark.parametrize("page_name", pages_with(FIGURES))
def test_a_figures_title_is_its_finding_in_a_sentence(book: Path, page_name: str):
    titles = [
        found.get_text() if (found := figure.select_one(".sdl-finding")) else ""
        for figure in parsed(book / page_name).select(".sdl-figure")
    ]
    labels = [title for title in titles if not is_sentence(title)]
    assert labels == []


@pytest.mark.browser
def test_a_reader_who_prefers_dark_gets_it_at_once(open_page):
    assert (
        open_page(START, scheme="dark").evaluate("document.documentElement.dataset.theme") == "dark"
    )


@pytest.mark.browser
def test_print_shows_the_text_alone(open_page):
    page = open_page(FIRST_CHAPTER, scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator("article").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (
        page.locator("article details:not([open], .sdl-data)").count() == 0
        and page.locator("article .sdl-data:visible").count() == 0
    )
    page.wait_for_function(
        """[...document.querySelectorAll('.sdl-plot')].every((place) =>
        place.dataset.drawn === 'light'
        && place.querySelector('.main-svg').getBoundingClientRect().width <= 640)"""
    )
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details[open]:not(.sdl-side)").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_what_is_unfolded_for_printing_does_not_fade_in_on_paper(open_page):
    page = open_page(FIRST_CHAPTER)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    pale = (
        "[...document.querySelectorAll('article details.hide :is(.cell_input, .highlight,"
        " pre)')].filter((part) => getComputedStyle(part).opacity !== '1').length"
    )
    assert page.locator("article details.hide").count() > 0 and page.evaluate(pale) == 0


@pytest.mark.browser
def test_on_a_phone_a_long_name_in_the_text_is_broken(open_page):
    """And the check of the layout names the one that is not."""
    page = open_page(FIRST_CHAPTER, width=390)
    name = "torch.backends.cuda." + "enable_" * 8
    page.evaluate(
        """(name) => document.querySelector('article p').insertAdjacentHTML('beforeend',
        ` <code class="docutils literal notranslate"><span class="pre">${name}</span></code>`)""",
        name,
    )
    assert layout_faults(page) == []
    page.add_style_tag(content="article p > code .pre { white-space: nowrap !important; }")
    (fault,) = layout_faults(page)
    assert name[:50] in fault


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name", ["book/06_proofs.html", "book/15_proofs.html", "book/cheat_sheet.html", *CHAPTERS]
)
def test_on_a_phone_no_formula_is_cut_and_none_in_the_text_parts_from_its_full_stop(
    open_page, page_name: str
):
    page = open_page(page_name, width=390)
    unfold(page)
    assert (
        page.evaluate(
            """[...document.querySelectorAll('article div.math')].filter((one) =>
            [...one.querySelectorAll('mjx-container > svg')].some((set) =>
              set.clientWidth > one.clientWidth + 1 || set.parentElement.clientWidth < set.clientWidth - 1
            )).map((one) => one.dataset.plain)"""
        )
        == []
    )
    assert (
        page.evaluate("""() => [...document.querySelectorAll('article span.math')]
        .filter((formula) => {
          const set = formula.querySelector('mjx-container > svg')?.getBoundingClientRect();
          return set?.right > formula.getBoundingClientRect().right + 2;
        })
        .map((formula) => formula.innerText)""")
        == []
    )
    assert (
        page.evaluate(
            """() => [...document.querySelectorAll('article .sdl-formula .sdl-nobreak')].filter((kept) => {
        if (!kept.offsetParent) return false;
        const words = document.createRange();
        words.selectNode(kept.lastChild);
        return words.getBoundingClientRect().top > kept.firstChild.getBoundingClientRect().bottom;
    }).map((kept) => kept.innerText)"""
        )
        == []
    )


@pytest.mark.browser
def test_contents_over_a_phones_page_give_way_to_the_chosen_place(open_page):
    page = open_page(FIRST_CHAPTER, width=390)
    page.locator(".secondary-toggle").first.click()
    contents = page.locator("#pst-secondary-sidebar-modal")
    assert contents.is_visible()
    contents.locator("a[href*='#']").last.click()
    assert not contents.is_visible() and "#" in page.url


@pytest.mark.browser
def test_search_quotes_the_text_and_not_the_buttons_beside_it(open_page):
    page = open_page("search.html?q=bonus+token")
    quotes = page.locator("#search-results .context")
    quotes.nth(3).wait_for()
    texts = quotes.all_inner_texts()
    assert all("Open issue" not in text and ".ipynb" not in text for text in texts) and all(
        "token" in text.lower() for text in texts
    )


@pytest.mark.browser
def test_without_scripts_a_page_is_light_and_its_figures_say_what_they_need(new_page, server: str):
    page = new_page((server,), java_script_enabled=False, color_scheme="dark")
    page.goto(server + pages_with(FIGURES)[0])
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert (
        page.locator(".sdl-figure > noscript")
        .first.text_content()
        .startswith("Drawing this figure needs JavaScript")
    )


@pytest.mark.browser
def test_less_motion_for_those_who_ask(open_page):
    """With the reader's wish for reduced motion, nothing on a page moves for longer than a
    hundredth of a second.
    """
    page = open_page(CHAPTERS[-1])
    page.emulate_media(reduced_motion="reduce")
    slow = page.evaluate("""() => [...document.querySelectorAll('*')].filter((element) => {
      const style = getComputedStyle(element);
      return [style.transitionDuration, style.animationDuration]
        .some((all) => all.split(',').some((one) => parseFloat(one) > 0.01));
    }).map((element) => element.outerHTML.slice(0, 80))""")
    assert slow == []


@pytest.mark.browser
def test_the_text_is_set_in_the_books_own_font(open_page, book: Path):
    """It is asked for before the sheet and used; with the Greek letters it weighs 60 kB at most."""
    page = open_page(START)
    assert page.evaluate("[...document.fonts].map((font) => font.status)") == ["loaded"] * 2
    ahead = page.evaluate("document.querySelector('link[rel=preload]').href")
    fonts = page.evaluate(
        "performance.getEntriesByType('resource').map((file) => file.name)"
        ".filter((name) => name.endsWith('.woff2'))"
    )
    assert len(fonts) == 2 and ahead in fonts
    assert page.evaluate("getComputedStyle(document.body).fontFamily").startswith('"Source Sans"')
    files = list((book / "_static/vendor/font").glob("*.woff2"))
    assert len(files) == 2 and sum(file.stat().st_size for file in files) <= 60_000
    assert "SIL Open Font License" in (book / "_static/vendor/font/LICENSE.txt").read_text("utf-8")


SIDE_NOTE = """<details class="margin sdl-side" open><summary>How it is measured</summary>
<p>An array is summed again and again, and its bytes are divided by the time.</p></details>"""
CROSSED = """() => [...document.querySelectorAll('.sdl-side')].flatMap((note) => {
  const { left, right, top, bottom } = note.getBoundingClientRect();
  const others = `.bd-sidebar-secondary, article :is(pre, table, .sdl-figure, .sdl-box, .sdl-quiz,
    .sdl-predict-box, .sdl-interactive, h2)`;
  return [...document.querySelectorAll(others)].filter((other) => {
    const its = other.getBoundingClientRect();
    return other.checkVisibility() && !other.closest('details:not([open])')
      && (other.matches('.bd-sidebar-secondary') || (its.top < bottom - 1 && its.bottom > top + 1))
      && its.width && its.left < right - 1 && its.right > left + 1;
  }).map((other) => other.className || other.tagName);
})"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 1366])
def test_a_side_note_stands_beside_the_text_and_crosses_nothing(open_page, width: int):
    """One that hangs out of the text would cross the page's contents."""
    page = open_page(FIRST_CHAPTER, width=width)
    page.evaluate(
        "note => document.querySelectorAll('article h2')"
        ".forEach((head) => head.insertAdjacentHTML('afterend', note))",
        SIDE_NOTE,
    )
    assert page.evaluate(CROSSED) == []
    page.add_style_tag(content="details.sdl-side { margin-right: -13rem !important; }")
    assert "bd-sidebar-secondary" in " ".join(page.evaluate(CROSSED))


@pytest.mark.browser
def test_on_a_phone_a_box_fades_where_there_is_more_to_the_right(open_page):
    page = open_page(FIRST_CHAPTER, width=390)
    unfold(page)
    box = page.locator(".highlight pre.sdl-more").first
    mask = "box => getComputedStyle(box).maskImage"
    assert "gradient" in box.evaluate(mask)
    box.evaluate("box => { box.dataset.seen = ''; box.scrollLeft = box.scrollWidth; }")
    page.wait_for_selector("pre[data-seen]:not(.sdl-more)")
    assert page.locator("pre[data-seen]").evaluate(mask) == "none"


@pytest.mark.browser
def test_on_paper_drawings_shrink_with_the_sheet_and_code_has_no_switch(open_page):
    page = open_page(next(name for name in CHAPTERS if "/05_" in name))
    bare = ".sdl svg:not([viewBox], .sdl-canvas *, .sdl-arcs)"
    drawings = page.locator(bare).count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawings > 0 and page.locator(f"{bare}:visible").count() == 0
    page.emulate_media(media="print")
    assert page.locator("details.hide > summary:visible, .sdl details:visible").count() == 0
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(bare).count() == drawings


@pytest.mark.browser
def test_on_paper_the_scoreboard_names_its_methods_and_a_side_note_is_open(open_page):
    """Both are buttons or folds on a screen."""
    page = open_page(next(name for name in CHAPTERS if "/a3_" in name))
    page.emulate_media(media="print")
    board = page.locator(".sdl-scoreboard").first
    assert board.locator("tbody th :visible").count() > 20
    assert (
        board.evaluate("(e) => getComputedStyle(e.querySelector('.sdl-scroll')).maxHeight")
        == "none"
    )
    page = open_page(FIRST_CHAPTER, width=800)
    page.emulate_media(media="print")
    page.wait_for_selector("details.sdl-side[open]")


@pytest.fixture(scope="module")
def top(book: Path) -> Iterator[str]:
    """The book at the top of its host, where `benchmarks.site` weighs it."""
    with browser.served(book) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name, most", [(START, 200_000), *((chapter, 700_000) for chapter in CHAPTERS)]
)
def test_a_page_is_light(chromium, top: str, book: Path, page_name: str, most: int):
    """All that it loads, compressed as a web server would, in at most twenty requests."""
    found = weight(chromium, top, book, page_name)
    assert found["wire_bytes"] <= most and found["files"] <= 20


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html"])
def test_plotly_comes_only_where_a_figure_is(chromium, top: str, book: Path, page_name: str):
    found = weight(chromium, top, book, page_name)
    assert found["files"] > 3 and not found["plotly"]


def test_the_recording_of_the_site_covers_its_pages(book: Path):
    """results/site.json: light pages that do not move, plotly only beside figures, interactives drawn
    within 200 ms of the load event.
    """
    rows = {row["page"]: row for row in results.load("site").data["pages"]}
    assert rows[START]["wire_bytes"] <= 200_000 and rows[START]["files"] <= 20
    assert max(row["wire_bytes"] for row in rows.values()) <= 700_000
    assert max(moved for row in rows.values() for moved in row["shift"].values()) <= 0.05
    assert all(row["plotly"] == bool(row["figures"]) for row in rows.values())
    drawn = {name: row["drawn_ms"] for name, row in rows.items() if row["drawn_ms"] is not None}
    assert drawn and max(drawn.values()) < 200
    assert {name for name in rows if parsed(book / name).select(".sdl-interactive")} == set(drawn)
