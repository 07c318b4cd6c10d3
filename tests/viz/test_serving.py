"""A server under load: its formulas equal Python's, its slider solves its task, it fits."""

import pytest
from javascript import evaluate
from mounting import press_until, says

from specdec_book.viz import Serving
from specdec_book.viz.serving import DENSE, MACHINES, PAIRS, SMALL


def test_capacity_is_the_memory_beside_the_weights():
    cases = [(0, 0, 512), (0, 0, 32768), (3, 2, 512)]
    cases = [(PAIRS[pair], MACHINES[machine], context) for pair, machine, context in cases]
    short, long, none = evaluate("serving", "capacity", cases)
    left = 80e9 - 2 * (DENSE.parameters + SMALL.parameters)
    assert short == left // (512 * (147_456 + 114_688)) and long == left // (32768 * 262_144)
    assert none == 0, "the mixture's 60 GB do not fit into 24"


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard(used):
    page = used(Serving())
    says(page, ".sdl-task-state", "still helps")
    page.locator("[data-name=load]").press("End")
    says(page, ".sdl-task-state", "also hurts at a smaller load")
    press_until(page, "load", "ArrowLeft", "Solved")
