"""The grid of Jacobi iterations: passes down, places across, tokens settling from the left.

What lives here: a finished run as plain words, and the widget that carries some. What does not: any
drawing (`static/jacobi_grid.js`).
"""

import traitlets

from specdec_lite.decoding import Output
from specdec_lite.viz.interactive import Interactive


class JacobiGrid(Interactive):
    """Runs of one text from different first guesses, stepped pass by pass.

    prompt: what was asked. runs: [{"start": name of the first guess, "rows": as `recorded_grid`
    makes them}]. run: the one shown. moment: passes done, from 0. Source: Santilli et al. 2023.
    """

    module = "jacobi_grid"
    label = "Jacobi grid: guesses for all places at once, replaced pass by pass until they stand"

    prompt = traitlets.Unicode().tag(sync=True)
    runs = traitlets.List(traitlets.Dict(), minlen=1).tag(sync=True)
    run = traitlets.Int(0, min=0).tag(sync=True)
    moment = traitlets.Int(0, min=0).tag(sync=True)


def recorded_grid(output: Output, tokenizer) -> list[dict]:
    """The passes of a run of chains as JSON: {"place": tokens that stood before the pass,
    "guesses": texts of what it was fed behind them, "accepted", "token": text of the token it
    added}.

    TypeError for anything but an Output; ValueError where a tree was drafted that is no chain, or
    where a stop token ended a draft.
    """
    if not isinstance(output, Output):
        raise TypeError(f"output is a {type(output).__name__}: must be what generate returned")
    rows = []
    place = 0
    for step in output.steps:
        if not step.tree.is_chain or step.token is None:
            raise ValueError(
                "output drafted a tree, or ended inside a draft: the grid shows chains"
            )
        rows.append(
            {
                "place": place,
                "guesses": [tokenizer.decode([token]) for token in step.tree.tokens.tolist()],
                "accepted": step.accepted,
                "token": tokenizer.decode([step.token]),
            }
        )
        place += len(step.tokens)
    return rows
