"""The text that every machine has: the standard library's source, its tests, Python's reference
topics; pinned packages on request.

Three domains are held out for evaluation by the fixed lists below, together with every test that is
named after a held-out module; nothing here looks at a model. Sizes are in bytes of UTF-8.
"""

import importlib.util
import json
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

HELD_OUT = {
    "code": (
        "statistics",
        "textwrap",
        "heapq",
        "shlex",
        "fractions",
        "calendar",
        "graphlib",
        "wave",
    ),
    "data": (
        "mimetypes",
        "opcode",
        "stat",
        "http/__init__",
        "curses/ascii",
        "curses/has_key",
        "email/charset",
        "keyword",
    ),
    "prose": (
        "calls",
        "import",
        "strings",
        "objects",
        "binary",
        "raise",
        "subscriptions",
        "dict",
        "slicings",
    ),
}
DOMAINS = tuple(HELD_OUT)
SKIPPED = {"site-packages", "pydoc_data", "encodings", "turtledemo", "__pycache__", "dist-packages"}
MODULES = {name for domain in ("code", "data") for name in HELD_OUT[domain]}
PACKAGES = (
    "IPython",
    "PIL",
    "docutils",
    "huggingface_hub",
    "jinja2",
    "jupyter_server",
    "mpmath",
    "narwhals",
    "networkx",
    "numpy",
    "prompt_toolkit",
    "pydantic",
    "pygments",
    "rich",
    "scipy",
    "sphinx",
    "sqlalchemy",
    "sympy",
    "torch",
    "tornado",
)
TESTS = {"test", "tests", "idle_test"}
FOREIGN = {"tests", "test", "testing", "_vendor", "_vendored_packages"}


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics

    return topics


def _is_held_out_test(path: Path) -> bool:
    stems = {name.removesuffix("/__init__").rsplit("/", 1)[-1] for name in MODULES}
    return any(path.stem == f"test_{stem}" or f"test_{stem}" in path.parts for stem in stems)


def _sources(root: Path, wanted: Callable[[Path], bool]) -> list[str]:
    """The Python sources under `root` whose path inside it is wanted, but for those that are not
    UTF-8 or longer than 400,000 characters.
    """
    texts = []
    for path in sorted(root.rglob("*.py")):
        if not wanted(path.relative_to(root)):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) < 400_000:
            texts.append(text)
    return texts


def _library_sources(tests: bool) -> list[str]:
    def wanted(inside: Path) -> bool:
        name, parts = inside.with_suffix("").as_posix(), set(inside.parts)
        return (
            bool(TESTS & parts) == tests
            and not SKIPPED & parts
            and name not in MODULES
            and not _is_held_out_test(inside)
        )

    return _sources(_library(), wanted)


def _package_sources() -> list[str]:
    """The modules of PACKAGES, without tests and vendored copies, and without any that repeats more
    than five long lines of held-out text.
    """
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"packages=True reads the source of {', '.join(PACKAGES)}; not installed:"
            f" {', '.join(missing)} (see requirements.txt)"
        )
    held_out = {
        line for texts in held_out_text().values() for text in texts for line in _long_lines(text)
    }
    roots = (Path(importlib.util.find_spec(name).origin).parent for name in PACKAGES)
    texts = (
        text
        for root in roots
        for text in _sources(root, lambda inside: not FOREIGN & set(inside.parts))
    )
    return [text for text in texts if sum(line in held_out for line in _long_lines(text)) <= 5]


def _long_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if len(line.strip()) > 30]


def training_text(packages: bool = False) -> dict[str, list[str]]:
    """Documents to train on, by source: "library", "tests", "docs", and on request "packages", the
    source of PACKAGES.

    Raises ModuleNotFoundError where a package is asked for and not installed.
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
    """Documents never trained on, by domain: "code", "data" (tables and constants), "prose"."""
    modules = {name: (_library() / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    topics = _topics()
    return {
        domain: [topics[n] if domain == "prose" else modules[n] for n in HELD_OUT[domain]]
        for domain in DOMAINS
    }


TABLE_LINE = re.compile(r"""^\s*(['"(\[{]|\w+\s*=\s*[\w'"(]|\w+\(['"]|[\w.]+\s*:\s)""")


def make_prompts(each: int = 14, length: int = 420) -> dict[str, list[dict]]:
    """`each` prompts a domain from the held-out documents: [{"source", "text"}], whole lines, about
    `length` characters.

    Windows are spread evenly over each document, longer documents giving more; of the "data" domain
    only windows that are mostly table lines count, so that the domain is what its name says.
    """
    prompts = {}
    for domain, texts in held_out_text().items():
        windows = [
            {"source": name, "text": window}
            for name, text in zip(HELD_OUT[domain], texts)
            for window in _windows(text, length)
            if domain != "data" or _is_table(window)
        ]
        prompts[domain] = [
            windows[round((i + 0.5) * len(windows) / each - 0.5)] for i in range(each)
        ]
    return prompts


def _windows(text: str, length: int) -> list[str]:
    windows, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if len(current) >= length:
            windows.append(current.rstrip("\n"))
            current = ""
    return windows[:-1]


def _is_table(window: str) -> bool:
    lines = [line for line in window.splitlines() if line.strip()]
    return sum(bool(TABLE_LINE.match(line)) for line in lines) >= 0.8 * len(lines)


def evaluation_prompts() -> dict[str, list[dict]]:
    """The shipped prompts by domain, as `make_prompts` wrote them on the machine that trained the
    pair.
    """
    return json.loads(
        (Path(__file__).parents[1] / "weights" / "prompts.json").read_text(encoding="utf-8")
    )
