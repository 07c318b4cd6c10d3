"""The formats in which vLLM, SGLang, llama.cpp and TensorRT-LLM report speculative decoding.

Each reader takes a text and returns its `Counts`, or None if the text has another format.
`metrics.explain` concludes from the counts.
"""

import re
from collections.abc import Callable, Iterator

from specdec_lite.diagnosis.counts import REQUEST, Counts
from specdec_lite.diagnosis.json_formats import json_text

NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
ROW = r"[\[(]?((?:\d+(?:\.\d+)?[,\s]*)+)"
Reader = Callable[[str], Counts | None]


def last_number(pattern: str, text: str) -> float | None:
    """Return the last number that a pattern matches, since the end of a log is the newest."""
    values = re.findall(pattern, text, re.IGNORECASE)
    return float(values[-1]) if values else None


def last_row(pattern: str, text: str) -> tuple[float, ...]:
    """Return the numbers of the last row that a pattern matches; empty without a match."""
    values = re.findall(pattern, text, re.IGNORECASE)
    return tuple(map(float, re.findall(r"\d+(?:\.\d+)?", values[-1]))) if values else ()


def newest(pattern: str, text: str) -> str:
    """Return the text from a pattern's last match on, which excludes older lines; "" without one."""
    begins = [match.start() for match in re.finditer(pattern, text, re.IGNORECASE)]
    return text[begins[-1] :] if begins else ""


def metric_lines(text: str, prefix: str) -> Iterator[tuple[str, str, float]]:
    """Yield (name, labels, value) of the lines of a metrics page, one prefix per line."""
    line_form = re.compile(rf"(\w+)(?:\{{([^}}]*)\}})?[ :=]+{NUMBER}\s*$")
    for line in text.splitlines():
        begin = line.find(prefix)
        match = line_form.match(line, begin + len(prefix)) if begin >= 0 else None
        if match:
            yield match[1].removesuffix("_total"), match[2] or "", float(match[3])


def fraction(percent: float | None) -> float | None:
    """Return a percentage as a fraction."""
    return None if percent is None else percent / 100


# vLLM ----------------------------------------------------------------------------------------------


def vllm_log(text: str) -> Counts | None:
    """Read "SpecDecoding metrics: Mean acceptance length: 2.87, … Per-position acceptance rate: …"."""
    text = newest("specdecoding metrics", text)
    if not text:
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
    text = newest("speculative metrics", text)
    if not text:
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
        tests_all=True,
        notes=[
            "the counts run since the server's start",
            "this version tests drafts after a rejection too: its acceptance rate estimates α",
        ],
    )


def vllm_counters(text: str) -> Counts | None:
    """Read vllm:spec_decode_num_drafts_total{…} 100 and its kin from a /metrics page."""
    if "spec_decode_num" not in text:
        return None

    totals: dict[str, float] = {}
    accepted: dict[int, float] = {}
    for name, labels, value in metric_lines(text, "spec_decode_"):
        totals[name] = totals.get(name, 0.0) + value
        position = re.search(r'position="(\d{1,4})"', labels)
        if name == "num_accepted_tokens_per_pos" and position:
            accepted[int(position[1])] = accepted.get(int(position[1]), 0.0) + value
    drafts = totals.get("num_drafts")
    is_complete = sorted(accepted) == list(range(len(accepted)))
    return Counts(
        "vLLM, counters",
        drafts=drafts,
        drafted=totals.get("num_draft_tokens"),
        accepted=totals.get("num_accepted_tokens"),
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
    line = (
        rf"draft acceptance(?: rate)?\s*=\s*(?:{NUMBER}|-?nan(?:\(ind\))?)\s*"
        r"\(\s*(\d+) accepted /\s*(\d+) generated.*"
    )
    requests = list(re.finditer(line, text))
    if not requests:
        return None
    request = requests[-1]
    after = text[request.start() :]
    counts = Counts(
        "llama.cpp, server",
        accepted=float(request[2]),
        drafted=float(request[3]),
        tau=last_number(rf"mean (?:acceptance length|len)\s*=\s*{NUMBER}", request[0]),
        rates=last_row(rf"acc(?:eptance rate)? per pos(?:ition)?\s*=\s*{ROW}", after),
        definition=REQUEST,
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
    notes = ["the statistics run since the server's start, over all requests"]
    if len(newest) > 1:
        notes.append(f"the rounds of several drafters are counted together: {', '.join(newest)}")
    return Counts(
        "llama.cpp, server statistics",
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        notes=notes,
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
        gamma=last_number(r"\bn_draft\s*=\s*(\d+)", text),
        notes=[
            "every target pass emits one token that was not drafted: passes = n_predict − n_accept"
        ],
        definition=REQUEST,
    )


# SGLang --------------------------------------------------------------------------------------------


def sglang_log(text: str) -> Counts | None:
    """Read "accept len: 2.54, accept rate: 0.51, …", also with DSpark's cap and block lengths."""
    text = newest("(?<!block )accept len", text)
    length = re.match(rf"accept len(?:gth)?:\s+{NUMBER}", text, re.IGNORECASE)
    if length is None:
        return None
    rate = last_number(rf"accept rate:\s+{NUMBER}", text)
    cap = last_number(rf"\bcap len:\s+{NUMBER}", text)
    whole = last_number(rf"block accept len:\s+{NUMBER}", text)
    is_new = cap is not None or whole is not None  # DSpark came after the rate changed
    counts = sglang("SGLang, log line", float(length[1]), rate, 5e-3, is_new)
    counts.whole = whole
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
    return counts


def sglang_bench(text: str) -> Counts | None:
    """Read "#questions: 80, Throughput: 378.57 token/s, Acceptance length: 5.39" or acc_length=2.42."""
    tau = last_number(rf"token/s, acceptance length:\s+{NUMBER}", text)
    if tau is None:
        tau = last_number(rf"\b(?:avg_spec_accept_length|acc_length)[\"']?\s*[=:]\s*{NUMBER}", text)
    return None if tau is None else sglang("SGLang, benchmark", tau, None, rounding=5e-3)


def sglang_finish(text: str) -> Counts | None:
    """Read the log line "Finish: obj=…, 'spec_accept_length': 2.31", which is no JSON."""
    tau = last_number(rf"spec_accept_length['\"]\s*:\s*{NUMBER}", text)
    if tau is None:
        return None
    rate = last_number(rf"spec_accept_rate['\"]\s*:\s*{NUMBER}", text)
    counts = sglang("SGLang, log line of a request", tau, rate, rounding=5e-4)
    counts.definition = REQUEST
    return counts


def sglang_metrics(text: str) -> Counts | None:
    """Read sglang:spec_accept_length{…} 2.5 and sglang:spec_accept_rate from a /metrics page."""
    gauges = {name: value for name, _, value in metric_lines(text, "sglang:spec_accept_")}
    if "length" not in gauges:
        return None
    return sglang("SGLang, metrics page", gauges["length"], gauges.get("rate"), rounding=5e-4)


def sglang(
    engine: str, tau: float, rate: float | None, rounding: float, is_new: bool = False
) -> Counts:
    """Return the counts of a length and a rate, which are printed with a rounding error.

    The rate has had two meanings: accepted ÷ drafted, and (accepted + 1) ÷ (drafted + 1) in releases
    before pull request 23530 (April 2026). In most cases γ is a whole number under only one of them.
    """
    counts = Counts(engine, tau=tau)
    if rate is not None and rate > 1:
        counts.share = rate  # which is refused
    elif rate and 1 < tau < 1e6:
        counts.gamma = sglang_gamma(counts.notes, tau, rate, rounding, is_new)
    if counts.gamma is None:
        counts.notes.append(
            "γ is --speculative-num-draft-tokens less one, since that number counts the root"
        )
    return counts


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
    json_text,
    sglang_log,
    sglang_bench,
    sglang_finish,
)
REFUSED = {
    "DiffusionDecoding metrics": "a diffusion model has denoising steps, not drafts and verification"
}
"""Words of a line that is known and has no acceptance → the reason."""
EXAMPLES = (
    "a line with 'SpecDecoding metrics:', counters 'spec_decode_num_…' or the output of"
    " `vllm bench serve` (vLLM); 'accept len: …', 'sglang:spec_accept_length', a 'meta_info' object"
    " or '#questions: …' (SGLang); 'draft acceptance = … ( … accepted / … generated)' or a 'timings' object"
    " (llama.cpp); a 'specDecodingStats' or 'speculative_decoding' object or '[AR] AVERAGE'"
    " (TensorRT-LLM)"
)
