"""Read what engines report about speculative decoding, by the rows of `formats.json`.

Each row names an engine's text or JSON object and where its numbers are; the page's reader uses the
same rows. A text gives its `Counts`, from which `metrics.explain` concludes.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import TypeGuard

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
POOLED, REQUEST = TABLE["definitions"].values()
MOST_OBJECTS = 10_000
"""The most JSON objects of a text that are read, and the most braces that begin none."""
FIELDS = {"drafts", "drafted", "accepted", "tau", "share", "gamma", "rates", "whole", "steps"}
"""Names of a row that are fields of `Counts`; the others are only used to derive them."""


@dataclass(slots=True)
class Counts:
    """The numbers that a text states.

    Attributes:
        engine: the engine and the format.
        drafts: rounds that drafted.
        drafted: drafted tokens.
        accepted: accepted tokens.
        tau: tokens per target pass, with the bonus or recovered token.
        share: accepted ÷ drafted.
        gamma: drafted tokens per round.
        rates: share of all drafts in which position i was accepted, [γ].
        whole: tokens per target pass if every drafted token had been verified.
        verified: verified tokens per round, the root not counted, if fewer than γ.
        steps: all decoding steps, those that drafted nothing included.
        definition: which of the lengths that are called acceptance length tau is.
        tests_all: whether drafts after a rejection are tested too.
        notes: what a reader of these numbers may get wrong.
    """

    engine: str
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    tau: float | None = None
    share: float | None = None
    gamma: float | None = None
    rates: tuple[float, ...] = ()
    whole: float | None = None
    verified: float | None = None
    steps: float | None = None
    definition: str = ""
    tests_all: bool = False
    notes: list[str] = field(default_factory=list)


def number(value) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def matches(pattern: str, text: str) -> list[re.Match]:
    """Return all matches of a row's pattern, in which N is a number and ROW a row of numbers."""
    pattern = re.sub(r"\bROW\b", lambda _: TABLE["row"], pattern)
    pattern = re.sub(r"(?<![#A-Z\\])N(?![A-Z])", lambda _: TABLE["number"], pattern)
    return list(re.finditer(pattern, text, re.IGNORECASE))


def last_number(patterns: str | list[str], text: str) -> float | None:
    """Return the last number that the first matching pattern finds: a log's end is the newest."""
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if found := matches(pattern, text):
            return float(found[-1][1])
    return None


def read_text(row: dict, text: str) -> Counts | None:
    """Return the counts that a row finds in a text; None if the text has another format."""
    if not all(matches(pattern, text) for pattern in row.get("needs", ())):
        return None
    if "begin" in row:
        begins = matches(row["begin"], text)
        text = text[begins[-1].start() :] if begins else ""
    values: dict = {name: last_number(p, text) for name, p in row.get("fields", {}).items()}
    if "each" in row:
        values = newest_of_each(row, text)
    if "counters" in row:
        values = counters(row, text)
    if "rates" in row:
        found = matches(row["rates"], text)
        values["rates"] = tuple(
            map(float, re.findall(r"\d+(?:\.\d+)?", found[-1][1] if found else ""))
        )
    if "positions" in row:
        values["rates"] = in_order(
            {int(m[1]): float(m[2]) for m in matches(row["positions"], text)}
        )
    if not any(value not in (None, ()) for value in values.values()) and "needs" not in row:
        return None if "begin" not in row or not text else completed(row, values)
    if any(values.get(name) in (None, ()) for name in row.get("required", ())):
        return None
    counts = completed(row, values)
    if counts.tau is None and "without_tau" in row:
        other = next(each for each in TABLE["texts"] if each["engine"] == row["without_tau"])
        return read_text(other, text) or counts
    return counts


def newest_of_each(row: dict, text: str) -> dict:
    """Return the fields summed over the newest complete line of each name."""
    newest: dict[str, dict] = {}
    for match in matches(row["each"], text):
        values = {name: last_number(p, match[2]) for name, p in row["fields"].items()}
        if None not in values.values():
            newest[match[1]] = values
    sums: dict = {
        name: sum(line[name] for line in newest.values()) for name in row["fields"] if newest
    }
    if len(newest) > 1:
        sums["note"] = f"the rounds of several drafters are counted together: {', '.join(newest)}"
    return sums


def counters(row: dict, text: str) -> dict:
    """Return the values of a metrics page, summed over labels, or the last of each gauge."""
    totals: dict[str, float] = {}
    by_position: dict[int, float] = {}
    for name, labels, value in metric_lines(text, row["counters"]):
        totals[name] = value + (0.0 if row.get("last") else totals.get(name, 0.0))
        position = re.search(r'position="(\d{1,4})"', labels)
        if name == row.get("by_position") and position:
            by_position[int(position[1])] = by_position.get(int(position[1]), 0.0) + value
    values: dict = {key: totals.get(name) for key, name in row["names"].items()}
    for key, (prefix, wanted) in row.get("also", {}).items():
        found = [value for name, _, value in metric_lines(text, prefix) if name == wanted]
        values[key] = sum(found) if found else None
    if values.get("drafts"):
        values["rates"] = tuple(count / values["drafts"] for count in in_order(by_position))
    return values


def metric_lines(text: str, prefix: str) -> Iterator[tuple[str, str, float]]:
    """Yield (name, labels, value) of the lines of a metrics page, one prefix per line."""
    line_form = re.compile(rf"(\w+)(?:\{{([^}}]*)\}})?[ :=]+{TABLE['number']}\s*$")
    for line in text.splitlines():
        begin = line.find(prefix)
        match = line_form.match(line, begin + len(prefix)) if begin >= 0 else None
        if match:
            yield match[1].removesuffix("_total"), match[2] or "", float(match[3])


def in_order(values: dict[int, float]) -> tuple[float, ...]:
    """Return the values of positions 0, 1, …; empty if a position is missing."""
    complete = sorted(values) == list(range(len(values)))
    return tuple(values[i] for i in range(len(values))) if complete else ()


def completed(row: dict, values: dict) -> Counts:
    """Return a row's counts, with what follows from its other numbers."""
    for name, sign, first, second in row.get("derived", ()):
        if values.get(name) is None:
            values[name] = combined(sign, values.get(first), values.get(second))
    for name in row.get("percent", ()):
        if value := values.get(name):
            values[name] = tuple(v / 100 for v in value) if name == "rates" else value / 100
    counts = Counts(
        row["engine"],
        **{name: values[name] for name in FIELDS & values.keys()},
        definition=TABLE["definitions"][row.get("definition", "pooled")],
        tests_all=row.get("tests_all", False),
        notes=[*row.get("notes", ()), *([values["note"]] if "note" in values else [])],
    )
    if "rounding" in row:
        solve_sglang(counts, row["rounding"], values.get("rate"), values.get("cap"))
    return counts


def combined(sign: str, first, second) -> float | None:
    """Return a sum, difference or quotient; None if a part is no number or the divisor is 0."""
    if not number(first) or not number(second) or (sign == "/" and not second):
        return None
    return {"+": first + second, "-": first - second}[sign] if sign != "/" else first / second


# SGLang --------------------------------------------------------------------------------------------


def solve_sglang(counts: Counts, rounding: float, rate: float | None, cap: float | None) -> None:
    """Add γ, as it follows from a length and a rate, which are printed with a rounding error.

    The rate has had two meanings: accepted ÷ drafted, and (accepted + 1) ÷ (drafted + 1) in releases
    before pull request 23530 (April 2026). In most cases γ is a whole number under only one of them.
    """
    tau, is_new = counts.tau or 0.0, cap is not None or counts.whole is not None
    if rate is not None and rate > 1:
        counts.share = rate  # which is refused
    elif rate and 1 < tau < 1e6:  # DSpark, with a cap or a whole block, came after the rate changed
        counts.gamma = sglang_gamma(counts.notes, tau, rate, rounding, is_new)
    if counts.gamma is None:
        counts.notes.append(
            "γ is --speculative-num-draft-tokens less one, since that number counts the root"
        )
    if cap is not None:
        counts.verified = max(0.0, cap - 1)
        counts.notes.append(
            f"cap len {cap:g} counts the root: {counts.verified:.2f} drafts per round were verified"
        )
    if counts.whole is not None:
        counts.notes.append(
            f"block accept len {counts.whole:g} is the length if the whole block had been verified;"
            " with γ, α is solved from it"
        )


def sglang_gamma(
    notes: list[str], tau: float, rate: float, rounding: float, is_new: bool
) -> float | None:
    """Return the only γ that a length and a rate allow, or None, and note the rate's meaning."""
    meanings = {"accepted ÷ drafted": lambda length, printed: (length - 1) / printed}
    if not is_new:
        meanings["(accepted + 1) ÷ (drafted + 1)"] = lambda length, printed: length / printed - 1
    gammas = {}
    for meaning, gamma_of in meanings.items():
        low = gamma_of(tau - rounding, rate + rounding)
        high = gamma_of(tau + rounding, max(rate - rounding, rounding))
        if (gamma := round((low + high) / 2)) >= 1 and low <= gamma <= high:
            gammas[meaning] = gamma
    if len(gammas) == 1:
        notes.append(
            f"the printed rate {rate:g} is {min(gammas)}: γ is a whole number only under this meaning"
        )
    if len(set(gammas.values())) == 1:
        return float(min(gammas.values()))
    notes.append(
        f"the printed rate {rate:g} is accepted ÷ drafted, or (accepted + 1) ÷ (drafted + 1) in"
        " releases before pull request 23530: give gamma="
    )
    return None


# JSON ----------------------------------------------------------------------------------------------


def read_objects(text: str) -> Counts | None:
    """Read the JSON of any engine: statistics, timings or metrics of one request or of several."""
    contents = list(json_contents(text))
    for row in TABLE["objects"]:
        found = [each for content in contents for each in objects_with(content, row["key"])]
        if found:
            return pooled([read_object(row, each) for each in found])
    return None


def read_object(row: dict, content: dict) -> Counts:
    """Return the counts that a row finds in an object: the first of a field's keys that is there."""
    known = lambda keys: next((content[k] for k in keys if content.get(k) is not None), None)
    values: dict = {name: known(keys) for name, keys in row["fields"].items()}
    if "histogram" in row:
        histogram = known(row["histogram"])
        values["rates"] = () if histogram is None else rates_of(histogram)
    return completed(row, values)


def json_contents(text: str) -> Iterator:
    """Yield the JSON objects of a text, in order; what is between them is ignored."""
    decoder, begin = json.JSONDecoder(), text.find("{")
    for _ in range(MOST_OBJECTS):
        if begin < 0:
            return
        try:
            content, begin = decoder.raw_decode(text, begin)
            yield content
        except json.JSONDecodeError:
            begin += 1
        except RecursionError:
            return
        begin = text.find("{", begin)


def objects_with(content, key: str) -> Iterator[dict]:
    """Yield the objects, at any depth, that have a key whose value is not null."""
    waiting = deque([content])
    while waiting:
        value = waiting.popleft()
        if isinstance(value, dict) and value.get(key) is not None:
            yield value
        elif isinstance(value, (dict, list)):
            parts = value.values() if isinstance(value, dict) else value
            waiting += (each for each in parts if isinstance(each, (dict, list)))


def pooled(requests: list[Counts]) -> Counts:
    """Return the counts of several requests or iterations, summed; those of one as they are."""
    first = requests[0]
    if len(requests) == 1:
        return first
    lengths: list = [printed_length(each) for each in requests]
    rounds: list = [each.drafts for each in requests]
    drafts = total(rounds)
    if total(lengths) is None or not drafts:
        first.notes.append(f"the text has {len(requests)} objects: only the first is read")
        return first
    weighted = lambda values: sum(value * n for value, n in zip(values, rounds)) / drafts
    tau, mean = weighted(lengths), sum(lengths) / len(lengths)
    notes = [note for note in first.notes if "sum the counts" not in note]
    notes.append(
        f"{len(requests)} objects are pooled: {tau:.2f}; the mean of their lengths is {mean:.2f}"
    )
    return Counts(
        first.engine,
        drafts,
        total([each.drafted for each in requests]),
        total([each.accepted for each in requests]),
        tau,
        rates=tuple(map(weighted, zip_longest(*(each.rates for each in requests), fillvalue=0.0))),
        definition=POOLED,
        notes=notes,
    )


def printed_length(counts: Counts) -> float | None:
    """Return τ as printed, or as the counts of tokens give it; None if they do not."""
    share = combined("/", counts.accepted, counts.drafts)
    return counts.tau if counts.tau is not None or share is None else 1 + share


def total(values: list) -> float | None:
    """Return the sum of numbers, or None if one is missing."""
    return sum(values) if all(map(number, values)) else None


def rates_of(histogram) -> tuple[float, ...]:
    """Return the rates by position [γ] of a histogram: rounds [γ + 1] that accepted 0 … γ tokens.

    Raises:
        ValueError: the histogram is no list or object of counts.
    """
    if isinstance(histogram, dict) and all(key.isdigit() for key in histogram):
        histogram = [histogram[key] for key in sorted(histogram, key=int)]
    is_list = isinstance(histogram, (list, tuple))
    if not is_list or not all(number(value) and value >= 0 for value in histogram):
        raise ValueError(f"the histogram is {str(histogram)[:60]}: must be a list of counts")
    rounds = sum(histogram)
    if len(histogram) < 2 or not rounds > 0:
        return ()
    at_least = list(accumulate(reversed(histogram)))[::-1]
    return tuple(count / rounds for count in at_least[1:])


def read(text: str) -> Counts | None:
    """Return the counts of the first row that can read a text; None if none can."""
    for row in TABLE["texts"]:
        counts = read_objects(text) if row.get("json") else read_text(row, text)
        if counts is not None:
            return counts
    return None
