"""Run a reader's function without ending the page: for five seconds at most, and with the reader's
own line in the message if it raises."""

import ast
import ctypes
import inspect
import linecache
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any

SECONDS = 5.0
"""The CPU time that one call of a reader's function may take."""
PATIENCE = 12
"""Times SECONDS that a call may take by the clock, if it waits or other programs hold the cores."""


class OutOfTime(BaseException):
    """Raised inside a reader's function after its time; `except Exception` does not catch it."""


# Python's own means to raise in another thread: unlike a signal it works on every system and in any
# thread, so also where a kernel runs cells outside the main thread.
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the body after `seconds` of this process's CPU time, as soon as Python
    runs its next line there."""
    thread = ctypes.c_ulong(threading.get_ident())
    done, began = threading.Event(), process_time()

    def watch() -> None:
        for _ in range(PATIENCE):
            if done.wait(seconds):
                return
            if process_time() - began >= 0.9 * seconds:
                break
        _raise_in(thread, ctypes.py_object(OutOfTime))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()  # after this no exception can arrive any more


def run(fn: Callable, call: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return (what `call` returns, None), or (None, what went wrong in the reader's `fn`)."""
    try:
        # libraries tell each other of their plans; a reader cannot act on that
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            with time_limit(SECONDS):
                return call(), None
    except OutOfTime as stop:
        return None, (
            f"was stopped after {SECONDS:g} seconds{_where(stop, fn)}. Does each loop come to an"
            " end?"
        )
    except KeyboardInterrupt as stop:
        return None, f"was interrupted{_where(stop, fn)}."
    except (Exception, SystemExit) as error:  # whatever it is, the page must run to its end
        text = str(error)
        text = text if len(text) <= 300 else f"{text[:300]} …"
        return None, f"raises {type(error).__name__}{_where(error, fn)}: {text}"


def _where(error: BaseException, fn: Callable) -> str:
    """Return the last line of the reader's own code that an exception passed, as a clause."""
    module = getattr(fn, "__module__", None)
    lines = [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    text = linecache.getline(*lines[-1]).strip() if lines else ""
    return f" in line {lines[-1][1]}, `{text}`" if text else ""


def has_gap(fn: Callable) -> bool:
    """Return whether the source of a function still contains a `...` to fill in; False without
    source."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return False
    if not isinstance(function, ast.FunctionDef):
        return False
    is_note = lambda node: isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if all(map(is_note, function.body)):
        return True  # nothing but a docstring and `...`
    nodes = [*ast.walk(function)]
    allowed = [each for each in nodes if is_note(each)]
    allowed += [each.slice for each in nodes if isinstance(each, ast.Subscript)]
    inside = {part for each in allowed for part in ast.walk(each)}
    gaps = (each for each in nodes if isinstance(each, ast.Constant) and each.value is ...)
    return any(each not in inside for each in gaps)


def is_unfinished(given: Any, depth: int = 3) -> bool:
    """Return whether a result still contains the stub's `...`."""
    return given is ... or (
        depth > 0
        and isinstance(given, list | tuple)
        and any(is_unfinished(each, depth - 1) for each in given)
    )


def shown(x: Any) -> str:
    """Return a value as a reader would write it: 2e+12, not 2000000000000.0."""
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(shown, x))}]"
    if hasattr(x, "tolist"):  # an array of NumPy or a tensor
        name = type(x).__name__.lower().removeprefix("nd")
        return f"{name}({shown(x.tolist())})"
    return f"{x:g}" if isinstance(x, float) else repr(x)


def shown_call(fn: Callable, case: tuple) -> str:
    """Return a call of the reader's function as a line of Python, with the arguments' names."""
    name = getattr(fn, "__name__", "<lambda>")
    arguments = [shown(x) for x in case]
    try:
        names = inspect.signature(fn).bind(*case).arguments
    except (TypeError, ValueError):  # other arguments than the exercise asks for
        names = {}
    if len(names) == len(case):
        arguments = [f"{key}={value}" for key, value in zip(names, arguments)]
    return f"{'your function' if name == '<lambda>' else name}({', '.join(arguments)})"
