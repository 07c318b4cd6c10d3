"""Mutation testing: print the small changes of the library that its tests do not notice.

`python tests/mutate.py ROOM …` changes one expression at a time, and runs the tests that call its
function; without a room it runs all. It writes results/mutation-testing/<machine>.json, in which
other rooms keep their numbers. A mutant is run in a fork of a process that has imported everything,
in which the changed function's code is replaced: no file changes. Not every survivor is a gap: some
are equivalent to the original. What a `raise` states is not changed, since no test compares messages
letter by letter, and neither are annotations, defaults and decorators.
"""

import argparse
import ast
import copy
import gc
import importlib
import json
import math
import os
import pickle
import random
import re
import resource
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUICK = re.search(r"^QUICK := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1]
ROOMS = {
    "rules": ("acceptance tree.py sampling.py", "acceptance test_tree.py test_sampling.py"),
    "decoding": (
        "proposal.py contract.py speculation.py options.py decoding.py batch.py checks.py",
        "test_decoding.py test_batch.py test_properties.py test_end_of_text.py test_fuzz.py",
    ),
    "additions": (
        "scheduling.py processors.py grammar.py texts",
        "test_scheduling.py test_processors.py test_streaming.py test_readers.py texts",
    ),
    "theory": (
        "theory.py roofline.py",
        "test_theory.py viz/test_formulas.py acceptance/test_optimum.py",
    ),
    "engine": ("engine", "engine test_precision.py"),
    "drafters": ("drafters", "drafters test_invariants.py test_matrix.py"),
    "loading": ("loading", "loading"),
    "training": (
        "training",
        "training drafters/test_heads.py drafters/test_published.py drafters/test_lengths.py",
    ),
    "diagnosis": ("diagnosis", "diagnosis"),
    "gpu": ("gpu", "gpu"),
    "simulation": ("simulation", "simulation book/test_serve_page.py viz/test_formulas.py"),
    "measure": ("measure", "measure recordings/test_recordings.py drafters/test_copying.py"),
}
"""Room of the library → (its files and folders, those of its tests)."""
PAIRS = (
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Mult Div, Mod FloorDiv, BitOr BitAnd,"
    " And Or, Break Continue"
)
SWAPS: dict[type, type] = {ast.Pow: ast.Mult}
for pair in PAIRS.split(", "):
    one, other = (getattr(ast, name) for name in pair.split())
    SWAPS |= {one: other, other: one}
KINDS = ("killed", "survived", "timed out", "untested")
UNCHANGED = ast.Raise | ast.JoinedStr | ast.Assert
CALLS = {"min": "max", "max": "min", "all": "any", "any": "all"}


class Mutant(NamedTuple):
    """One change of a file: `new` in place of the node at `field`, `index` of its parent."""

    source: "Source"
    function: str
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST
    statement: ast.AST

    @property
    def name(self) -> str:
        """The function that the change is in, as it is imported."""
        module = ".".join(Path(self.source.file).relative_to(ROOT).with_suffix("").parts)
        return f"{module.removesuffix('.__init__')}.{self.function}"

    def put(self, node: ast.AST) -> ast.AST:
        """Put a node in its place in the tree, and return what was there."""
        values = vars(self.parent) if self.index is None else getattr(self.parent, self.field)
        key = self.field if self.index is None else self.index
        old, values[key] = values[key], node
        return old

    def compile(self) -> tuple[dict[CodeType, CodeType], tuple[str, str]]:
        """Return new code by the old, and the line that differs: old, new."""
        old = self.put(self.new)
        try:
            after = codes(compile(self.source.tree, self.source.file, "exec", dont_inherit=True))
            changed = self.new if old is self.statement else self.statement
            new_lines = ast.unparse(changed).splitlines()
        finally:
            self.put(old)
        lines = zip(ast.unparse(self.statement).splitlines(), new_lines)
        line = next((a.strip(), b.strip()) for a, b in lines if a != b)
        same = len(after) == len(self.source.codes)
        pairs = zip(self.source.codes, after) if same else ()
        return {old: new for old, new in pairs if old != new}, line


class Source:
    """A file of the library: its syntax, its code objects and all its changes."""

    def __init__(self, file: Path):
        self.file = str(file)
        self.tree = ast.parse(file.read_text("utf-8"))
        self.codes = codes(compile(self.tree, self.file, "exec", dont_inherit=True))
        self.mutants = list(self._below(self.tree, "", None))

    def _below(self, parent: ast.AST, function: str, above: ast.AST | None) -> Iterator[Mutant]:
        for field, value in ast.iter_fields(parent):
            is_signature = field == "args" and not isinstance(parent, ast.Call)
            if is_signature or field in ("annotation", "returns", "decorator_list"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if not isinstance(node, ast.AST) or is_text or isinstance(node, UNCHANGED):
                    continue
                statement = node if isinstance(node, ast.stmt) else above
                for new in replacements(node) if function else ():
                    ast.fix_missing_locations(ast.copy_location(new, node))
                    yield Mutant(self, function, parent, field, index, new, statement)
                name = function
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    name = f"{function}.{node.name}".strip(".")
                    if isinstance(parent, ast.Module) and isinstance(node, ast.ClassDef):
                        for item in node.body:
                            if isinstance(item, ast.FunctionDef):
                                yield from self._below(item, f"{name}.{item.name}", item)
                        continue
                yield from self._below(node, name, statement)


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may replace a node."""
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in SWAPS:
        other = copy.copy(node)
        other.op = SWAPS[type(node.op)]()
        yield other
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                swapped = [*ops[:i], SWAPS[type(op)](), *ops[i + 1 :]]
                yield ast.Compare(left, swapped, comparators)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Constant(value=str()):
            yield ast.Constant(f"{node.value}X")
        case ast.If() | ast.While() | ast.IfExp():
            other = copy.copy(node)
            other.test = ast.UnaryOp(ast.Not(), node.test)
            yield other
        case ast.Call(func, args, keywords):
            if isinstance(func, ast.Name) and func.id in CALLS:
                yield ast.Call(ast.Name(CALLS[func.id], ast.Load()), args, keywords)
            for i, keyword in enumerate(keywords):
                if keyword.arg:
                    yield ast.Call(func, args, keywords[:i] + keywords[i + 1 :])
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break() | ast.Continue():
            yield SWAPS[type(node)]()


def codes(code: CodeType) -> list[CodeType]:
    """Return a code object and all those inside it, in one order."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [code, *(each for const in inner for each in codes(const))]


def in_fork(work: Callable[[], object], seconds: float | None = None) -> object:
    """Return what `work` returns in a fork; None if it used that much CPU time or died."""
    read, write = os.pipe()
    if not (child := os.fork()):
        os.close(read)
        if seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 5))
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else None


class Room:
    """A plugin of pytest that runs a room's mutants in place of the tests that it collected."""

    def __init__(self, paths: str, sample: int | None, seed: int):
        places = [ROOT / "specdec_lite" / path for path in paths.split()]
        files = [[place] if place.suffix else sorted(place.rglob("*.py")) for place in places]
        self.sources = [Source(file) for each in files for file in each]
        self.mutants = [mutant for source in self.sources for mutant in source.mutants]
        random.Random(seed).shuffle(self.mutants)
        self.mutants = self.mutants[:sample]
        self.failed = ""
        self.progress = os.fdopen(os.dup(2), "w")  # pytest captures the original

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def passes(self, items: list[pytest.Item]) -> bool:
        """Run tests until one fails."""
        for item, after in zip(items, [*items[1:], None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return False
        return True

    def baseline(self, items: list[pytest.Item]) -> list[tuple[float, set]]:
        """Return the CPU seconds of every test, and the code of the room that it calls."""
        files, results = {source.file for source in self.sources}, []
        shared: dict[tuple[str, str], set] = {}  # what the first test of a module's fixture calls
        for item, after in zip(items, [*items[1:], None]):
            called, start = set(), time.process_time()

            def trace(frame, event, argument, called=called):
                if frame.f_code.co_filename in files:
                    called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

            sys.settrace(trace)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            sys.settrace(None)
            if self.failed:
                raise SystemExit(f"{self.failed} fails on the unchanged library")
            for name, defs in item._fixtureinfo.name2fixturedefs.items():
                if defs[-1].scope == "module":  # the later tests do not call it again
                    called |= shared.setdefault((defs[-1].baseid, name), called)
            results.append((time.process_time() - start, called))
        return results

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for source in self.sources:
            parts = Path(source.file).relative_to(ROOT).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))
        baseline = in_fork(lambda: self.baseline(session.items))
        functions = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType:
                functions[each.__code__].append(each)
        gc.freeze()  # or a collection in a fork would copy all memory
        self.outcomes: list[tuple[str, str, str, str]] = []
        for mutant in self.mutants:
            new, line = mutant.compile()
            changed = {(mutant.source.file, code.co_qualname) for code in new}
            cases = [(s, i) for i, (s, called) in enumerate(baseline) if called & changed]
            items = [session.items[i] for _, i in sorted(cases)]

            def run(new=new, items=items) -> str:
                for old, code in new.items():
                    for function in functions[old]:
                        function.__code__ = code
                return "survived" if self.passes(items) else "killed"

            seconds = 20 + 3 * sum(seconds for seconds, _ in cases)
            kind = (in_fork(run, seconds) or "timed out") if items else "untested"
            self.outcomes.append((mutant.name, *line, kind))
            count = f"{len(self.outcomes)}/{len(self.mutants)}"
            print(count, kind, mutant.name, *line, sep=" | ", file=self.progress, flush=True)
        return True


def tested(name: str, sample: int | None, seed: int) -> list[tuple[str, str, str, str]]:
    """Return (function, line, changed line, outcome) of a room's mutants."""
    path, tests = ROOMS[name]
    room = Room(path, sample, seed)
    tests += " test_arguments.py"  # what every room refuses
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "-o", "addopts=", "-m", QUICK]
    code = pytest.main([*options, *(str(ROOT / "tests" / each) for each in tests.split())], [room])
    if code:
        raise SystemExit(f"the tests of {name} did not run: {code}")
    return room.outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}")
    parser.add_argument("--sample", type=int, help="number of changes of a room; default all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--print", action="store_true", help="write no recording")
    args = parser.parse_args()
    rooms = {}
    survivors = []
    for name in args.rooms or ROOMS:
        outcomes = in_fork(lambda name=name: tested(name, args.sample, args.seed))
        if outcomes is None:
            sys.exit(f"the tests of {name} did not run")
        rooms[name] = {kind: [each[-1] for each in outcomes].count(kind) for kind in KINDS}
        for function, line, change, kind in outcomes:
            if kind in ("survived", "untested"):
                row = {"room": name, "name": function, "line": line, "change": change}
                survivors.append(row)
        print(name, rooms[name], flush=True)
    if args.print:
        return
    from specdec_lite.measure import stamps

    path = stamps.recording_path("mutation-testing", stamps.machine_name(), ROOT / "results")
    known = json.loads(path.read_text("utf-8")) if path.exists() and args.rooms else {}
    for counts in rooms.values():
        counts["commit"] = stamps.commit()
    others = [row for row in known.get("survivors", ()) if row.get("room") not in rooms]
    rooms, survivors = known.get("rooms", {}) | rooms, others + survivors
    stamp = stamps.stamp("Mutation testing of the library", shlex.join(["python", *sys.argv]))
    print("wrote", stamps.save(path, stamp, {"rooms": rooms, "survivors": survivors}))


if __name__ == "__main__":
    main()
