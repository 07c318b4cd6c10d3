"""The formats in which vLLM, SGLang, llama.cpp and TensorRT-LLM report speculative decoding.

Each reader takes a text and returns its `Counts`, or None if the text has another format.
`metrics.explain` concludes from the counts.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
ROW = r"[\[(]?((?:\d+(?:\.\d+)?[,\s]*)+)"


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
    notes: list[str] = field(default_factory=list)


Reader = Callable[[str], Counts | None]


def last_number(pattern: str, text: str) -> float | None:
    """Return the last number that a pattern matches, since the end of a log is the newest."""
    values = re.findall(pattern, text, re.IGNORECASE)
    return float(values[-1]) if values else None


def last_row(pattern: str, text: str) -> tuple[float, ...]:
    """Return the numbers of the last row that a pattern matches; empty without a match."""
    values = re.findall(pattern, text, re.IGNORECASE)
    return tuple(map(float, re.findall(r"\d+(?:\.\d+)?", values[-1]))) if values else ()


def fraction(percent: float | None) -> float | None:
    """Return a percentage as a fraction."""
    return None if percent is None else percent / 100


# vLLM ----------------------------------------------------------------------------------------------


def vllm_log(text: str) -> Counts | None:
    """Read "SpecDecoding metrics: Mean acceptance length: 2.87, … Per-position acceptance rate: …"."""
    if not re.search("specdecoding metrics", text, re.IGNORECASE):
        return None
    return Counts(
        "vLLM, log line",
        drafted=last_number(rf"drafted: {NUMBER} tokens", text),
        accepted=last_number(rf"accepted: {NUMBER} tokens", text),
        tau=last_number(rf"mean acceptance length: {NUMBER}", text),
        share=fraction(last_number(rf"draft acceptance rate: {NUMBER}%", text)),
        rates=last_row(rf"per-position acceptance rate: {ROW}", text),
        notes=["the line covers all requests since the previous line"],
    )


def vllm_v0_log(text: str) -> Counts | None:
    """Read "Speculative metrics: Draft acceptance rate: 0.65, … Number of emitted tokens: 360"."""
    if not re.search("speculative metrics", text, re.IGNORECASE):
        return None
    gamma = last_number(rf"number of speculative tokens: {NUMBER}", text)
    drafted = last_number(rf"number of draft tokens: {NUMBER}", text)
    emitted = last_number(rf"number of emitted tokens: {NUMBER}", text)
    drafts = drafted / gamma if drafted and gamma else None
    return Counts(
        "vLLM before version 1, log line",
        drafts=drafts,
        drafted=drafted,
        accepted=last_number(rf"number of accepted tokens: {NUMBER}", text),
        tau=emitted / drafts if emitted and drafts else None,
        share=last_number(rf"draft acceptance rate: {NUMBER}", text),
        gamma=gamma,
        notes=[
            "the counts run since the server's start",
            "this version tests drafts after a rejection too: its acceptance rate estimates α",
        ],
    )


def vllm_counters(text: str) -> Counts | None:
    """Read vllm:spec_decode_num_drafts_total{…} 100 and its kin from a /metrics page."""
    if "spec_decode_num" not in text:
        return None

    def total(name: str) -> float | None:
        line = rf"spec_decode_{name}(?:_total)?(?:\{{[^}}]*\}})?[ :=]+{NUMBER}\s*$"
        values = re.findall(line, text, re.MULTILINE)
        return sum(map(float, values)) if values else None

    accepted: dict[int, float] = {}
    line = rf'accepted_tokens_per_pos(?:_total)?\{{[^}}]*position="(\d+)"[^}}]*\}}\s+{NUMBER}'
    for position, count in re.findall(line, text):
        accepted[int(position)] = accepted.get(int(position), 0.0) + float(count)
    drafts = total("num_drafts")
    is_complete = sorted(accepted) == list(range(len(accepted)))
    return Counts(
        "vLLM, counters",
        drafts=drafts,
        drafted=total("num_draft_tokens"),
        accepted=total("num_accepted_tokens"),
        rates=tuple(accepted[i] / drafts for i in sorted(accepted))
        if drafts and is_complete
        else (),
        notes=["counters run since the server's start: subtract two readings"],
    )


def vllm_example(text: str) -> Counts | None:
    """Read "num_drafts: 74097 … acceptance at token 0: 0.96", vLLM's offline example."""
    drafts = last_number(rf"\bnum_drafts: {NUMBER}", text)
    if drafts is None or "num_accepted_tokens" not in text:
        return None
    return Counts(
        "vLLM, offline example",
        drafts=drafts,
        drafted=last_number(rf"num_draft_tokens: {NUMBER}", text),
        accepted=last_number(rf"num_accepted_tokens: {NUMBER}", text),
        tau=last_number(rf"mean acceptance length: {NUMBER}", text),
        rates=positions(rf"acceptance at token (\d+): {NUMBER}", text),
    )


def vllm_bench(text: str) -> Counts | None:
    """Read the block "Speculative Decoding" of `vllm bench serve`."""
    if not re.search(r"acceptance rate \(%\):", text, re.IGNORECASE):
        return None
    percents = positions(rf"position (\d+):\s+{NUMBER}", text)
    return Counts(
        "vLLM, bench serve",
        drafts=last_number(rf"\bdrafts:\s+{NUMBER}", text),
        drafted=last_number(rf"\bdraft tokens:\s+{NUMBER}", text),
        accepted=last_number(rf"\baccepted tokens:\s+{NUMBER}", text),
        tau=last_number(rf"acceptance length:\s+{NUMBER}", text),
        share=fraction(last_number(rf"acceptance rate \(%\):\s+{NUMBER}", text)),
        rates=tuple(percent / 100 for percent in percents),
    )


def positions(pattern: str, text: str) -> tuple[float, ...]:
    """Return the values of positions 0, 1, … that a pattern matches as (position, value).

    Empty if a position is missing.
    """
    values = {
        int(position): float(value) for position, value in re.findall(pattern, text, re.IGNORECASE)
    }
    complete = sorted(values) == list(range(len(values)))
    return tuple(values[i] for i in range(len(values))) if complete else ()


# llama.cpp -----------------------------------------------------------------------------------------


def llama_server(text: str) -> Counts | None:
    """Read "draft acceptance = 0.64 (167 accepted / 259 generated), mean acceptance length = 2.92".

    The counts of a request are those of its own line. The "statistics" lines are cumulative: they
    are used only if the request's line lacks a length, and they are then used alone.
    """
    line = rf"draft acceptance(?: rate)?\s*=\s*{NUMBER}\s*\(\s*(\d+) accepted /\s*(\d+) generated.*"
    requests = list(re.finditer(line, text))
    if not requests:
        return None
    request = requests[-1]
    counts = Counts(
        "llama.cpp, server",
        accepted=float(request[2]),
        drafted=float(request[3]),
        tau=last_number(rf"mean (?:acceptance length|len)\s*=\s*{NUMBER}", request[0]),
        rates=last_row(rf"acceptance rate per position\s*=\s*{ROW}", request[0]),
    )
    statistics = llama_statistics(text)
    if counts.tau is None and statistics is not None:
        return statistics
    return counts


def llama_statistics(text: str) -> Counts | None:
    """Read the server's lines "statistics draft: … #gen drafts = 87, … #acc tokens = 167".

    Each implementation that drafts has a line of its own; the newest line of each counts.
    """
    newest: dict[str, list[float]] = {}
    for name, line in re.findall(r"statistics\s+([\w-]+):(.*)", text):
        fields = (last_number(rf"#{key}\s*=\s*{NUMBER}", line) for key in STATISTICS)
        values = [value for value in fields if value is not None]
        if len(values) == len(STATISTICS):
            newest[name] = values
    if not newest:
        return None
    drafts, drafted, accepted = map(sum, zip(*newest.values()))
    return Counts(
        "llama.cpp, server statistics",
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        notes=["the statistics run since the server's start, over all requests"],
    )


STATISTICS = ("gen drafts", "gen tokens", "acc tokens")


def llama_example(text: str) -> Counts | None:
    """Read "n_drafted = 160, n_accept = 96, n_predict = 128", the summary of its examples."""
    accepted = last_number(r"n_accept\s*=\s*(\d+)", text)
    drafted = last_number(r"n_drafted\s*=\s*(\d+)", text)
    if accepted is None or drafted is None:
        return None
    predicted = last_number(r"n_predict\s*=\s*(\d+)", text)
    return Counts(
        "llama.cpp, example",
        drafted=drafted,
        accepted=accepted,
        drafts=None if predicted is None else predicted - accepted,
        notes=[
            "every target pass emits one token that was not drafted: passes = n_predict − n_accept"
        ],
    )


# SGLang --------------------------------------------------------------------------------------------


def sglang_log(text: str) -> Counts | None:
    """Read "accept len: 2.54, accept rate: 0.51, gen throughput (token/s): …", also of its benchmark."""
    tau = last_number(rf"accept len(?:gth)?:\s+{NUMBER}", text)
    if tau is None:
        return None
    rate = last_number(rf"accept rate:\s+{NUMBER}", text)
    return sglang("SGLang, log line", tau, rate, rounding=5e-3)


def sglang_metrics(text: str) -> Counts | None:
    """Read sglang:spec_accept_length{…} 2.5 and sglang:spec_accept_rate from a /metrics page."""

    def gauge(name: str) -> float | None:
        return last_number(rf"sglang:spec_accept_{name}(?:\{{[^}}]*\}})?\s+{NUMBER}", text)

    tau = gauge("length")
    if tau is None:
        return None
    return sglang("SGLang, metrics page", tau, gauge("rate"), rounding=5e-4)


def sglang(engine: str, tau: float, rate: float | None, rounding: float) -> Counts:
    """Return the counts of a length and a rate.

    The rate has had two meanings: accepted ÷ drafted, and (accepted + 1) ÷ (drafted + 1) in releases
    before pull request 23530 (April 2026). In most cases γ is a whole number under only one of them.
    """
    counts = Counts(engine, tau=tau, notes=["the length includes the bonus token"])
    if rate is not None and rate > 1:
        counts.share = rate  # which is refused
    if not rate or rate > 1 or tau <= 1:
        return counts
    meanings = {
        "accepted ÷ drafted": lambda length, printed: (length - 1) / printed,
        "(accepted + 1) ÷ (drafted + 1)": lambda length, printed: length / printed - 1,
    }
    gammas = {}
    for meaning, gamma_of in meanings.items():
        low = gamma_of(tau - rounding, rate + rounding)
        high = gamma_of(tau + rounding, max(rate - rounding, rounding))
        if (gamma := round((low + high) / 2)) >= 1 and low <= gamma <= high:
            gammas[meaning] = gamma
    if len(set(gammas.values())) == 1:
        counts.gamma = float(min(gammas.values()))
    if len(gammas) == 1:
        counts.notes.append(
            f"the printed rate {rate:g} is {min(gammas)}: γ is a whole number only under this meaning"
        )
    if counts.gamma is None:
        counts.notes.append(
            f"the printed rate {rate:g} is accepted ÷ drafted, or (accepted + 1) ÷ (drafted + 1) in"
            " releases before pull request 23530: give gamma="
        )
    return counts


# TensorRT-LLM --------------------------------------------------------------------------------------


def tensorrt_bench(text: str) -> Counts | None:
    """Read "[AR] AVERAGE: 2.41" of trtllm-bench."""
    tau = last_number(rf"\[AR\]\s+AVERAGE\s*:?\s+{NUMBER}", text)
    if tau is None:
        return None
    return Counts(
        "TensorRT-LLM, trtllm-bench",
        tau=tau,
        notes=["its “acceptance rate” [AR] is a length: tokens per target pass"],
    )


# JSON ----------------------------------------------------------------------------------------------


def json_object(text: str) -> Counts | None:
    """Read a JSON object of any of the engines: statistics, timings or metrics of a request."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(text[begin:])
    except (json.JSONDecodeError, RecursionError):
        return None
    for key, reader in JSON_READERS.items():
        statistics = object_with(content, key)
        if statistics:
            return reader({name: value for name, value in statistics.items() if value is not None})
    return None


def object_with(content, key: str) -> dict | None:
    """Return the first object, at any depth, that has a key whose value is not null."""
    waiting = [content]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            if value.get(key) is not None:
                return value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return None


def tensorrt_statistics(statistics: dict) -> Counts:
    """Read `specDecodingStats` of TensorRT-LLM."""
    return Counts(
        "TensorRT-LLM, iteration statistics",
        drafts=statistics.get("numRequestsWithDraftTokens"),
        drafted=statistics["numDraftTokens"],
        accepted=statistics.get("numAcceptedTokens"),
        tau=statistics.get("acceptanceLength"),
        notes=["this is one iteration: sum the counts of many before you conclude anything"],
    )


def llama_timings(statistics: dict) -> Counts:
    """Read `timings` of llama.cpp's server."""
    accepted, predicted = statistics["draft_n_accepted"], statistics.get("predicted_n")
    return Counts(
        "llama.cpp, timings",
        drafts=None if predicted is None else predicted - accepted,
        drafted=statistics.get("draft_n"),
        accepted=accepted,
        notes=["passes = predicted_n − draft_n_accepted, which includes rounds without a draft"],
    )


def vllm_request(statistics: dict) -> Counts:
    """Read the metrics of a request of vLLM."""
    return Counts(
        "vLLM, metrics of a request",
        tau=statistics.get("mean_acceptance_length"),
        share=statistics.get("draft_acceptance_rate"),
        rates=rates_of(statistics["acceptance_histogram"]),
        notes=["steps without a draft are left out"],
    )


def sglang_request(statistics: dict) -> Counts:
    """Read `meta_info` of a request of SGLang; pull request 33518 (August 2026) added the histogram."""
    passes, tokens = statistics["spec_verify_ct"], statistics.get("completion_tokens")
    tau = statistics.get("spec_accept_length")
    if tau is None and tokens and passes:
        tau = tokens / passes
    return Counts(
        "SGLang, meta_info",
        drafts=passes or None,
        drafted=statistics.get("spec_draft_token_num", statistics.get("spec_num_proposed_drafts")),
        accepted=statistics.get("spec_accept_token_num", statistics.get("spec_num_correct_drafts")),
        tau=tau,
        rates=rates_of(statistics.get("spec_correct_drafts_histogram", ())),
        notes=["the length is completion_tokens ÷ spec_verify_ct, the bonus token included"],
    )


JSON_READERS: dict[str, Callable[[dict], Counts]] = {
    "numDraftTokens": tensorrt_statistics,
    "draft_n_accepted": llama_timings,
    "acceptance_histogram": vllm_request,
    "spec_verify_ct": sglang_request,
}
"""A key that marks a format → its reader."""


def rates_of(histogram: Sequence[float] | dict[str, float]) -> tuple[float, ...]:
    """Return the rates by position [γ] of a histogram."""
    counts = np.asarray(
        [histogram[key] for key in sorted(histogram, key=int)]
        if isinstance(histogram, dict)
        else histogram,
        dtype=float,
    )
    if counts.ndim != 1 or len(counts) < 2 or not counts.sum() > 0:
        return ()
    return tuple((counts[::-1].cumsum()[::-1][1:] / counts.sum()).tolist())


READERS: tuple[Reader, ...] = (
    vllm_log,
    vllm_v0_log,
    vllm_counters,
    vllm_bench,
    vllm_example,
    llama_server,
    llama_statistics,
    llama_example,
    sglang_metrics,
    tensorrt_bench,
    json_object,
    sglang_log,
)
EXAMPLES = (
    "a line with 'SpecDecoding metrics:', counters 'spec_decode_num_…' or the output of"
    " `vllm bench serve` (vLLM); 'accept len: …', 'sglang:spec_accept_length' or a 'meta_info'"
    " object (SGLang); 'draft acceptance = … ( … accepted / … generated)' or a 'timings' object"
    " (llama.cpp); a 'specDecodingStats' object or '[AR] AVERAGE' (TensorRT-LLM)"
)
