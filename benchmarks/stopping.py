"""Record what chapters 14 and 15 show of SmolLM2's text. The recording contains counts, no times.

    python -m benchmarks run jacobi-and-stopping     # ten minutes on two cores

The parts are grids of Jacobi iterations, tokens per round, drafts with their confidence, and
acceptance by temperature.
"""

import torch
from torch import Tensor

from specdec_book.viz.jacobi_grid import record_grid
from specdec_book.viz.stop_explorer import record_positions
from specdec_lite import generate
from specdec_lite.drafters import Drafter, JacobiDrafter, LookaheadDrafter, draft_chain
from specdec_lite.drafters.chain import ChainSession
from specdec_lite.drafters.lengths import Length
from specdec_lite.sampling import Sampling
from specdec_lite.texts.smollm2_tasks import chat

from .smollm2 import SKIPPED, OnSmolLM2

PROMPTS = {
    "repetition": "Write the word banana ten times.",
    "story": "Write a short story about a fox who wants to learn to count.",
    "code": "Write a Python class for a stack with push, pop and peek.",
    "json": "List three European capitals as JSON objects with the keys city, country and river.",
}
METHODS = {
    "Jacobi, γ = 4": JacobiDrafter(4),
    "Jacobi, γ = 8": JacobiDrafter(8),
    "Lookahead, W 5, N 4, G 5": LookaheadDrafter(5, 4, 5),
    "Lookahead, W 3, N 3, G 3": LookaheadDrafter(3, 3, 3),
    "… with the prompt's n-grams": LookaheadDrafter(5, 4, 5, from_prompt=True),
}
TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)


class SkippingDrafter(Drafter):
    """The target without some of its blocks, which drafts into its own cache.

    Args:
        target: Model that drafts and verifies.
        gamma: Draft length.
    """

    def __init__(self, target, gamma: int | Length):
        self.target = target
        self.length = Length.of(gamma)

    def start(self, context):
        return SkippingSession(self)


class SkippingSession(ChainSession):
    """A session of a SkippingDrafter."""

    def __init__(self, drafter: SkippingDrafter):
        super().__init__(drafter.length)
        self.target = drafter.target

    def propose(self, context):
        view = context.cache.view(skip=skipped_sublayers())

        def follow(token):
            fed = context.tokens[-1:] if token is None else [token]
            self.passes += 1
            return self.target.score(fed, view).logits[0, -1]

        return draft_chain(context, follow, self.length)


def skipped_sublayers() -> list[tuple[int, str]]:
    """Return the sublayers that the draft leaves out."""
    return [(block, part) for block in SKIPPED for part in ("attention", "mlp")]


def grids(target, tokenizer, options) -> dict:
    """Record one text from three initial guesses, with all its positions guessed in parallel."""
    ids, count = chat(tokenizer, PROMPTS["repetition"]), options.grid
    plain = generate(target, ids, max_new_tokens=count, stop_token_ids=()).tokens.tolist()
    altered = [*plain[:-1]]
    altered[len(altered) // 3] = plain[0]
    starts = {
        "the end of the prompt": None,
        "one word, again and again": [plain[0]],
        "the text itself, one word changed": altered,
    }
    runs = []
    for name, guess in starts.items():
        out = generate(target, ids, JacobiDrafter(count - 1, guess), count, stop_token_ids=())
        assert out.tokens.tolist() == plain, name
        runs.append({"start": name, "rows": record_grid(out, tokenizer)})
    return {"prompt": PROMPTS["repetition"], "runs": runs}


def rounds(target, tokenizer, options) -> list[dict]:
    """Measure tokens and fed tokens per round for every method and prompt."""
    rows = []
    for domain in options.kinds:
        ids = chat(tokenizer, PROMPTS[domain])
        for temperature in (0.0, 1.0):
            for name, drafter in METHODS.items():
                out = generate(
                    target, ids, drafter, options.new_tokens, temperature, stop_token_ids=(), seed=0
                )
                fed = sum(len(step.tree) + 1 for step in out.steps)
                rows.append(
                    {
                        "domain": domain,
                        "method": name,
                        "temperature": temperature,
                        "tau": out.stats.mean_acceptance_length,
                        "fed": fed / len(out.steps),
                        "tokens": out.stats.tokens,
                    }
                )
    return rows


def drafts(target, tokenizer, options) -> dict:
    """Record what would be drafted at every position of a greedy text."""
    ids = chat(tokenizer, PROMPTS["story"])
    drafter = lambda length: SkippingDrafter(target, length)
    words, places = record_positions(target, tokenizer, ids, drafter, options.places)
    return {
        "prompt": PROMPTS["story"],
        "target": "SmolLM2-135M-Instruct",
        "draft": f"itself without blocks {', '.join(map(str, SKIPPED))} of {target.num_layers}",
        "words": words,
        "places": places,
    }


@torch.inference_mode()
def logits(target, tokenizer, options) -> tuple[Tensor, Tensor]:
    """Return the target's and the draft's logits [n, V] for texts sampled at temperature 1."""
    rows = []
    for text in PROMPTS.values():
        ids = [*chat(tokenizer, text)]
        out = generate(
            target,
            ids,
            max_new_tokens=options.new_tokens,
            temperature=1.0,
            stop_token_ids=(),
            seed=0,
        )
        text = ids + out.tokens.tolist()
        cache = target.new_cache(capacity=len(text))
        for kind in (cache, target.new_cache(capacity=len(text)).view(skip=skipped_sublayers())):
            rows.append(target.score(text, kind).logits[0, len(ids) - 1 : -1].double())
    return torch.cat(rows[::2]), torch.cat(rows[1::2])


def acceptance(target, tokenizer, options) -> dict:
    """Measure α by temperature, for drawn and for chosen drafts.

    A second table uses a separate temperature for the drafts.
    """
    p_logits, q_logits = logits(target, tokenizer, options)
    best = q_logits.argmax(-1)[:, None]
    rows, own = [], []
    for temperature in TEMPERATURES:
        p, q = Sampling(temperature)(p_logits), Sampling(temperature)(q_logits)
        drawn, chosen = torch.minimum(p, q).sum(-1), p.gather(-1, best)[:, 0]
        rows.append(
            {
                "temperature": temperature,
                "drawn": drawn.mean().item(),
                "chosen": chosen.mean().item(),
                "chosen_better": (chosen > drawn).double().mean().item(),
            }
        )
    p = Sampling(1.0)(p_logits)
    for temperature in TEMPERATURES:
        alpha = torch.minimum(p, Sampling(temperature)(q_logits)).sum(-1)
        own.append({"draft_temperature": temperature, "alpha": alpha.mean().item()})
    return {"contexts": len(p_logits), "rows": rows, "own": own}


PARTS = {"grids": grids, "drafts": drafts, "acceptance": acceptance, "rounds": rounds}


class JacobiAndStopping(OnSmolLM2):
    """The parts are the four subjects of PARTS."""

    name = "jacobi-and-stopping"
    what = "Jacobi grids, tokens per round, drafts and acceptance of SmolLM2-135M-Instruct"
    time = "10 minutes"
    quick = "--places 4 --grid 4 --new-tokens 4 --kinds repetition".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument(
            "--places", type=int, default=72, help="positions of the text with drafts"
        )
        parser.add_argument("--grid", type=int, default=16, help="positions of the Jacobi grid")
        parser.add_argument(
            "--new-tokens", type=int, default=64, help="new tokens of every other text"
        )
        parser.add_argument(
            "--kinds", nargs="+", choices=PROMPTS, default=list(PROMPTS), help="texts of the rounds"
        )

    def parts(self):
        return list(PARTS)

    def run(self, part):
        return PARTS[part](*self.model, self.options)
