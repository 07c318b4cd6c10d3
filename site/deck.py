"""A deck from the pages: the cells with the tag `deck`, as one self-contained HTML file.

    PYTHONPATH=.:site python site/deck.py _build/html _build/deck.html     # or: make deck

A figure's note is the paragraph after it, a prediction's note is its answer: the deck has no own text.
"""

import base64
import json
import sys
from html import escape
from pathlib import Path

from browser import chromium, served

ROOT = Path(__file__).resolve().parents[1]
READ = """(predictions) => {
  const text = (node) => node?.textContent.trim().replace(/\\s+/g, " ") ?? "";
  const headOf = (node) => text(node.closest("section")?.querySelector("h1, h2, h3")).replace(/#$/, "");
  const isAfter = (cell) => (p) => cell.compareDocumentPosition(p) === Node.DOCUMENT_POSITION_FOLLOWING;
  const prose = [...document.querySelectorAll("article section > p:not(.sdl-about)")];
  const cells = [...document.querySelectorAll(".cell.tag_deck:has(.cell_output)")].map((cell) => ({
    title: headOf(cell), note: text(prose.find(isAfter(cell))),
    alt: cell.querySelector("svg[role=img], section[aria-label]")?.ariaLabel
      || text(cell.querySelector("figcaption")),
  }));
  const asked = [...document.querySelectorAll("details.sdl-predict")];
  return [cells, predictions.map((i) => {
    const choices = asked[i].previousElementSibling;
    const question = choices.previousElementSibling.cloneNode(true);
    const rules = choices.parentElement.previousElementSibling;
    question.querySelectorAll("em").forEach((em) => em.textContent.includes(" / ") && em.remove());
    const [title, note] = [headOf(asked[i]), [...asked[i].children].slice(1).map(text).join(" ")];
    const items = [...(rules?.tagName === "OL" ? rules : choices).children].map(text);
    return { title, note, question: text(question), choices: items };
  })];
}"""


def marked(path: Path) -> list[int | None]:
    """Return a chapter's marked cells in order: a prediction's number on the page, None for a figure."""
    order, asked = [], 0
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        count = "".join(cell["source"]).count("sdl-predict")
        if "deck" in cell["metadata"].get("tags", []):
            order.append(asked if count else None)
        asked += count
    return order


def slides_of(page, address: str, source: str, order: list[int | None]) -> str:
    """Return the slides of one built chapter, which a browser's page opens."""
    page.goto(address)
    asked = [number for number in order if number is not None]
    figures, predictions = page.evaluate(READ, asked)
    cells, slides = iter(page.locator(".cell.tag_deck:has(.cell_output)").all()), ""
    for prediction in order:
        about = (figures if prediction is None else predictions).pop(0)
        if prediction is None:
            picture = next(cells).locator(".cell_output :is(figure, .sdl-interactive)").first
            picture.scroll_into_view_if_needed()
            page.wait_for_timeout(400)  # some are drawn when they come into view
            data = base64.b64encode(picture.screenshot()).decode()
            alt = escape(about["alt"], quote=True)
            body = f'<img src="data:image/png;base64,{data}" alt="{alt}">'
        else:
            items = "".join(f"<li>{escape(choice)}</li>" for choice in about["choices"])
            body = f"<p>{escape(about['question'])}</p><ol>{items}</ol>"
        note = f"<aside><p>{escape(about['note'])}</p><p>{source}</p></aside>"
        slides += f"<section><h2>{escape(about['title'])}</h2>{body}{note}</section>"
    return slides


def deck(page, address: str, chapters: list[Path]) -> str:
    """Return the deck of these chapters' marked cells as HTML; a browser's page reads the book."""
    slides = ""
    for chapter in chapters:
        if order := marked(chapter):
            name = f"notebooks/{chapter.stem}.html"
            slides += slides_of(page, f"{address.rstrip('/')}/{name}", name, order)
    return (ROOT / "site" / "deck.html").read_text("utf-8").replace("<!-- slides -->", slides)


if __name__ == "__main__":
    book, target = map(Path, sys.argv[1:])
    with chromium() as browser, served(book) as address:
        page = browser.new_page(viewport={"width": 1366, "height": 900}, device_scale_factor=2)
        text = deck(page, address, sorted((ROOT / "notebooks").glob("*.ipynb")))
    target.write_text(text, "utf-8")
    print(f"Open file://{target.resolve()}")
