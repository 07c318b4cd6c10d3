"""Pages for the fixtures of conftest.py: one interactive alone, outside any built book."""

import os


def patience(minutes: float = 3) -> float:
    """Return milliseconds to wait for a page: these minutes of an idle core, more of a busy one."""
    return 60_000 * minutes * max(1, os.getloadavg()[0] / (os.cpu_count() or 1))


def bare_page(widget, theme: str) -> str:
    """Return HTML that draws one interactive with its state, as the gallery does."""
    from gallery import bare_page  # only now: a machine without widgets runs other tests

    return bare_page(widget, theme)


def settle(page) -> None:
    """Wait until every interactive is drawn; fail immediately if one cannot be."""
    page.wait_for_function(
        "[...document.querySelectorAll('.sdl-interactive')].every((place) => place.dataset.mounted)"
    )
    failed = page.locator(".sdl-interactive[data-mounted=failed]").all_inner_texts()
    assert not failed, failed


def pause(page, milliseconds: int) -> None:
    """Wait for timers and frames of the page: what is due by then has happened, on a busy machine too."""
    page.evaluate(
        """(milliseconds) => new Promise((done) => setTimeout(
        () => requestAnimationFrame(() => requestAnimationFrame(done)), milliseconds))""",
        milliseconds,
    )


def says(page, selector: str, words: str) -> None:
    """Wait until the element's text contains these words; a failure shows the text that it has."""
    from playwright.sync_api import expect

    expect(page.locator(selector).first).to_contain_text(words, timeout=patience(0.75))


def press_until(page, name: str, key: str, words: str, most: int = 40) -> None:
    """Press a key on a slider until the state of the task has these words."""
    slider = page.locator(f"[data-name={name}]")
    for _ in range(most):
        slider.press(key)
        pause(page, 170)
        if words in page.locator(".sdl-task-state").inner_text():
            return
    says(page, ".sdl-task-state", words)


def outside_the_frame(page, setting: dict) -> list[str]:
    """Return the parts of a drawing that leave the interactive sideways at a setting of its model."""
    page.evaluate("(s) => Object.entries(s).forEach(([n, v]) => model.set(n, v))", setting)
    return page.evaluate(
        """() => {
      const frame = document.querySelector(".sdl").getBoundingClientRect();
      return [...document.querySelectorAll(".sdl svg :is(text, rect, path, circle)")].filter((n) => {
        const r = n.getBoundingClientRect();
        return r.left < frame.left - 1 || r.right > frame.right + 1;
      }).map((n) => n.outerHTML);
    }"""
    )


def open_phone_folds(page) -> None:
    """Open what a phone shows folded; on a wider page nothing is folded."""
    for summary in page.locator(".sdl-phone-fold > summary").all():
        if summary.is_visible():
            summary.click()
