"""The grid of Jacobi iterations: one row per pass, one column per position."""

import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_lite.decoding import Output


class JacobiGrid(Interactive):
    """Runs of one text from different first guesses, stepped pass by pass.

    Source: Santilli et al. 2023.

    Attributes:
        prompt: Text before the run.
        runs: {"start": name of the first guess, "rows": as `record_grid` returns them} each.
        run: Number of the run on display, from 0.
        moment: Number of finished passes, from 0.
    """

    module = "jacobi_grid"
    label = "Jacobi grid: guesses for all positions in parallel, replaced pass by pass until final"

    prompt = traitlets.Unicode()
    runs = traitlets.List(traitlets.Dict(), minlen=1)
    run = traitlets.Int(0, min=0)
    moment = traitlets.Int(0, min=0)


def record_grid(output: Output, tokenizer) -> list[dict]:
    """Return the passes of a run of chains as JSON types."""
    if not isinstance(output, Output):
        raise TypeError(f"output is a {type(output).__name__}: must be a result of generate")
    rows = []
    position = 0
    for step in output.steps:
        if not step.tree.is_chain or step.token is None:
            raise ValueError(
                "output drafted a tree or ended inside a draft: must be a run of whole chains"
            )
        rows.append(
            {
                "place": position,
                "guesses": [tokenizer.decode([token]) for token in step.tree.tokens.tolist()],
                "accepted": step.accepted,
                "token": tokenizer.decode([step.token]),
            }
        )
        position += len(step.tokens)
    return rows
