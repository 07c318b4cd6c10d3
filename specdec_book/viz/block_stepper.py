"""The block stepper: a recorded greedy run of blockwise parallel decoding, block by block.

`static/block_stepper.js` derives the moments of a block from the recorded numbers.
"""

from collections.abc import Sequence

import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_book.viz.trace import shorten_prompt
from specdec_lite.decoding import Output

MOST = 13
"""Largest number of blocks that are shown."""


class BlockStepper(Interactive):
    """A recorded greedy run in blocks: predict, verify in one pass, accept a prefix.

    The pass that verifies a block also predicts the next one. Source: Stern, Shazeer and Uszkoreit
    2018, sections 3 and 4.

    Attributes:
        prompt: End of the text before the run.
        k: Block size, the target's own token included.
        rounds: One dict per target pass, as `record_blocks` returns them.
        moment: Number of the moment on display, from 0: one for the first prediction; then for
            every block one for the pass, one for the accepted prefix and one for the prediction
            that the same pass made.
    """

    module = "block_stepper"
    label = "Block stepper: one real run of blockwise parallel decoding, moment by moment"

    prompt = traitlets.Unicode()
    k = traitlets.Int(4, min=1)
    rounds = traitlets.List(traitlets.Dict())
    moment = traitlets.Int(0, min=0)

    @classmethod
    def record(
        cls, output: Output, tokenizer, prompt_ids: Sequence[int], k: int | None = None
    ) -> "BlockStepper":
        """Return the stepper of a finished run's first blocks."""
        if not isinstance(output, Output):
            raise TypeError(f"output is a {type(output).__name__}: must be a result of generate")
        ids = [int(token) for token in prompt_ids]
        rounds = record_blocks(output, tokenizer, ids)
        longest = max((len(block["drafts"]) + 1 for block in rounds), default=1)
        if k is not None and k < longest:
            raise ValueError(f"k={k}: must be at least {longest}, the longest block of the run")
        return cls(
            prompt=shorten_prompt(tokenizer.decode(ids)),
            k=longest if k is None else k,
            rounds=rounds[:MOST],
        )


def record_blocks(output: Output, tokenizer, prompt_ids: Sequence[int]) -> list[dict]:
    """Return the passes of a greedy run as JSON types."""
    if len(prompt_ids) == 0:
        raise ValueError("prompt_ids is empty: must be at least one token id")
    context = len(prompt_ids)
    root = prompt_ids[-1]
    blocks = []
    for number, step in enumerate(output.steps, start=1):
        if not step.tree.is_chain:
            raise ValueError(
                f"output drafted a tree in pass {number}: must have drafted chains only"
            )
        if any(p not in (0.0, 1.0) for p in step.p):
            raise ValueError(
                f"output was sampled (pass {number} gave a draft p ="
                f" {next(p for p in step.p if p not in (0.0, 1.0)):.3g}): must be a run at"
                " temperature 0"
            )
        blocks.append(
            {
                "context": context,
                "root": tokenizer.decode([root]),
                "accepted": step.accepted,
                "drafts": [tokenizer.decode([token]) for token in step.tree.tokens.tolist()],
                "token": None if step.token is None else tokenizer.decode([step.token]),
            }
        )
        context, root = context + len(step.tokens), step.tokens[-1]
    return blocks
