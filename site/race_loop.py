"""Export the race of the start page as a short moving picture for README and social cards.

    python site/race_loop.py    # half a minute; site/race.webp

The clock of the page is advanced frame by frame, so the picture shows the recorded times whatever
the machine that draws it.
"""

import io
from pathlib import Path

from browser import chromium
from gallery import bare_page
from PIL import Image

from specdec_book.viz import Race

OUT = Path(__file__).parent / "race.webp"
FRAME = 240
"""Milliseconds per frame."""
HOLD = 3000
"""Milliseconds for which the result stays."""
LONGEST = 20_000
"""Milliseconds of the whole loop, at most."""
LARGEST = 300_000
"""Bytes of the file, at most."""
WIDTH, HEIGHT = 880, 560
LOOK = """body { margin: 12px; font-family: system-ui, sans-serif }
h1, .sdl-share { display: none }"""


def frames(widget: Race) -> list[Image.Image]:
    """Return the frames of the race on display, drawn by headless Chromium."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.clock.install(time=0)
        page.set_content(bare_page(widget, "light"))
        page.add_style_tag(content=LOOK)
        page.clock.pause_at(3600)  # from here on the clock moves only by `run_for`
        page.get_by_role("button", name="Play").click()
        images = []
        while page.get_by_role("button", name="Pause").count():
            page.clock.run_for(FRAME)
            moved = "document.getAnimations().forEach((one) => {{ one.pause(); one.currentTime += {} }})"
            page.evaluate(moved.format(FRAME))
            images.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        page.close()
    return images


def main() -> None:
    """Write the moving picture, or say why it is too long or too large."""
    images = frames(Race.load(autoplay=False))
    times = [FRAME] * (len(images) - 1) + [HOLD]
    if sum(times) > LONGEST:
        raise SystemExit(f"the race lasts {sum(times)} ms: must be at most {LONGEST}")
    images[0].save(
        OUT,
        save_all=True,
        append_images=images[1:],
        duration=times,
        loop=0,
        quality=60,
        minimize_size=True,
        method=6,
    )
    size = OUT.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{OUT.name} has {size} bytes: must have at most {LARGEST}")
    print(OUT, f"{size / 1e3:.0f} kB, {sum(times) / 1e3:.1f} s")


if __name__ == "__main__":
    main()
