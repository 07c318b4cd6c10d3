"""Replay a drafter without a model on a recorded text.

At temperature 0 the text does not depend on the drafter, so a recorded answer determines every
round of a drafter that looks only at tokens. Times need a real run.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec_lite.acceptance.greedy import keep_path
from specdec_lite.contract import Context, Drafter
from specdec_lite.proposal import Proposal, Step, Verdict
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import propose


def replay(
    drafter: Drafter, prompt_ids: Sequence[int], answer_ids: Sequence[int], vocab_size: int
) -> list[Step]:
    """Return the rounds in which a drafter would have helped to write an answer greedily.

    The steps equal those of `generate` on the same target except for times and p: p is 1 for an
    accepted node and 0 for every other.
    """
    answer = [int(token) for token in answer_ids]
    prompt = torch.as_tensor(prompt_ids, dtype=torch.long)
    context = Context(prompt, None, Sampling(0.0), SeededRng(0), len(answer), vocab_size)
    session = drafter.start(context)
    steps = []
    while context.wanted > 0:
        proposal = propose(session, context)
        verdict = verify(proposal, answer[-context.wanted :])
        session.observe(verdict, None)  # pyright: ignore[reportArgumentType]
        steps.append(Step.of(proposal, verdict))
        new = torch.tensor(steps[-1].tokens)
        context = replace(
            context, tokens=torch.cat((context.tokens, new)), wanted=context.wanted - len(new)
        )
    return steps


def verify(proposal: Proposal, answer: Sequence[int]) -> Verdict:
    """Verify a draft by exact match with the following tokens of the answer."""
    path = proposal.tree.along(answer)
    verdict = keep_path(proposal, path[-1] if path else -1, answer[len(path)])
    tokens = tuple(proposal.tree.tokens.tolist())
    p = tuple(float(node in path) for node in range(len(tokens)))
    return replace(verdict, tokens=tokens, p=p, q=(1.0,) * len(tokens))
