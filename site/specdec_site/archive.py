"""The whole book as one zip file, which works from a folder without a network.

The archive is written after all pages are finished. It leaves out itself and the weights files that
only a web server can deliver. Its copy of the download offer says that it is a copy.

    PYTHONPATH=site python -m specdec_site.archive _build/html     # or: make zip

writes the larger archive, with SmolLM2 for the live page, beside the book's folder.
"""

import argparse
import base64
import json
import re
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from . import live_smollm2

NAME = "specdec-lite-book"
EXCLUDED = (f"{NAME}.zip", "_static/live/weights.bin", ".buildinfo", ".buildinfo.bak")
SHARDS = f"_static/live/{live_smollm2.FILES}*"
OFFER = re.compile(r'<p class="sdl-download">.*?</p>', flags=re.S)


class Download(Directive):
    """```{download-book}``` in a .md page: a paragraph for the link and the archive's size.

    `publish` fills it when the book is finished.
    """

    def run(self) -> list[nodes.Node]:
        """Return the empty paragraph."""
        return [nodes.raw("", '<p class="sdl-download"></p>', format="html")]


def fill_offer(page: str, text: str) -> str:
    """Return a page's HTML with `text` in its download paragraph."""
    return OFFER.sub(lambda _: f'<p class="sdl-download">{text}</p>', page)


def link(root: str, size: int) -> str:
    """Return the HTML of the download link."""
    return (
        f'<a href="{root}{NAME}.zip" download>Download the book</a> (zip, {size / 1e6:.1f} MB):'
        " unpack it and open <code>index.html</code>. Everything works without a network, including"
        " the search and the live page."
    )


def members(book: Path) -> list[Path]:
    """Return the files of the archive, in the same order for every build."""
    return sorted(
        path
        for path in book.rglob("*")
        if path.is_file() and str(path.relative_to(book)) not in EXCLUDED and not path.match(SHARDS)
    )


def scripts(live: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the scripts that carry SmolLM2 in a page without a server.

    A page that was opened from a folder can load scripts, but no other files. The first script has
    the manifest, and each of the others one shard.
    """
    manifest = live / f"{live_smollm2.FILES}.json"
    if not manifest.exists():
        raise ValueError(f"{live} has no {manifest.name}: the book was built without SmolLM2")
    shards = json.loads(manifest.read_text("utf-8"))["shards"]
    files = [manifest, *(live / shard["name"] for shard in shards)]
    for number, file in enumerate(files):
        text = base64.b64encode(file.read_bytes()).decode()
        yield f"{live_smollm2.FILES}-{number}.js", f'globalThis.sdlWeights("{text}");\n'
    engine = (live / "engine.js").read_text("utf-8")
    yield "engine.js", f"{engine}globalThis.sdlLive.smollm2.scripts = {len(files)};\n"


def contents(book: Path, day: date, smollm2: bool) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the archive's files."""
    live = book / "_static" / "live"
    extra = dict(scripts(live)) if smollm2 else {}
    note = f"You are reading the downloaded copy of {day.isoformat()}: it needs no network."
    for path in members(book):
        name = f"{NAME}/{path.relative_to(book).as_posix()}"
        if path.parent == live and path.name in extra:
            continue
        if path.suffix == ".html":
            yield name, fill_offer(path.read_text("utf-8"), note).encode()
        else:
            yield name, path.read_bytes()
    for own, text in extra.items():
        yield f"{NAME}/{live.relative_to(book).as_posix()}/{own}", text.encode()


def pack(book: Path, day: date, smollm2: bool = False) -> Path:
    """Write the archive and return its path."""
    target = book.parent / f"{NAME}-smollm2.zip" if smollm2 else book / f"{NAME}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, data in contents(book, day, smollm2):
            archive.writestr(name, data)
    return target


def publish(app: Sphinx, error: Exception | None) -> None:
    """Write the archive and fill in the download offers of a finished book."""
    if error is not None or app.builder.name != "html":
        return
    book = Path(app.outdir)
    size = pack(book, date.today()).stat().st_size
    for path in members(book):
        if path.suffix == ".html" and OFFER.search(page := path.read_text("utf-8")):
            root = "../" * (len(path.relative_to(book).parts) - 1)
            path.write_text(fill_offer(page, link(root, size)), "utf-8")


def register(app: Sphinx) -> None:
    """Add the directive and the archive to a Sphinx application."""
    app.add_directive("download-book", Download)
    app.connect("build-finished", publish, priority=900)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the book and SmolLM2 as one zip file.")
    parser.add_argument("book", type=Path, help="folder of the built book")
    try:
        written = pack(parser.parse_args().book.resolve(), date.today(), smollm2=True)
    except ValueError as error:
        parser.error(str(error))
    print(f"{written}: {written.stat().st_size / 1e6:.0f} MB")
