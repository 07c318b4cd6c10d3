"""A race: plain and speculative decoding write the same text on one clock.

`benchmarks/race.py` records the races that the book shows; `static/race.js` replays them.
"""

from collections.abc import Iterable, Sequence
from time import process_time

import numpy as np
import traitlets

from specdec_book import recordings
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.trace import trace
from specdec_lite import checks
from specdec_lite.contract import Drafter
from specdec_lite.decoding import stream
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Step


class Race(Interactive):
    """Two lanes write the same text on one clock: slowly at first, then at the recorded speed.

    Attributes:
        races: One dict per text, as `record_race` returns them.
        about: One line that names the models and the machine.
        race: Index of the text on display.
        autoplay: Whether to start once the lanes are in view, again and again until it is touched.
    """

    module = "race"
    label = "A race on one clock: plain decoding and speculative decoding write the same text"

    races = traitlets.List(traitlets.Dict())
    about = traitlets.Unicode()
    race = traitlets.Int(0, min=0)
    autoplay = traitlets.Bool(False)

    @classmethod
    def load(cls, name: str = "race", **options) -> "Race":
        """Return the races of the recording `name`."""
        data = recordings.load(name).data
        fields = {field: data[field] for field in ("races", "about", "race")}
        fields["races"] = [race | {"request": _whole_request(race)} for race in data["races"]]
        return cls(**(fields | options))


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
    if checks.whole("turns", turns, 1) % 2 == 0:
        raise ValueError(f"turns={turns}: must be odd, so that one run is the median")
    runs: dict[str, list[tuple[list[Step], np.ndarray]]] = {"plain": [], "speculative": []}
    for _ in range(turns + 1):
        for lane, chosen in (("plain", None), ("speculative", drafter)):
            steps = stream(
                target, prompt_ids, chosen, max_new_tokens, stop_token_ids=stop_token_ids
            )
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


def _whole_request(race: dict) -> str:
    """Return a recorded request with the text below its first line, found by its answer."""
    words = [word for step in race["lanes"]["plain"] for _, word in step["words"]]
    rows = recordings.load("answers").data["answers"]
    asked = {row["answer"].strip(): row["request"] for row in rows}
    return asked.get("".join(words).strip(), race["request"])


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
