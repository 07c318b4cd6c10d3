"""The live page in Chromium, with its models; test_live_engine.py tests the engine alone."""

LIVE = "book/live.html"
DONE = "document.querySelector('.sdl-live').dataset.runs === '%d'"


def open_live(open_page, prompt: str = "def add(a, b):\n    return", **settings):
    page = open_page(LIVE, **settings)
    page.wait_for_selector(".sdl-live")
    page.locator(".sdl-live-settings > summary").click()
    page.get_by_label("Prompt").fill(prompt)
    return page


def press(page, run: int = 1) -> str:
    """Press the button, wait for the end of the run, and return the status line."""
    page.locator(".sdl-live-run").click()
    page.wait_for_function(f"({DONE % run}) || document.querySelector('.sdl-live-bad')")
    return page.locator(".sdl-live-status").inner_text()


def numbers(page) -> dict[str, str]:
    """Return the names and values below the replay."""
    return dict(
        page.evaluate(
            "[...document.querySelectorAll('.sdl-live dl div')].map((d) =>"
            " [d.children[0].textContent, d.children[1].textContent])"
        )
    )
