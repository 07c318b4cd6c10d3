"""Record which of 120 short requests SmolLM2 answers well, and what drafts are worth on each.

    OMP_NUM_THREADS=1 python -m benchmarks run answers    # ten minutes; counts, no clock

The rule is in `benchmarks.requests`. The race of the start page and the questions of the live page
are taken from the requests that pass.
"""

from functools import cache

from specdec_lite import generate
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.texts.smollm2_tasks import chat

from .experiment import Experiment
from .methods import automatic
from .requests import KINDS, REQUESTS, repeats
from .smollm2 import STOP


class Answers(Experiment):
    """The parts are the requests, named by their kind and number."""

    name = "answers"
    what = "which of 120 requests SmolLM2 answers well, and tokens per pass on each"
    time = "10 minutes"
    quick = "--tokens 8 --each 1".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--tokens", type=int, default=128, help="limit of an answer")
        parser.add_argument("--each", type=int, default=20, help="requests per kind")

    def check(self):
        self.check_least(tokens=1, each=1)

    def parts(self):
        numbers = range(self.options.each)
        return [f"{kind}-{number}" for kind in KINDS for number in numbers if find(kind, number)]

    def run(self, part):
        target, tokenizer, drafter = model()
        request = find(*part.split("-"))
        ids = chat(tokenizer, request.text)
        out = generate(target, ids, drafter, self.options.tokens, stop_token_ids=(STOP,))
        tokens = out.tokens.tolist()
        ended = tokens[-1] == STOP
        answer = tokenizer.decode(tokens[:-1] if ended else tokens)
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

    def summarise(self, rows):
        rule = (
            "An answer passes if it does what the request asks, ends by itself within the limit and"
            " contains no six words in a row twice."
        )
        return {"rule": rule, "limit": self.options.tokens, "answers": [*rows.values()]}

    def restore(self, data):
        numbers = {kind: iter(range(len(data["answers"]))) for kind in KINDS}
        return {f"{row['kind']}-{next(numbers[row['kind']])}": row for row in data["answers"]}


def find(kind: str, number: int | str):
    """Return a request by its kind and number, or None."""
    of_kind = [request for request in REQUESTS if request.kind == kind]
    return of_kind[int(number)] if int(number) < len(of_kind) else None


@cache
def model():
    """Return SmolLM2, its tokenizer and the drafter of the race."""
    target, tokenizer = load_smollm2("cpu", "bfloat16")
    return target, tokenizer, automatic(target)
