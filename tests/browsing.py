"""What the tests of the published book share beside the fixtures of conftest.py: the pages, and
what to look for on one.
"""

import functools
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import BOOK, ROOT
from mounting import settle

from benchmarks.browser import draw_figures

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
    """The built pages that have such an element; known when pytest collects, because the book is
    built before.
    """
    found = [
        name for name in PAGES if (BOOK / name).exists() and parsed(BOOK / name).select(selector)
    ]
    return found or [pytest.param(None, id=f"no page with {selector}")]


def scroll_through(page) -> None:
    """Bring every figure into view, so that the lazy ones are drawn; each ends as wide as its
    place.
    """
    draw_figures(page)
    settle(page)
    page.wait_for_function(
        """[...document.querySelectorAll('.sdl-plot')].every((place) =>
        Math.abs(place.querySelector('.main-svg').getBoundingClientRect().width - place.clientWidth) < 2)"""
    )


def drawing_faults(page) -> list[str]:
    """Figures without a drawn trace, interactives without a picture, images that did not load."""
    return page.evaluate("""() => [
      ...[...document.querySelectorAll('.sdl-plot')]
        .filter((f) => !f.querySelector('.main-svg .trace'))
        .map((f) => `figure not drawn: ${f.ariaLabel}`),
      ...[...document.querySelectorAll('.sdl-interactive')]
        .filter((i) => !i.querySelector('svg, tbody td'))
        .map((i) => `interactive empty: ${i.dataset.module}`),
      ...[...document.images]
        .filter((i) => i.checkVisibility() && !(i.complete && i.naturalWidth))
        .map((i) => `image missing: ${i.src}`),
    ]""")


def stand_still(page) -> None:
    """Wait until nothing fades or changes its colour any more."""
    page.evaluate("globalThis.stillFrames = 0")
    page.wait_for_function(
        """() => {
        // three frames: an inherited colour may begin to change only when its parent's has arrived;
        // finished animations may stay listed
        const moving = document.getAnimations().some((animation) => animation.playState === "running");
        return (globalThis.stillFrames = moving ? 0 : globalThis.stillFrames + 1) > 2;
    }"""
    )


def unfold(page) -> None:
    """Open all that can be opened: answers, hints, solutions, folded code, figures' data,
    interactives' details; and wait until what fades in stands there.
    """
    page.evaluate(
        "document.querySelectorAll('article details').forEach((fold) => { fold.open = true; })"
    )
    stand_still(page)


def figure_faults(page) -> list[str]:
    """Figures without a number, words or a table of their numbers (their folds are open), and those
    whose legend lies over the panel or leaves the figure.
    """
    return page.evaluate(
        r"""() => [...document.querySelectorAll('.sdl-figure')].flatMap((figure) => {
      const plot = figure.querySelector('.sdl-plot');
      const words = plot.ariaLabel?.trim();
      const caption = figure.querySelector('figcaption')?.textContent ?? '';
      const rows = [...figure.querySelectorAll('.sdl-data tbody tr')];
      const legend = figure.querySelector('g.legend')?.getBoundingClientRect();
      const panel = figure.querySelector('.plot, .cartesianlayer')?.getBoundingClientRect();
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
    """All by which a trace of a figure is told from another one, but for its colour."""
    line = trace.get("line", {})
    marker = trace.get("marker", {})
    bar = trace["type"] == "bar"
    mode = trace.get("mode") or "lines+markers"  # plotly's own, up to 20 points
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
    """The colour in which each figure labels its axes."""
    return page.evaluate(
        "[...document.querySelectorAll('.sdl-plot')].map((f) =>"
        " getComputedStyle(f.querySelector('.xtick text, .ytick text')).fill)"
    )


def layout_faults(page) -> list[str]:
    """What makes the page scroll sideways: not what scrolls, or is cut, within a place of its own."""
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
    """What Tab reaches within `place` and does not outline, and the controls that it does not
    reach.
    """
    controls = "button:enabled, input:enabled, select, textarea, summary, [tabindex='0']"
    place.locator(f"{controls} >> visible=true").first.focus()
    page.keyboard.press("Shift+Tab")
    place.evaluate("(place) => { place.reached = new Set(); }")
    faults = []
    while True:
        page.keyboard.press("Tab")
        at = place.evaluate("""(place) => {
          const at = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(at);
          if (!place.contains(at) || place.reached.has(at)) return null;
          place.reached.add(at);
          return [outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, at.outerHTML.slice(0, 80)];
        }""")
        if at is None:
            return faults + place.evaluate(
                """(place, controls) => [...place.querySelectorAll(controls)]
              .filter((control) => control.checkVisibility() && !place.reached.has(control))
              .map((control) => `no Tab leads to ${control.outerHTML.slice(0, 80)}`)""",
                controls,
            )
        faults += [] if at[0] else [f"no outline: {at[1]}"]


def accessibility_faults(page, place: str = "page") -> list[str]:
    """What axe-core finds, at every level. place: where, in words, for the message."""
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{place}: {v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]}" for v in found]


def show(page, scheme: str) -> None:
    """The page's light or dark mode, with the figures redrawn and colours no longer on their way."""
    page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
    page.wait_for_function(
        "scheme => [...document.querySelectorAll('.sdl-plot')].every((place) => place.dataset.drawn"
        " === scheme)",
        arg=scheme,
    )
    stand_still(page)
