"""Draw the social card of every chapter: its title above its first figure, 1200 × 630 pixels.

    make book && python site/cards.py    # a minute; _build/html/_static/cards/<chapter>.png

A built page names the book's own card; here each chapter's page gets the name of its own. The
published site has these cards, and the repository does not keep them.
"""

import io
from pathlib import Path

from browser import chromium, served
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "_build" / "html"
OUT = BOOK / "_static" / "cards"
SIZE = (1200, 630)
MARGIN = 40
BAND = 150
"""Height of the title above the figure."""
INK, PAPER = "#f2f6fa", "#10263a"
FIGURES = "article :is(.sdl-drawing, .js-plotly-plot, .sdl-interactive)"
LEAST = 120
"""Least height of a figure in pixels; lower ones are legends or tables."""


def font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font of the titles."""
    return ImageFont.truetype("DejaVuSans-Bold.ttf", size)


def card(title: str, figure: Image.Image) -> Image.Image:
    """Return a card."""
    image = Image.new("RGB", SIZE, PAPER)
    draw = ImageDraw.Draw(image)
    size = next(size for size in range(46, 20, -2) if font(size).getlength(title) <= 1120)
    draw.text((MARGIN, 58), title, font=font(size), fill=INK)
    draw.text((MARGIN, 114), "specdec-lite · speculative decoding", font=font(20), fill="#a9bccd")
    room = (SIZE[0] - 2 * MARGIN, SIZE[1] - BAND - 2 * MARGIN)
    scale = min(room[0] / figure.width, room[1] / figure.height)
    figure = figure.resize((int(figure.width * scale), int(figure.height * scale)), Image.LANCZOS)
    sheet = Image.new("RGB", (room[0] + 32, room[1] + 32), "white")
    place = ((sheet.width - figure.width) // 2, (sheet.height - figure.height) // 2)
    sheet.paste(figure, place)
    image.paste(sheet, (MARGIN - 16, BAND + MARGIN - 16))
    return image


def best(figures: list):
    """Return the first figure that is wide enough for a card, else the first that is high enough."""
    boxes = [figure.bounding_box() or {"width": 0, "height": 0} for figure in figures]
    high = [i for i, box in enumerate(boxes) if box["height"] > LEAST]
    return figures[next((i for i in high if boxes[i]["width"] > 1.5 * boxes[i]["height"]), high[0])]


def with_own_card(page: str, name: str) -> str:
    """Return a built page whose metadata names its own card."""
    return page.replace("/_static/card.png", f"/_static/cards/{name}.png")


def main() -> None:
    """Write one card per chapter of the built book."""
    OUT.mkdir(exist_ok=True)
    with served(BOOK) as address, chromium() as browser:
        page = browser.new_context(
            viewport={"width": 1280, "height": 900}, device_scale_factor=2, color_scheme="light"
        ).new_page()
        for source in sorted((ROOT / "notebooks").glob("*.ipynb")):
            file = BOOK / "notebooks" / f"{source.stem}.html"
            page.goto(f"{address}notebooks/{file.name}")
            title = page.locator("h1").first.evaluate("(h) => h.firstChild.textContent.trim()")
            shown = best(page.locator(FIGURES).all())
            shown.scroll_into_view_if_needed()
            page.wait_for_timeout(400)
            figure = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
            drawn = card(title, figure).quantize(96, dither=Image.Dither.NONE)
            drawn.save(OUT / f"{file.stem}.png", optimize=True)
            file.write_text(with_own_card(file.read_text("utf-8"), file.stem), "utf-8")
            print(file.stem, f"{(OUT / f'{file.stem}.png').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
