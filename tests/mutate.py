"""Mutation testing: print the small changes of the algorithm that its tests do not notice.

`python tests/mutate.py` works in a copy of the checkout (by default in a temporary folder) and
writes results/mutation-testing/<machine>.json. Not every survivor is a gap: some are equivalent to
the original.
Error messages are not changed, since the tests of bad input do not compare them letter by letter.
"""

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("acceptance", "tree", "sampling")
TESTS = ("acceptance", "test_tree.py", "test_sampling.py", "test_proposal.py")
QUICK = re.search(r"^QUICK := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1]
PARTS = ("specdec_lite", "tests", "specdec_book", "site", "results", "benchmarks", "README.md")
SETTINGS = {
    "source_paths": ["specdec_lite"],
    "only_mutate": [
        f"specdec_lite/{module}{end}" for module in MODULES for end in (".py", "/*.py")
    ],
    "pytest_add_cli_args_test_selection": [f"tests/{name}" for name in TESTS],
    # The tests of `make test`: a change that only `make test-long` notices counts as survived.
    "pytest_add_cli_args": ["-p", "no:cacheprovider", "-m", QUICK],
    "also_copy": list(PARTS[1:]),
    "do_not_mutate_patterns": ["raise \\w+Error", '^\\s*f?"[^"]*"\\)?$'],
    "process_isolation": "forkserver",  # torch's threads do not survive a fork
    "forkserver_warmup": "collect",
    "use_git_change_detection": False,
    "timeout_constant": 20.0,
    "timeout_multiplier": 3.0,
}
OUTCOMES = {0: "survived", 33: "untested", 24: "timed out", 36: "timed out", -24: "timed out"}


def undecorated(source: str) -> str:
    """Return the source with `name = decorator(name)` for decorated rules, which mutmut skips."""
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and len(node.decorator_list) == 1:
            decorator = ast.unparse(node.decorator_list[0])
            lines.insert(node.end_lineno, f"\n\n{node.name} = {decorator}({node.name})\n")
            del lines[node.decorator_list[0].lineno - 1 : node.lineno - 1]
    return "".join(lines)


def copy_checkout(folder: Path) -> None:
    """Copy the parts of the checkout that the tests need, and write mutmut's settings."""
    ignore = shutil.ignore_patterns("__pycache__", "model*.safetensors")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": ignore} if copy is shutil.copytree else {}))
    for file in (folder / "specdec_lite" / "acceptance").glob("*.py"):
        file.write_text(undecorated(file.read_text(encoding="utf-8")), encoding="utf-8")
    lines = [f"{key} = {json.dumps(value)}" for key, value in SETTINGS.items()]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings = "\n".join(("", "[tool.mutmut]", *lines, ""))
    (folder / "pyproject.toml").write_text(project + settings, encoding="utf-8")


def mutmut(folder: Path, *args: str) -> str:
    """Run mutmut in a folder and return its output."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-m", "mutmut", "run", *args]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def codes(folder: Path) -> dict[str, int | None]:
    """Return every mutant's exit code; None if it has not run."""
    metas = (folder / "mutants").rglob("*.meta")
    records = (json.loads(meta.read_text()) for meta in metas)
    return {name: code for record in records for name, code in record["exit_code_by_key"].items()}


def functions(folder: Path) -> dict[str, list[str]]:
    """Return the lines of every version of every function, by mutmut's name for it."""
    versions = {}
    for file in (folder / "mutants" / "specdec_lite").rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        parts = file.relative_to(folder / "mutants").with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name:
                lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
                text = re.sub(r"__mutmut_(?:orig|\d+)", "", "\n".join(lines))
                versions[f"{module}.{node.name}"] = text.splitlines()
    return versions


def change(versions: dict[str, list[str]], name: str) -> str:
    """Return the lines of a mutant that differ, as `- old + new`."""
    old = versions[name.rsplit("__mutmut_", 1)[0] + "__mutmut_orig"]
    lines = list(difflib.unified_diff(old, versions[name], n=0, lineterm=""))[2:]
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "+-")


def record(folder: Path, names: list[str], command: str) -> None:
    """Print the survivors, and write the counts of each module."""
    sys.path.insert(0, str(ROOT))
    from specdec_lite.measure import stamps

    ran = codes(folder)
    outcomes = {name: OUTCOMES.get(ran[name], "killed") for name in names if ran[name] is not None}
    kinds = ("killed", "survived", "timed out", "untested")
    modules = {}
    for module in MODULES:
        counts = Counter(kind for name, kind in outcomes.items() if name.split(".")[1] == module)
        modules[module] = {kind: counts[kind] for kind in kinds}
    total = Counter(outcomes.values())
    versions = functions(folder)
    survivors = [name for name, kind in outcomes.items() if kind == "survived"]
    data = {
        "run": len(outcomes),
        "score": round(total["killed"] / (len(outcomes) - total["timed out"]), 4),
        "modules": modules,
        "survivors": [{"name": name, "change": change(versions, name)} for name in survivors],
    }
    for survivor in data["survivors"]:
        print(survivor["name"], survivor["change"], sep="\n    ")
    what = f"Mutation testing of {', '.join(MODULES[:-1])} and {MODULES[-1]}"
    path = stamps.recording_path("mutation-testing", stamps.machine_name(), ROOT / "results")
    print("wrote", stamps.save(path, stamps.stamp(what, command), data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sample", type=int, help="number of changes, drawn by the seed; default all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--children", type=int, default=os.cpu_count() or 1, help="changes to test in parallel"
    )
    parser.add_argument(
        "--folder", type=Path, help="an empty one to work in; default a temporary one"
    )
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="specdec-mutation-"))
    copy_checkout(folder)
    output = mutmut(folder, "--max-children", "1", "no_such_mutant")  # creates the mutants
    if not (folder / "mutants" / "mutmut-stats.json").exists():
        sys.exit(f"the tests fail on the unchanged library:\n{output[-3000:]}")
    names = sorted(codes(folder))
    random.Random(args.seed).shuffle(names)
    names = names[: args.sample]
    mutmut(folder, "--max-children", str(args.children), *names)
    sample = f" --sample {args.sample} --seed {args.seed}" if args.sample else ""
    record(folder, names, f"python tests/mutate.py{sample}")


if __name__ == "__main__":
    main()
