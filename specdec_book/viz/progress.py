"""A sign of life below a cell that computes for long: its seconds so far, and the line it is at.

`watch` starts it for all later cells of a notebook. It needs nothing from the cells.
"""

import contextvars
import linecache
import os
import sys
import threading
import traceback
from html import escape
from itertools import count

from IPython import get_ipython
from IPython.display import HTML, DisplayHandle

AFTER = 5.0
"""Seconds of a cell before the first sign."""
EVERY = 1.0
"""Seconds between two signs."""
OFF = "SPECDEC_PROGRESS"
"""The variable that switches this off with the value 0, as the book's build does."""


class Progress:
    """The sign below the running cell of one kernel.

    Args:
        shell: IPython's shell, which says when a cell begins and ends.
    """

    def __init__(self, shell):
        self.globals = shell.user_ns
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        shell.events.register("pre_run_cell", self.begin)
        shell.events.register("post_run_cell", self.end)

    def begin(self, info) -> None:
        """Start to watch the cell that this thread is about to run."""
        self.ended.clear()
        # the context says to which cell the output belongs
        watch = contextvars.copy_context().run
        self.thread = threading.Thread(
            target=watch, args=(self.watch, threading.get_ident()), daemon=True
        )
        self.thread.start()

    def end(self, result) -> None:
        """Remove the sign."""
        self.ended.set()
        if self.thread:
            self.thread.join()

    def watch(self, thread: int) -> None:
        """Show the cell's time and line until it ends."""
        if self.ended.wait(AFTER):
            return
        handle = DisplayHandle()
        handle.display(HTML(self.sign(thread, AFTER)))
        for turn in count(1):
            if self.ended.wait(EVERY):
                break
            handle.update(HTML(self.sign(thread, AFTER + turn * EVERY)))
        handle.update(HTML(""))

    def sign(self, thread: int, seconds: float) -> str:
        """Return the sign as HTML: a moving bar, the seconds, and the cell's present line."""
        line = ""
        for frame, number in traceback.walk_stack(sys._current_frames()[thread]):
            if frame.f_globals is self.globals:  # the outermost of these is the cell itself
                text = linecache.getline(frame.f_code.co_filename, number).strip()
                line = f", line {number}: <code>{escape(text[:80])}</code>"
        return f"<progress></progress> {seconds:.0f} s{line}"


def watch() -> None:
    """Show the progress of every later cell, if this is a kernel; a second call changes nothing."""
    shell = get_ipython()
    if hasattr(shell, "kernel") and os.environ.get(OFF) != "0" and not hasattr(shell, "_progress"):
        shell._progress = Progress(shell)
