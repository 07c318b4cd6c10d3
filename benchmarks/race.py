"""Record the race of the start page: SmolLM2 with a draft chosen per round, and plain decoding.

    OMP_NUM_THREADS=1 python -m benchmarks run race    # about ten minutes; processor seconds

One request per kind of text is answered greedily in bfloat16 with and without drafts, alternating.
It is the first of its kind that SmolLM2 answers well by the rule of the recording `answers`, in at
least LEAST tokens if there is one. In every round prompt lookup or the trained EAGLE-1 head drafts,
whichever accepted more of late. Both texts are the same where there is a C compiler
(`engine.linear.pack`); a request whose texts differ is replaced by the next one of its kind.
The race on display first is, among the new prose that fits a phone, the one whose speedup is nearest
to the geometric mean.
"""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from time import process_time
from typing import Literal

import numpy as np
import torch

from specdec_book import recordings
from specdec_book.viz.trace import trace
from specdec_lite import generate
from specdec_lite.contract import Drafter
from specdec_lite.decoding import stream
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure import stamps
from specdec_lite.proposal import Step
from specdec_lite.texts.smollm2_tasks import KINDS, chat

from .experiment import Run, experiment
from .methods import automatic
from .smollm2 import STOP

BUSY = 1.5
"""Load average above which other programs slowed the recording."""
LEAST = 40
"""Tokens of an answer that is long enough to be watched; a shorter one is raced if a kind has none."""
PROSE = ("question", "story")
"""Kinds whose answers anybody can read and that do not copy their request."""
FITS = 380, 8
"""Characters and lines of the longest answer that fits a phone twice."""


def record_race(
    target: CausalLM,
    drafter: Drafter,
    tokenizer,
    prompt_ids: Sequence[int],
    max_new_tokens: int = 128,
    turns: int = 5,
    stop_token_ids: Sequence[int] = (),
) -> dict:
    """Decode greedily with and without a drafter, alternating, and return both lanes.

    Times are processor seconds, which other programs on the machine lengthen little. Each lane is the
    run whose duration is the median of its turns; a first turn warms up and is not counted.
    """
    runs: dict[str, list[tuple[list[Step], np.ndarray]]] = {"plain": [], "speculative": []}
    for _ in range(turns + 1):
        for lane, by in (("plain", None), ("speculative", drafter)):
            steps = stream(target, prompt_ids, by, max_new_tokens, stop_token_ids=stop_token_ids)
            runs[lane].append(_timed(steps))
    seconds = {lane: [each.sum() for _, each in run[1:]] for lane, run in runs.items()}
    median = {lane: int(np.argsort(spent)[turns // 2]) + 1 for lane, spent in seconds.items()}
    return {
        "lanes": {
            lane: _lane(*run[median[lane]], tokenizer, stop_token_ids) for lane, run in runs.items()
        },
        "speedups": [
            float(plain / speculative)
            for plain, speculative in zip(seconds["plain"], seconds["speculative"], strict=True)
        ],
    }


def _timed(steps: Iterable[Step]) -> tuple[list[Step], np.ndarray]:
    """Return the steps of a run and the processor seconds of each.

    During the first one the prompt is read too; it gets the median of the others.
    """
    run, seconds, before = [], [], process_time()
    for step in steps:
        now = process_time()
        run.append(step)
        seconds.append(now - before)
        before = now
    seconds[0] = float(np.median(seconds[1:] or seconds))
    return run, np.array(seconds)


def _lane(
    steps: Sequence[Step], seconds: np.ndarray, tokenizer, stop_token_ids: Sequence[int]
) -> list[dict]:
    """Return the passes of a run."""
    stops = {tokenizer.decode([token]) for token in stop_token_ids}
    times = np.cumsum(seconds)
    lane = []
    for at, row in zip(times, trace(steps, tokenizer).passes, strict=True):
        words = [[piece.kind, "" if piece.text in stops else piece.text] for piece in row]
        lane.append({"at": round(float(at), 5), "words": words})
    return lane


def answer_of(race: dict) -> str:
    """Return the text that both lanes of a race write."""
    words = [word for step in race["lanes"]["plain"] for word in step["words"]]
    return "".join(text for _, text in words)


def median_kind(races: list[dict]) -> int:
    """Return the index of the race whose median speedup is nearest to the geometric mean of all.

    Prose that fits a phone's screen takes precedence.
    """
    logs = np.log([np.median(race["speedups"]) for race in races])
    texts = [answer_of(race) for race in races]
    others = np.array(
        [
            race["kind"] not in PROSE or len(text) > FITS[0] or text.count("\n") >= FITS[1]
            for race, text in zip(races, texts, strict=True)
        ]
    )
    return int((np.abs(logs - logs.mean()) + np.where(others, np.inf, 0)).argmin())


def good_requests(kind: str) -> list[str]:
    """Return the requests of a kind that SmolLM2 answers well: long answers in order, then others."""
    rows = [
        row
        for row in recordings.load("answers").data["answers"]
        if row["kind"] == kind and row["passes"]
    ]
    rows.sort(key=lambda row: -min(row["tokens"], LEAST))
    return [row["request"] for row in rows]


@experiment(
    "race",
    "plain and speculative decoding of SmolLM2, pass by pass",
    time="10 minutes",
    quick={"tokens": 8, "turns": 1},
)
def race(
    run: Run, *, tokens: int = 128, turns: int = 5, kinds: Sequence[Literal[*KINDS]] = KINDS
) -> dict:
    """Return one race per kind of text.

    Args:
        turns: odd number of turns per lane
    """
    if turns % 2 == 0:
        raise ValueError(f"--turns {turns}: must be odd, so that one run is the median")
    target, tokenizer = load_smollm2("cpu", "bfloat16")

    def raced(kind: str) -> dict:
        drafter = automatic(target)
        for request in good_requests(kind):
            ids = chat(tokenizer, request)
            plain, drafted = (
                generate(target, ids, each, tokens, stop_token_ids=(STOP,)).tokens.tolist()
                for each in (None, drafter)
            )
            if plain == drafted:
                break
        else:
            raise RuntimeError(f"no request of kind {kind} has equal texts")
        lanes = record_race(target, drafter, tokenizer, ids, tokens, turns, (STOP,))
        return {"kind": kind, "request": request.partition("\n\n")[0], **lanes}

    races = [*run({kind: partial(raced, kind) for kind in kinds}).values()]
    about = (
        f"Recorded from SmolLM2-135M in bfloat16 at temperature 0 on {stamps.machine_name()} with"
        f" {torch.get_num_threads()} thread. A guess is copied from the text where its last words"
        " occurred before, or made by this book's trained EAGLE-1 head: whichever was accepted"
        f" more of late. Times are processor seconds, without reading the prompt. {chosen()}"
    )
    if (load := os.getloadavg()[0]) > BUSY:
        about += f" Other programs ran (load average {load:.0f})."
    return {"about": about, "race": median_kind(races), "races": races}


def chosen() -> str:
    """Say how the requests were chosen, which share passed, and what repeating answers are worth."""
    answers = recordings.load("answers").data["answers"]
    passed = [row for row in answers if row["passes"]]
    loops = [row for row in answers if row["repeats"]]
    tau = lambda rows: sum(r["tokens"] for r in rows) / sum(r["target_passes"] for r in rows)
    return (
        f"Each request is the first of its kind that SmolLM2 answers well ({len(passed)} of"
        f" {len(answers)} requests passed: the answer does what was asked, ends by itself and contains"
        f" no six words in a row twice), in at least {LEAST} tokens if there is one, and whose two"
        f" texts no rounding made different. The {len(loops)} answers that repeat themselves are easier"
        f" to guess: {tau(loops):.2f} tokens per pass, against {tau(passed):.2f}."
    )
