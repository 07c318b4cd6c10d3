"""The JSON in which engines report speculative decoding: of iterations, and of requests."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate

from specdec_lite.diagnosis.counts import REQUEST, Counts, number

MOST_OBJECTS = 10_000
"""The most JSON objects of a text that are read, and the most braces that begin none."""


def json_text(text: str) -> Counts | None:
    """Read the JSON of any engine: statistics, timings or metrics of one request or of several."""
    contents = list(json_contents(text))
    for key, reader in JSON_READERS.items():
        found = [each for content in contents for each in objects_with(content, key)]
        if found:
            rows = [
                {name: value for name, value in each.items() if value is not None} for each in found
            ]
            return pooled([reader(row) for row in rows])
    return None


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
        if isinstance(value, dict):
            if value.get(key) is not None:
                yield value
            else:
                waiting += (each for each in value.values() if isinstance(each, (dict, list)))
        elif isinstance(value, list):
            waiting += (each for each in value if isinstance(each, (dict, list)))


def pooled(requests: list[Counts]) -> Counts:
    """Return the counts of several requests or iterations, summed; those of one as they are."""
    first = requests[0]
    if len(requests) == 1:
        return first
    known = [(request_length(each), each.drafts) for each in requests]
    pairs = [(length, rounds) for length, rounds in known if number(length) and number(rounds)]
    drafts = sum(rounds for _, rounds in pairs)
    if len(pairs) < len(requests) or not drafts:
        first.notes.append(f"the text has {len(requests)} objects: only the first is read")
        return first
    tau = sum(length * rounds for length, rounds in pairs) / drafts
    mean = sum(length for length, _ in pairs) / len(pairs)
    width = max(len(each.rates) for each in requests)
    rates = [
        sum(
            each.rates[i] * rounds
            for each, (_, rounds) in zip(requests, pairs)
            if i < len(each.rates)
        )
        / drafts
        for i in range(width)
    ]
    notes = [
        f"{len(requests)} objects are pooled: {tau:.2f}; the mean of their lengths is {mean:.2f}"
    ]
    return Counts(
        first.engine,
        drafts=drafts,
        drafted=total([each.drafted for each in requests]),
        accepted=total([each.accepted for each in requests]),
        tau=tau,
        rates=tuple(rates),
        notes=[*(note for note in first.notes if "sum the counts" not in note), *notes],
    )


def request_length(counts: Counts) -> float | None:
    """Return τ of one object, or None if it does not follow."""
    if counts.tau is None and number(counts.accepted) and number(counts.drafts) and counts.drafts:
        return 1 + counts.accepted / counts.drafts
    return counts.tau


def total(values: list) -> float | None:
    """Return the sum of numbers, or None if one is missing."""
    numbers = [value for value in values if number(value)]
    return sum(numbers) if len(numbers) == len(values) else None


def difference(first, second) -> float | None:
    """Return first − second, or None if one of them is no number."""
    return first - second if number(first) and number(second) else None


def quotient(first, second) -> float | None:
    """Return first ÷ second, or None if one of them is no number or second is 0."""
    return first / second if number(first) and number(second) and second else None


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


def tensorrt_request(statistics: dict) -> Counts:
    """Read `speculative_decoding` of a response of TensorRT-LLM (pull request 19311)."""
    drafts, accepted = (
        statistics.get("num_spec_steps"),
        statistics.get("total_accepted_draft_tokens"),
    )
    return Counts(
        "TensorRT-LLM, metrics of a request",
        drafts=drafts,
        drafted=statistics["total_draft_tokens"],
        accepted=accepted,
        rates=rates_of(statistics.get("acceptance_histogram", ())),
        definition=REQUEST,
    )


def llama_timings(statistics: dict) -> Counts:
    """Read `timings` of llama.cpp's server, and of mlx-vlm, which states the rounds."""
    accepted, rounds = statistics["draft_n_accepted"], statistics.get("draft_rounds")
    note = "passes = predicted_n − draft_n_accepted, which includes rounds without a draft"
    return Counts(
        "llama.cpp, timings" if rounds is None else "mlx-vlm, timings",
        drafts=difference(statistics.get("predicted_n"), accepted) if rounds is None else rounds,
        drafted=statistics.get("draft_n"),
        accepted=accepted,
        definition=REQUEST,
        notes=[note] if rounds is None else [],
    )


def vllm_request(statistics: dict) -> Counts:
    """Read the metrics of a request of vLLM."""
    return Counts(
        "vLLM, metrics of a request",
        drafts=statistics.get("num_spec_steps"),
        drafted=statistics.get("num_draft_tokens"),
        accepted=statistics.get("num_accepted_draft_tokens"),
        tau=statistics.get("mean_acceptance_length"),
        share=statistics.get("draft_acceptance_rate"),
        rates=rates_of(statistics["acceptance_histogram"]),
        definition=REQUEST,
        notes=["steps without a draft are left out"],
    )


def sglang_request(statistics: dict) -> Counts:
    """Read `meta_info` of a request of SGLang; pull request 33518 (August 2026) added the histogram."""
    passes = statistics["spec_verify_ct"]
    tau = statistics.get("spec_accept_length")
    if tau is None:
        tau = quotient(statistics.get("completion_tokens"), passes)
    return Counts(
        "SGLang, meta_info",
        drafts=passes or None,
        drafted=statistics.get("spec_draft_token_num", statistics.get("spec_num_proposed_drafts")),
        accepted=statistics.get("spec_accept_token_num", statistics.get("spec_num_correct_drafts")),
        tau=tau,
        rates=rates_of(
            statistics.get(
                "spec_correct_drafts_histogram", statistics.get("spec_accept_histogram", ())
            )
        ),
        definition=REQUEST,
        notes=["the length is completion_tokens ÷ spec_verify_ct, the bonus token included"],
    )


JSON_READERS: dict[str, Callable[[dict], Counts]] = {
    "numDraftTokens": tensorrt_statistics,
    "draft_n_accepted": llama_timings,
    "total_draft_tokens": tensorrt_request,
    "acceptance_histogram": vllm_request,
    "spec_verify_ct": sglang_request,
}
"""A key that marks a format → its reader."""


def rates_of(histogram) -> tuple[float, ...]:
    """Return the rates by position [γ] of a histogram: rounds [γ + 1] that accepted 0 … γ tokens.

    Raises:
        ValueError: the histogram is no list or object of counts.
    """
    if isinstance(histogram, dict) and all(key.isdigit() for key in histogram):
        histogram = [histogram[key] for key in sorted(histogram, key=int)]
    is_counts = isinstance(histogram, (list, tuple)) and all(
        number(value) and value >= 0 for value in histogram
    )
    if not is_counts:
        raise ValueError(f"the histogram is {str(histogram)[:60]}: must be a list of counts")
    rounds = sum(histogram)
    if len(histogram) < 2 or not rounds > 0:
        return ()
    at_least = list(accumulate(reversed(histogram)))[::-1]
    return tuple(count / rounds for count in at_least[1:])
