"""Write results/README.md: what each recording is, when and where it was made, and who shows it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from specdec_book import recordings

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "results" / "README.md"
BOARD = [
    part + target
    for part in ("scoreboard-counts", "scoreboard-clocks", "humaneval-counts")
    for target in ("", "-smollm2")
]
ACCESSORS = {
    r"\bNextWord\b": "next-words",
    r"recordings import models|recordings\.models|[( ]models\.(passes|source)\(": "book-models",
    r"\.speeds\(\)|\brecorded_pairs\(": "speed",
    r"\b(gpus|recorded_pairs)\(": "gpu",
    r"\bwaits\(": "waits",
    r"\b(Round|Stepper)\.load\(": "rounds",
    r"\bexit_acceptance\(": "early-exit-acceptance",
    r"\bsparse_speed\(": "sparse-cache-speed",
    r"\bself_draft_speed\(": "self-draft-speed",
    r"\bestimates\.": "estimator",
    r"\bboard\.load|\bload_board\(|\b(speeds_of|advice)\(|\{which-draft\}": " ".join(BOARD),
    r"\{interactive\} ask": "answers",
    r"\{busy-machine\}": "busy-machine",
    r"\{live-speed\}": "live-smollm2",
    r"\{promise-(?!mutation)": "losslessness",
    r"\{promise-mutation": "mutation-testing",
    r"generated: engine-": "engines",
}
"""Pattern in the source of a page → the experiments whose recordings the page then shows."""
QUOTED = re.compile(r"<!-- recorded: ([\w-]+)")
NAMED = re.compile(
    r"\.(?:load|names)\(\s*[\"']([\w/-]+)[\"']|^:?recording: *([\w/-]+)", re.MULTILINE
)
HEAD = """# Recordings

Each file is one experiment on one machine, `<experiment>/<machine>.json`. It begins with a stamp:
what was measured, when, by which command, at which commit, on which machine and with which versions.
A command runs at its commit: `git checkout <commit>`. `python -m benchmarks list` names the
experiments that can also be measured anew today, by `python -m benchmarks run <experiment>`; the
others are settled. `python -m benchmarks index` writes this page.
[`published.json`](published.json) is no recording: it has figures of papers with their sources.

| recording | what it is | date | machine | command | commit | shown on |
| --- | --- | --- | --- | --- | --- | --- |
"""


def by_experiment() -> dict[str, list[recordings.Recording]]:
    """Return all recordings by experiment."""
    groups: dict[str, list[recordings.Recording]] = {}
    for name in recordings.names():
        groups.setdefault(name.partition("/")[0], []).append(recordings.load(name))
    return groups


def blocks(page: Path) -> Iterator[str]:
    """Yield the code cells of a notebook, or the directives of another page."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        yield from re.findall(r"^(`{3,}\{.*?)^`{3,}\s*$", text, re.MULTILINE | re.DOTALL)
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def shown(page: Path) -> set[str]:
    """Return the experiments whose recordings a page reads."""
    known = {name.partition("/")[0] for name in recordings.names()}
    found = known & {*QUOTED.findall(page.read_text(encoding="utf-8"))}
    for block in blocks(page):
        for pattern, names in ACCESSORS.items():
            found |= {*names.split()} if re.search(pattern, block) else set()
        words = [word for pair in NAMED.findall(block) for word in pair]
        found |= known & {word.partition("/")[0] for word in words}
    return found


def pages() -> dict[str, set[str]]:
    """Return the experiments that README and each page of the book show, by the page's path."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("notebooks/*.ipynb"))]
    files += sorted(ROOT.glob("book/*.md"))
    return {file.relative_to(ROOT).as_posix(): shown(file) for file in files}


def markdown() -> str:
    """Return the text of results/README.md."""
    readers = pages()
    lines = []
    for experiment, group in by_experiment().items():
        links = ", ".join(
            f"[{Path(page).stem.split('_')[0] if page.endswith('ipynb') else Path(page).stem}]"
            f"(../{page})"
            for page, names in readers.items()
            if experiment in names
        )
        for each in group:
            cells = (
                f"[{each.name}]({each.name}.json)",
                each.what,
                each.date,
                each.machine,
                f"`{each.command}`",
                f"`{each.commit}`",
                links or "–",
            )
            lines.append(f"| {' | '.join(cell.replace('|', ' or ') for cell in cells)} |")
    return HEAD + "\n".join(lines) + "\n"


def write() -> Path:
    """Write results/README.md and return its path."""
    PATH.write_text(markdown(), encoding="utf-8")
    return PATH
