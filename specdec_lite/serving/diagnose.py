"""Will this draft pay for this target on this machine, what decides it, and what is wrong if not.

What lives here: the measurements and the verdict. What does not: the questions about faults
(`faults`), acceptance without decoding (`offline`), how a diagnosis is shown (`report`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor
from tqdm import tqdm

from specdec_lite import checks, theory
from specdec_lite.decoding import generate, stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.measure import timing
from specdec_lite.measure.intervals import ratio
from specdec_lite.serving import report
from specdec_lite.serving.faults import Evidence, Fault, Opening, faults
from specdec_lite.serving.offline import offline
from specdec_lite.speculation import Drafter, Step

KS = (1, 2, 3, 5, 9, 17)
BATCHES = (1, 4, 16)
TURNS = 2
PROMPT = 96
"""Tokens of a text, at most, that the loop goes on from."""
READ = 512
"""Tokens of a text, at most, that are read offline."""
LEAST = 16


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was measured of a draft, and what follows.

    Attributes:
        verdict: "pays", "even" or "hurts".
        reason: the sentence behind it: the term that decides.
        speedup: {"value", "interval"} over plain decoding of the same target, in the same turns.
        predicted: τ ÷ (v + drafting + o) from the same rounds.
        tau, alpha: with intervals; alpha (accepted ÷ tested) of chains only.
        break_even: the τ at which a round costs what its tokens cost plainly.
        parts: a round's parts in units of T(1): {"draft", "verify", "other"}.
        passes: {k: T(k) ÷ T(1)} of the target. batches: {B: T(B, γ+1) ÷ T(B, 1)}.
        one: seconds of T(1). c: a draft pass alone ÷ T(1), where a model drafts; c_in_loop: in the
            loop, a level.
        best_gamma, best_speedup: what the corrected formula prefers with these costs; 0 and 1
            where nothing pays.
        needed: what would change the sign: {"alpha", "c"}, each alone; None where it alone cannot.
        offline: {domain: {"drawn", "chosen", "greedy"}}, acceptance at every position of the texts
            without decoding; empty where no model drafts.
        controls: what must be bad: {"shifted by one", "another text"}.
        same_text: the share of greedy texts that equal plain decoding; None above temperature 0.
        faults: what is wrong, the most fundamental first.
        setting: gamma or nodes, temperature, dtype, device, texts, tokens.
    """

    verdict: str
    reason: str
    speedup: dict
    predicted: float
    tau: dict
    alpha: dict | None
    break_even: float
    parts: dict[str, float]
    passes: dict[int, float]
    batches: dict[int, float]
    one: float
    c: float | None
    c_in_loop: float
    best_gamma: int
    best_speedup: float
    needed: dict[str, float | None]
    offline: dict[str, dict[str, float]]
    controls: dict[str, float]
    same_text: float | None
    faults: tuple[Fault, ...]
    setting: dict

    def to_dict(self) -> dict:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return report.plain(self)

    def _repr_html_(self) -> str:
        return report.html(self)


def diagnose(
    target: CausalLM,
    drafter: Drafter,
    texts: Mapping[str, Sequence] | Sequence | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    tokenizer=None,
    seed: int = 0,
    progress: bool = False,
) -> Diagnosis:
    """Measure within minutes whether a draft pays, and name what decides it.

    Args:
        target: decodes.
        drafter: any drafter; where a model drafts, acceptance is measured without decoding too.
        texts: {domain: texts}, or texts; each a row of at least 16 ids, or a string where a
            tokenizer is given. None: a few of the shipped prompts where a tokenizer is given, else
            the target's own text.
        max_new_tokens: of every run of the loop.
        temperature: of the loop.
        tokenizer: has `encode(text)`.
        seed: of the order of the turns, and of the draws.
        progress: show a bar.

    Raises TypeError and ValueError, naming the argument, before any model runs.
    """
    checks.model("target", target)
    checks.whole("max_new_tokens", max_new_tokens, LEAST)
    checks.number("temperature", temperature)
    domains = read(texts, tokenizer, target)
    longest = max((len(text) for rows in domains.values() for text in rows), default=PROMPT)
    stream(target, [0] * min(PROMPT, longest), drafter, max_new_tokens, temperature)  # checks alone
    with tqdm(total=5, disable=not progress, desc="diagnose", leave=False) as bar:

        def stage(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        stage("reading the texts")
        domains = domains or {"its own text": own(target, seed)}
        acceptance, controls = without_decoding(target, drafter, domains)
        stage("decoding in turns")
        loop = decode(target, drafter, domains, max_new_tokens, temperature, seed)
        stage("looking for faults")
        evidence = examine(target, drafter, loop, acceptance, controls, temperature, seed)
        stage("timing passes")
        nodes = max((len(step.tree) for step in loop.steps), default=0)
        alone, batches = time_passes(target, drafter, domains, nodes)
        stage("concluding")
        return conclude(loop, alone, batches, evidence, acceptance, drafter, target, domains)


# Texts ---------------------------------------------------------------------------------------------


def read(texts, tokenizer, target: CausalLM) -> dict[str, list[Tensor]]:
    """{domain: rows of ids}; empty where the target has to write its own."""
    if texts is None:
        if tokenizer is None:
            return {}
        texts = {
            name: [row["text"] for row in rows[:2]] for name, rows in evaluation_prompts().items()
        }
    if isinstance(texts, str) or not isinstance(texts, (Mapping, Sequence)) or not len(texts):
        raise ValueError(
            f"texts={texts!r}: must be None, texts, or {{domain: texts}}, at least one of them"
        )
    domains = texts if isinstance(texts, Mapping) else {"text": texts}
    return {
        str(name): [ids(row, tokenizer, target) for row in rows] for name, rows in domains.items()
    }


def ids(text, tokenizer, target: CausalLM) -> Tensor:
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError("texts holds strings: give tokenizer, or rows of token ids")
        text = tokenizer.encode(text)
    row = torch.as_tensor(text).flatten().long()
    if len(row) < LEAST:
        raise ValueError(f"texts holds one of {len(row)} tokens: each must have at least {LEAST}")
    outside = row[(row < 0) | (row >= target.vocab_size)].tolist()
    if outside:
        raise ValueError(
            f"texts holds token {outside[0]}: the target's ids are 0 … {target.vocab_size - 1}"
        )
    return row[: min(READ, target.max_positions)].to(target.device)


def own(target: CausalLM, seed: int, count: int = 3) -> list[Tensor]:
    """Rows that the target writes itself at temperature 1, each from one token on."""
    starts = torch.randint(
        target.vocab_size, (count, 1), generator=torch.Generator().manual_seed(seed)
    )
    return [
        torch.cat(
            (
                start.to(target.device),
                generate(target, start, None, PROMPT, 1.0, seed=seed).tokens.to(target.device),
            )
        )
        for start in starts
    ]


# Measuring -----------------------------------------------------------------------------------------


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


def without_decoding(
    target: CausalLM, drafter: Drafter, domains: dict[str, list[Tensor]]
) -> tuple[dict, dict]:
    """({domain: Offline of every text}, {control: acceptance}); both empty where no model drafts."""
    draft = drafter.draft_model()
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
    levels = max(
        (int(step.tree.depth.max()) + 1 for step in loop.steps if len(step.tree)), default=1
    )
    prompt = loop.texts[0][0][:LEAST]
    itself = generate(target, prompt, ModelDrafter(target, min(levels, 4)), 2 * LEAST).stats
    draft = drafter.draft_model()
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
        itself.acceptance_rate,
        openings,
        sampled,
        was_chosen,
        loop.steps,
        rows,
        controls,
    )


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


# Concluding ----------------------------------------------------------------------------------------


def conclude(
    loop: Loop,
    alone: dict,
    batches: dict[int, float],
    evidence: Evidence,
    acceptance: dict,
    drafter: Drafter,
    target: CausalLM,
    domains: dict[str, list[Tensor]],
) -> Diagnosis:
    one = median(step.verifying for step in loop.plain_steps)
    costs = timing.round_costs(loop.steps, one)
    nodes = max((len(step.tree) for step in loop.steps), default=0)
    levels = max(
        (int(step.tree.depth.max()) + 1 for step in loop.steps if len(step.tree)), default=0
    )
    speedup = ratio(loop.plain, loop.seconds)
    tau = ratio(loop.count, loop.rounds)
    is_chain = all(step.tree.is_chain for step in loop.steps)
    alpha = ratio(loop.accepted, loop.tested) if is_chain else None
    if alpha is not None and alpha["value"] is None:
        alpha = None
    plain_round = timing.round_costs(loop.plain_steps, one).total
    c = costs.draft / max(1, levels)
    scale = costs.verify / (alone[nodes + 1] / alone[1])
    passes = {k: alone[k] / alone[1] for k in alone if isinstance(k, int)}
    curve = Curve(passes, scale, c, costs.other, plain_round)
    best, gain = curve.best(alpha["value"]) if alpha else (nodes, speedup["value"])
    low, high = speedup["interval"]
    verdict = "pays" if low > 1 else "hurts" if high < 1 else "even"
    return Diagnosis(
        verdict=verdict,
        reason=reason(verdict, tau["value"], costs, batches),
        speedup=speedup,
        predicted=tau["value"] * plain_round / costs.total,
        tau=tau,
        alpha=alpha,
        break_even=costs.total / plain_round,
        parts={"draft": costs.draft, "verify": costs.verify, "other": costs.other},
        passes=passes,
        batches=batches,
        one=one,
        c=alone["draft"] / alone[1] if "draft" in alone else None,
        c_in_loop=c,
        best_gamma=best,
        best_speedup=gain,
        needed=curve.needed(alpha["value"], levels) if alpha and levels else {},
        offline={
            name: {
                kind: float(torch.cat([getattr(each, kind) for each in found]).mean())
                for kind in ("drawn", "chosen", "greedy")
            }
            for name, found in acceptance.items()
        },
        controls=evidence.controls,
        same_text=loop.same,
        faults=faults(evidence),
        setting={
            "levels": levels,
            "nodes": nodes,
            "temperature": evidence.temperature,
            "dtype": str(target.dtype).removeprefix("torch."),
            "device": str(target.device),
            "texts": {name: len(rows) for name, rows in domains.items()},
            "tokens": int(loop.count.sum()),
        },
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """What a round of γ drafted tokens costs, in units of T(1): passes {k: T(k) ÷ T(1)} alone, times
    scale in the loop; c of a drafted token; other; plain: a plain round.
    """

    passes: dict[int, float]
    scale: float
    c: float
    other: float
    plain: float

    def total(self, gamma: int, c: float | None = None) -> float:
        ks = sorted(self.passes)
        verify = float(np.interp(gamma + 1, ks, [self.passes[k] for k in ks]))
        return self.scale * verify + gamma * (self.c if c is None else c) + self.other

    def speedup(self, alpha: float, gamma: int, c: float | None = None) -> float:
        return theory.expected_tokens(alpha, gamma) * self.plain / self.total(gamma, c)

    def best(self, alpha: float) -> tuple[int, float]:
        """The γ of the greatest speedup, and that; (0, 1) where none exceeds 1."""
        gammas = range(1, max(self.passes))
        gamma = max(gammas, key=lambda each: self.speedup(alpha, each))
        gain = self.speedup(alpha, gamma)
        return (gamma, gain) if gain > 1 else (0, 1.0)

    def needed(self, alpha: float, gamma: int) -> dict[str, float | None]:
        """The α, and the c, at which this γ breaks even, all else as it is."""
        found: dict[str, float | None] = {"alpha": None, "c": None}
        if self.speedup(1.0, gamma) > 1 > self.speedup(0.0, gamma):
            found["alpha"] = float(brentq(lambda each: self.speedup(each, gamma) - 1, 0.0, 1.0))
        if self.speedup(alpha, gamma, 0.0) > 1:
            most = theory.expected_tokens(alpha, gamma) * self.plain
            found["c"] = (most - self.total(gamma, 0.0)) / gamma
        return found


def reason(verdict: str, tau: float, costs: timing.RoundCosts, batches: Mapping[int, float]) -> str:
    """The term that decides, in a sentence."""
    terms = {
        "drafting": costs.draft,
        "verifying several tokens rather than one": max(0.0, costs.verify - 1),
        "what is neither drafting nor a pass": costs.other,
    }
    dearest = max(terms, key=terms.get)
    price = f"{dearest} costs {terms[dearest]:.2f} of a plain pass a round"
    if verdict == "pays":
        return f"a round emits {tau:.2f} tokens at the cost of {costs.total:.2f} passes; {price}"
    if tau <= costs.verify + costs.other:
        return (
            f"acceptance: a round emits {tau:.2f} tokens, and verifying them alone costs"
            f" {costs.verify + costs.other:.2f} plain passes; a free draft would not pay either"
        )
    return f"{price}; a round emits {tau:.2f} tokens at the cost of {costs.total:.2f} passes"
