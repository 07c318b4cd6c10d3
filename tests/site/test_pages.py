"""Every page of the published book, in a real browser with every other host blocked: drawn, readable, accessible, light."""

import gzip
from pathlib import Path

import pytest

from specdec_lite import results

from browsing import (CHAPTERS, FIGURES, FIRST_CHAPTER, PAGES, START, accessibility_faults, drawing_faults, layout_faults, pages_with,
                      parsed, scroll_through, show)


@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_built(book: Path, page_name: str):
    assert (book / page_name).is_file()


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_sound(open_page, page_name: str):
    """Light, dark and on a phone: all is drawn, nothing scrolls sideways, axe-core finds nothing at any level."""
    page = open_page(page_name, width=1280, scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    scroll_through(page)
    faults = drawing_faults(page) + layout_faults(page) + accessibility_faults(page, "light")
    show(page, "dark")
    faults += drawing_faults(page) + accessibility_faults(page, "dark")
    page.set_viewport_size({"width": 390, "height": 844})
    scroll_through(page)
    faults += layout_faults(page) + accessibility_faults(page, "390 px")
    assert faults == []


@pytest.mark.browser
def test_a_reader_who_prefers_dark_gets_it_at_once(open_page):
    assert open_page(START, scheme="dark").evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(FIGURES))
def test_figures_have_words_and_numbers_and_follow_the_theme(open_page, page_name: str):
    page = open_page(page_name, scheme="light")
    scroll_through(page)
    ink = "[...document.querySelectorAll('.sdl-plot')].map((f) => getComputedStyle(f.querySelector('.xtick text, .ytick text')).fill)"
    light = page.evaluate(ink)
    for figure in page.locator(".sdl-figure").all():
        assert figure.locator(FIGURES).get_attribute("aria-label").strip()
        figure.locator(".sdl-data > summary").click()
        assert figure.locator(".sdl-data tbody tr").count() > 0
    show(page, "dark")
    assert all(before != after for before, after in zip(light, page.evaluate(ink), strict=True))


@pytest.mark.browser
def test_print_shows_the_text_alone(open_page):
    page = open_page(FIRST_CHAPTER, scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator("article").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article details:not([open])").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_less_motion_for_those_who_ask(open_page):
    """With the reader's wish for reduced motion, nothing on a page moves for longer than a hundredth of a second."""
    page = open_page(CHAPTERS[-1])
    page.emulate_media(reduced_motion="reduce")
    slow = page.evaluate("""() => [...document.querySelectorAll('*')].filter((element) => {
      const style = getComputedStyle(element);
      return [style.transitionDuration, style.animationDuration].some((all) => all.split(',').some((one) => parseFloat(one) > 0.01));
    }).map((element) => element.outerHTML.slice(0, 80))""")
    assert slow == []


@pytest.mark.browser
def test_first_chapter_is_light(chromium, server: str):
    """All that the first chapter's page loads, compressed as a web server would, stays within 2 MB."""
    page = chromium.new_page()
    bodies = []
    page.on("response", lambda response: bodies.append(response.body()) if response.ok else None)
    page.goto(server + FIRST_CHAPTER)
    page.wait_for_load_state("networkidle")
    scroll_through(page)
    page.wait_for_load_state("networkidle")
    page.close()
    assert len(bodies) > 5
    assert sum(len(gzip.compress(body)) for body in bodies) <= 2_000_000


@pytest.mark.browser
@pytest.mark.parametrize("page_name", [START, "book/06_proofs.html"])
def test_plotly_comes_only_where_a_figure_is(chromium, server: str, page_name: str):
    page = chromium.new_page()
    addresses = []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(server + page_name)
    page.wait_for_load_state("networkidle")
    page.close()
    assert not any("plotly" in address for address in addresses)


def test_the_recording_of_the_site_covers_its_pages(book: Path):
    """results/site.json: light first chapter, plotly only beside figures, interactives drawn within 200 ms of the load event."""
    rows = {row["page"]: row for row in results.load("site").data["pages"]}
    assert rows[FIRST_CHAPTER]["wire_bytes"] <= 2_000_000
    assert all(row["plotly"] == bool(row["figures"]) for row in rows.values())
    drawn = {name: row["drawn_ms"] for name, row in rows.items() if row["drawn_ms"] is not None}
    assert drawn and max(drawn.values()) < 200
    assert {name for name in rows if parsed(book / name).select(".sdl-interactive")} == set(drawn)
