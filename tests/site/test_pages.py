"""Every page of the published book is drawn, readable, accessible and small, in a real browser."""

import gzip
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
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
    pages_with,
    scroll_through,
    show,
    stand_still,
    unfold,
)

PHONE_FAULTS = """() => [
  ...[...document.querySelectorAll('article div.math')]
    .filter((formula) => [...formula.querySelectorAll('mjx-container > svg')].some((set) =>
      set.clientWidth > formula.clientWidth + 1 || set.parentElement.clientWidth < set.clientWidth - 1))
    .map((formula) => `formula is cut: ${formula.dataset.plain}`),
  ...[...document.querySelectorAll('article span.math')]
    .filter((formula) => {
      const set = formula.querySelector('mjx-container > svg')?.getBoundingClientRect();
      return set?.right > formula.getBoundingClientRect().right + 2;
    })
    .map((formula) => `formula overflows: ${formula.innerText}`),
  ...[...document.querySelectorAll('article .sdl-formula .sdl-nobreak')]
    .filter((nobreak) => {
      if (!nobreak.offsetParent) return false;
      const words = document.createRange();
      words.selectNode(nobreak.lastChild);
      return words.getBoundingClientRect().top > nobreak.firstChild.getBoundingClientRect().bottom;
    })
    .map((nobreak) => `formula and punctuation are apart: ${nobreak.innerText}`),
  ...[...document.querySelectorAll('.sdl-plot')].flatMap((plot) => {
    const frame = plot.getBoundingClientRect();
    return [...plot.querySelectorAll('.main-svg text')]
      .filter((text) => {
        const { left, right, width } = text.getBoundingClientRect();
        return width && (left < frame.left - 2 || right > frame.right + 2);
      })
      .map((text) => `text is cut off: ${text.textContent} (${plot.ariaLabel.slice(0, 40)})`);
  }),
]"""
"""Formulas and texts of figures that do not fit a phone, and punctuation apart from its formula."""
SHOWN_IN_FOLDS = """() => [...document.querySelectorAll('details:not([open])')]
  .flatMap((fold) => [...fold.children].slice(1))
  .filter((child) => child.checkVisibility())
  .map((child) => `shown in a closed fold: ${child.outerHTML.slice(0, 100)}`)"""


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_has_no_faults(open_page, page_name: str):
    """Everything is drawn, nothing scrolls sideways, and axe-core finds no fault at any level.

    The page is tested light, dark and on a phone, with every fold open. Figures have captions and
    data tables, and follow the theme. On a phone, formulas and figures' texts fit. A closed fold
    shows its summary alone: no style shows the content of `details` all the same.
    """
    page = open_page(page_name, width=1280, scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    faults = page.evaluate(SHOWN_IN_FOLDS)
    unfold(page)
    scroll_through(page)
    faults += drawing_faults(page) + layout_faults(page) + accessibility_faults(page, "light")
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
    faults += page.evaluate(PHONE_FAULTS)
    assert faults == []


FIRST_PICTURE = """() => {
  const claim = document.querySelector('article h1 + p');
  const picture = document.querySelector('.sdl-interactive, .sdl-figure, .sdl-drawing, .sdl-sketch');
  return {
    lines: claim.getBoundingClientRect().height / parseFloat(getComputedStyle(claim).lineHeight),
    end: picture.getBoundingClientRect().bottom,
    folded: picture.closest('details') !== null,
  };
}"""
SCREENS = """() => {
  const height = (part) => part.getBoundingClientRect().height;
  const asides = [...document.querySelectorAll('article section')].filter((section) =>
    /^(Exercises|.* questions)$/.test(section.querySelector(':scope > h2')?.firstChild.textContent));
  return [asides.length, (height(document.querySelector('article'))
    - asides.reduce((sum, aside) => sum + height(aside), 0)) / 700];
}"""


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [*CHAPTERS, "book/03_speculative_execution.html"])
def test_a_chapter_begins_with_its_picture_and_has_at_most_nine_screens(open_page, page_name: str):
    """A laptop's screens, of 1366 × 700 px, without closed folds, exercises and questions.

    The claim and the first picture, whole and not in a fold, are on the first one.
    """
    page = open_page(page_name, width=1366)
    if re.search(r"notebooks/\d", page_name):
        asides, screens = page.evaluate(SCREENS)
        assert asides == 2 and screens <= 9
    page.set_viewport_size({"width": 1366, "height": 700})
    stand_still(page)
    first = page.evaluate(FIRST_PICTURE)
    assert first["lines"] < 2.5 and first["end"] <= 700 and not first["folded"], first


@pytest.mark.browser
def test_on_a_phone_a_long_name_in_the_text_wraps(open_page):
    """The check of the layout reports a name that does not wrap."""
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
def test_on_a_phone_the_contents_close_after_a_choice(open_page):
    page = open_page(FIRST_CHAPTER, width=390)
    page.locator(".secondary-toggle").first.click()
    contents = page.locator("#pst-secondary-sidebar-modal")
    assert contents.is_visible()
    contents.locator("a[href*='#']").last.click()
    assert not contents.is_visible() and "#" in page.url


@pytest.mark.browser
def test_without_scripts_a_page_is_light_and_figures_have_a_note(new_page, server: str):
    page = new_page((server,), java_script_enabled=False, color_scheme="dark")
    page.goto(server + pages_with(FIGURES)[0])
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert (
        page.locator(".sdl-figure > noscript")
        .first.text_content()
        .startswith("Drawing this figure needs JavaScript")
    )


@pytest.mark.browser
def test_nothing_moves_for_readers_who_prefer_reduced_motion(open_page):
    """No transition or animation takes longer than a hundredth of a second."""
    page = open_page(CHAPTERS[-1])
    page.emulate_media(reduced_motion="reduce")
    slow = page.evaluate("""() => [...document.querySelectorAll('*')].filter((element) => {
      const style = getComputedStyle(element);
      return [style.transitionDuration, style.animationDuration]
        .some((list) => list.split(',').some((time) => parseFloat(time) > 0.01));
    }).map((element) => element.outerHTML.slice(0, 80))""")
    assert slow == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name", ["notebooks/07_how_fast.html", "notebooks/11_token_trees.html"]
)
def test_a_formula_is_below_its_text(open_page, page_name: str):
    """Displayed formulas are centered under the lines of text, not in the wider column of code."""
    page = open_page(page_name, width=1440)
    off = page.evaluate("""() => [...document.querySelectorAll('article div.math:not(:has(> .eqno))')]
      .filter((formula) => formula.checkVisibility())
      .map((formula) => {
        const text = formula.parentElement.querySelector(':scope > p').getBoundingClientRect();
        const sets = [...formula.querySelectorAll('mjx-container > svg')]
          .map((set) => set.getBoundingClientRect());
        const row = sets.filter((set) => Math.abs(set.top - sets[0].top) < set.height);
        const [left, right] = [row[0].left, row.at(-1).right];
        return Math.abs((left + right) / 2 - (text.left + 34.5 * 16 / 2));
      })""")
    assert off and max(off) < 24


@pytest.mark.browser
def test_the_text_uses_the_font_of_the_book(open_page, book: Path):
    """The font is preloaded and used; with the Greek letters it has at most 60 kB."""
    page = open_page(START)
    assert page.evaluate("[...document.fonts].slice(0, 2).map((f) => f.status)") == ["loaded"] * 2
    preloaded = page.evaluate("document.querySelector('link[rel=preload]').href")
    fonts = page.evaluate(
        "performance.getEntriesByType('resource').map((file) => file.name)"
        ".filter((name) => name.endsWith('.woff2'))"
    )
    assert len(fonts) == 2 and preloaded in fonts
    assert page.evaluate("getComputedStyle(document.body).fontFamily").startswith('"Source Sans"')
    files = list((book / "_static/vendor/font").glob("*.woff2"))
    assert len(files) == 2 and sum(file.stat().st_size for file in files) <= 60_000
    assert "SIL Open Font License" in (book / "_static/vendor/font/LICENSE.txt").read_text("utf-8")


@pytest.mark.browser
def test_on_a_phone_a_box_fades_where_it_continues(open_page):
    page = open_page(FIRST_CHAPTER, width=390)
    unfold(page)
    box = page.locator(".highlight pre.sdl-more").first
    mask = "box => getComputedStyle(box).maskImage"
    assert "gradient" in box.evaluate(mask)
    box.evaluate("box => { box.dataset.seen = ''; box.scrollLeft = box.scrollWidth; }")
    page.wait_for_selector("pre[data-seen]:not(.sdl-more)")
    assert page.locator("pre[data-seen]").evaluate(mask) == "none"


@pytest.fixture(scope="module")
def top(book: Path) -> Iterator[str]:
    """The address of the book as the root of its host."""
    with browser.served(book) as address:
        yield address


def fetched(chromium, address: str, page_name: str) -> list[str]:
    """Return the book's files that a page fetches until every figure has been in view."""
    page = chromium.new_page(bypass_csp=True)
    urls: set[str] = set()
    page.on("requestfinished", lambda request: urls.add(request.url))
    page.goto(address + page_name)
    browser.draw_figures(page)
    page.wait_for_load_state("networkidle")
    page.close()
    return [unquote(urlsplit(url).path)[1:] for url in urls if url.startswith(address)]


@cache
def compressed(file: Path) -> int:
    """Return the bytes of a file as a web server sends it."""
    return len(gzip.compress(file.read_bytes(), 6))


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name, most", [(START, 200_000), *((chapter, 700_000) for chapter in CHAPTERS)]
)
def test_a_page_is_small(chromium, top: str, book: Path, page_name: str, most: int):
    """A page loads a limited number of compressed bytes, in at most twenty requests."""
    files = fetched(chromium, top, page_name)
    assert sum(compressed(book / file) for file in files) <= most and len(files) <= 20


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html"])
def test_only_a_page_with_a_figure_loads_plotly(chromium, top: str, page_name: str):
    files = fetched(chromium, top, page_name)
    assert len(files) > 3 and not any("plotly" in file for file in files)
