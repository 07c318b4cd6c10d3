"""What a diagnosis measures: acceptance without decoding, a short loop in turns, single passes.

What lives here: the measurements. What does not: what follows from them (`verdict`, `faults`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specdec_lite.decoding import generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.measure import timing
from specdec_lite.serving.batch import generate_batch
from specdec_lite.serving.faults import Evidence, Opening
from specdec_lite.serving.offline import Offline, offline
from specdec_lite.speculation import Drafter, Step

KS = (1, 2, 3, 5, 9, 17)
BATCHES = (1, 4, 16)
TURNS = 2
PROMPT = 96
"""Tokens of a text, at most, that the loop goes on from."""
LEAST = 16
"""Tokens of a text, at least."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The runs of the loop. plain, seconds: of a token, [texts, turns]. count, rounds, accepted,
    tested: of the speculative runs, [texts, turns]. steps: their rounds. starts: (text so far, that
    round) of the first turn. plain_steps: the plain rounds. same: greedy texts that equal plain.
    """

    plain: np.ndarray
    seconds: np.ndarray
    count: np.ndarray
    rounds: np.ndarray
    accepted: np.ndarray
    tested: np.ndarray
    steps: list[Step]
    plain_steps: list[Step]
    texts: list[tuple[Tensor, list[Step]]]
    same: float | None

    @property
    def nodes(self) -> int:
        """Tokens of the largest draft."""
        return max((len(step.tree) for step in self.steps), default=0)

    @property
    def levels(self) -> int:
        """Levels of the deepest draft."""
        depths = (int(step.tree.depth.max()) + 1 for step in self.steps if len(step.tree))
        return max(depths, default=0)

    @property
    def is_chain(self) -> bool:
        return all(step.tree.is_chain for step in self.steps)


@dataclass(frozen=True, slots=True)
class Measured:
    """All that a verdict follows from. acceptance: {domain: Offline of every text}, empty where no
    model drafts. alone: {k or "draft": seconds of a pass}. batches: {B: T(B, nodes + 1) ÷ T(B, 1)}.
    """

    loop: Loop
    evidence: Evidence
    acceptance: dict[str, list[Offline]]
    alone: dict
    batches: dict[int, float]


def reader(drafter: Drafter) -> CausalLM | None:
    """The model that drafts from the text alone; None where none does, or where it reads the
    target's states too, which a text does not hold.
    """
    return None if drafter.hidden_layers else drafter.draft_model()


def without_decoding(
    target: CausalLM, drafter: Drafter, domains: dict[str, list[Tensor]]
) -> tuple[dict, dict]:
    """({domain: Offline of every text}, {control: acceptance}); both empty where no model drafts
    from the text alone.
    """
    draft = reader(drafter)
    if draft is None:
        return {}, {}
    found = {name: [offline(target, draft, row) for row in rows] for name, rows in domains.items()}
    row = max((row for rows in domains.values() for row in rows), key=len)
    mixed = row[torch.randperm(len(row), generator=torch.Generator().manual_seed(0)).to(row.device)]
    controls = {
        "target shifted by one": offline(target, draft, row, shift=1),
        "draft reads the tokens in another order": offline(target, draft, row, shown=mixed),
    }
    return found, {name: float(each.drawn.mean()) for name, each in controls.items()}


def decode(
    target: CausalLM,
    drafter: Drafter,
    domains: dict[str, list[Tensor]],
    new_tokens: int,
    temperature: float,
    seed: int,
) -> Loop:
    """Plain and speculative runs on every text, in an order drawn anew."""
    order = np.random.default_rng(seed)
    prompts = [
        row[: max(LEAST // 2, min(PROMPT, len(row)))] for rows in domains.values() for row in rows
    ]
    generate(target, prompts[0], drafter, LEAST, temperature, seed=seed)  # warms up
    table = np.zeros((6, len(prompts), TURNS))
    steps: list[Step] = []
    plain_steps: list[Step] = []
    texts: list[tuple[Tensor, list[Step]]] = []
    same: list[bool] = []
    for turn in range(TURNS):
        for place in order.permutation(len(prompts)):
            prompt = prompts[place]
            runs = {}
            for kind in order.permutation(["plain", "drafted"]):
                by = drafter if kind == "drafted" else None
                runs[kind] = generate(target, prompt, by, new_tokens, temperature, seed=seed + turn)
            plain, drafted = runs["plain"], runs["drafted"]
            stats = drafted.stats
            table[:, place, turn] = (
                plain.stats.seconds / plain.stats.tokens,
                stats.seconds / stats.tokens,
                stats.tokens,
                stats.target_passes,
                stats.accepted,
                stats.tested,
            )
            steps += drafted.steps
            plain_steps += plain.steps
            if turn == 0:
                texts.append((torch.cat((prompt, drafted.tokens.to(prompt.device))), drafted.steps))
            same.append(plain.tokens.equal(drafted.tokens))
    return Loop(*table, steps, plain_steps, texts, None if temperature else float(np.mean(same)))


def examine(
    target: CausalLM,
    drafter: Drafter,
    loop: Loop,
    acceptance: dict,
    controls: dict[str, float],
    temperature: float,
    seed: int,
) -> Evidence:
    """What the questions about faults look at."""
    prompt = loop.texts[0][0][:LEAST]
    itself = ModelDrafter(target, max(1, min(loop.levels, 4)))
    draft = reader(drafter)
    openings: list[Opening] = []
    sampled: list[Opening] = []
    was_chosen = False
    if draft is not None:
        for text, steps in loop.texts:
            openings += opened(target, draft, text, steps, temperature)
        run = generate(target, prompt, drafter, 4 * LEAST, 1.0, seed=seed)
        text = torch.cat((prompt, run.tokens.to(prompt.device)))
        sampled = opened(target, draft, text, run.steps, 1.0)
        drawn = [q for step in run.steps for q in step.q]
        was_chosen = bool(drawn) and all(q == 1 for q in drawn)
    rows = {name: [each.drawn for each in found] for name, found in acceptance.items()}
    return Evidence(
        temperature,
        generate(target, prompt, itself, 2 * LEAST).stats.acceptance_rate,
        in_a_batch(target, itself, loop),
        openings,
        sampled,
        was_chosen,
        loop.steps,
        rows,
        controls,
    )


def in_a_batch(target: CausalLM, itself: Drafter, loop: Loop) -> float:
    """Acceptance of the target's own drafts where rows of different lengths share its passes; NaN
    for models that cannot share one.
    """
    if not target.native:
        return float("nan")
    prompts = [loop.texts[0][0][:length] for length in (LEAST // 2, LEAST, 3 * LEAST)]
    outs = generate_batch(target, prompts, itself, 2 * LEAST)
    stats = [out.stats for out in outs]
    return sum(each.accepted for each in stats) / sum(each.tested for each in stats)


def opened(
    target: CausalLM, draft: CausalLM, text: Tensor, steps: Sequence[Step], temperature: float
) -> list[Opening]:
    """The first drafted tokens of the rounds that wrote the end of a text."""
    rows = offline(target, draft, text, temperature or 1.0)
    expected = rows.at(temperature)
    chosen = rows.chosen if temperature else rows.greedy
    place = len(text) - sum(len(step.tokens) for step in steps)
    found = []
    for step in steps:
        if step.tests and step.tests[0]:
            values = (
                float(step.accepted > 0),
                float(expected[place - 1]),
                float(chosen[place - 1]),
            )
            found.append(Opening(*values))
        place += len(step.tokens)
    return found


def time_passes(
    target: CausalLM, drafter: Drafter, domains: dict[str, list[Tensor]], nodes: int
) -> tuple[dict, dict[int, float]]:
    """({k or "draft": seconds}, {B: T(B, nodes + 1) ÷ T(B, 1)})."""
    row = max((row for rows in domains.values() for row in rows), key=len)[:PROMPT]
    jobs = {k: timing.pass_job(target, row, k) for k in sorted({*KS, nodes + 1})}
    draft = drafter.draft_model()
    if draft is not None:
        known = row.clamp(max=draft.vocab_size - 1).to(draft.device)
        jobs["draft"] = timing.pass_job(draft, known, 1)
    alone = timing.interleaved(jobs, target.device, repeats=7, warmup=1)
    wide = {
        (batch, k): timing.pass_job(target, row, k, batch)
        for batch in BATCHES
        for k in (1, nodes + 1)
    }
    spreads = timing.interleaved(wide, target.device, repeats=3, warmup=1)
    return alone, {batch: spreads[batch, nodes + 1] / spreads[batch, 1] for batch in BATCHES}
