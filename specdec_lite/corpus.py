"""The text that every machine has: the standard library's source, its tests, and Python's reference topics.

Three domains are held out for evaluation by the fixed lists below, together with every test that is named after a
held-out module; nothing here looks at a model. Sizes are in bytes of UTF-8.
"""
import sysconfig
from pathlib import Path

HELD_OUT = {
    "code": ("statistics", "textwrap", "heapq", "shlex", "fractions", "calendar", "graphlib", "wave"),
    "data": ("mimetypes", "opcode", "stat", "http/__init__", "curses/ascii", "curses/has_key", "email/charset", "keyword"),
    "prose": ("calls", "import", "strings", "objects", "binary", "raise", "subscriptions", "dict", "slicings"),
}
DOMAINS = tuple(HELD_OUT)
SKIPPED = ("site-packages", "pydoc_data", "encodings", "turtledemo", "__pycache__", "dist-packages")
MODULES = {name for domain in ("code", "data") for name in HELD_OUT[domain]}


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics
    return topics


def _is_held_out_test(path: Path) -> bool:
    stems = {name.removesuffix("/__init__").rsplit("/", 1)[-1] for name in MODULES}
    return any(path.stem == f"test_{stem}" or f"test_{stem}" in path.parts for stem in stems)


def _sources(tests: bool) -> list[str]:
    root, texts = _library(), []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        is_test = bool({"test", "tests", "idle_test"} & set(inside.parts))
        name = inside.with_suffix("").as_posix()
        if is_test != tests or set(SKIPPED) & set(inside.parts) or name in MODULES or _is_held_out_test(inside):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) < 400_000:
            texts.append(text)
    return texts


def training_text() -> dict[str, list[str]]:
    """Documents to train on, by source: "library", "tests", "docs"."""
    topics = _topics()
    copied = {line for topic in HELD_OUT["prose"] for line in topics[topic].splitlines() if len(line.strip()) > 30}
    docs = ["\n".join(line for line in text.splitlines() if line not in copied)
            for name, text in sorted(topics.items()) if name not in HELD_OUT["prose"]]
    return {"library": _sources(tests=False), "tests": _sources(tests=True), "docs": docs}


def held_out_text() -> dict[str, list[str]]:
    """Documents never trained on, by domain: "code", "data" (tables and constants), "prose"."""
    modules = {name: (_library() / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    topics = _topics()
    return {domain: [topics[n] if domain == "prose" else modules[n] for n in HELD_OUT[domain]] for domain in DOMAINS}
