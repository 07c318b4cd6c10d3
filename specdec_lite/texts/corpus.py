"""Read text that every machine has: Python's standard library, its tests and its reference topics.

The source of pinned packages can be added. The fixed lists below hold out documents of three
domains for evaluation; tests of held-out modules are left out of the training text too.
"""

import importlib.util
import json
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

HELD_OUT = {
    "code": tuple("statistics textwrap heapq shlex fractions calendar graphlib wave".split()),
    "data": tuple(
        "mimetypes opcode stat http/__init__ curses/ascii curses/has_key email/charset keyword".split()
    ),
    "prose": tuple("calls import strings objects binary raise subscriptions dict slicings".split()),
}
DOMAINS = tuple(HELD_OUT)
SKIPPED = {"site-packages", "pydoc_data", "encodings", "turtledemo", "__pycache__", "dist-packages"}
MODULES = {name for domain in ("code", "data") for name in HELD_OUT[domain]}
PACKAGES = tuple(
    """IPython PIL docutils huggingface_hub jinja2 jupyter_server mpmath narwhals networkx
    numpy prompt_toolkit pydantic pygments rich scipy sphinx sqlalchemy sympy torch
    tornado""".split()
)
TESTS = {"test", "tests", "idle_test"}
FOREIGN = {"tests", "test", "testing", "_vendor", "_vendored_packages"}


def _library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def _topics() -> dict[str, str]:
    """Return Python's reference topics: {name: text}."""
    from pydoc_data.topics import topics

    return topics


def _is_held_out_test(path: Path) -> bool:
    """Return whether a test belongs to a held-out module, by its name."""
    stems = {name.removesuffix("/__init__").rsplit("/", 1)[-1] for name in MODULES}
    return any(path.stem == f"test_{stem}" or f"test_{stem}" in path.parts for stem in stems)


def _sources(root: Path, is_included: Callable[[Path], bool]) -> list[str]:
    """Return the Python sources in a folder, except files that are not UTF-8 or longer than 400,000
    characters.
    """
    texts = []
    for path in sorted(root.rglob("*.py")):
        if not is_included(path.relative_to(root)):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) < 400_000:
            texts.append(text)
    return texts


def _library_sources(tests: bool) -> list[str]:
    """Return the standard library's sources that are not held out: its tests, or all others."""

    def is_included(path: Path) -> bool:
        name, parts = path.with_suffix("").as_posix(), set(path.parts)
        return (
            bool(TESTS & parts) == tests
            and not SKIPPED & parts
            and name not in MODULES
            and not _is_held_out_test(path)
        )

    return _sources(_library(), is_included)


def _package_sources() -> list[str]:
    """Return the sources of PACKAGES, except tests, vendored copies, and files that repeat more than
    five long lines of held-out text.
    """
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    if missing := [name for name, spec in specs.items() if spec is None]:
        raise ModuleNotFoundError(
            f"packages=True reads the source of {', '.join(PACKAGES)}; not installed:"
            f" {', '.join(missing)} (see requirements.txt)"
        )
    held_out = {
        line for texts in held_out_text().values() for text in texts for line in _long_lines(text)
    }
    roots = (Path(spec.origin).parent for spec in specs.values() if spec and spec.origin)
    texts = (
        text
        for root in roots
        for text in _sources(root, lambda path: not FOREIGN & set(path.parts))
    )
    return [text for text in texts if sum(line in held_out for line in _long_lines(text)) <= 5]


def _long_lines(text: str) -> list[str]:
    """Return the lines of more than 30 characters, without surrounding spaces."""
    return [line.strip() for line in text.splitlines() if len(line.strip()) > 30]


def training_text(packages: bool = False) -> dict[str, list[str]]:
    """Return the documents to train on.

    Args:
        packages: whether to add the source of PACKAGES.

    Returns:
        {source: documents}, with the sources "library", "tests" and "docs", and "packages" if
        requested.

    Raises:
        ModuleNotFoundError: packages is True and a package is not installed.
    """
    topics = _topics()
    copied = {line for topic in HELD_OUT["prose"] for line in _long_lines(topics[topic])}
    docs = [
        "\n".join(line for line in text.splitlines() if line.strip() not in copied)
        for name, text in sorted(topics.items())
        if name not in HELD_OUT["prose"]
    ]
    texts = {
        "library": _library_sources(tests=False),
        "tests": _library_sources(tests=True),
        "docs": docs,
    }
    return texts | {"packages": _package_sources()} if packages else texts


def held_out_text() -> dict[str, list[str]]:
    """Return the documents for evaluation, which are not part of the training text.

    Returns:
        {domain: documents}, with the domains "code", "data" (tables and constants) and "prose".
    """
    modules = {name: (_library() / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    topics = _topics()
    return {
        domain: [topics[n] if domain == "prose" else modules[n] for n in HELD_OUT[domain]]
        for domain in DOMAINS
    }


TABLE_LINE = re.compile(r"""^\s*(['"(\[{]|\w+\s*=\s*[\w'"(]|\w+\(['"]|[\w.]+\s*:\s)""")


def make_prompts(each: int) -> dict[str, list[dict]]:
    """Choose prompts of about 420 characters, in whole lines, from the held-out documents.

    The prompts are spread evenly over the documents of a domain. In the domain "data" only windows
    that consist mostly of table lines are chosen.

    Args:
        each: number of prompts per domain.

    Returns:
        {domain: [{"source": name of the document, "text": prompt}]}.
    """
    prompts = {}
    for domain, texts in held_out_text().items():
        windows = [
            {"source": name, "text": window}
            for name, text in zip(HELD_OUT[domain], texts)
            for window in _windows(text, 420)
            if domain != "data" or _is_table(window)
        ]
        prompts[domain] = [
            windows[round((i + 0.5) * len(windows) / each - 0.5)] for i in range(each)
        ]
    return prompts


def _windows(text: str, length: int) -> list[str]:
    """Split a text into windows of whole lines with at least `length` characters each."""
    windows, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if len(current) >= length:
            windows.append(current.rstrip("\n"))
            current = ""
    return windows[:-1]


def _is_table(window: str) -> bool:
    """Return whether at least 80 % of the lines look like entries of a table."""
    lines = [line for line in window.splitlines() if line.strip()]
    return sum(bool(TABLE_LINE.match(line)) for line in lines) >= 0.8 * len(lines)


def evaluation_prompts() -> dict[str, list[dict]]:
    """Return the shipped prompts by domain.

    `make_prompts` wrote them on the machine that trained the pair, so they are the same everywhere.
    Four whose text other modules of the corpus repeat were replaced by others of its windows.

    Returns:
        {domain: [{"source": name of the document, "text": prompt}]}.
    """
    return json.loads(
        (Path(__file__).parents[1] / "weights" / "prompts.json").read_text(encoding="utf-8")
    )
