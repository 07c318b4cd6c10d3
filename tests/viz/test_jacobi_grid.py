"""The Jacobi grid: its recording and cells against the run; its steps move nothing."""

import pytest
from javascript import evaluate, formula
from letters import Letters, tiny
from mounting import pause

from specdec_book.viz.interactives import JacobiGrid, record_grid
from specdec_lite import generate
from specdec_lite.drafters import JacobiDrafter

PROMPT = Letters().encode("hello")
TARGET = tiny(0)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=10).tokens.tolist()
STARTS = {"the prompt": None, "the text, one letter changed": [*PLAIN[:4], 0, *PLAIN[5:9]]}
OUTS = {
    name: generate(TARGET, PROMPT, JacobiDrafter(9, guess), 10) for name, guess in STARTS.items()
}


@pytest.fixture(scope="module")
def grid():
    runs = [{"start": name, "rows": record_grid(out, Letters())} for name, out in OUTS.items()]
    return JacobiGrid(prompt="hello", runs=runs)


def test_cells_equal_the_run(grid):
    for run, out in zip(grid.runs, OUTS.values()):
        rows, count = run["rows"], len(out.steps)
        of = lambda name, *given: formula("jacobi_grid", name, rows, *given)
        gains = of("gains")
        assert "".join(of("text", count)) == Letters().decode(PLAIN) and of("total") == 10
        assert gains == [len(step.tokens) for step in out.steps]
        finals = evaluate("jacobi_grid", "final", [[rows, i] for i in range(count + 1)])
        assert finals == [sum(gains[:i]) for i in range(count + 1)]
        each = evaluate("jacobi_grid", "cells", [[rows, i, count] for i in range(count + 1)])
        for cells, step, final in zip(each, out.steps, finals):
            states = [cell["fate"] for cell in cells]
            assert len(cells) == 10 and states[:final] == ["final"] * final
            assert states.count("accepted") == step.accepted
            guesses = [cell["text"] for cell in cells[final : final + len(step.tree)]]
            assert "".join(guesses) == Letters().decode(step.tree.tokens.tolist())
    assert len(OUTS["the text, one letter changed"].steps) < len(OUTS["the prompt"].steps)


@pytest.mark.browser
def test_a_step_scrolls_to_the_next_position_and_moves_nothing(grid, mounted):
    page = mounted(grid, 240)  # narrower than its ten columns
    measured = """() => {
      const grid = document.querySelector(".sdl-scroll").getBoundingClientRect();
      const next = document.querySelector("[aria-current] .sdl-drafted")?.getBoundingClientRect();
      const root = document.querySelector(".sdl").getBoundingClientRect();
      return [root.height, grid.height, !next || (next.left > grid.left && next.right < grid.right)];
    }"""
    found = []
    for moment in range(len(OUTS["the prompt"].steps) + 1):
        page.evaluate(f"model.set('moment', {moment})")
        pause(page, 200)
        found.append(page.evaluate(measured))
    assert {tuple(row) for row in found} == {(*found[0][:2], True)}
