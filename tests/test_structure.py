"""The order of the packages and rooms: each imports only from those below it, without cycles."""

import ast
import re
import subprocess
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("specdec_lite", "specdec_book", "site", "benchmarks")
ROOMS = {
    "specdec_lite": """_lazy _extras checks transfer roofline theory sampling tree proposal acceptance engine
    contract processors grammar speculation options decoding scheduling batch texts loading measure
    drafters gpu simulation training diagnosis __main__""".split(),
    "specdec_book": ["recordings", "exercises", "classroom", "viz"],
}
"""Each package's rooms, the lowest first."""
TOP_LEVEL = {"specdec_site": "site", "browser": "site"}
"""The modules of site/, which are imported without a package of that name."""


MOST_BYTES = 62 * 2**20
"""Size of the tracked files at most: a machine without network takes little more."""


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {
    dotted(file): file for package in ROOMS for file in sorted(ROOT.glob(f"{package}/**/*.py"))
}


def imports(file: Path) -> set[str]:
    """Return the full dotted names that a file imports anywhere in its code."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    plain = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    pairs = [
        (node, name) for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names
    ]
    names = [f"{'.' * node.level}{node.module}.{name.name}" for node, name in pairs]
    return {name if name in FILES else name.rpartition(".")[0] or name for name in names} | {*plain}


def ours(file: Path) -> set[str]:
    """Return the modules of the two packages that a file imports."""
    return {name for name in imports(file) if name.startswith((*ROOMS, "."))}


@cache
def graph() -> dict[str, set[str]]:
    """Return the modules of the two packages that each module imports."""
    return {module: ours(file) for module, file in FILES.items() if module not in ROOMS}


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_imports_only_from_rooms_below_it(package: str):
    order = ROOMS[package]
    modules = [module for module in graph() if module.split(".")[0] == package]
    assert {module.split(".")[1] for module in modules} <= set(order)
    upward = [
        f"{module} imports {other}"
        for module in modules
        for other in graph()[module]
        if other.startswith((package, "."))
        and other != package  # its lazy names: a function asked for at run time
        and order.index(other.split(".")[1]) > order.index(module.split(".")[1])
    ]
    assert not upward and len(modules) > 30


@pytest.mark.parametrize("floor", FLOORS)
def test_a_package_imports_only_from_packages_below_it(floor: str):
    above = FLOORS[FLOORS.index(floor) + 1 :]
    upward = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in ROOT.glob(f"{floor}/**/*.py")
        for name in imports(file)
        if TOP_LEVEL.get(name.split(".")[0], name.split(".")[0]) in above
    ]
    assert not upward


def test_no_import_leads_back():
    order = list(TopologicalSorter(graph()).static_order())
    assert order.index("specdec_lite.sampling") < order.index("specdec_lite.decoding")


def test_what_all_drafters_share_imports_no_family():
    modules = {module for module in graph() if module.startswith("specdec_lite.drafters.")}
    shared = {f"specdec_lite.drafters.{name}" for name in ("chain", "lengths")}
    upward = [
        f"{one} imports {other}" for one in shared for other in graph()[one] & modules - shared
    ]
    assert not upward and shared < modules and 15 < len(modules) < 30


def test_recordings_are_read_without_the_decoder():
    reached = {"specdec_book.recordings"}
    while more := {other for module in reached for other in graph().get(module, ())} - reached:
        reached |= more
    rooms = {module.split(".")[1] for module in reached if "." in module}
    assert not rooms & {"engine", "speculation", "decoding"}


def test_every_test_that_a_page_names_exists():
    """The proofs' tables say which test checks each theorem, by its name in backquotes."""
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("tests/**/*.py")}
    tests = {
        *re.findall(r"def (test_\w+)", "".join(path.read_text("utf-8") for path in files.values()))
    }
    named = [
        (page.name, name)
        for page in sorted([*ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.ipynb")])
        for name in re.findall(r"`(test_\w+|tests/[\w/]+\.py)`", page.read_text("utf-8"))
    ]
    assert len(named) > 40
    assert [each for each in named if each[1] not in tests and each[1] not in files] == []


def test_the_tracked_files_are_small():
    """Weights and training text are most of it: `loading.weights` stores heads in 4 or 8 bits."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    files = [ROOT / name for name in names.split("\0") if name]
    sizes = {file: file.lstat().st_size for file in files if file.exists()}
    assert len(sizes) > 500 and sum(sizes.values()) <= MOST_BYTES, f"{sum(sizes.values()):,} bytes"


CODE = (".py", ".js", ".mjs", ".ts", ".c")
BUDGETS = {
    "benchmarks": 3455,
    "site": 757,
    "site/live": 3961,
    "site/specdec_site": 3536,
    "site/static": 826,
    "specdec_book": 433,
    "specdec_book/exercises": 2789,
    "specdec_book/recordings": 1306,
    "specdec_book/viz": 12402,
    "specdec_lite": 3780,
    "specdec_lite/acceptance": 1015,
    "specdec_lite/diagnosis": 2354,
    "specdec_lite/drafters": 6000,
    "specdec_lite/engine": 3172,
    "specdec_lite/gpu": 2321,
    "specdec_lite/loading": 2239,
    "specdec_lite/measure": 930,
    "specdec_lite/simulation": 1425,
    "specdec_lite/texts": 536,
    "specdec_lite/training": 2503,
    "tests": 9420,
    "tests/acceptance": 683,
    "tests/benchmarks": 854,
    "tests/book": 1576,
    "tests/diagnosis": 897,
    "tests/drafters": 3221,
    "tests/engine": 2213,
    "tests/exercises": 602,
    "tests/gpu": 1030,
    "tests/js": 370,
    "tests/loading": 1597,
    "tests/measure": 542,
    "tests/recordings": 944,
    "tests/simulation": 398,
    "tests/site": 3479,
    "tests/texts": 167,
    "tests/training": 1075,
    "tests/viz": 4292,
}
"""Lines of code that each room may have. A number may only fall; what raises one lowers another."""
SLACK = 30
"""Lines that a room may be below its number before the number has to follow."""


def room(name: str) -> str:
    """Return the room of a tracked file: the first two folders, or the package alone."""
    return "/".join(Path(name).parts[:-1][:2])


def lines_of_rooms() -> dict[str, int]:
    """Return the lines of code of each room, counted over the tracked files."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
    ).stdout.split("\0")
    counts: dict[str, int] = {}
    for name in listed:
        if name.endswith(CODE) and (ROOT / name).exists():
            lines = (ROOT / name).read_text("utf-8").count("\n")
            counts[room(name)] = counts.get(room(name), 0) + lines
    return dict(sorted(counts.items()))


def test_each_room_keeps_its_budget():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    counts = lines_of_rooms()
    wrong = {
        name: f"{lines} lines, {BUDGETS.get(name, 0)} allowed"
        for name, lines in counts.items()
        if not 0 <= BUDGETS.get(name, 0) - lines <= SLACK
    }
    assert not wrong and {*counts} == {*BUDGETS}, wrong


def test_the_sum_of_the_budgets_only_falls():
    """Compared with the commit before, whose numbers are read from its source."""
    command = ["git", "-C", str(ROOT), "show", "HEAD~1:tests/test_structure.py"]
    before = subprocess.run(command, capture_output=True, text=True)
    known = re.search(r"^BUDGETS = (\{.*?^\})", before.stdout, flags=re.M | re.S)
    if not known:
        pytest.skip("no commit before this one, or it has no budgets")
    assert sum(BUDGETS.values()) <= sum(ast.literal_eval(known[1]).values())
