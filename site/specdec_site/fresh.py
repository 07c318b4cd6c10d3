"""Which chapters must run again: Sphinx sees a changed notebook by itself, but not a changed
library or a new measurement.
"""

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

READ_BY_CHAPTERS = ("specdec_lite/**/*.py", "specdec_lite/weights/**/*", "results/*.json")


def outdated(
    app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set
) -> list[str]:
    root = Path(app.srcdir)
    used = [
        path.stat().st_mtime
        for pattern in READ_BY_CHAPTERS
        for path in root.glob(pattern)
        if path.is_file()
    ]
    newest = max(used, default=0.0)

    def stale(chapter: str) -> bool:
        built = Path(app.doctreedir) / f"{chapter}.doctree"
        return built.exists() and built.stat().st_mtime < newest

    return [
        chapter for chapter in env.found_docs if chapter.startswith("notebooks/") and stale(chapter)
    ]


def links_only(app: Sphinx) -> None:
    """A build that only checks links executes nothing."""
    if app.builder.name == "linkcheck":
        app.config.nb_execution_mode = "off"


def register(app: Sphinx) -> None:
    app.connect("builder-inited", links_only, priority=100)
    app.connect("env-get-outdated", outdated)
