"""Replay a drafter without a model on a recorded text.

At temperature 0 the text does not depend on the drafter, so a recorded answer determines every
round of a drafter that looks only at tokens. Times need a real run.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec_lite.proposal import Verdict
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter, Step, propose
from specdec_lite.tree import TokenTree


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
        verdict = verify(proposal.tree, answer[-context.wanted :])
        session.observe(verdict, None)  # pyright: ignore[reportArgumentType]
        steps.append(Step.of(proposal, verdict))
        new = torch.tensor(steps[-1].tokens)
        context = replace(
            context, tokens=torch.cat((context.tokens, new)), wanted=context.wanted - len(new)
        )
    return steps


def verify(tree: TokenTree, answer: Sequence[int]) -> Verdict:
    """Verify a draft by exact match with the following tokens of the answer."""
    tokens = tuple(tree.tokens.tolist())
    path: list[int] = []
    tests: list[int] = []
    children = tree.children(-1)
    while children:
        token = answer[len(path)]
        rank = next((i for i, child in enumerate(children) if tokens[child] == token), None)
        if rank is None:
            tests.append(len(children))
            break
        tests.append(rank + 1)
        path.append(children[rank])
        children = tree.children(path[-1])
    kind = "recovered" if children else "bonus" if path else "sampled"
    p = tuple(float(node in path) for node in range(len(tokens)))
    return Verdict(
        tuple(path), answer[len(path)], kind, tuple(tests), tokens, p, (1.0,) * len(tokens)
    )
