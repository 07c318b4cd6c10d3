"""Files that come from outside, bounded before they are read, and files that are written whole."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from specdec_lite.checks import is_whole

DESCRIBED = {".json", ".jsonl", ".txt", ".model", ".jinja"}
"""Suffixes of the files that describe a model; they are read as a whole."""
MOST_BYTES = 100_000_000
"""The most bytes of such a file; the largest published tokenizers have a third of them."""
MOST_LAYERS = 10_000
"""The most modules of one kind. A file that states more would occupy the loader for minutes."""
COUNTED = re.compile(r"(layers?|experts?|depth|count)$")
"""Names of the entries that are numbers of modules."""
DAY = 86_400
"""Seconds after which an unfinished file belongs to no process."""


def check_files(folder: Path) -> None:
    """Check that a model's folder holds files that end, none of them absurdly large.

    Raises:
        ValueError: a pipe or a device, a description of more than `MOST_BYTES`, or a name that this
            Python cannot hand to the readers of tokenizers and weights.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{ascii(str(folder))}: this Python runs without UTF-8; set PYTHONUTF8=1 and start again"
        ) from None
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError(f"{path}: must be a file; it is a pipe or a device")
        if path.suffix in DESCRIBED and path.is_file() and path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path}: has {path.stat().st_size} bytes, must have ≤ {MOST_BYTES}")


def check_counts(entries: dict) -> None:
    """Check the numbers of modules in a configuration, at any depth.

    Raises:
        ValueError: one is above `MOST_LAYERS`.
    """
    waiting = [entries]
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            elif is_whole(value) and value > MOST_LAYERS and COUNTED.search(name):
                raise ValueError(f"{name[:60]}={str(value)[:20]}: must be ≤ {MOST_LAYERS}")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which then replaces `path`.

    Whatever interrupts the block leaves the existing file, and no unfinished one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent, f"{escape(path.name)}.*.part")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove what killed processes left unfinished more than a day ago."""
    for path in folder.glob(pattern):
        if time.time() - path.stat().st_mtime < DAY:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
