"""What others made has its licence beside it, in the book and in the archive."""

from pathlib import Path

import pytest
from specdec_site import licenses

WORDS = {"live": "Apache License", "fontawesome": "Creative Commons", "font": "OPEN FONT LICENSE"}


def text_beside(folder: Path) -> str:
    """Return the licences and notices of a folder."""
    return "".join(file.read_text("utf-8") for file in sorted(folder.glob("*.txt")))


def test_the_notices_name_the_licence_and_what_was_changed(tmp_path: Path):
    licenses.write(tmp_path)
    live = text_beside(tmp_path / "live")
    assert "Version 2.0, January 2004" in live and "were changed" in live
    assert "Copyright Python Software Foundation" in live
    assert "Creative Commons" in text_beside(tmp_path / "vendor" / "fontawesome")


@pytest.mark.parametrize("name", WORDS)
def test_every_part_from_others_has_its_licence_beside_it(book: Path, name: str):
    folder = next(
        folder
        for folder in (book / "_static" / "live", *(book / "_static" / "vendor").iterdir())
        if folder.name == name
    )
    assert WORDS[name].lower() in text_beside(folder).lower()


def test_every_folder_of_vendored_files_is_known(book: Path):
    """A new one needs its licence, and a line here; plotly's file carries its own."""
    known = {*WORDS, "plotly"}
    assert {folder.name for folder in (book / "_static" / "vendor").iterdir()} <= known
    script = (book / "_static" / "vendor" / "plotly" / "plotly.min.js").read_text("utf-8")
    assert "MIT license" in script[:2000]
