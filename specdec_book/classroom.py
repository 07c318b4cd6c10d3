"""Student notebooks and marks.

    python -m specdec_book.classroom student 05 06 07 drafter loop --to handout
    python -m specdec_book.classroom grade submissions --seed 2027 --to marks.csv

A submission runs in a process of its own: arguments go in and answers in JSON come out, and the
checks, their formulas and their cases stay in the grader's process.
"""

import argparse
import ast
import csv
import functools
import importlib
import itertools
import json
import linecache
import os
import pickle
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from specdec_book.exercises import answer, check as checking, lossless
from specdec_book.exercises.check import Outcome
from specdec_lite import generate, load_pair
from specdec_lite.diagnosis.lossless import check_lossless
from specdec_lite.drafters import PromptLookupDrafter
from specdec_lite.sampling import outcomes
from specdec_lite.texts.corpus import evaluation_prompts

HERE = Path(__file__).resolve().parent
NOTEBOOKS, ASSIGNMENTS = HERE.parent / "notebooks", HERE / "assignments"
SOLUTION = re.compile(r"\s*<details><summary>[^<]*\b[Ss]olution\b.*?</details>", flags=re.S)
CHECK = re.compile(r"^exercises\.(check_\w+)\((\w+)\)\s*$", flags=re.M)
PATIENCE = 30.0  # seconds by the clock of one call, which may compute for five of them
LIMITS = {"AS": 16 * 2**30, "CPU": 600, "FSIZE": 0}  # bytes, seconds, bytes of a written file
CHANCE, DRAFTER = "<rng>", "<drafter>"  # the grader's rng among arguments; a call of report_on
KEPT = ("check_best_budget", "check_alpha_from_tau", "check_implied_alpha", "check_verdict")
"""Checks of the published cases alone: drawn numbers would ask for what cannot be."""
SEED = 0  # what drawn cases follow from


Exercise = tuple[Path, str, str]  # its notebook, the check that its cell calls, its function


def sources(path: Path, kind: str = "code") -> list[str]:
    """Return the texts of a notebook's cells of one kind; ValueError if it is no notebook."""
    try:
        listed = json.loads(path.read_text("utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in listed if cell["cell_type"] == kind]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path.name} is no notebook") from None


@functools.cache
def published(name: str = "*") -> list[Path]:
    """Return the notebooks with exercises of a chapter ("05") or an assignment ("loop"); or all."""
    every = [*NOTEBOOKS.glob(f"{name}_*.ipynb"), *ASSIGNMENTS.glob(f"{name}.ipynb")]
    return [path for path in sorted(every) if exercises_of(path)]


def student_copy(path: Path) -> str:
    """Return a notebook as JSON without its solutions."""
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = SOLUTION.sub("", "".join(cell["source"])).splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


@functools.cache
def exercises_of(path: Path) -> list[Exercise]:
    """Return the exercises of a published notebook, in order."""
    return [(path, *pair) for pair in CHECK.findall("\n".join(sources(path)))]


def original(path: Path) -> Path:
    """Return the published notebook that a submission was made from; ValueError if none was."""
    text = "\n".join(sources(path))
    share = lambda each: sum(check in text or name in text for _, check, name in exercises_of(each))
    best = max(published(), key=lambda each: (each.stem in path.stem, share(each)))
    if best.stem not in path.stem and not share(best):
        raise ValueError(f"{path.name} has no exercise of this book")
    return best


def plain(value: Any) -> Any:
    """Return what JSON lacks as what it has; `...` is {}."""
    return value.tolist() if hasattr(value, "tolist") else {} if value is ... else repr(value)[:200]


def bar(folders: tuple[str, ...]) -> None:
    """Stop this process from reading the folders, starting programs and using the network."""
    programs = "subprocess. socket. shutil. ctypes.dlopen os.exec os.fork os.posix_spawn os.spawn"
    stopped = (*programs.split(), "os.system", "os.kill", "os.remove", "os.rename", "os.link")

    def hook(event: str, args: tuple) -> None:
        name = os.fsdecode(args[0]) if args and isinstance(args[0], str | bytes) else ""
        if event.startswith(stopped):
            raise PermissionError(f"{event} is not allowed in a submission")
        if event == "import" and name.startswith("specdec_book"):
            raise ImportError("the checks are not part of a submission")
        if event in ("open", "os.listdir", "os.scandir"):
            if name.endswith(".ipynb") or os.path.realpath(name).startswith(folders):
                raise PermissionError("the checks and notebooks are not part of a submission")

    sys.addaudithook(hook)


def defined(code: list[str]) -> dict:
    """Return what cells import, define, or set without a call; nothing else of them is run."""
    scope = dict(__name__="submission", broken=[], specdec_lite=sys.modules["specdec_lite"])
    for number, source in enumerate(code):
        file = f"<cell {number}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            nodes = ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)).body
        except (SyntaxError, ValueError, RecursionError) as error:
            scope["broken"].append(f"a cell has a {type(error).__name__}: {error}")
            continue
        for node in nodes:
            kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
            quick = "Call(" not in ast.dump(node) or isinstance(
                getattr(node, "value", 0), ast.Lambda
            )
            if isinstance(node, kinds) or (isinstance(node, ast.Assign | ast.AnnAssign) and quick):
                with suppress(Exception, SystemExit):  # a call says which name is missing
                    exec(compile(ast.Module([node], []), file, "exec"), scope)
    return scope


def answer_calls() -> None:
    """Answer the grader's calls on standard input; this is what a submission's process runs."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a submission's prints are no replies
    with suppress(ImportError):  # on Windows the grader's clock alone limits it
        resource: Any = importlib.import_module("resource")
        for limit, most in LIMITS.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (most, most))

    def reply(message: dict) -> None:
        print(json.dumps(message, default=plain), file=replies, flush=True)

    class Chance:
        """The grader's rng, from which all of a rule's chance comes."""

        def flip(self, value, kind="flip"):
            reply({"ask": [kind, value]})
            return pickle.load(requests)

        draw = lambda self, probs: self.flip(probs, "draw")

    code = pickle.load(requests)
    importlib.import_module("scipy.optimize")
    reply({"ready": True})
    for name in [name for name in sys.modules if name.startswith("specdec_book")]:
        if (module := sys.modules.pop(name)) is not answer:
            vars(module).clear()  # `__main__` refers to it
    bar((str(HERE), str(NOTEBOOKS)))
    scope = defined(code)
    while True:
        name, args = pickle.load(requests)  # ends with an error when the grader closes the pipe
        report, answer.SECONDS = name == DRAFTER, 120.0 if name == DRAFTER else 5.0
        fn = scope.get(args[0] if report else name)
        if not callable(fn):
            reply({"trouble": "; ".join(["is not defined", *scope["broken"][:1]])})
            continue
        args = [Chance() if isinstance(arg, str) and arg == CHANCE else arg for arg in args]
        call, gap = (lambda: report_on(fn, args[1]) if report else fn(*args)), answer.has_gap(fn)
        value, trouble = answer.run(fn, call)
        reply({"trouble": trouble} if trouble and not gap else {"value": ... if gap else value})


class Refused(Exception):
    """What a submission's call ended with instead of an answer."""


class Submission:
    """A submission's process; it is started again after a call that never answered."""

    def __init__(self, code: list[str]):
        self.code = code
        self.process: Any = None

    def start(self) -> None:
        """Start the process in an empty folder, and give it the submission's code."""
        kept = ("PATH", "PYTHONPATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
        own = {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "SPECDEC_COMPILE": "0"}
        self.folder, self.lines = tempfile.TemporaryDirectory(), queue.Queue()
        own |= {name: os.environ[name] for name in kept if name in os.environ}
        command = [sys.executable, "-m", "specdec_book.classroom", "answer"]
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
        }
        self.process = process = subprocess.Popen(command, cwd=self.folder.name, env=own, **pipes)
        read = lambda lines=self.lines: [*map(lines.put, process.stdout), lines.put(b"")]
        threading.Thread(target=read, daemon=True).start()
        self.send(self.code)
        self.lines.get()  # it has imported PyTorch, which takes long on a busy machine

    def send(self, message: Any) -> None:
        """Send one message to the process."""
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()

    def call(self, name: str, args: list, rng: Any = None, patience: float = PATIENCE) -> Any:
        """Return what a function of the submission returns; Refused says why there is nothing."""
        try:
            if self.process is None:
                self.start()
            self.send((name, args))
            read = functools.partial(json.loads, object_hook=lambda found: found or ...)
            while "ask" in (reply := read(self.lines.get(timeout=patience))):
                kind, value = reply["ask"]
                row = torch.tensor(value, dtype=torch.float64)
                self.send(rng.flip(float(row)) if kind == "flip" else rng.draw(row))
        except BaseException as error:
            self.stop()  # what it would answer next belongs to no call
            slow = f"was stopped after {patience:g} seconds. Does each loop come to an end?"
            wrong = "ended its process, or answered with no number"
            if isinstance(error, queue.Empty | OSError | ValueError | TypeError | AttributeError):
                raise Refused(slow if isinstance(error, queue.Empty) else wrong) from None
            raise
        if "trouble" in reply:
            raise Refused(reply["trouble"])
        return reply.get("value")

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.folder.cleanup()
        self.process = None


def report_on(make_drafter: Callable, seed: int) -> list:
    """Return (whether it is lossless, the report, its module, its τ and prompt lookup's)."""
    report = check_lossless(make_drafter)
    pair, rng = load_pair(dtype="float32"), np.random.default_rng(seed)
    prompts = [str(rng.choice([e["text"] for e in kind])) for kind in evaluation_prompts().values()]
    ids, taus = [*map(pair.tokenizer.encode, prompts)], []
    for make in (make_drafter, lambda target: PromptLookupDrafter(4)):
        made = [generate(pair.target, i, make(pair.target), 48, 1.0, seed=seed).stats for i in ids]
        taus.append(sum(each.tokens for each in made) / sum(each.target_passes for each in made))
    return [bool(report), repr(report), type(make_drafter(pair.target)).__module__, *taus]


def check_drafter(make_drafter: Callable) -> Outcome:
    """Check make_drafter(target) → a drafter that is lossless and emits more than plain decoding."""
    call = getattr(make_drafter, "report", functools.partial(report_on, make_drafter))
    if answer.has_gap(make_drafter) or (report := call(SEED)) is ...:
        return Outcome(False, checking.UNWRITTEN, begun=False)
    right, words, module, tau, copied = report
    said = f"τ = {tau:.2f} (it must exceed 1; prompt lookup has {copied:.2f})"
    return Outcome(right and tau > 1, f"{words}. Defined in {module}: {said}.")


def check_loop(my_round: Callable) -> Outcome:
    """Check my_round(p, q, text, gamma, rng) → emitted tokens; p, q: from a text to its row [3]."""
    generator = np.random.default_rng(SEED)
    for gamma in (1, 2):
        texts = [text for n in range(gamma + 1) for text in itertools.product(range(3), repeat=n)]
        drawn = (torch.tensor(generator.dirichlet(np.ones(3), len(texts))) for _ in "pq")
        p, q = ({(2, *text): row for text, row in zip(texts, each)} for each in drawn)
        kept = {text: torch.minimum(p[text], q[text]) for text in p}
        chance = lambda text, r=p: float(np.prod([r[2, *text[:i]][x] for i, x in enumerate(text)]))
        most = sum(chance(text, kept) for text in texts)
        emitted: dict[tuple, float] = {}
        for tokens, weight in outcomes(lambda r: my_round(p, q, (2,), gamma, lossless.Bounded(r))):
            if tokens is ...:
                return Outcome(False, checking.UNWRITTEN, begun=False)
            if type(tokens) not in (list, tuple) or not all(type(each) is int for each in tokens):
                raise Refused(f"returns {tokens!r:.80}, not the list of emitted tokens")
            emitted[tuple(tokens)] = emitted.get(tuple(tokens), 0.0) + weight
        for text in itertools.product(range(3), repeat=gamma + 1):
            parts = [text[:n] for n in range(1, len(text) + 1)]
            own = sum(emitted.get(part, 0.0) * chance(text) / chance(part) for part in parts)
            if abs(own - chance(text)) > 1e-9:
                differs = f"has probability {own:.4f} under your loop, {chance(text):.4f} under p"
                return Outcome(False, f"γ = {gamma}, after (2,): the text {text} {differs}.")
        mean = sum(len(tokens) * weight for tokens, weight in emitted.items())
        if abs(mean - most) > 1e-9:
            return Outcome(
                False, f"γ = {gamma}: {mean:.4f} tokens per round instead of {most:.4f}."
            )
    return Outcome(True, "the target's distribution, enumerated; read the report.")


def varied(argument: Any, rng: np.random.Generator, step: int = 0) -> Any:
    """Return an argument like a published one with other numbers; whole numbers grow by `step`.

    A distribution stays one with the same zeros, an ordered list ordered, a number in (0, 1) there.
    """
    again = functools.partial(varied, rng=rng, step=step)
    if isinstance(argument, torch.Tensor):
        return argument.new_tensor(again(argument.tolist()))
    if isinstance(argument, list | tuple):
        drawn = [again(each) for each in argument]
        if len(drawn) > 1 and all(isinstance(each, float) for each in argument):
            row = np.array(argument)
            if abs(row.sum() - 1) < 1e-9 and row.min() >= 0:
                row = np.where(row > 0, rng.dirichlet(np.ones(len(row))), 0.0)
                drawn = (row / row.sum()).tolist()
            elif list(argument) in (sorted(argument), sorted(argument, reverse=True)):
                drawn.sort(reverse=argument[0] > argument[-1])
        return type(argument)(drawn)
    if isinstance(argument, float) and argument not in (0.0, 1.0):
        inside = 0 < argument < 1
        return float(rng.uniform(0.05, 0.95) if inside else argument * rng.uniform(0.6, 1.6))
    return argument + step if type(argument) is int else argument


@contextmanager
def drawn_cases(name: str, seed: int) -> Iterator[None]:
    """Give a check further cases that are drawn from the seed."""
    rng = np.random.default_rng([seed, *name.encode()])

    def more(cases):
        whole = all(type(each) in (int, bool) for case in cases for each in case)
        step = lambda: int(rng.integers(1, 5)) if whole else 0
        return [varied(case, rng, step()) for case in cases for _ in range(2)]

    pairs = [*lossless.TRIED, *(varied(pair, rng) for pair in lossless.TRIED[:4])]
    cases = checking.more_cases if name in KEPT else more
    with (  # each draw of a submission's rule is a message between two processes
        patch.multiple(lossless, TRIED=pairs, REPEATS=4),
        patch.object(checking, "more_cases", cases),
        patch.dict(globals(), SEED=seed),
    ):
        yield


def mark(submission: Submission, exercise: Exercise, name: str, seed: int) -> tuple[bool, str]:
    """Return whether an exercise is solved by the function of this name, and the message."""
    path, check, stub = exercise
    refusals: list[str] = []

    def given(*args):
        is_rng = lambda arg: hasattr(arg, "draw")  # a tensor has `flip`
        sent = [CHANCE if is_rng(arg) else arg for arg in args]
        try:
            return submission.call(name, sent, next(filter(is_rng, args), None))
        except Refused as refusal:
            refusals.append(f"{name} {refusal}")
            raise

    given.__name__ = given.__qualname__ = name
    given.report = lambda seed: submission.call(DRAFTER, [name, seed], patience=10 * PATIENCE)
    code = "\n".join(sources(path))
    (module,) = map(".".join, re.findall(r"^from (\S+) import (\w+) as exercises", code, re.M))
    with drawn_cases(check, seed):
        try:
            passed, said, *_ = astuple(getattr(importlib.import_module(module), check)(given))
        except (Refused, lossless.Endless) as refusal:
            passed, said = False, f"{name} {refusal}"
        except Exception as error:  # the other submissions are graded all the same
            passed, said = False, f"{name} could not be graded: {error!r}"
    said = refusals[0] if refusals and not passed else said.removesuffix(f" {checking.HINT}")
    renamed = "" if name == stub else f" (the function is called {name})"
    return passed, " ".join(said.split()) + renamed


def grade(folder: Path, seed: int) -> Iterator[tuple]:
    """Yield (student, exercise, passed, message); a student is a notebook or a folder of notebooks."""
    for path in sorted({*folder.rglob("[!.]*.ipynb")} - {*folder.rglob(".ipynb_checkpoints/*")}):
        student = path.relative_to(folder).parts[0].removesuffix(".ipynb")
        try:
            asked, code = exercises_of(original(path)), "\n".join(sources(path))
        except (ValueError, OSError) as error:
            yield student, path.name, False, str(error)
            continue
        submission = Submission(sources(path))
        for exercise in asked:
            source, check, stub = exercise
            called = re.findall(rf"(?m)^[^#\n]*\b{check}\((\w+)\)|^(?:def )?({stub}) *[(=]", code)
            name = next((call for call, _ in reversed(called) if call), stub if called else None)
            gone = (False, "missing: no cell defines it or calls its check")
            marks = mark(submission, exercise, name, seed) if name else gone
            yield student, f"{source.stem}: {stub}", *marks
        submission.stop()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m specdec_book.classroom")
    commands = parser.add_subparsers(dest="command", required=True)
    student = commands.add_parser("student", help="write notebooks without solutions")
    student.add_argument("chapter", nargs="+", help="05, 07b …, or an assignment: drafter, loop")
    student.add_argument("--to", type=Path, required=True, help="folder to write to")
    marks = commands.add_parser("grade", help="run submissions and write the table of marks")
    marks.add_argument("folder", type=Path, help="a folder or a notebook per student")
    marks.add_argument("--to", type=Path, help="the table's file; without it the table is printed")
    marks.add_argument("--seed", type=int, required=True, help="the drawn cases follow from it")
    args = parser.parse_args(arguments)
    if args.command == "student":
        for name in args.chapter:
            if len(found := published(name)) != 1:
                parser.error(f"chapter is {name!r}: must be a number such as 05, or drafter, loop")
            args.to.mkdir(parents=True, exist_ok=True)
            (args.to / found[0].name).write_text(student_copy(found[0]), "utf-8")
            print(args.to / found[0].name)
        return
    if not args.folder.is_dir() or args.seed < 0:
        parser.error(f"folder {args.folder} must exist, and seed {args.seed} must be 0 or more")
    safe = lambda each: f"'{each}" if str(each)[:1] in "=+-@" else each  # a spreadsheet computes =
    rows = itertools.chain(
        [("student", "exercise", "passed", "message")], grade(args.folder, args.seed)
    )
    file = args.to and args.to.open("w", encoding="utf-8-sig", newline="")  # with Excel's mark
    with file or nullcontext(sys.stdout) as table:
        csv.writer(table).writerows([*map(safe, row)] for row in rows)


if __name__ == "__main__":
    own = importlib.import_module("specdec_book.classroom")  # whose SEED the checks read
    answer_calls() if sys.argv[1:] == ["answer"] else own.main()
