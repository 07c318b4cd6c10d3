"""Processes that begin with the common modules imported, which takes six seconds of each one's time.

On Linux the standard library's fork server imports them once and forks a process for each chapter.
Elsewhere forking a process that has loaded torch is not safe, and processes start as usual.

This module stands outside `specdec_site`: a forked process imports the module of the function that
it runs, and that package would import all of Sphinx again, four seconds for each chapter.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess

IMPORTED = (
    "ipykernel.kernelapp",
    "jupyter_book.cli.main",  # a forked process imports the program of its parent
    "nbformat",  # imported when the first figure is shown
    "plotly.graph_objects",
    "specdec_book.exercises",
    "specdec_book.viz",
    "specdec_lite.drafters",
    "specdec_lite.loading.pairs",
    "sympy",  # which loading a model imports
    "torch",
    "transformers.tokenization_utils_tokenizers",
)
"""Installed modules: the server does not know its parent's `sys.path`, and skips what it cannot find."""
CAN_FORK = sys.platform == "linux"


def process(target: Callable, *arguments) -> BaseProcess:
    """Start a function in a process of its own, which on Linux begins with the imported modules."""
    context = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
    if CAN_FORK:
        context.set_forkserver_preload([*IMPORTED])
    started = context.Process(target=target, args=arguments)
    started.start()
    return started


def serve(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a kernel, until it is shut down or the build has ended."""
    os.setsid()  # the terminal's interrupt is for the build, which stops its kernels
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["ipykernel_launcher", *arguments]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=arguments, parent_handle=os.getppid())  # it ends with its server
