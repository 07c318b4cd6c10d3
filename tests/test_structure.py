"""The house's order: a room imports only from rooms below it, and no import leads back."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = """checks roofline theory sampling tree proposal acceptance engine speculation decoding loading
measure drafters gpu serving training exercises viz __main__""".split()  # from below
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(ROOT.glob("specdec_lite/**/*.py"))
}
room = lambda module: module.split(".")[1]


def imports(module: str) -> set[str]:
    """The library's modules that a module imports anywhere in its code, full dotted names."""
    nodes = list(ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))))
    plain = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    pairs = [
        (node, name) for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names
    ]
    names = [f"{'.' * node.level}{node.module}.{name.name}" for node, name in pairs]
    modules = {name if name in FILES else name.rpartition(".")[0] for name in names} | {*plain}
    return {name for name in modules if name.startswith(("specdec_lite", "."))}


GRAPH = {module: imports(module) for module in FILES if module != "specdec_lite"}


def test_a_room_imports_only_from_rooms_below_it():
    assert {room(module) for module in GRAPH} <= set(ROOMS)
    up = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in others
        if other not in GRAPH  # the library's root, which stands on all rooms, or no full name
        or ROOMS.index(room(other)) > ROOMS.index(room(module))
    ]
    assert not up and len(GRAPH) > 30


def test_no_import_leads_back():
    order = list(TopologicalSorter(GRAPH).static_order())
    assert order.index("specdec_lite.sampling") < order.index("specdec_lite.decoding")


def test_recordings_are_read_without_the_decoder():
    reach = {"specdec_lite.measure.results"}
    while more := {other for module in reach for other in GRAPH[module]} - reach:
        reach |= more
    assert not {room(module) for module in reach} & {"engine", "speculation", "decoding"}
