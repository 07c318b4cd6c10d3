"""What a drafter without a model would have done on a text that is already written.

At temperature 0 the text does not depend on the drafter, so a recorded answer is enough to know
every round of any drafter that looks at tokens alone. What lives here: those rounds. What does not:
time, which only a real run has.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec_lite.proposal import Verdict
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context, Drafter, Step, propose


def replay(
    drafter: Drafter, prompt_ids: Sequence[int], answer_ids: Sequence[int], vocab_size: int
) -> list[Step]:
    """The rounds in which a drafter would have helped to write an answer greedily.

    Args:
        drafter: one that reads neither hidden states nor scores, such as those of chapter 8.
        prompt_ids: ids [n], n ≥ 1.
        answer_ids: ids [m], m ≥ 1, that the target wrote at temperature 0.
        vocab_size: the target's V.

    The steps are those of `generate` on the same target but for their times and for p, which is 1
    for an accepted node and 0 for any other.
    """
    answer = [int(token) for token in answer_ids]
    prompt = torch.as_tensor(prompt_ids, dtype=torch.long)
    context = Context(prompt, None, Sampling(0.0), SeededRng(0), len(answer), vocab_size)
    session = drafter.start(context)
    steps = []
    while context.wanted > 0:
        proposal = propose(session, context)
        verdict = judged(proposal.tree, answer[-context.wanted :])
        session.observe(verdict, None)
        steps.append(Step.of(proposal, verdict))
        new = torch.tensor(steps[-1].tokens)
        context = replace(
            context, tokens=torch.cat((context.tokens, new)), wanted=context.wanted - len(new)
        )
    return steps


def judged(tree, answer: Sequence[int]) -> Verdict:
    """Exact match against the tokens that come."""
    tokens = tuple(tree.tokens.tolist())
    path: list[int] = []
    tests: list[int] = []
    children = tree.children(-1)
    while children:
        place = next((i for i, c in enumerate(children) if tokens[c] == answer[len(path)]), None)
        if place is None:
            tests.append(len(children))
            break
        tests.append(place + 1)
        path.append(children[place])
        children = tree.children(path[-1])
    kind = "recovered" if children else "bonus" if path else "sampled"
    p = tuple(float(node in path) for node in range(len(tokens)))
    return Verdict(
        tuple(path), answer[len(path)], kind, tuple(tests), tokens, p, (1.0,) * len(tokens)
    )
