"""What engines print about speculative decoding, in the book's terms: τ, α, acceptance by position.

The engines mean different things by one word. An "acceptance rate" is accepted ÷ drafted in most
of them. Rates by position are shares of *all* drafts: a position is counted even if an earlier one
was rejected. A mean acceptance length includes the bonus token. `formats` reads the texts.
"""

from dataclasses import asdict, dataclass

from specdec_lite import checks, theory
from specdec_lite.diagnosis.formats import TABLE, Counts, number, printed_length, read

TOLERANCE = 0.06
"""The most by which a printed τ may differ from 1 + Σ rates by position.

The engines print two or three digits.
"""
MOST_TEXT = 1_000_000
"""The most characters of a text."""
MOST_GAMMA = 1024
"""The most drafted tokens per round."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one text and what follows from them. None: it does not follow.

    Attributes:
        engine: the engine and the format.
        tau: tokens per round that drafted, with the bonus or recovered token.
        definition: which of the lengths that are called acceptance length tau is.
        tau_all: tokens per target pass, over all decoding steps; None if the text lacks their number.
        gamma: drafted tokens per round, the mean if rounds differ.
        rates: share of all drafts in which position i was accepted (unconditional), [γ].
        profile: accepted ÷ tested by position (conditional), [γ]; empty if drafts differ in length.
        alpha: accepted ÷ tested; without a profile, the α whose expected tokens are τ.
        alpha_is_fitted: whether alpha is such a solution, which assumes one α for all positions.
        drafted_acceptance: accepted ÷ drafted.
        missing: what the text lacks for the rest.
        notes: what a reader of these numbers may get wrong.
    """

    engine: str
    tau: float | None = None
    definition: str = ""
    tau_all: float | None = None
    gamma: float | None = None
    rates: tuple[float, ...] = ()
    profile: tuple[float, ...] = ()
    alpha: float | None = None
    alpha_is_fitted: bool = False
    drafted_acceptance: float | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict:
        """Return the fields as a dict that is ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        solved = " (one α for all positions, solved from τ)" if self.alpha_is_fitted else ""
        row = lambda label, value: f"  {label:<44}{value}"
        lines = [self.engine, row("τ, tokens per round that drafted", number_text(self.tau))]
        if self.tau is not None:
            lines.append(f"      {self.definition}")
        if self.tau_all is not None:
            lines.append(row("τ over all steps, which decides", number_text(self.tau_all)))
        lines += [
            row("γ, drafted tokens per round", number_text(self.gamma, 2)),
            row("α, accepted ÷ tested", number_text(self.alpha) + solved),
            row("accepted ÷ drafted", number_text(self.drafted_acceptance)),
        ]
        if self.rates:
            lines.append(row("by position, of all drafts", row_text(self.rates)))
        if self.profile:
            lines.append(row("by position, of those tested there", row_text(self.profile)))
        lines += [f"  missing: {text}" for text in self.missing]
        lines += [f"  note: {text}" for text in self.notes]
        return "\n".join(lines)


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number without trailing zeros; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def row_text(values: tuple[float, ...]) -> str:
    """Return numbers in one line, with three digits each."""
    return " ".join(f"{value:.3f}" for value in values)


def explain(text: str, gamma: int | None = None) -> Reading:
    """Read what an engine printed.

    Args:
        text: a log line, several lines of one engine (the last counts), a page of counters, or JSON.
        gamma: drafted tokens per round (vLLM's `num_speculative_tokens`), if the text lacks it.

    Returns:
        The numbers of the text and what follows from them.

    Raises:
        ValueError: the text has none of the formats, or its numbers contradict each other.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"text={str(text)[:60]!r}: must contain {TABLE['known']}")
    if len(text) > MOST_TEXT:
        raise ValueError(
            f"text has {len(text)} characters: at most {MOST_TEXT}; give its last lines"
        )
    if gamma is not None:
        checks.whole("gamma", gamma, 1, MOST_GAMMA)
    counts = read(text)
    for words, reason in TABLE["refused"].items():
        if counts is None and words.lower() in text.lower():
            raise ValueError(f"text has {words!r}: {reason}")
    if counts is None:
        raise ValueError(
            f"text={text.strip()[:60]!r}: has none of the known formats: {TABLE['known']}"
        )
    check(counts)
    return conclude(counts, gamma)


def check(counts: Counts) -> None:
    """Check that the counts are numbers and that they can be true.

    Raises:
        ValueError: a count is not a number, is negative, or contradicts another one.
    """
    for name in ("drafts", "drafted", "accepted", "tau", "share", "gamma"):
        value = getattr(counts, name)
        if value is not None and not (number(value) and value >= 0):
            shown = f"{value:g}" if number(value) else repr(value)
            raise ValueError(f"{counts.engine}: {name} is {shown}: must be a number ≥ 0")
    if counts.accepted is not None and counts.drafted:
        printed, counts.share = counts.share, counts.accepted / counts.drafted
        if printed is not None and abs(printed - counts.share) > 0.01 and not counts.tests_all:
            counts.notes.append(
                f"the printed rate {printed:.3f} is not accepted ÷ drafted, {counts.share:.3f}"
            )
    if counts.share is not None and not 0 <= counts.share <= 1:
        raise ValueError(f"accepted ÷ drafted is {counts.share:.3f}: must be in [0, 1]")
    if counts.drafted == 0:  # some print 0 or 1 for a mean over nothing
        counts.tau = counts.share = counts.drafts = None
        counts.rates = ()
    if counts.tau is not None and counts.tau < 1:
        raise ValueError(
            f"the acceptance length is {counts.tau:.3f}: with its bonus token it is ≥ 1, so add 1 to"
            " a length without it"
        )
    for name, most in (("gamma", MOST_GAMMA), ("tau", MOST_GAMMA + 1)):
        value = getattr(counts, name)
        if value is not None and value > most:
            raise ValueError(f"{counts.engine}: {name} is too large: must be at most {most}")


def conclude(counts: Counts, given: int | None) -> Reading:
    """Return what follows from checked counts, and from γ if the user gave it."""
    rates, share = counts.rates, counts.share
    tau = printed_length(counts)
    tau = 1 + sum(rates) if tau is None and rates else tau
    mean, slack = mean_gamma(counts, tau)
    most = known_gamma(counts, tau, given, mean, slack)
    is_shorter = mean is not None and most is not None and mean < most * (1 - slack)
    gamma = mean if is_shorter else most
    if share is None and tau is not None and gamma:
        share = (tau - 1) / gamma
    profile: tuple[float, ...] = ()
    alpha = None
    if rates:
        conditional, alpha = theory.conditional_acceptance(rates)
        profile, alpha = tuple(conditional.tolist()), float(alpha)
    if is_shorter or not rates:
        profile, alpha = (), share if counts.tests_all else solved_alpha(counts, tau, gamma)
    tau_all = None
    if counts.steps and counts.accepted is not None:
        tau_all = 1 + counts.accepted / counts.steps
    notes = notes_on(counts, tau, share, alpha)
    if is_shorter:
        notes = [*notes_on_short_drafts(mean, most, bool(rates)), *notes]
    return Reading(
        counts.engine,
        tau,
        counts.definition,
        tau_all,
        gamma,
        rates,
        profile,
        alpha,
        alpha_is_fitted=alpha is not None and not profile and not counts.tests_all,
        drafted_acceptance=share,
        missing=missing(counts, tau, gamma),
        notes=(*counts.notes, *notes),
    )


def notes_on_short_drafts(mean: float | None, most: float | None, has_rates: bool) -> list[str]:
    """Return what a reader of drafts that differ in length may get wrong."""
    notes = [
        f"drafts had {mean:.2f} tokens on average, at most {most:g}: a schedule, a threshold or"
        " a short match ended them early"
    ]
    if has_rates:
        notes.append(
            "with such drafts the rates by position do not give accepted ÷ tested, except at"
            " position 1; α is solved from τ and the mean length"
        )
    return notes


def notes_on(
    counts: Counts, tau: float | None, share: float | None, alpha: float | None
) -> list[str]:
    """Return what a reader of the rates may get wrong."""
    notes = []
    per_round = sum(counts.rates)
    if counts.rates and tau is not None and abs(tau - 1 - per_round) > TOLERANCE:
        notes.append(
            f"1 + Σ rates by position = {1 + per_round:.2f}, but the printed length is {tau:.2f}:"
            " the two cover different periods"
        )
    if share is not None and alpha is not None and alpha - share > 0.02 and not counts.tests_all:
        notes.append(
            f"accepted ÷ drafted ({share:.2f}) is below α ({alpha:.2f}), since drafts after a"
            " rejection are counted but never tested"
        )
    useful = max((i for i, rate in enumerate(counts.rates, 1) if rate > 0), default=0)
    if 0 < useful < len(counts.rates):
        notes.append(
            f"no draft is accepted from position {useful + 1} on: γ is too large, or the drafter has"
            " a fault there"
        )
    return notes


def missing(counts: Counts, tau: float | None, gamma: float | None) -> tuple[str, ...]:
    """Return what a text lacks, one phrase each."""
    phrases = []
    if counts.drafted == 0:
        phrases.append("drafts: nothing was drafted, so no rate follows")
    elif tau is None:
        phrases.append("the number of drafts (rounds), without which τ does not follow")
    if tau is not None and not gamma and counts.drafted != 0:
        phrases.append("γ, the drafted tokens per round: give gamma=")
    if not counts.rates:
        phrases.append("rates by position, without which one α must stand for all positions")
    return tuple(phrases)


def mean_gamma(counts: Counts, tau: float | None) -> tuple[float | None, float]:
    """Return (mean drafted tokens per round, its relative error); None if it does not follow."""
    if counts.drafted and counts.drafts:
        return counts.drafted / counts.drafts, 0.01
    if not counts.drafted or not counts.accepted:
        return None, 0.0
    if rates := counts.rates:
        per_round, error = sum(rates), 5e-4 * len(rates)
    else:
        per_round, error = (tau or 1) - 1, 5e-3
    if per_round <= error:
        return None, 0.0
    return counts.drafted * per_round / counts.accepted, 0.02 + error / per_round


def known_gamma(
    counts: Counts, tau: float | None, given: int | None, mean: float | None, slack: float
) -> float | None:
    """Return the drafted tokens per round: of the text, as given, or as they follow.

    Raises:
        ValueError: the text contradicts the given γ, or its numbers exceed what γ allows.
    """
    stated = float(len(counts.rates)) if counts.rates else counts.gamma
    if given is not None and stated is not None and abs(stated - given) > 0.01:
        what = f"{stated:g} rates by position" if counts.rates else f"γ = {stated:g}"
        raise ValueError(f"gamma={given}: the text has {what}")
    gamma = stated if given is None else float(given)
    if gamma is None:
        gamma = mean
    if gamma is None and tau is not None and tau > 1.05 and counts.share:
        gamma = (tau - 1) / counts.share  # of a length rounded to 1.00 no γ follows
    if gamma is None:
        return None
    if mean is not None and mean > gamma * (1 + slack) + 0.05:
        raise ValueError(f"γ = {gamma:g}, but the text has {mean:.2f} drafted tokens per round")
    if tau is not None and tau > gamma * 1.02 + 1.05:
        raise ValueError(f"γ = {gamma:g} allows a length of {gamma + 1:g}, and it is {tau:.2f}")
    return gamma


def solved_alpha(counts: Counts, tau: float | None, gamma: float | None) -> float | None:
    """Return the α whose expected tokens are τ, or those of the whole block if it is stated."""
    if counts.whole is not None:
        tau, limit = counts.whole, gamma
    else:
        limit = gamma if counts.verified is None else counts.verified
    if tau is None or limit is None or limit < 1:
        return None
    return theory.nearest_alpha(tau, limit)
