"""What engines print about speculation, in the book's terms: τ, α, acceptance by position.

What lives here: reading log lines, counters and JSON of vLLM, SGLang, llama.cpp and TensorRT-LLM.
What does not: the formulas (`theory`). The engines mean different things by one word: an
"acceptance rate" is accepted ÷ drafted wherever it stands, per-position rates are shares of *all*
drafts (a position is counted though an earlier one was rejected), and a mean acceptance length
holds the bonus token.
"""

import json
import re
from dataclasses import asdict, dataclass, field

import numpy as np
from scipy.optimize import brentq

from specdec_lite import theory

NUMBER = r"(\d+(?:\.\d+)?)"
ROW = r"[\[(]?((?:\d+(?:\.\d+)?[,\s]*)+)"
TOLERANCE = 0.06
"""How far a printed τ may lie from 1 + Σ rates by position: the engines print two or three digits,
and a share of the drafts may be short.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pasted text says, and what follows from it. None: it does not follow.

    Attributes:
        engine: whose format it is.
        tau: tokens per target pass over the rounds that drafted, the bonus or recovered token
            included.
        gamma: drafted tokens a round, its mean where rounds differ.
        rates: share of all drafts whose position i was accepted (unconditional), [γ].
        profile: accepted ÷ tested by position (conditional), [γ].
        alpha: accepted ÷ tested; where no rates are printed, the α whose expected tokens are τ.
        alpha_is_fitted: whether alpha is such a solution, which assumes one α for all positions.
        drafted_acceptance: accepted ÷ drafted.
        missing: what the text would have to hold for the rest.
        notes: what a reader of these numbers may get wrong.
    """

    engine: str
    tau: float | None = None
    gamma: float | None = None
    rates: tuple[float, ...] = ()
    profile: tuple[float, ...] = ()
    alpha: float | None = None
    alpha_is_fitted: bool = False
    drafted_acceptance: float | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict:
        return asdict(self)

    def __str__(self) -> str:
        solved = " (one α for all positions, solved from τ)" if self.alpha_is_fitted else ""
        lines = [
            f"{self.engine}",
            f"  τ, tokens per target pass, bonus included   {shown(self.tau)}",
            f"  γ, drafted a round                          {shown(self.gamma, 2)}",
            f"  α, accepted ÷ tested                        {shown(self.alpha)}{solved}",
            f"  accepted ÷ drafted                          {shown(self.drafted_acceptance)}",
        ]
        if self.rates:
            lines += [
                f"  by position, of all drafts                  {row(self.rates)}",
                f"  by position, of those tested there          {row(self.profile)}",
            ]
        lines += [f"  missing: {text}" for text in self.missing]
        lines += [f"  note: {text}" for text in self.notes]
        return "\n".join(lines)


def shown(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def row(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


# What the formats hold -----------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """What a text states, before anything is concluded. drafts: rounds that drafted."""

    engine: str
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    tau: float | None = None
    share: float | None = None
    rates: tuple[float, ...] = ()
    notes: list[str] = field(default_factory=list)


def number(pattern: str, text: str) -> float | None:
    """The last number that a pattern finds: a log is read to its end."""
    values = re.findall(pattern, text, re.IGNORECASE)
    return float(values[-1]) if values else None


def numbers(pattern: str, text: str) -> tuple[float, ...]:
    values = re.findall(pattern, text, re.IGNORECASE)
    return tuple(map(float, re.findall(r"\d+(?:\.\d+)?", values[-1]))) if values else ()


def vllm_line(text: str) -> Counts | None:
    """SpecDecoding metrics: Mean acceptance length: 2.87, … Per-position acceptance rate: …"""
    if not re.search(r"spec(?:ulative|decoding) metrics", text, re.IGNORECASE):
        return None
    percent = number(rf"draft acceptance rate: {NUMBER}%", text)
    return Counts(
        "vLLM, log line",
        drafted=number(rf"drafted: {NUMBER} tokens", text),
        accepted=number(rf"accepted: {NUMBER} tokens", text),
        tau=number(rf"mean acceptance length: {NUMBER}", text),
        share=None if percent is None else percent / 100,
        rates=numbers(rf"per-position acceptance rate: {ROW}", text),
        notes=["the line covers the seconds since the one before it, and all requests in them"],
    )


def vllm_counters(text: str) -> Counts | None:
    """vllm:spec_decode_num_drafts_total{…} 100, and its kin, from a /metrics page."""
    if "spec_decode_num" not in text:
        return None

    def total(name: str) -> float | None:
        lines = rf"spec_decode_{name}(?:_total)?(?:\{{[^}}]*\}})?[ :=]+{NUMBER}(?:e\+?\d+)?\s*$"
        values = re.findall(lines, text, re.MULTILINE)
        return sum(map(float, values)) if values else None

    places: dict[int, float] = {}
    place = rf'accepted_tokens_per_pos(?:_total)?\{{[^}}]*position="(\d+)"[^}}]*\}}\s+{NUMBER}'
    for position, count in re.findall(place, text):
        places[int(position)] = places.get(int(position), 0) + float(count)
    drafts = total("num_drafts")
    whole_row = drafts and sorted(places) == list(range(len(places)))
    return Counts(
        "vLLM, counters",
        drafts=drafts,
        drafted=total("num_draft_tokens"),
        accepted=total("num_accepted_tokens"),
        rates=tuple(places[i] / drafts for i in range(len(places))) if whole_row else (),
        notes=["counters run since the server's start: two readings have to be subtracted"],
    )


def llama_server(text: str) -> Counts | None:
    """draft acceptance = 0.64 (167 accepted / 259 generated), mean acceptance length = 2.92, …"""
    line = rf"draft acceptance(?: rate)?\s*=\s*{NUMBER}\s*\(\s*(\d+) accepted /\s*(\d+) generated"
    found = re.findall(line, text)
    if not found:
        return None
    return Counts(
        "llama.cpp, server",
        drafts=number(r"#gen drafts\s*=\s*(\d+)", text),
        accepted=float(found[-1][1]),
        drafted=float(found[-1][2]),
        tau=number(rf"mean acceptance length\s*=\s*{NUMBER}", text),
        rates=numbers(rf"acceptance rate per position\s*=\s*{ROW}", text),
    )


def llama_example(text: str) -> Counts | None:
    """n_drafted = 160, n_accept = 96, n_predict = 128: the summary of its examples."""
    accepted = number(r"n_accept\s*=\s*(\d+)", text)
    drafted = number(r"n_drafted\s*=\s*(\d+)", text)
    if accepted is None or drafted is None:
        return None
    predicted = number(r"n_predict\s*=\s*(\d+)", text)
    return Counts(
        "llama.cpp, example",
        drafted=drafted,
        accepted=accepted,
        drafts=None if predicted is None else predicted - accepted,
        notes=[
            "every target pass emits one token that was not drafted: passes = n_predict − n_accept"
        ],
    )


def sglang(text: str) -> Counts | None:
    """accept len: 2.54, accept rate: 0.51, gen throughput (token/s): …"""
    tau = number(rf"accept len(?:gth)?: {NUMBER}", text)
    if tau is None:
        return None
    return Counts(
        "SGLang, log line",
        tau=tau,
        share=number(rf"accept rate: {NUMBER}", text),
        notes=[
            "accept len holds the bonus token; before pull request 11572 the rate could exceed 1"
        ],
    )


def from_json(text: str) -> Counts | None:
    """vLLM's metrics of a request, llama.cpp's `timings`, TensorRT-LLM's `specDecodingStats`."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text[begin:])
    except json.JSONDecodeError:
        return None
    stats = inner(found, "numDraftTokens")
    if stats:
        return Counts(
            "TensorRT-LLM, iteration statistics",
            drafts=stats.get("numRequestsWithDraftTokens"),
            drafted=stats["numDraftTokens"],
            accepted=stats.get("numAcceptedTokens"),
            tau=stats.get("acceptanceLength"),
            notes=["one iteration: sum the counts of many before reading anything into them"],
        )
    stats = inner(found, "draft_n_accepted")
    if stats:
        predicted = stats.get("predicted_n")
        return Counts(
            "llama.cpp, timings",
            drafts=None if predicted is None else predicted - stats["draft_n_accepted"],
            drafted=stats.get("draft_n"),
            accepted=stats["draft_n_accepted"],
            notes=[
                "passes = predicted_n − draft_n_accepted: rounds without a draft are among them"
            ],
        )
    stats = inner(found, "acceptance_histogram")
    if stats:
        return Counts(
            "vLLM, metrics of a request",
            tau=stats.get("mean_acceptance_length"),
            share=stats.get("draft_acceptance_rate"),
            rates=from_histogram(stats["acceptance_histogram"]),
            notes=["steps without a draft are left out"],
        )
    return None


def inner(found, key: str) -> dict | None:
    """The dict, at any depth, that holds a key."""
    if isinstance(found, dict) and key in found:
        return found
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return next((stats for value in values if (stats := inner(value, key))), None)


def from_histogram(histogram) -> tuple[float, ...]:
    """counts [γ + 1] of rounds that accepted 0 … γ tokens → rates by position [γ]."""
    counts = np.asarray(
        [histogram[key] for key in sorted(histogram, key=int)]
        if isinstance(histogram, dict)
        else histogram,
        dtype=float,
    )
    if counts.ndim != 1 or len(counts) < 2 or not counts.sum() > 0:
        return ()
    return tuple((counts[::-1].cumsum()[::-1][1:] / counts.sum()).tolist())


FORMATS = (vllm_line, vllm_counters, llama_server, llama_example, sglang, from_json)
EXAMPLES = (
    "a line with 'SpecDecoding metrics:' or counters 'spec_decode_num_…' (vLLM), 'accept len: …'"
    " (SGLang), 'draft acceptance = … ( … accepted / … generated)' or a 'timings' object"
    " (llama.cpp), a 'specDecodingStats' object (TensorRT-LLM)"
)


# What follows --------------------------------------------------------------------------------------


def explain(text: str, gamma: int | None = None) -> Reading:
    """Read what an engine printed.

    Args:
        text: a log line or several of one engine (the last counts), a page of counters, or JSON.
        gamma: drafted tokens a round (vLLM's `num_speculative_tokens`), where the text lacks it.

    Raises ValueError for text in none of the formats, and for numbers that contradict each other.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"text={text!r}: must hold {EXAMPLES}")
    counts = next((found for reader in FORMATS if (found := reader(text))), None)
    if counts is None:
        raise ValueError(f"text={text.strip()[:60]!r}: none of the formats known: {EXAMPLES}")
    return concluded(counts, gamma)


def concluded(counts: Counts, gamma: float | None) -> Reading:
    """What follows from the counts."""
    rates = counts.rates
    tau = counts.tau
    share = counts.share
    notes = list(counts.notes)
    if counts.accepted is not None and counts.drafted:
        share = counts.accepted / counts.drafted
    if tau is None and counts.accepted is not None and counts.drafts:
        tau = 1 + counts.accepted / counts.drafts
    if tau is None and rates:
        tau = 1 + sum(rates)
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"accepted ÷ drafted is {share:.3f}: must be in [0, 1]")
    if tau is not None and tau < 1:
        raise ValueError(f"the acceptance length is {tau:.3f}: with its bonus token it is ≥ 1")
    if gamma is None:
        gamma = implied_gamma(counts, rates, tau, share)
    if rates and tau is not None and abs(tau - 1 - sum(rates)) > TOLERANCE:
        notes.append(
            f"1 + Σ rates by position = {1 + sum(rates):.2f}, but the length printed is {tau:.2f}:"
            " not all drafts were equally long, or another window was averaged"
        )
    if share is None and tau is not None and gamma:
        share = (tau - 1) / gamma
    profile = ()
    alpha = None
    if rates:
        row_of, alpha = theory.conditional_acceptance(rates)
        profile = tuple(row_of.tolist())
    elif tau is not None and gamma and gamma >= 1:
        alpha = one_alpha(tau, gamma)
    missing = []
    if tau is None:
        missing.append("the number of drafts (rounds), without which no τ follows")
    if tau is not None and not gamma:
        missing.append("γ, the drafted tokens a round: give gamma=")
    if not rates:
        missing.append("rates by position, without which α rests on one α for all positions")
    if share is not None and alpha is not None and alpha - share > 0.02:
        notes.append(
            f"accepted ÷ drafted ({share:.2f}) lies below α ({alpha:.2f}), since drafts behind a"
            " rejection are counted though never tested"
        )
    return Reading(
        counts.engine,
        tau,
        gamma,
        rates,
        profile,
        alpha,
        alpha is not None and not rates,
        share,
        tuple(missing),
        tuple(notes),
    )


def implied_gamma(
    counts: Counts, rates: tuple[float, ...], tau: float | None, share: float | None
) -> float | None:
    """Drafted tokens a round, as far as the counts tell it."""
    if rates:
        return float(len(rates))
    if counts.drafted and counts.drafts:
        return counts.drafted / counts.drafts
    if tau is not None and share:
        return (tau - 1) / share
    return None


def one_alpha(tau: float, gamma: float) -> float:
    """The α of equation 1 that gives τ at γ (rounded): 0 … 1."""
    steps = max(1, round(gamma))
    if tau >= steps + 1:
        return 1.0
    return float(brentq(lambda alpha: theory.expected_tokens(alpha, steps) - tau, 0.0, 1.0))
