"""Mutation testing: change the library in small ways, one at a time, and count how many changes a
fast part of the tests notices.

`python tests/mutate.py` works in a copy of the checkout (by default a temporary folder), never in
it, and writes results/mutation.json. Every change first meets the quickest tests that reach it;
what survives them meets all of the fast part; and what survives that meets it again in a process
that imported the library with the change made. --sample N runs N changes, drawn by a seed. Messages
of errors are not changed: the tests of bad input look at their sense, not at every letter.
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
import time
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("acceptance", "tree", "passes", "linear", "native", "hugging_face", "models", "decoding")
TESTS = ("tree", "acceptance", "proposal", "laws", "decoding", "models", "linear", "blockwise")
# Slow tests, and families that touch no line which those left do not touch (Llama, Qwen2, Gemma2,
# Mistral, Bloom, Llama4 and the native ones stay).
SLOW = (
    "two_token any_pair never_accepts training far_beyond shipped targets_own same_check exact_law"
    " compiled"
).split()
FAMILIES = (
    "Qwen3 Mixtral Gemma3 Phi GPT OPT Falcon Mpt StableLm Cohere Olmo2 Starcoder2 Granite"
    " DeepseekV3 Gemma-".split()
)
LEFT_OUT = " or ".join((*SLOW, *(before + name for name in FAMILIES for before in ("[", "-"))))
QUICK = 2.0  # seconds of tests in a change's first round
SHARES = (0.6, 0.6, 1.0)  # of the time that is left when a round begins
# What the processes of the last round share; the library is not among it.
PRELOADED = "numpy scipy.stats torch hypothesis".split() + [
    f"transformers.models.{name}.modeling_{name}"
    for name in "llama qwen2 gemma2 mistral bloom llama4".split()
]
# Added to conftest.py. Hugging Face's modules are imported once, before the processes part. Models
# are shared between tests; here every test makes its own, or a change of how they are made would
# meet the first test alone.
FRESH = """
from models_zoo import FAMILIES, build, hugging_face

for family in ("Llama", "Qwen2", "Gemma2", "Mistral", "Bloom", "Llama4"):
    build(family, FAMILIES[family])

@pytest.fixture(autouse=True)
def fresh_models():
    hugging_face.cache_clear()
"""
# Survivors that no test should kill, by a pattern of the change. What matches none is a gap of the
# fast part of the tests.
HARMLESS = {
    reason: re.compile("|".join(patterns))
    for reason, patterns in {
        "the same axis, counted from the other end": [
            r"\+ .*(?:dim=|sum\(|amax\(|argmax\(|gather\(|shape\[)\+[12]"
        ],
        "where a tensor is made or moved to: one machine without a GPU shows no difference": [
            r"\+ .*device=None",
            r"- .*device=.*\+ (?!.*device=).*",
            r"\+ .*\.to\((?:None|torch\.long\))",
            r"\+ .*size, None, weight\.dtype",
            r"\+ .*tree_positions\(length, count, tree, None\)",
        ],
        "a default that says the same": [
            r"- .*dtype=torch\.long.*\+ (?!.*dtype=torch)",
            r"- .*use_cache=True.*\+ (?!.*use_cache=True)",
            r"\+ .*\"_is_stateful\", (?:None|True)\)",
            r"\+ .*\"is_encoder_decoder\", (?:None|True)?\)",
        ],
        "a scale of what is only compared": [
            r"\+ .*\{-1: \((?:1, 1\.0|0, 2\.0)\)\}",
            r"\+ .*reached\[parent\]\[0\] \+ 2",
            r"\+ offer\(2\.0",
        ],
        "values that are never read": [
            r"signature\(rule\)\.bind",
            r"\+ .*one_hot\(t, target_probs\[1\]\)",
            r"\+ .*_follow_argmax\(proposal, target_probs, None\)",
            r"\+ positions = torch\.arange\((?:total|length), device=weight\.device\)",
        ],
        "a case that never arises": [
            r"\+ .*if (?:lenience <= 1|lenience < 2|\(lenience < 1\) or True) else residual"
        ],
        "a digit that is not shown": [r"1000001\.0"],
        "the size of something that grows when it must": [
            r"\+ self\.triangle = torch\.zeros\(",
            r"\+ size = min\(TRIANGLE, .*513\)",
            r"\+ .*len\(self\.triangle\) <= total",
            r"\+ .*max_new_tokens \+ 65",
            r"\+ .*capacity: int = 257",
        ],
        "the right answer by another way": [
            r"\+ .*is_inference\(\)\) or True",
            r"self\.layer_types \| set\(kinds\)",
            r"\+ prefix = None",
            r"\+ .*if \(prefix\) and False",
            r"\+ .*slice\((?:None, )?len\(path\) \+ 1\)",
            r"\+ .*isinstance\(accuracies, Tensor\)\) and False",
            r"\+ .*len\(waiting\) - len\(ranks\)",
            r"\+ return masks if (?:.*or True|.*>= 1) else",
            r"\+ .*self\.windowed (?:or not|and) self\.by_path\)",
            r"\+ .*length \+ count >= window",
        ],
    }.items()
}
OUTCOMES = {
    1: "killed",
    3: "killed",
    0: "survived",
    33: "untested",
    24: "timed out",
    36: "timed out",
    -24: "timed out",
    152: "timed out",
}


def copied(folder: Path) -> None:
    """The parts of the checkout that the tests need, and mutmut's settings."""
    shutil.rmtree(folder, ignore_errors=True)
    kept = shutil.ignore_patterns("__pycache__", "node_modules", "site", "model*.safetensors")
    for name in ("specdec_lite", "tests", "results", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=kept)
    shutil.copy(ROOT / "README.md", folder)
    (folder / "preloaded.txt").write_text("\n".join(PRELOADED), encoding="utf-8")
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(FRESH)
    settings = {
        "source_paths": ["specdec_lite"],
        "only_mutate": [f"specdec_lite/{module}.py" for module in MODULES],
        "pytest_add_cli_args_test_selection": [
            *(f"tests/test_{name}.py" for name in TESTS),
            "-k",
            f"not ({LEFT_OUT})",
        ],
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "also_copy": ["tests", "results", "benchmarks", "README.md"],
        "do_not_mutate_patterns": ["raise \\w+Error", '^\\s*f?"[^"]*"\\)?$'],
        "process_isolation": (
            "forkserver"
        ),  # torch's threads do not survive a fork of the process that has run tests
        "forkserver_warmup": "collect",
        "preload_modules_file": "preloaded.txt",
        "use_git_change_detection": False,
        "timeout_constant": 20.0,
        "timeout_multiplier": 3.0,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        project + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )


def mutmut(folder: Path, *arguments: str, timeout: float | None = None) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", *arguments],
            cwd=folder,
            env=environment,
            timeout=timeout,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return "stopped"
    return done.stdout + done.stderr


def metas(folder: Path) -> list[Path]:
    return [folder / "mutants" / "specdec_lite" / f"{module}.py.meta" for module in MODULES]


def found(folder: Path) -> dict[str, int | None]:
    """Every mutant and its exit code, None where it has not run."""
    codes: dict[str, int | None] = {}
    for meta in metas(folder):
        codes |= json.loads(meta.read_text())["exit_code_by_key"]
    return codes


def functions(folder: Path) -> dict[str, str]:
    """Every version of every function, mutants included, by module and mutmut's name for it."""
    found_there = {}
    for module in MODULES:
        source = (folder / "mutants" / "specdec_lite" / f"{module}.py").read_text(encoding="utf-8")
        lines = source.splitlines()
        found_there |= {
            f"specdec_lite.{module}.{node.name}": "\n".join(
                lines[node.lineno - 1 : node.end_lineno]
            )
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef)
        }
    return found_there


def keep(folder: Path, earlier: Path) -> None:
    """Take over the kills of an earlier run where neither the function nor its change is another:
    tests have only been added since.
    """
    ours, theirs = functions(folder), functions(earlier)
    same = lambda name: name in theirs and ours[name] == theirs[name]
    dead = {
        name
        for name, code in found(earlier).items()
        if code == 1
        and name in ours
        and same(name)
        and same(name.rsplit("__mutmut_", 1)[0] + "__mutmut_orig")
    }
    for meta in metas(folder):
        data = json.loads(meta.read_text())
        data["exit_code_by_key"] |= dict.fromkeys(dead & data["exit_code_by_key"].keys(), 1)
        meta.write_text(json.dumps(data))


def quickest(stats: dict, seconds: float) -> dict:
    """mutmut's statistics with each function's quickest tests alone, `seconds` of them together, at
    least one.
    """
    took, reach = stats["duration_by_test"], {}
    for function, tests in stats["tests_by_mangled_function_name"].items():
        tests = sorted(tests, key=took.__getitem__)
        spent = list(accumulate(took[test] for test in tests))
        reach[function] = tests[: max(1, sum(total <= seconds for total in spent))]
    return stats | {"tests_by_mangled_function_name": reach}


def widened(stats: dict) -> dict:
    """mutmut's statistics in which what makes the rules, at import, is reached by every test that
    calls a rule.
    """
    reach = stats["tests_by_mangled_function_name"]
    calls = reach["specdec_lite.acceptance.xǁRuleǁ__call__"]
    return stats | {
        "tests_by_mangled_function_name": (
            reach | {f"specdec_lite.acceptance.{name}": calls for name in ("x_walk", "x__longest")}
        )
    }


def run(folder: Path, names: list[str], children: int, minutes: float) -> None:
    """Three rounds. Who survives one, and has no time left for the next, counts as a survivor."""
    statistics = folder / "mutants" / "mutmut-stats.json"
    project = folder / "pyproject.toml"
    until = time.monotonic() + 60 * minutes
    whole = json.dumps(widened(json.loads(statistics.read_text())))
    quick = json.dumps(quickest(json.loads(whole), QUICK))
    late = project.read_text().replace(
        'forkserver_warmup = "collect"', 'forkserver_warmup = "import"'
    )
    for (file, text), share in zip(
        ((statistics, quick), (statistics, whole), (project, late)), SHARES
    ):
        file.write_text(text)
        mutmut(
            folder,
            "run",
            "--max-children",
            str(children),
            *names,
            timeout=max(1.0, share * (until - time.monotonic())),
        )
        codes = found(folder)
        names = [name for name in names if codes[name] == 0]
        if not names:
            return


def change(versions: dict[str, str], name: str) -> str:
    """The lines of a mutant that differ, as `- old + new`."""
    old, new = (
        re.sub(r"__mutmut_(?:orig|\d+)", "", versions[key]).splitlines()
        for key in (name.rsplit("__mutmut_", 1)[0] + "__mutmut_orig", name)
    )
    lines = [
        line
        for line in difflib.unified_diff(old, new, n=0, lineterm="")
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def survivor(versions: dict[str, str], name: str) -> dict:
    """Its name, the change, and why no test should notice it; None where one should."""
    changed = change(versions, name)
    return {
        "name": name,
        "change": changed,
        "harmless": next(
            (reason for reason, pattern in HARMLESS.items() if pattern.search(changed)), None
        ),
    }


def record(folder: Path, sampled: list[str], command: str) -> Path:
    sys.path.insert(0, str(ROOT))
    from specdec_lite import results

    codes = {
        name: code
        for name, code in found(folder).items()
        if name in set(sampled) and code is not None
    }
    versions = functions(folder)
    outcome = {name: OUTCOMES.get(code, "killed") for name, code in codes.items()}
    counts = lambda names: {
        kind: sum(outcome[name] == kind for name in names)
        for kind in sorted(set(OUTCOMES.values()))
    }
    modules = {
        module: counts([name for name in outcome if f".{module}." in name]) for module in MODULES
    }
    total = counts(outcome)
    judged = total["killed"] + total["survived"] + total["untested"]
    data = {
        "mutants": len(found(folder)),
        "run": len(outcome),
        "score": round(total["killed"] / judged, 4),
        "modules": modules,
        "survivors": [survivor(versions, name) for name in outcome if outcome[name] == "survived"],
    }
    return results.save(
        ROOT / "results" / "mutation.json",
        results.stamp(f"Mutation testing of {', '.join(MODULES[:-1])} and {MODULES[-1]}", command),
        data,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sample", type=int, help="how many mutants to run, drawn by the seed; default all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=60, help="stop after that long and record what has run"
    )
    parser.add_argument(
        "--children",
        type=int,
        default=os.cpu_count() or 1,
        help="how many mutants at once; default one for each core",
    )
    parser.add_argument(
        "--earlier",
        type=Path,
        nargs="*",
        default=[],
        help="folders of earlier runs whose kills still count",
    )
    parser.add_argument("--folder", type=Path, help="where to work; default a temporary folder")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="specdec-mutation-"))
    copied(folder)
    said = mutmut(
        folder, "run", "--max-children", "1", "no_such_mutant"
    )  # makes the mutants, learns which tests reach which function
    if not (folder / "mutants" / "mutmut-stats.json").exists():
        sys.exit(f"the tests fail on the unchanged library:\n{said[-3000:]}")
    names = sorted(found(folder))
    random.Random(asked.seed).shuffle(names)
    sampled = names[: asked.sample]
    for earlier in asked.earlier:
        keep(folder, earlier)
    known = found(folder)
    run(folder, [name for name in sampled if known[name] is None], asked.children, asked.minutes)
    left = sum(found(folder)[name] is None for name in sampled)
    if left and asked.earlier:
        sys.exit(
            f"{left} mutants have not run: nothing is recorded, since beside earlier kills those"
            " that ran would flatter the tests"
        )
    options = (
        (f"--sample {asked.sample} --seed {asked.seed} " if asked.sample else "")
        + f"--minutes {asked.minutes:g}"
        + " --earlier …" * bool(asked.earlier)
    )
    print("wrote", record(folder, sampled, f"python tests/mutate.py {options}"))


if __name__ == "__main__":
    main()
