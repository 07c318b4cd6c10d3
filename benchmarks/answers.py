"""Record which of 120 short requests SmolLM2 answers well, and what drafts are worth on each.

    OMP_NUM_THREADS=1 python -m benchmarks run answers    # ten minutes; counts, no clock

The rule is in `benchmarks.requests`. The race of the start page and the questions of the live page
are taken from the requests that pass.
"""

from functools import partial

from specdec_lite import generate
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.texts.smollm2_tasks import chat

from .experiment import Run, experiment
from .methods import automatic
from .requests import KINDS, REQUESTS, repeats
from .smollm2 import STOP

RULE = (
    "An answer passes if it does what the request asks, ends by itself within the limit and contains"
    " no six words in a row twice."
)


@experiment(
    "answers",
    "which of 120 requests SmolLM2 answers well, and tokens per pass on each",
    time="10 minutes",
    quick={"tokens": 8, "each": 1},
)
def answers(run: Run, *, tokens: int = 128, each: int = 20) -> dict:
    """Return the answers; a part is a request, named by its kind and number.

    Args:
        tokens: limit of an answer
        each: requests per kind
    """
    target, tokenizer = load_smollm2("cpu", "bfloat16")
    drafter = automatic(target)

    def answered(request) -> dict:
        ids = chat(tokenizer, request.text)
        out = generate(target, ids, drafter, tokens, stop_token_ids=(STOP,))
        text = out.tokens.tolist()
        ended = text[-1] == STOP
        answer = tokenizer.decode(text[:-1] if ended else text)
        return {
            "kind": request.kind,
            "request": request.text,
            "answer": answer,
            "ends": ended,
            "repeats": repeats(answer),
            "follows": request.follows(answer),
            "passes": request.passes(answer, ended),
            "tokens": out.stats.tokens,
            "target_passes": out.stats.target_passes,
            "accepted": out.stats.accepted,
            "tested": out.stats.tested,
        }

    parts = {}
    for kind in KINDS:
        of_kind = [request for request in REQUESTS if request.kind == kind][:each]
        parts |= {f"{kind}-{i}": partial(answered, request) for i, request in enumerate(of_kind)}
    return {"rule": RULE, "limit": tokens, "answers": [*run(parts).values()]}
