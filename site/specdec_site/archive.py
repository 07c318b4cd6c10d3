"""The whole book as one zip, to be read from a folder without any network.

Lives here: the directive that offers the download, and the archive, made when all pages are
finished. The archive does not hold itself, nor the file that only a web server can hand to the live
page; its own copy of the offer says what it is. Its pages ask for their font when they use it, for
browsers refuse to fetch one ahead from a folder.
"""

import re
import zipfile
from datetime import date
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

NAME = "specdec-lite-book"
LEFT_OUT = (f"{NAME}.zip", "_static/live/weights.bin", ".buildinfo", ".buildinfo.bak")
PRELOAD = re.compile(r'<link [^>]*rel="preload"[^>]*>')
OFFER = re.compile(r'<p class="sdl-download">.*?</p>', flags=re.S)


class Download(Directive):
    """```{download-book}``` in a .md page: a paragraph that the finished book fills with the link
    and the archive's size.
    """

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", '<p class="sdl-download"></p>', format="html")]


def offered(page: str, words: str) -> str:
    return OFFER.sub(lambda _: f'<p class="sdl-download">{words}</p>', page)


def link(root: str, size: int) -> str:
    return (
        f'<a href="{root}{NAME}.zip" download>Download the book</a> (zip, {size / 1e6:.1f} MB):'
        " unpack it and open <code>index.html</code>. All of it works without a network, the"
        " search and the live page too."
    )


def members(book: Path) -> list[Path]:
    """The files of the archive, in an order that does not change from build to build."""
    return sorted(
        path
        for path in book.rglob("*")
        if path.is_file() and str(path.relative_to(book)) not in LEFT_OUT
    )


def pack(book: Path, made: date) -> Path:
    """Writes the archive of the built book into the book's own folder."""
    target = book / f"{NAME}.zip"
    inside = f"You are reading the downloaded copy of {made.isoformat()}: it needs no network."
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in members(book):
            name = f"{NAME}/{path.relative_to(book)}"
            if path.suffix == ".html":
                page = PRELOAD.sub("", path.read_text("utf-8"))
                archive.writestr(name, offered(page, inside))
            else:
                archive.write(path, name)
    return target


def publish(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    book = Path(app.outdir)
    size = pack(book, date.today()).stat().st_size
    for path in members(book):
        if path.suffix == ".html" and OFFER.search(page := path.read_text("utf-8")):
            root = "../" * (len(path.relative_to(book).parts) - 1)
            path.write_text(offered(page, link(root, size)), "utf-8")


def register(app: Sphinx) -> None:
    app.add_directive("download-book", Download)
    app.connect("build-finished", publish, priority=900)
