"""The scoreboard: speeds from counts and costs, with the uncertainty of both.

`scoreboard-counts` has what each row does on each prompt (tokens, rounds, rows of each target
pass); `scoreboard-clocks` has what passes and rounds cost on one machine. The seconds of a text are

    drafting · s + Σ T(k) · f + rounds · o,

where "drafting" is the row's median drafting time for its number of levels, s is a turn's drafting
time ÷ that median, T(k) is a pass over k tokens, f is the pass in the loop ÷ the pass alone, and o
is the rest of a round. The intervals resample prompts and turns together: every row and every plain
decoder of a resample uses the same turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from specdec_book import recordings
from specdec_book.recordings import Recording

RESAMPLES = 1000
PLAIN = "plain"
MAIN_KINDS = ("question", "code", "edit", "json", "summary", "prose")
"""Kinds of every mean and every verdict."""
TIMED_KINDS = (*MAIN_KINDS, "humaneval")
"""Kinds with speeds. Costs are measured after short prompts, so long ones have counts alone."""
WIN, TIE, LOSS = VERDICTS = ("wins", "ties", "loses")
Cell = tuple[str, float]
"""Kind of text and temperature."""


def numbers(text: str) -> np.ndarray:
    """Return the numbers of a text that has one per prompt; 7*3 stands for 7 7 7."""
    runs = [run.split("*") for run in text.split()]
    return np.repeat(
        [float(run[0]) for run in runs], [int(run[-1]) if run[1:] else 1 for run in runs]
    )


def verdict(estimate: dict) -> str:
    """Return "wins", "ties" or "loses": whether an interval is above 1, contains it or is below."""
    low, high = estimate["interval"]
    return WIN if low > 1 else LOSS if high < 1 else TIE


def estimate(value: float, resamples: np.ndarray) -> dict:
    """Return a value with the 95 % interval of its resamples."""
    return {"value": float(value), "interval": np.quantile(resamples, (0.025, 0.975)).tolist()}


# Costs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowCosts:
    """The costs of a row in one precision at one temperature.

    Attributes:
        empty: Seconds of drafting in a round without a draft.
        start: Seconds of drafting in a round with a draft, besides its levels.
        level: Seconds of drafting per level.
        draft: Each turn's drafting time ÷ the median one.
        verify: Each turn's pass in the loop ÷ the pass alone.
        other: Each turn's seconds of the rest of a round.
    """

    empty: float
    start: float
    level: float
    draft: np.ndarray
    verify: np.ndarray
    other: np.ndarray

    def drafting(self, rounds, empty, levels):
        """Return the seconds of drafting of texts, before the turn's factor."""
        return self.empty * empty + self.start * (rounds - empty) + self.level * levels

    def seconds(self, drafting, verifying, rounds, turns=slice(None)):
        """Return the seconds of texts, averaged over turns [..., turns]."""
        parts = (self.draft, drafting), (self.verify, verifying), (self.other, rounds)
        return sum(factor[turns].mean(-1) * amount for factor, amount in parts)


def fit(depths: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """Return the drafting seconds without a draft, of any draft, and per level."""
    medians = {depth: np.median(seconds[depths == depth]) for depth in sorted(set(depths))}
    drafted = {depth: each for depth, each in medians.items() if depth > 0}
    if not drafted:
        return float(medians[0]), float(medians[0]), 0.0
    start, level = float(np.mean(list(drafted.values()))), 0.0
    if len(drafted) > 1:
        weights = [np.sqrt(np.sum(depths == depth)) for depth in drafted]
        level, start = map(float, np.polyfit([*drafted], [*drafted.values()], 1, w=weights))
        if level < 0 or start < 0:  # the levels hardly differ: charge the median per draft
            start, level = float(np.median(seconds[depths > 0])), 0.0
    return float(medians.get(0, start)), start, level


class Costs:
    """What a machine needs for passes and rounds.

    Args:
        recording: A recording of `scoreboard-clocks`.
    """

    def __init__(self, recording: Recording):
        self.recording = recording
        self.data = recording.data
        self.turns = self.data["turns"]
        self.dtypes = list(self.data["passes"])
        self.column = self.data["column"]  # name of the machine's column

    @cached_property
    def widths(self) -> dict[str, tuple[list[int], list[float]]]:
        """{dtype: (k, median seconds of a pass over k tokens)}."""
        return {
            dtype: (list(map(int, passes)), [float(np.median(each)) for each in passes.values()])
            for dtype, passes in self.data["passes"].items()
        }

    def passes(self, dtype: str, widths: np.ndarray) -> np.ndarray:
        """Return the seconds of passes alone; beyond the largest k the last slope continues."""
        ks, seconds = self.widths[dtype]
        slope = (seconds[-1] - seconds[-2]) / (ks[-1] - ks[-2])
        beyond = np.maximum(0, np.asarray(widths) - ks[-1])
        return np.interp(widths, ks, seconds) + slope * beyond

    def verifying(self, dtype: str, rows: dict[str, str]) -> np.ndarray:
        """Return the seconds of all passes of each text, before the turn's factor."""
        counts = np.array([numbers(each) for each in rows.values()])  # [widths, texts]
        return self.passes(dtype, np.array([*map(int, rows)])) @ counts

    def rounds(self, name: str, dtype: str, temperature: float) -> list[np.ndarray] | None:
        """Return each turn's rounds [rounds, (levels, tokens of the pass, three times in s)]."""
        turns = self.data["rounds"].get(dtype, {}).get(f"{temperature:g}", {}).get(name)
        if turns is None:
            return None
        rows = [
            np.array([each.split(",") for each in turn.split()], float).reshape(-1, 5)
            for turn in turns
        ]
        return [row * (1, 1, 1e-6, 1e-6, 1e-6) for row in rows]

    @cache  # noqa: B019 (one object per recording)
    def row(self, name: str, dtype: str, temperature: float) -> RowCosts | None:
        """Return the costs of a row; None if it was not timed."""
        turns = self.rounds(name, dtype, temperature)
        if turns is None or not any(map(len, turns)):
            return None
        every = np.concatenate(turns)
        empty, start, level = fit(every[:, 0], every[:, 2])
        drafted = [np.where(t[:, 0] > 0, start + level * t[:, 0], empty) for t in turns]

        def of_turns(ratio) -> np.ndarray:
            values = [
                float(np.median(ratio(turn, expected))) if len(turn) else np.nan
                for turn, expected in zip(turns, drafted)
            ]
            return np.where(np.isnan(values), np.nanmedian(values), values)

        return RowCosts(
            *(empty, start, level),
            draft=of_turns(lambda turn, expected: turn[:, 2] / np.maximum(expected, 1e-9)),
            verify=of_turns(lambda turn, _: turn[:, 3] / self.passes(dtype, turn[:, 1])),
            other=of_turns(lambda turn, _: turn[:, 4]),
        )

    @cache  # noqa: B019
    def plain(self, temperature: float) -> dict[str, np.ndarray]:
        """Return {plain decoder: seconds per token in each turn}."""
        decoders = {}
        for dtype in self.dtypes:
            turns = self.rounds(PLAIN, dtype, temperature) or []
            per_turn = [float(np.median(turn[:, 2:].sum(1))) for turn in turns]
            if per_turn:
                decoders[dtype] = np.array(per_turn)
        others = self.data["plain"].get(f"{temperature:g}", {})
        return decoders | {name: np.array(each) for name, each in others.items()}

    def best_plain(self, temperature: float) -> str:
        """Return the name of the fastest plain decoder."""
        decoders = self.plain(temperature)
        return min(decoders, key=lambda name: decoders[name].mean())

    def baseline(self, temperature: float) -> str:
        """Return the fastest plain decoder as text, with its threads and its tokens per second."""
        name, threads = self.best_plain(temperature), self.data["threads"]
        rate = 1 / self.plain(temperature)[name].mean()
        return f"{name}, {threads} thread{'s' * (threads > 1)}, {rate:.0f} tokens/s"


# The board ----------------------------------------------------------------------------------------


class Board:
    """Counts of one model, and the costs of one machine. A row that was not timed has no speeds.

    Args:
        counts: A recording of `scoreboard-counts`.
        clocks: A recording of `scoreboard-clocks` of the same model.
        public: A recording of `humaneval-counts` of the same model; None without a public set.
    """

    def __init__(self, counts: Recording, clocks: Recording, public: Recording | None = None):
        self.counts = counts
        self.data = counts.data
        self.model = self.data["model"]  # "pair" or "smollm2"
        self.costs = Costs(clocks)
        self.cells: dict[Cell, dict[str, dict]] = {
            (row["kind"], row["temperature"]): row["methods"]
            for row in [*self.data["cells"], *(public.data["cells"] if public else [])]
        }

    @property
    def temperatures(self) -> list[float]:
        """Temperatures with counts."""
        return sorted({temperature for _, temperature in self.cells})

    @cached_property
    def methods(self) -> list[str]:
        """Rows in the order of the catalog."""
        counted = {name for rows in self.cells.values() for name in rows}
        return [name for name in self.data["about"] if name in counted]

    def kinds(self, temperature: float) -> list[str]:
        """Return the kinds of text of a temperature that can have speeds."""
        return [kind for kind in MAIN_KINDS if (kind, temperature) in self.cells]

    @property
    def size(self) -> str:
        """How many prompts per kind were decoded, as text: "4" or "4 to 8"."""
        main = (rows for (kind, _), rows in self.cells.items() if kind in MAIN_KINDS)
        sizes = {len(numbers(rows[PLAIN]["tokens"])) for rows in main}
        return " to ".join(map(str, sorted({min(sizes), max(sizes)})))

    def source(self) -> str:
        """One line for a caption: where counts and costs come from."""
        return f"counts {self.counts.source}; costs {self.costs.recording.source}"

    # Speeds ---------------------------------------------------------------------------------------

    @cache  # noqa: B019 (one object per recording)
    def chosen(self, count: int, seed: int) -> np.ndarray:
        """Return the resamples of `count` things [resamples + 1, count]; the first has each once."""
        drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
        return np.concatenate([np.arange(count)[None], drawn])

    def chosen_prompts(self, kind: str, count: int) -> np.ndarray:
        """Return the resamples of a kind's prompts; each kind has draws of its own."""
        return self.chosen(count, MAIN_KINDS.index(kind) if kind in MAIN_KINDS else 9)

    @cache  # noqa: B019
    def pace(self, name: str, kind: str, temperature: float, dtype: str) -> np.ndarray | None:
        """Return the seconds per token of a row [resamples + 1]; None if it has no costs."""
        counts = self.cells.get((kind, temperature), {}).get(name)
        costs = self.costs.row(name, dtype, temperature)
        if counts is None or costs is None:
            return None
        rounds, empty, levels, tokens = (
            numbers(counts[field]) for field in ("rounds", "empty", "levels", "tokens")
        )
        verifying = self.costs.verifying(dtype, counts["rows"])
        prompts = self.chosen_prompts(kind, len(tokens))
        total = lambda values: values[prompts].sum(1)
        drafting = total(costs.drafting(rounds, empty, levels))
        turns = self.chosen(self.costs.turns, 100)
        return costs.seconds(drafting, total(verifying), total(rounds), turns) / total(tokens)

    def plain_pace(self, decoder: str, temperature: float) -> np.ndarray:
        """Return the seconds per token of a plain decoder [resamples + 1]."""
        return self.costs.plain(temperature)[decoder][self.chosen(self.costs.turns, 100)].mean(1)

    @cache  # noqa: B019
    def speeds(self, name: str, kind: str, temperature: float) -> dict | None:
        """Return the speeds of a row on a kind of text, each precision beside its own plain one."""
        paces = {d: self.pace(name, kind, temperature, d) for d in self.costs.dtypes}
        paces = {dtype: pace for dtype, pace in paces.items() if pace is not None}
        if not paces:
            return None
        dtype = min(paces, key=lambda each: paces[each][0])
        best = self.plain_pace(self.costs.best_plain(temperature), temperature)
        return {
            "dtype": dtype,
            "pace": paces[dtype],
            "over_best": best / paces[dtype],
            "over_same": self.plain_pace(dtype, temperature) / paces[dtype],
        }

    # Entries --------------------------------------------------------------------------------------

    @cache  # noqa: B019
    def entry(self, name: str, kind: str | None, temperature: float) -> dict | None:
        """Return the columns of a row on a kind of text; None if it was not counted.

        - tau: emitted tokens ÷ target passes. alpha: accepted ÷ tested. used: emitted ÷ verified.
          empty: share of rounds without a draft.

        - positions: share of drafting rounds that accepted at least this many levels. conditional:
          the same among rounds that accepted all earlier levels and drafted this one.

        - same: share of greedy texts that equal plain decoding's; None above temperature 0.

        - over_best, over_same, dtype, tokens_per_second: see `speeds`; c, verify and overhead: a
          drafted level, the pass and the rest of a round, in plain passes. None without costs.
        """
        kinds = [kind] if kind else self.kinds(temperature)
        cells = [self.cells.get((each, temperature), {}).get(name) for each in kinds]
        if not cells or None in cells:
            return None
        total = lambda field: sum(numbers(cell[field]).sum() for cell in cells)
        share = lambda above, below: float(above / below) if below else None
        verified = sum(
            int(width) * numbers(each).sum()
            for cell in cells
            for width, each in cell["rows"].items()
        )
        reached, tried = (sum(numbers(cell[field]) for cell in cells) for field in TRIES)
        deepest = int((tried > 0).sum())
        rounds = total("rounds")
        drafting = rounds - total("empty")
        is_greedy = temperature == 0
        same = np.concatenate([numbers(cell["same"]) for cell in cells]) if is_greedy else None
        return {
            "tau": self.tau(name, kinds, temperature),
            "alpha": share(total("accepted"), total("tested")),
            "used": share(total("tokens"), verified),
            "empty": share(total("empty"), rounds),
            "positions": [share(each, drafting) for each in reached[:deepest]],
            "conditional": [share(*each) for each in zip(reached[:deepest], tried[:deepest])],
            "same": float(np.mean(same)) if is_greedy else None,
            **self.speed_columns(name, kinds, temperature),
        }

    def tau(self, name: str, kinds: Sequence[str], temperature: float) -> dict:
        """Return the tokens per target pass, with the interval over the prompts of each kind."""
        sums = np.zeros((2, RESAMPLES + 1))
        for kind in kinds:
            cell = self.cells[kind, temperature][name]
            tokens, rounds = numbers(cell["tokens"]), numbers(cell["rounds"])
            prompts = self.chosen_prompts(kind, len(tokens))
            sums += tokens[prompts].sum(1), rounds[prompts].sum(1)
        ratios = sums[0] / sums[1]
        return estimate(ratios[0], ratios[1:])

    def speed_columns(self, name: str, kinds: Sequence[str], temperature: float) -> dict:
        """Return the columns that need costs; all are None without them."""
        every = [self.speeds(name, kind, temperature) for kind in kinds if kind in TIMED_KINDS]
        if not every or None in every:
            return dict.fromkeys(SPEED_COLUMNS)
        mean = lambda field: np.exp(np.mean([np.log(each[field]) for each in every], axis=0))
        dtypes = [each["dtype"] for each in every]
        dtype = max(set(dtypes), key=dtypes.count)
        costs = self.costs.row(name, dtype, temperature)
        cells = [self.cells[kind, temperature][name] for kind in kinds]
        total = lambda field: sum(numbers(cell[field]).sum() for cell in cells)
        rounds, empty, levels = total("rounds"), total("empty"), total("levels")
        one = float(self.costs.passes(dtype, np.array([1]))[0])
        verifying = sum(self.costs.verifying(dtype, cell["rows"]).sum() for cell in cells)
        values = {field: estimate(mean(field)[0], mean(field)[1:]) for field in SPEEDUPS}
        return values | {
            "verdict": verdict(values["over_best"]),
            "dtype": dtype,
            "tokens_per_second": float(1 / mean("pace")[0]),
            "c": costs.drafting(rounds, empty, levels) / levels / one if levels else None,
            "verify": float(costs.verify.mean() * verifying / rounds / one),
            "overhead": float(costs.other.mean() / one),
        }

    # Summaries ------------------------------------------------------------------------------------

    def verdicts(self) -> dict[str, int]:
        """Return how many (row, kind, temperature) win, tie and lose against the best plain."""
        counted = dict.fromkeys(VERDICTS, 0)
        for temperature in self.temperatures:
            for kind in self.kinds(temperature):
                for name in self.methods:
                    entry = self.entry(name, kind, temperature)
                    if entry and entry["verdict"]:
                        counted[entry["verdict"]] += 1
        return counted

    def ranked(self, temperature: float) -> list[str]:
        """Return the lossless rows that were timed on all kinds of text, the fastest first."""
        entries = {name: self.entry(name, None, temperature) for name in self.methods}
        speeds = {n: e["over_best"]["value"] for n, e in entries.items() if e and e["over_best"]}
        names = [name for name in speeds if self.data["about"][name]["lossless"]]
        return sorted(names, key=lambda name: -speeds[name])

    def checks(self) -> list[dict]:
        """Return the texts that were timed in full, with the prediction for the same text."""
        rows = []
        for each in self.costs.data["checks"]:
            dtype, temperature = each["dtype"], each["temperature"]
            costs = self.costs.row(each["method"], dtype, temperature)
            counts = {f: numbers(each["counts"][f]).sum() for f in ("tokens", "rounds", *DRAFTS)}
            if costs is None or not counts["tokens"]:
                continue
            verifying = self.costs.verifying(dtype, each["counts"]["rows"]).sum()
            drafting = costs.drafting(*(counts[f] for f in ("rounds", *DRAFTS)))
            seconds = costs.seconds(drafting, verifying, counts["rounds"])
            plain = self.costs.plain(temperature)[dtype].mean()
            rows.append(
                {f: each[f] for f in ("method", "kind", "temperature", "dtype")}
                | {
                    "measured": each["plain"] * counts["tokens"] / each["seconds"],
                    "predicted": float(plain * counts["tokens"] / seconds),
                }
            )
        return rows


SPEEDUPS = ("over_best", "over_same")
SPEED_COLUMNS = (*SPEEDUPS, *("verdict", "dtype", "tokens_per_second", "c", "verify", "overhead"))
TRIES = ("reached", "tried")
DRAFTS = ("empty", "levels")


SUFFIX = {"pair": "", "smollm2": "-smollm2"}


def columns(model: str) -> list[Recording]:
    """Return the recordings of costs of a model, one per machine; those of limited processors last."""
    names = recordings.names("scoreboard-clocks" + SUFFIX[model])
    return [*map(recordings.load, sorted(names, key=lambda name: "-limited-to-" in name))]


@cache
def load(model: str, machine: str | None = None) -> Board:
    """Return the scoreboard of a model."""
    every = {each.data["column"]: each for each in columns(model)}
    processors = [each for each in every.values() if each.data["device"] == "cpu"]
    clocks = every[machine] if machine else next(iter(processors), None)
    public = "humaneval-counts" + SUFFIX[model]
    return Board(
        recordings.load("scoreboard-counts" + SUFFIX[model]),
        clocks,
        recordings.load(public) if recordings.names(public) else None,
    )
