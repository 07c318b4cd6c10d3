"""What engines print about speculative decoding, in the book's terms: τ, α, acceptance by position.

The engines mean different things by one word. An "acceptance rate" is accepted ÷ drafted in most
of them. Rates by position are shares of *all* drafts: a position is counted even if an earlier one
was rejected. A mean acceptance length includes the bonus token. `formats` reads the texts.
"""

from dataclasses import asdict, dataclass

from specdec_lite import _extras, theory
from specdec_lite.diagnosis.formats import EXAMPLES, READERS, Counts

TOLERANCE = 0.06
"""The most by which a printed τ may differ from 1 + Σ rates by position.

The engines print two or three digits, and some drafts may be shorter than γ.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one text and what follows from them. None: it does not follow.

    Attributes:
        engine: the engine and the format.
        tau: tokens per target pass over the rounds that drafted, with the bonus or recovered token.
        gamma: drafted tokens per round, the mean if rounds differ.
        rates: share of all drafts in which position i was accepted (unconditional), [γ].
        profile: accepted ÷ tested by position (conditional), [γ].
        alpha: accepted ÷ tested; without rates, the α whose expected tokens are τ.
        alpha_is_fitted: whether alpha is such a solution, which assumes one α for all positions.
        drafted_acceptance: accepted ÷ drafted.
        missing: what the text lacks for the rest.
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
        """Return the fields as a dict that is ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        solved = " (one α for all positions, solved from τ)" if self.alpha_is_fitted else ""
        lines = [
            f"{self.engine}",
            f"  τ, tokens per target pass, with the bonus   {number_text(self.tau)}",
            f"  γ, drafted tokens per round                 {number_text(self.gamma, 2)}",
            f"  α, accepted ÷ tested                        {number_text(self.alpha)}{solved}",
            f"  accepted ÷ drafted                          {number_text(self.drafted_acceptance)}",
        ]
        if self.rates:
            lines += [
                f"  by position, of all drafts                  {row_text(self.rates)}",
                f"  by position, of those tested there          {row_text(self.profile)}",
            ]
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
    """Read what an engine printed."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"text={text!r}: must contain {EXAMPLES}")
    counts = next((counts for reader in READERS if (counts := reader(text))), None)
    if counts is None:
        raise ValueError(f"text={text.strip()[:60]!r}: has none of the known formats: {EXAMPLES}")
    check(counts)
    return conclude(counts, gamma)


def check(counts: Counts) -> None:
    """Check that the counts are numbers and that they can be true."""
    for name in ("drafts", "drafted", "accepted", "tau", "share", "gamma"):
        value = getattr(counts, name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and value >= 0):
            raise ValueError(f"{counts.engine}: {name} is {value!r}: must be a number ≥ 0")
    if counts.accepted is not None and counts.drafted:
        counts.share = counts.accepted / counts.drafted
    if counts.share is not None and not 0 <= counts.share <= 1:
        raise ValueError(f"accepted ÷ drafted is {counts.share:.3f}: must be in [0, 1]")
    if counts.tau is not None and counts.tau < 1:
        raise ValueError(
            f"the acceptance length is {counts.tau:.3f}: with its bonus token it is ≥ 1"
        )


def conclude(counts: Counts, gamma: float | None) -> Reading:
    """Return what follows from checked counts."""
    rates, share, notes = counts.rates, counts.share, list(counts.notes)
    tau = length(counts)
    gamma = implied_gamma(counts, tau) if gamma is None else gamma
    if rates and tau is not None and abs(tau - 1 - sum(rates)) > TOLERANCE:
        notes.append(
            f"1 + Σ rates by position = {1 + sum(rates):.2f}, but the printed length is {tau:.2f}:"
            " not all drafts had the same length, or the two cover different periods"
        )
    if share is None and tau is not None and gamma:
        share = (tau - 1) / gamma
    profile: tuple[float, ...] = ()
    alpha = None
    if rates:
        conditional, alpha = theory.conditional_acceptance(rates)
        profile, alpha = tuple(conditional.tolist()), float(alpha)
    elif tau is not None and gamma and gamma >= 1:
        alpha = fitted_alpha(tau, gamma)
    if share is not None and alpha is not None and alpha - share > 0.02:
        notes.append(
            f"accepted ÷ drafted ({share:.2f}) is below α ({alpha:.2f}), since drafts after a"
            " rejection are counted but never tested"
        )
    useful = max((i for i, rate in enumerate(rates, 1) if rate > 0), default=0)
    if 0 < useful < len(rates):
        notes.append(
            f"no draft is accepted from position {useful + 1} on: γ is too large, or the draft has a"
            " fault there"
        )
    return Reading(
        counts.engine,
        tau,
        gamma,
        rates,
        profile,
        alpha,
        alpha_is_fitted=alpha is not None and not rates,
        drafted_acceptance=share,
        missing=missing(tau, gamma, rates),
        notes=tuple(notes),
    )


def length(counts: Counts) -> float | None:
    """Return τ as printed, or as it follows from the counts; None if it does not follow."""
    if counts.tau is not None:
        return counts.tau
    if counts.accepted is not None and counts.drafts:
        return 1 + counts.accepted / counts.drafts
    return 1 + sum(counts.rates) if counts.rates else None


def missing(tau: float | None, gamma: float | None, rates: tuple[float, ...]) -> tuple[str, ...]:
    """Return what a text lacks, one phrase each."""
    phrases = []
    if tau is None:
        phrases.append("the number of drafts (rounds), without which τ does not follow")
    if tau is not None and not gamma:
        phrases.append("γ, the drafted tokens per round: give gamma=")
    if not rates:
        phrases.append("rates by position, without which one α must stand for all positions")
    return tuple(phrases)


def implied_gamma(counts: Counts, tau: float | None) -> float | None:
    """Return the drafted tokens per round that follow from the counts, or None."""
    if counts.gamma is not None:
        return counts.gamma
    if counts.rates:
        return float(len(counts.rates))
    if counts.drafted and counts.drafts:
        return counts.drafted / counts.drafts
    if tau is not None and counts.share:
        return (tau - 1) / counts.share
    return None


def fitted_alpha(tau: float, gamma: float) -> float:
    """Return the α in [0, 1] whose expected tokens at γ (rounded) are τ."""
    steps = max(1, round(gamma))
    if tau >= steps + 1:
        return 1.0
    solve = _extras.load("scipy.optimize").brentq
    return float(solve(lambda alpha: theory.expected_tokens(alpha, steps) - tau, 0.0, 1.0))
