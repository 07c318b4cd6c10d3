"""The round stepper: a recorded speculative run that the reader steps forwards and back.

`static/stepper.js` derives the moments of a round from the recorded numbers.
"""

from collections.abc import Sequence

import traitlets

from specdec_book import recordings
from specdec_book.viz.chance import RecordingRng
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.trace import shorten_prompt
from specdec_lite.decoding import stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Step


class Stepper(Interactive):
    """A recorded speculative run: drafts, target passes, tests with their uniforms, cache lengths.

    Attributes:
        prompt: End of the text before the run.
        gamma: Draft length.
        rounds: One dict per round, as `record_rounds` returns them.
        moment: Number of the moment on display, from 0. A round has one moment for every draft
            pass, one for the target pass, one for every test, one for the added token and one for
            cutting the caches.
    """

    module = "stepper"
    label = "Round stepper: one real speculative run, moment by moment"

    prompt = traitlets.Unicode()
    gamma = traitlets.Int(4, min=1)
    rounds = traitlets.List(traitlets.Dict())
    moment = traitlets.Int(0, min=0)

    @classmethod
    def load(cls, name: str = "rounds") -> "Stepper":
        """Return the run of the recording `name`."""
        return cls(**recordings.load(name).data["run"])

    @classmethod
    def record(
        cls,
        target: CausalLM,
        draft: CausalLM,
        tokenizer,
        prompt: str,
        gamma: int = 4,
        max_new_tokens: int = 48,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> "Stepper":
        """Decode speculatively after `prompt` and record every round."""
        ids, rng = tokenizer.encode(prompt), RecordingRng(seed)
        drafter = ModelDrafter(draft, gamma)
        steps = list(stream(target, ids, drafter, max_new_tokens, temperature, top_k, rng=rng))
        return cls(
            prompt=shorten_prompt(prompt),
            gamma=gamma,
            rounds=record_rounds(steps, rng.uniforms, len(ids), tokenizer),
        )


def record_rounds(
    steps: Sequence[Step], uniforms: Sequence[float], prompt_length: int, tokenizer
) -> list[dict]:
    """Return the rounds of a run in which a model drafted chains, as JSON types."""
    rest = list(uniforms)
    context = prompt_length
    draft_cache = prompt_length - 1
    rounds = []
    for step in steps:
        count = len(step.tree)
        draws, tests, last = _split_uniforms(step, rest, is_greedy=not uniforms)
        rest = rest[count + step.tested + 1 :]
        drafts = [
            {"text": tokenizer.decode([token]), "q": q, "p": p, "drawn": drawn, "tested": tested}
            for token, q, p, drawn, tested in zip(
                step.tree.tokens.tolist(), step.q, step.p, draws, tests
            )
        ]
        token = {"text": tokenizer.decode([step.token]), "kind": step.kind, "drawn": last}
        rounds.append(
            {
                "context": context,
                "draft_cache": draft_cache,
                "drafts": drafts,
                "accepted": step.accepted,
                "token": token,
            }
        )
        # The draft model was never fed the last draft, so its cache does not contain that token
        # even if it was accepted.
        draft_cache = min(context + count - 1, context + step.accepted) if count else draft_cache
        context += len(step.tokens)
    if rest:
        raise ValueError(f"uniforms has {len(rest)} numbers more than the steps used")
    return rounds


def _split_uniforms(step: Step, uniforms: list[float], is_greedy: bool) -> tuple:
    """Return the uniforms of a step: of each draw, of each draft's test, and of the added token."""
    if not step.tree.is_chain:
        raise ValueError("steps holds a tree: must hold chains only")
    count, tested = len(step.tree), step.tested
    needed = count + tested + 1
    if step.token is None or (len(uniforms) < needed and not is_greedy):
        raise ValueError(
            f"a round of {count} drafts and {tested} tests needs {needed} uniforms and an added"
            f" token, uniforms has {len(uniforms)} left: record without stop tokens, with one"
            " RecordingRng"
        )
    numbers = [None] * needed if is_greedy else uniforms[:needed]
    untested = [None] * (count - tested)
    return numbers[:count], [*numbers[count : count + tested], *untested], numbers[-1]
