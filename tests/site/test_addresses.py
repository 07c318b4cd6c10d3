"""A page's address holds an interactive's state or a search, and restores it."""

import re

import pytest


@pytest.mark.browser
@pytest.mark.parametrize(
    "query, word, never",
    [
        ("residual", "", r"\\|the code|^\.\.\."),  # no excerpt begins within a word
        ("bonus+token", "token", r"Open issue|\.ipynb"),
    ],
)
def test_search_results_show_the_text_without_tex_and_buttons(open_page, query, word, never):
    page = open_page(f"search.html?q={query}")
    quotes = page.locator("#search-results .context")
    quotes.nth(3).wait_for()
    for text in quotes.all_inner_texts():
        assert word in text.lower() and not re.search(never, text)


@pytest.mark.browser
def test_the_search_lists_the_chapter_that_defines_a_term_first(open_page):
    page = open_page("search.html?q=bonus+token")
    first = "document.querySelector('#search-results ul.search > li > a')"
    page.wait_for_function(f"{first}?.textContent.startsWith('5. ')")


@pytest.mark.browser
def test_search_results_appear_while_a_reader_types(open_page):
    page = open_page("search.html")
    field = page.locator("main form.bd-search input")
    field.press_sequentially("lenience", delay=30)
    page.locator("#search-results li").first.wait_for()
    page.wait_for_function("location.search === '?q=lenience'")
    field.fill("xyzzy")
    page.wait_for_function("!document.querySelector('#search-results li')")
    assert page.locator("#search-results h2").count() == 1


@pytest.mark.browser
def test_a_link_sets_no_number_beyond_its_slider(open_page):
    """`test_promises.py` restores each interactive from its link."""
    page = open_page("notebooks/07_how_fast.html#explorer:gamma=7")
    explorer = page.locator("[data-module=explorer]").first
    gamma = lambda: explorer.evaluate("(explorer) => explorer.sdlModel.get('gamma')")
    assert gamma() == 7
    page.evaluate("location.hash = '#explorer:gamma=99999,nothing=1,alpha=x'")
    page.wait_for_function("location.hash.includes('99999')")
    assert gamma() <= int(explorer.locator("input[data-name=gamma]").get_attribute("max"))


@pytest.mark.browser
def test_a_link_sets_numbers_within_their_ends_and_menus_to_their_options(open_page):
    """A draft length of 10¹² would let the page compute for ever."""
    settings = "line=accept%20len%3A%202.54,gamma=1000000000000,example=99"
    page = open_page(f"book/serve.html#log_line:{settings}")
    reader = page.locator("[data-module=log_line]").first
    page.wait_for_function(
        "document.querySelector('[data-module=log_line] [data-name=gamma]')?.value === '64'"
    )
    assert "2.54" in reader.inner_text()


@pytest.mark.browser
def test_a_link_restores_every_bar_of_the_bench(open_page):
    page = open_page("notebooks/06_why_lossless.html")
    page.get_by_label("p(C)").press("Home")
    page.get_by_label("q(A)").press("ArrowRight")
    page.locator("[data-module=bench] .sdl-share").click()
    page.wait_for_function("location.hash.includes('pq=')")
    bars = (
        "() => ['p', 'q'].map((x) => document.querySelector('[data-module=bench]').sdlModel.get(x))"
    )
    other = open_page(f"notebooks/06_why_lossless.html{page.evaluate('location.hash')}")
    for dragged, shown in zip(page.evaluate(bars), other.evaluate(bars)):
        assert shown == pytest.approx(dragged, abs=1e-3)
    now = other.evaluate(bars)
    for bad in ("0.5_0.5~1_0", "1_x_0~1_0_0", "9_-1_0~1_0_0", "1_0_0"):
        other.evaluate("bad => { location.hash = `#bench:pq=${bad}`; }", bad)
        assert other.evaluate(bars) == now


@pytest.mark.browser
def test_a_link_restores_the_settings_of_the_live_page(open_page):
    page = open_page("book/live.html#live:gamma=5,seed=7,preset=4")
    page.wait_for_function("document.querySelector('.sdl-live [id$=-gamma]')?.value === '5'")
    assert page.locator(".sdl-live [id$=-seed]").input_value() == "7"
    page.locator(".sdl-live-settings > summary").click()
    page.locator(".sdl-live [id$=-gamma]").fill("3")
    page.locator("[data-module=live] .sdl-share").click()
    page.wait_for_function("location.hash === '#live:preset=4,gamma=3,seed=7'")
