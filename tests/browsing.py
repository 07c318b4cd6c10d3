"""Helpers of the published book's tests: the list of pages, and the faults of a page."""

import functools
import re
from pathlib import Path

import pytest
import yaml
from browser import draw_figures
from bs4 import BeautifulSoup
from conftest import BOOK, ROOT
from mounting import settle

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
FIGURES = ".sdl-plot"
INTERACTIVES = ".sdl-interactive"


def toc_pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"]] + [
        chapter["file"] for part in toc["parts"] for chapter in part["chapters"]
    ]


PAGES = [f"{name}.html" for name in toc_pages()] + ["search.html"]
START, FIRST_CHAPTER = PAGES[:2]
CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")]


@functools.cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def pages_with(selector: str) -> list:
    """Return the built pages that have an element of a class; pytest collects after the book is built.

    Every process of tests asks this of every page, so the text is searched: a parser needs seconds.
    """
    classes = "|".join(re.findall(r"\.([\w-]+)", selector))
    having = re.compile(rf'<[^>]*\sclass="(?:[^"]*\s)?(?:{classes})[\s"]')
    built = ((name, BOOK / name) for name in PAGES if (BOOK / name).exists())
    pages = [name for name, path in built if having.search(path.read_text("utf-8"))]
    return pages or [pytest.param(None, id=f"no page with {selector}")]


def scroll_through(page) -> None:
    """Scroll every figure into view, so that lazy figures are drawn, each at the width of its box."""
    draw_figures(page)
    settle(page)
    page.wait_for_function(
        """[...document.querySelectorAll('.sdl-plot')].every((place) =>
        Math.abs(place.querySelector('.main-svg').getBoundingClientRect().width - place.clientWidth) < 2)"""
    )


def drawing_faults(page) -> list[str]:
    """Return figures without a trace, interactives without a drawing and images that did not load."""
    return page.evaluate("""() => [
      ...[...document.querySelectorAll('.sdl-plot')]
        .filter((f) => !f.querySelector('.main-svg .trace'))
        .map((f) => `figure not drawn: ${f.ariaLabel}`),
      ...[...document.querySelectorAll('.sdl-interactive')]
        .filter((i) => !i.querySelector('svg, tbody td, .sdl-race-label, .sdl-card dd'))
        .map((i) => `interactive empty: ${i.dataset.module}`),
      ...[...document.images]
        .filter((i) => i.checkVisibility() && !(i.complete && i.naturalWidth))
        .map((i) => `image missing: ${i.src}`),
    ]""")


def stand_still(page) -> None:
    """Wait until no animation or transition is running."""
    page.evaluate("globalThis.stillFrames = 0")
    page.wait_for_function(
        """() => {
        // three frames: an inherited color can start to change only after its parent's has changed;
        // finished animations may stay in the list
        const moving = document.getAnimations().some((animation) => animation.playState === "running");
        return (globalThis.stillFrames = moving ? 0 : globalThis.stillFrames + 1) > 2;
    }"""
    )


def unfold(page, folds: str = "article details") -> None:
    """Open folded parts of a page, all if no others are named, and wait until they are visible."""
    page.evaluate(
        "folds => document.querySelectorAll(folds).forEach((fold) => { fold.open = true; })", folds
    )
    stand_still(page)


def figure_faults(page) -> list[str]:
    """Return figures without a number, a text or a table, or with a legend outside its area.

    The folded parts of the page must be open.
    """
    return page.evaluate(
        r"""() => [...document.querySelectorAll('.sdl-figure')].flatMap((figure) => {
      const plot = figure.querySelector('.sdl-plot');
      const words = plot.ariaLabel?.trim();
      const caption = figure.querySelector('figcaption')?.textContent ?? '';
      const rows = [...figure.querySelectorAll('.sdl-data tbody tr')];
      const legend = figure.querySelector('g.legend')?.getBoundingClientRect();
      const panel = figure.querySelector('.nsewdrag')?.getBoundingClientRect();
      const isFree = !legend || (legend.top >= plot.getBoundingClientRect().top - 1
        && legend.bottom <= panel.top + 8);
      return [
        ...(isFree ? [] : [`legend in the way: ${words}`]),
        ...(words ? [] : ['figure without words']),
        ...(/^Figure [A\d]+[a-z]?\.\d+\. \S/.test(caption) ? [] : [`not numbered: ${caption}`]),
        ...(rows.some((row) => row.checkVisibility()) ? [] : [`figure without numbers: ${words}`]),
      ];
    })"""
    )


def look(trace: dict) -> tuple:
    """Return everything but the color that distinguishes a trace from another one."""
    line = trace.get("line", {})
    marker = trace.get("marker", {})
    bar = trace["type"] == "bar"
    mode = trace.get("mode") or "lines+markers"  # plotly's default for up to 20 points
    stroke = (
        (line.get("dash", "solid"), line.get("width", 2)) if "lines" in mode and not bar else None
    )
    mark = marker.get("symbol", "circle") if "markers" in mode and not bar else None
    return (
        trace["type"],
        stroke,
        mark,
        marker.get("pattern", {}).get("shape", ""),
        trace.get("width"),
    )


def inks(page) -> list[str]:
    """Return the color of each figure's axis labels."""
    return page.evaluate(
        "[...document.querySelectorAll('.sdl-plot')].map((f) =>"
        " getComputedStyle(f.querySelector('.xtick text, .ytick text')).fill)"
    )


def layout_faults(page) -> list[str]:
    """Return the elements that make the page scroll sideways.

    Elements inside a box that scrolls or is clipped do not count.
    """
    return page.evaluate("""() => {
      if (document.documentElement.scrollWidth <= innerWidth) return [];
      const isFree = (place) => !place || place === document.body
        || (getComputedStyle(place).overflowX === 'visible' && isFree(place.parentElement));
      const wide = [...document.querySelectorAll('main :not(.bd-sidebar-secondary, .bd-sidebar-secondary *)')]
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && isFree(e.parentElement))
        .map((e) => `${e.outerHTML.slice(0, 80)} (${e.textContent.trim().slice(0, 60)})`);
      const { scrollWidth } = document.documentElement;
      return [`${scrollWidth} px wide in ${innerWidth}: ${wide.slice(0, 5).join(' | ')}`];
    }""")


def unseen_focus(page, place) -> list[str]:
    """Return controls of `place` that get no outline when Tab reaches them, or that it never reaches.

    Of a row whose keys move along it, Tab reaches one, and the others have the tabindex -1.
    """
    controls = "button:enabled, input:enabled, select, textarea, summary, [tabindex='0']"
    place.locator(f"{controls} >> visible=true").first.focus()
    page.keyboard.press("Shift+Tab")
    place.evaluate("(place) => { place.reached = new Set(); }")
    faults, outside = [], 0
    while True:
        page.keyboard.press("Tab")
        at = place.evaluate("""(place) => {
          const at = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(at);
          if (!place.contains(at) || place.reached.has(at)) return null;
          place.reached.add(at);
          return [outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, at.outerHTML.slice(0, 80)];
        }""")
        if at is None and outside < 2 and not place.evaluate("(place) => place.reached.size"):
            outside += 1  # a citation just before has opened its card, whose link comes first
            continue
        if at is None:
            return faults + place.evaluate(
                """(place, controls) => [...place.querySelectorAll(controls)]
              .filter((control) => control.checkVisibility() && !place.reached.has(control))
              .filter((control) => control.tabIndex >= 0 ||
                ![...control.parentElement.children].some((one) => place.reached.has(one)))
              .map((control) => `Tab does not reach ${control.outerHTML.slice(0, 80)}`)""",
                controls,
            )
        faults += [] if at[0] else [f"no outline: {at[1]}"]


def accessibility_faults(page, place: str = "page") -> list[str]:
    """Return all violations that axe-core reports once nothing fades in, which lowers contrast."""
    stand_still(page)
    page.evaluate(AXE.read_text("utf-8"))
    faults = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{place}: {v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in faults]


def show(page, scheme: str) -> None:
    """Switch the page to the light or dark theme; wait until figures and colors have changed."""
    page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
    page.wait_for_function(
        "scheme => [...document.querySelectorAll('.sdl-plot')].every((place) => place.dataset.drawn"
        " === scheme)",
        arg=scheme,
    )
    stand_still(page)
