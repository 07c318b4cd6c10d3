"""The block stepper: a recorded run of blockwise parallel decoding, block by block.

What lives here: a finished greedy run as plain numbers, and the widget that carries them. What does
not: any drawing, and the moments of a block, which follow from the numbers
(`static/block_stepper.js`); sampled runs (`stepper`).
"""

from collections.abc import Sequence

import traitlets

from specdec_lite import checks
from specdec_lite.decoding import Output
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.trace import shown_end


class BlockStepper(Interactive):
    """A recorded greedy run: each block is predicted, verified by one pass, accepted up to a
    prefix, and the next prediction reused.

    prompt: the end of the text before. k: block size, the target's own token included. rounds: one
    dict a target pass, as `recorded_blocks` makes them. moment: which of the run's moments is
    shown, from 0: one for the first prediction, then for every block one for the pass, one for the
    accepted prefix and one for the prediction that the same pass holds. Source: Stern, Shazeer and
    Uszkoreit 2018, sections 3 and 4.
    """

    module = "block_stepper"
    label = "Block stepper: one real run of blockwise parallel decoding, moment by moment"

    prompt = traitlets.Unicode().tag(sync=True)
    k = traitlets.Int(4, min=1).tag(sync=True)
    rounds = traitlets.List(traitlets.Dict()).tag(sync=True)
    moment = traitlets.Int(0, min=0).tag(sync=True)

    @classmethod
    def record(
        cls,
        output: Output,
        tokenizer,
        prompt_ids: Sequence[int],
        k: int | None = None,
        blocks: int | None = 13,
    ) -> "BlockStepper":
        """Keep what decided a finished run.

        output: what `generate` returned at temperature 0 with chains as drafts, from any drafter.
        tokenizer: anything with `decode(ids)`. prompt_ids: the ids it continued, at least one. k:
        None takes the longest block of the run. blocks: keep the first so many, three moments each;
        None keeps all. TypeError for anything but an Output; ValueError as in `recorded_blocks`.
        """
        if not isinstance(output, Output):
            raise TypeError(f"output is a {type(output).__name__}: must be what generate returned")
        ids = [int(token) for token in prompt_ids]
        rounds = recorded_blocks(output, tokenizer, ids)
        longest = max((len(block["drafts"]) + 1 for block in rounds), default=1)
        if k is not None and k < longest:
            raise ValueError(
                f"k={k}: a block of {longest} was predicted, so k must be at least {longest}"
            )
        kept = rounds if blocks is None else rounds[: checks.whole("blocks", blocks, 1)]
        return cls(
            prompt=shown_end(tokenizer.decode(ids)), k=longest if k is None else k, rounds=kept
        )


def recorded_blocks(output: Output, tokenizer, prompt_ids: Sequence[int]) -> list[dict]:
    """The passes of a greedy run as JSON.

    A block is {"context": committed tokens before the pass, "root": text of the last of them, the
    block's first token, "drafts": texts of the others, "accepted": how many of these stayed,
    "token": text of the target's own token behind them, None where a drafted stop token ended the
    text}. ValueError for an empty prompt, a tree that is no chain, or a sampled run: there the
    target has no one token to agree with.
    """
    if len(prompt_ids) == 0:
        raise ValueError("prompt_ids is empty: must be at least one token id")
    context = len(prompt_ids)
    root = prompt_ids[-1]
    blocks = []
    for number, step in enumerate(output.steps, start=1):
        if not step.tree.is_chain:
            raise ValueError(
                f"output drafted a tree in pass {number}: the block stepper shows chains"
            )
        if any(p not in (0.0, 1.0) for p in step.p):
            raise ValueError(
                f"output was sampled (pass {number} gave a draft p ="
                f" {next(p for p in step.p if p not in (0.0, 1.0)):.3g}): record a run of"
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
