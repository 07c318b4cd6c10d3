"""The published book as its readers meet it: every page, in a real browser, with every other host blocked."""

import functools
import gzip
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from bs4 import BeautifulSoup

from specdec_lite import theory

from conftest import BOOK, ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
FIGURES = ".sdl-plot"
INTERACTIVES = ".sdl-interactive"


def toc_pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"]] + [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]


PAGES = [f"{name}.html" for name in toc_pages()] + ["search.html"]


@functools.cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def pages_with(selector: str) -> list[str]:
    """The built pages that have such an element; known when pytest collects, because the book is built before."""
    found = [name for name in PAGES if (BOOK / name).exists() and parsed(BOOK / name).select(selector)]
    return found or [pytest.param(None, id=f"no page with {selector}")]


def scroll_through(page) -> None:
    """Bring every figure into view, so that the lazy ones are drawn."""
    for figure in page.locator(FIGURES).all():
        figure.scroll_into_view_if_needed()
    page.wait_for_function("[...document.querySelectorAll('.sdl-plot')].every((place) => place.dataset.drawn)")
    page.wait_for_function("[...document.querySelectorAll('.sdl-interactive')].every((place) => place.dataset.mounted)")


def drawing_faults(page) -> list[str]:
    """Figures without a drawn trace, interactives without a picture, images that did not load."""
    return page.evaluate("""() => [
      ...[...document.querySelectorAll('.sdl-plot')].filter((f) => !f.querySelector('.main-svg .trace, .main-svg image, .main-svg .hm'))
        .map((f) => `figure not drawn: ${f.ariaLabel}`),
      ...[...document.querySelectorAll('.sdl-interactive')].filter((i) => !i.querySelector('svg')).map((i) => `interactive empty: ${i.dataset.module}`),
      ...[...document.images].filter((i) => i.checkVisibility() && !(i.complete && i.naturalWidth)).map((i) => `image missing: ${i.src}`),
    ]""")


def layout_faults(page) -> list[str]:
    """What makes the page scroll sideways."""
    return page.evaluate("""() => {
      if (document.documentElement.scrollWidth <= innerWidth) return [];
      const wide = [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
      return [`${document.documentElement.scrollWidth} px wide in ${innerWidth}: ${wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 80)).join(' | ')}`];
    }""")


def accessibility_faults(page) -> list[str]:
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in found]


@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_built(book: Path, page_name: str):
    assert (book / page_name).is_file()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page_name", PAGES)
def test_page_is_sound(open_page, page_name: str, scheme: str):
    """On a desktop and on a phone: all is drawn, nothing scrolls sideways, axe-core finds nothing at any level."""
    page = open_page(page_name, width=1280, scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    scroll_through(page)
    faults = drawing_faults(page) + layout_faults(page) + accessibility_faults(page)
    page.set_viewport_size({"width": 390, "height": 844})
    scroll_through(page)
    faults += layout_faults(page) + accessibility_faults(page)
    assert faults == []


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_page_opens_from_a_folder(open_page, book: Path, page_name: str):
    page = open_page(page_name, origin=f"{book.resolve().as_uri()}/")
    scroll_through(page)
    assert drawing_faults(page) == []


@pytest.mark.browser
def test_an_outside_request_would_be_noticed(chromium, open_page):
    page = open_page(PAGES[0])
    page.evaluate("fetch('https://example.com/').catch(() => null)")
    page.wait_for_function("true")
    assert any("request to another host" in problem for problem in page.problems)
    page.problems.clear()


@pytest.mark.parametrize("page_name", [*PAGES, "index.html"])
def test_links_resolve(book: Path, page_name: str):
    """Internal links and anchors lead somewhere; nothing that a page loads stands on another host."""
    soup = parsed(book / page_name)
    loaded = [tag.get("src") or tag.get("href") for tag in soup.select("script[src], img[src], iframe[src], link[href]")]
    assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == []
    broken = []
    for url in loaded + [a["href"] for a in soup.select("a[href]")]:
        if url.startswith(("http:", "https:", "mailto:", "data:")):
            continue
        path, anchor = urldefrag(unquote(url).split("?")[0])
        target = ((book / page_name).parent / path).resolve() if path else book / page_name
        if not target.is_file() or (anchor and not parsed(target).find(id=anchor)):
            broken.append(url)
    assert broken == []


@pytest.mark.browser
@pytest.mark.parametrize("from_folder", [False, True])
def test_search_works_offline(open_page, book: Path, server: str, from_folder: bool):
    origin = f"{book.resolve().as_uri()}/" if from_folder else server
    page = open_page("search.html?q=residual", origin=origin)
    page.wait_for_selector("#search-results li a")
    links = page.locator("#search-results li a").all()
    assert any("symbols.html" in link.get_attribute("href") for link in links)


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(".sdl-quiz"))
def test_quiz(open_page, page_name: str):
    """Each answer explains itself, by mouse and by keyboard; a solved quiz is remembered on this machine only."""
    page = open_page(page_name)
    quizzes = page.locator(".sdl-quiz")
    for quiz in quizzes.all():
        right = "abcde".index(quiz.get_attribute("data-answer"))
        options = quiz.locator(".sdl-option").all()
        for index, option in enumerate(options):
            if index == right:
                option.focus()
                page.keyboard.press("Enter")
            else:
                option.click()
            assert option.get_attribute("data-verdict") == ("right" if index == right else "wrong")
        reasons = [reason.inner_text() for reason in quiz.locator(".sdl-why").all()]
        assert len(reasons) == len(options) and all(reason.strip() for reason in reasons)
        assert reasons[right].removeprefix(f"({'abcde'[right]})").strip().startswith("Right")
    page.reload()
    assert page.locator(".sdl-done").count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(".sdl-predict"))
def test_prediction_is_kept_until_committed(open_page, page_name: str):
    page = open_page(page_name)
    for box in page.locator(".sdl-predict-box").all():
        details = box.locator("details").first
        assert details.get_attribute("open") is None
        choices = box.locator(".sdl-choice")
        if choices.count():
            choice = choices.first
            choice.focus()
            page.keyboard.press("Enter")
            assert choice.get_attribute("aria-pressed") == "true"
            assert choice.inner_text() in box.locator(".sdl-said").inner_text()
        else:
            box.locator("summary").first.click()
        assert details.get_attribute("open") is not None


@pytest.mark.browser
@pytest.mark.parametrize("page_name", pages_with(INTERACTIVES))
def test_interactive_moves_by_keyboard_and_mouse(open_page, page_name: str):
    page = open_page(page_name)
    scroll_through(page)
    for interactive in page.locator(INTERACTIVES).all():
        if (shut := interactive.locator(".sdl-live-closed button")).count():
            shut.click()
            interactive.locator("textarea").wait_for()
        sliders = [slider for slider in interactive.locator("input[type=range]").all() if slider.is_visible()]
        assert sliders
        for slider in sliders:
            drawing = interactive.inner_html()
            value = slider.input_value()
            slider.focus()
            page.keyboard.press("ArrowLeft" if value == slider.get_attribute("max") else "ArrowRight")
            assert slider.input_value() != value
            by_keyboard = slider.input_value()
            box = slider.bounding_box()
            at = 0.25 if float(by_keyboard) > float(slider.get_attribute("max")) / 2 else 0.9
            page.mouse.click(box["x"] + at * box["width"], box["y"] + box["height"] / 2)
            assert slider.input_value() != by_keyboard
            assert interactive.inner_html() != drawing


@pytest.mark.browser
def test_explorer_shows_what_the_library_computes(open_page):
    page = open_page(PAGES[0])
    scroll_through(page)
    explorer = page.locator(f"{INTERACTIVES}[data-module=explorer]").first
    for alpha, gamma, c in [(0.8, 4, 0.1), (0.9, 10, 0.02), (0.5, 3, 0.6)]:
        explorer.evaluate(
            "(place, values) => Object.entries(values).forEach(([name, value]) => place.sdlModel.set(name, value))",
            {"alpha": alpha, "gamma": gamma, "c": c},
        )
        expected = f"{theory.walltime_improvement(alpha, gamma, c):.2f}"
        assert expected in explorer.locator("dl").first.inner_text()


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
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function("[...document.querySelectorAll('.sdl-plot')].every((place) => place.dataset.drawn === 'dark')")
    assert all(before != after for before, after in zip(light, page.evaluate(ink), strict=True))


@pytest.mark.browser
def test_print_shows_the_text_alone(open_page):
    page = open_page(PAGES[1])
    page.emulate_media(media="print")
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator("article").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article details:not([open])").count() == 0


@pytest.mark.browser
def test_first_chapter_is_light(chromium, server: str):
    """All that the first chapter's page loads, compressed as a web server would, stays within 2 MB."""
    page = chromium.new_page()
    bodies = []
    page.on("response", lambda response: bodies.append(response.body()) if response.ok else None)
    page.goto(server + PAGES[1])
    page.wait_for_load_state("networkidle")
    for figure in page.locator(FIGURES).all():
        figure.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    page.close()
    assert len(bodies) > 5
    assert sum(len(gzip.compress(body)) for body in bodies) <= 2_000_000
