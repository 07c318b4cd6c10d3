"""The round stepper: a recorded run, stepped forwards and back.

What lives here: recording a run as plain numbers, and the widget that carries them. What does not:
any drawing, and the moments within a round, which follow from the numbers (`static/stepper.js`).
"""

from collections.abc import Sequence

import traitlets

from specdec_lite.decoding import stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure import results
from specdec_lite.sampling import RecordingRng
from specdec_lite.speculation import Step
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.trace import shown_end


class Stepper(Interactive):
    """A recorded speculative run: drafting, the target's pass, each test with its uniform, and both
    caches' lengths.

    prompt: the end of the text before. rounds: one dict a round, as `recorded_rounds` makes them.
    moment: which of the run's moments is shown, from 0; a round has one for every draft pass, one
    for the target's pass, one for every test, one for the added token and one for the cut.
    """

    module = "stepper"
    label = "Round stepper: one real speculative run, moment by moment"

    prompt = traitlets.Unicode().tag(sync=True)
    gamma = traitlets.Int(4, min=1).tag(sync=True)
    rounds = traitlets.List(traitlets.Dict()).tag(sync=True)
    moment = traitlets.Int(0, min=0).tag(sync=True)

    @classmethod
    def recorded(cls, name: str = "round") -> "Stepper":
        """The run in the recording results/<name>.json; ValueError where there is none."""
        return cls(**results.load(name).data["run"])

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
        """Decode speculatively after `prompt` and keep all that decided it. Arguments as in
        `generate`.
        """
        ids, rng = tokenizer.encode(prompt), RecordingRng(seed)
        drafter = ModelDrafter(draft, gamma)
        steps = list(stream(target, ids, drafter, max_new_tokens, temperature, top_k, rng=rng))
        return cls(
            prompt=shown_end(prompt),
            gamma=gamma,
            rounds=recorded_rounds(steps, rng.uniforms, len(ids), tokenizer),
        )


def recorded_rounds(
    steps: Sequence[Step], uniforms: Sequence[float], prompt_length: int, tokenizer
) -> list[dict]:
    """Rounds of a chain drafted by a model, as JSON: the numbers of the steps, and to each the
    uniforms it used.

    uniforms: all of the run, in order; empty for a greedy run, which draws none. prompt_length:
    tokens before the first step. A round is {"context": committed tokens before it, "draft_cache":
    tokens in the draft's cache before it, "drafts": [{"text", "q", "p", "drawn", "tested"}],
    "accepted", "token": {"text", "kind", "drawn"}}, where "drawn" and "tested" are uniforms in [0,
    1) or None. The target's cache always holds one token less than "context". ValueError where a
    tree was drafted that is no chain, or where the uniforms do not fit.
    """
    left = list(uniforms)
    context = prompt_length
    draft_cache = prompt_length - 1
    rounds = []
    sampled = bool(left)
    for step in steps:
        if not step.tree.is_chain:
            raise ValueError("steps holds a tree: the stepper shows chains")
        count, tested = len(step.tree), step.tested
        needed = count + tested + 1 if sampled else 0
        if len(left) < needed or step.token is None:
            raise ValueError(
                f"a round of {count} drafts and {tested} tests needs {count + tested + 1} uniforms"
                f" and an added token; {len(left)} uniforms are left: record without stop tokens,"
                " with one RecordingRng"
            )
        used = left[:needed] or [None] * (count + tested + 1)
        left = left[needed:]
        tests = [*used[count : count + tested], *[None] * count]
        drafts = [
            {
                "text": tokenizer.decode([token]),
                "q": q,
                "p": p,
                "drawn": used[i],
                "tested": tests[i],
            }
            for i, (token, q, p) in enumerate(zip(step.tree.tokens.tolist(), step.q, step.p))
        ]
        rounds.append(
            {
                "context": context,
                "draft_cache": draft_cache,
                "drafts": drafts,
                "accepted": step.accepted,
                "token": {
                    "text": tokenizer.decode([step.token]),
                    "kind": step.kind,
                    "drawn": used[-1],
                },
            }
        )
        # The last draft has never been fed to the draft model: its cache cannot hold it, even when
        # it was accepted.
        draft_cache = min(context + count - 1, context + step.accepted) if count else draft_cache
        context += len(step.tokens)
    if left:
        raise ValueError(
            f"uniforms holds {len(left)} more than the steps used: give those of this run alone"
        )
    return rounds
