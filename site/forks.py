"""Kernels forked from a process that has imported the common modules (Linux alone).

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
    "plotly.io._renderers",
    "plotly.offline",
    "specdec_book.exercises",
    "specdec_book.viz",
    "specdec_lite.drafters",
    "specdec_lite.loading.pairs",
    "sympy",  # which loading a model imports
    "torch",
    "transformers.tokenization_utils_tokenizers",
)
"""Installed modules: the server does not know its parent's `sys.path`, and skips what it cannot find."""


def fork(target: Callable, *arguments) -> BaseProcess:
    """Start a function in a process of its own, which begins with the imported modules."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def serve(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a kernel, until it is shut down or the build has ended."""
    os.setsid()  # the terminal's interrupt is for the build, which stops its kernels
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["ipykernel_launcher", *arguments]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=arguments, parent_handle=os.getppid())  # it ends with its server
