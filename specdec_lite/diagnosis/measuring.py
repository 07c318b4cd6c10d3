"""What a diagnosis measures: acceptance without decoding, a short loop, and single passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdec_lite.batch import generate_batch
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate
from specdec_lite.diagnosis.offline import offline
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu.whole_draft import both_ways
from specdec_lite.measure import timing
from specdec_lite.proposal import Step

KS = (1, 2, 3, 5, 9, 17)
BATCHES = (1, 4, 16)
TURNS = 2
PROMPT = 96
"""The most tokens of a text that the loop continues."""
LEAST = 16
"""The fewest tokens of a text."""
Opening = tuple[float, float, float]
"""Of a first drafted token: 1 if it was accepted, else 0; the probability of that, from the two models'
rows at the same position; the same probability if q's likeliest token were drafted."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The runs of the loop, plain and speculative.

    Attributes:
        plain: seconds per token of the plain runs, [texts, turns].
        seconds: seconds per token of the speculative runs, [texts, turns].
        count: tokens of the speculative runs, [texts, turns].
        rounds: target passes of the speculative runs, [texts, turns].
        accepted: accepted draws of the speculative runs, [texts, turns].
        tested: tested draws of the speculative runs, [texts, turns].
        steps: rounds of the speculative runs.
        plain_steps: rounds of the plain runs.
        texts: (prompt and text, its rounds) of the first turn.
        same: share of greedy texts that equal plain decoding; None above temperature 0.
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
        """Number of tokens in the largest draft."""
        return max((len(step.tree) for step in self.steps), default=0)

    @property
    def levels(self) -> int:
        """Number of levels in the deepest draft."""
        return max((step.tree.levels for step in self.steps), default=0)

    @property
    def is_chain(self) -> bool:
        """Whether every draft was a chain."""
        return all(step.tree.is_chain for step in self.steps)


@dataclass(frozen=True, slots=True)
class Measured:
    """All measurements of a diagnosis.

    Attributes:
        loop: the runs of the loop.
        temperature: of the loop.
        acceptance: {domain: acceptance without decoding, of every text}; empty if no model drafts.
        controls: {control: acceptance}, which must be low.
        parity: greedy acceptance of the target as its own draft.
        in_batch: the same for rows of different lengths that share their passes; NaN for Hugging Face
            models, which are not asked.
        openings: first drafted tokens of all rounds of the loop, as `first_tokens` returns them.
        sampled: first drafted tokens of a short loop at temperature 1.
        is_chosen: whether drafts above temperature 0 are chosen, not drawn.
        alone: {k or "draft": seconds of a pass}.
        batches: {B: T(B, nodes + 1) ÷ T(B, 1)}.
        graphs: the same texts with passes and drafts in graphs, or why there are none.
    """

    loop: Loop
    temperature: float
    acceptance: dict[str, list[dict[str, Tensor]]] = field(default_factory=dict)
    controls: dict[str, float] = field(default_factory=dict)
    parity: float = float("nan")
    in_batch: float = float("nan")
    openings: Sequence[Opening] = ()
    sampled: Sequence[Opening] = ()
    is_chosen: bool = False
    alone: dict = field(default_factory=dict)
    batches: dict[int, float] = field(default_factory=dict)
    graphs: Loop | str = ""

    @property
    def drawn(self) -> dict[str, list[np.ndarray]]:
        """The probability [n − 1] that a token drawn from q is accepted, of every text."""
        return {n: [row["drawn"].numpy() for row in rows] for n, rows in self.acceptance.items()}


def text_model(drafter: Drafter) -> CausalLM | None:
    """Return the model that drafts from the text alone.

    None if there is no such model, or if it also reads the target's states, which a text lacks.
    """
    return None if drafter.hidden_layers else drafter.draft_model()


def without_decoding(
    target: CausalLM, drafter: Drafter, domains: dict[str, list[Tensor]]
) -> tuple[dict, dict]:
    """Return ({domain: acceptance of every text}, {control: acceptance}).

    Both are empty if no model drafts from the text alone.
    """
    draft = text_model(drafter)
    if draft is None:
        return {}, {}
    acceptance = {
        name: [offline(target, draft, row) for row in rows] for name, rows in domains.items()
    }
    row = max((row for rows in domains.values() for row in rows), key=len)
    mixed = row[torch.randperm(len(row), generator=torch.Generator().manual_seed(0)).to(row.device)]
    controls = {
        "target shifted by one": offline(target, draft, row, shift=1),
        "draft reads the tokens in another order": offline(target, draft, row, draft_tokens=mixed),
    }
    return acceptance, {name: float(each["drawn"].mean()) for name, each in controls.items()}


def decode(
    target: CausalLM,
    drafter: Drafter,
    domains: dict[str, list[Tensor]],
    new_tokens: int,
    temperature: float,
    seed: int,
    rule=None,
) -> Loop:
    """Decode every text plainly and speculatively, in random order."""
    order = np.random.default_rng(seed)
    prompts = [
        row[: max(LEAST // 2, min(PROMPT, len(row)))] for rows in domains.values() for row in rows
    ]
    for by in (drafter, None):  # warms up
        generate(target, prompts[0], by, LEAST, temperature, rule=by and rule, seed=seed)
    table = np.zeros((6, len(prompts), TURNS))  # the first fields of `Loop`
    steps: list[Step] = []
    plain_steps: list[Step] = []
    texts: list[tuple[Tensor, list[Step]]] = []
    same: list[bool] = []
    for turn in range(TURNS):
        for number in order.permutation(len(prompts)):
            prompt = prompts[number]
            runs = {}
            for kind in order.permutation(["plain", "drafted"]):
                by = drafter if kind == "drafted" else None
                options = {"rule": by and rule, "seed": seed + turn}
                runs[kind] = generate(target, prompt, by, new_tokens, temperature, **options)
            plain, drafted = runs["plain"], runs["drafted"]
            stats = drafted.stats
            table[:, number, turn] = (
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
    is_same = None if temperature else float(np.mean(same))
    return Loop(*table, steps=steps, plain_steps=plain_steps, texts=texts, same=is_same)


def decode_in_graphs(target: CausalLM, drafter: Drafter, *rest) -> Loop | str:
    """Do what `decode` does with captured passes and drafts, or return why that is impossible."""
    ways, why = both_ways(target, drafter, PROMPT + rest[1])
    if why:
        return why
    *both, rule = ways["in graphs"]
    return decode(*both, *rest, rule=rule)


def examine(
    target: CausalLM, drafter: Drafter, loop: Loop, temperature: float, seed: int
) -> dict[str, Any]:
    """Return the fields of `Measured` from parity to is_chosen."""
    prompt = loop.texts[0][0][:LEAST]
    itself = ModelDrafter(target, max(1, min(loop.levels, 4)))
    alone = generate(target, prompt, itself, 2 * LEAST, stop_token_ids=()).stats.acceptance_rate
    found = {"parity": alone, "in_batch": in_a_batch(target, itself, loop)}
    if (draft := text_model(drafter)) is None:
        return found
    openings = [first_tokens(target, draft, *text, temperature) for text in loop.texts]
    run = generate(target, prompt, drafter, 4 * LEAST, 1.0, stop_token_ids=(), seed=seed)
    text = torch.cat((prompt, run.tokens.to(prompt.device)))
    drawn = [q for step in run.steps for q in step.q]
    return found | {
        "openings": sum(openings, []),
        "sampled": first_tokens(target, draft, text, run.steps, 1.0),
        "is_chosen": bool(drawn) and all(q == 1 for q in drawn),
    }


def in_a_batch(target: CausalLM, itself: Drafter, loop: Loop) -> float:
    """Return the acceptance of the target's own drafts in rows of different lengths.

    NaN for Hugging Face models, which are not asked.
    """
    if not target.native:
        return float("nan")
    prompts = [loop.texts[0][0][:length] for length in (LEAST // 2, LEAST, 3 * LEAST)]
    outs = generate_batch(target, prompts, itself, 2 * LEAST, stop_token_ids=())
    stats = [out.stats for out in outs]
    return sum(each.accepted for each in stats) / sum(each.tested for each in stats)


def first_tokens(
    target: CausalLM, draft: CausalLM, text: Tensor, steps: Sequence[Step], temperature: float
) -> list[Opening]:
    """Return the first drafted token of each round that wrote the end of a text.

    Shapes: text [n].
    """
    rows = offline(target, draft, text, temperature or 1.0)
    expected, chosen = (rows[n if temperature else "greedy"].tolist() for n in ("drawn", "chosen"))
    position = len(text) - sum(len(step.tokens) for step in steps) - 1
    openings = []
    for step in steps:
        if step.tests and step.tests[0]:
            openings.append((float(step.accepted > 0), expected[position], chosen[position]))
        position += len(step.tokens)
    return openings


def time_passes(
    target: CausalLM, drafter: Drafter, domains: dict[str, list[Tensor]], nodes: int
) -> tuple[dict, dict[int, float]]:
    """Return ({k or "draft": seconds of a pass}, {B: T(B, nodes + 1) ÷ T(B, 1)})."""
    row = max((row for rows in domains.values() for row in rows), key=len)[:PROMPT]
    jobs: dict[int | str, Callable] = {**timing.pass_jobs(target, row, sorted({*KS, nodes + 1}))}
    if (draft := drafter.draft_model()) is not None:
        jobs["draft"] = timing.pass_job(draft, row, 1)
    alone = timing.interleaved(jobs, target.device, repeats=7, warmup=1)
    wide = {
        (batch, k): job
        for batch in BATCHES
        for k, job in timing.pass_jobs(target, row, (1, nodes + 1), batch).items()
    }
    spreads = timing.interleaved(wide, target.device, repeats=3, warmup=1)
    return alone, {batch: spreads[batch, nodes + 1] / spreads[batch, 1] for batch in BATCHES}
