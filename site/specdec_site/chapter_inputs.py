"""What the chapters read: the library, weights, recordings, drawings and versions.

Every chapter runs again if the digest of these files has changed. The modules of interactives are
served, and not part of a chapter's output.
"""

import hashlib
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

FILES = (
    "specdec_lite/**/*.py",
    "specdec_lite/**/*.pyi",
    "specdec_lite/**/*.json",
    "specdec_lite/**/*.c",
    "specdec_lite/weights/**/*",
    "specdec_book/**/*.py",
    "specdec_book/viz/static/**/*.css",
    "specdec_book/viz/static/*.json",
    "specdec_book/viz/static/drawings/*",
    "results/**/*.json",
)
SOFTWARE = ("torch", "transformers", "numpy", "plotly", "ipykernel")


def digest(root: Path, patterns: Iterable[str] = FILES) -> str:
    """Return a digest of the files of these patterns below a folder, and of the software's versions."""
    versions = [platform.python_version(), *map(version, SOFTWARE)]
    parts = hashlib.sha256(" ".join(versions).encode())
    files = {file for pattern in patterns for file in root.glob(pattern) if file.is_file()}
    for file in sorted(files):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        parts.update(f"\n{file.relative_to(root)} {content}".encode())
    return parts.hexdigest()
