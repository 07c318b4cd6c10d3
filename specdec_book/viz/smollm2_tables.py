"""SmolLM2 in several number formats, and its heads after equal training time, as tables."""

from IPython.display import Markdown

from specdec_book import recordings
from specdec_book.viz.tables import table

SHOWN = (2, 5, 8)
"""Numbers k of tokens for which the first table shows T(k)/T(1)."""


def interval(spread: dict, digits: int = 2) -> str:
    """Return a value and its interval, without an interval of no width (one prompt)."""
    low, high = spread["interval"]
    if low == high:
        return f"{spread['value']:.{digits}f}"
    return f"{spread['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def format_table(record: "recordings.Recording") -> Markdown:
    """Return T(k) of every number format, and the speedup of every drafter in two of them."""
    decoded = record.data["decoded"]
    rows = []
    for name, row in record.data["passes"].items():
        one = row["seconds"]["1"][1]
        gains = decoded.get(f"{name}, T = 0", {})
        rows.append(
            (
                name,
                f"{1e3 * one:.1f} ms",
                *(f"{row['seconds'][str(k)][1] / one:.2f}" for k in SHOWN),
                *(
                    interval(gains[each]["speedup"]) if gains else ""
                    for each in ("lookup", "head", "automatic")
                ),
                " → ".join(
                    f"{1e3 * gains[each]['seconds_per_token']:.1f}"
                    for each in ("plain", "automatic")
                    if gains
                ),
            )
        )
    kinds = len(next(iter(decoded.values()))["plain"]["kinds"])
    heads = (
        *("format", "T(1)", *(f"T({k})/T(1)" for k in SHOWN)),
        *("lookup", "head", "chosen per round", "ms per token"),
    )
    return table(
        heads,
        rows,
        "Processor time of passes; then × plain decoding in the same format, greedy, geometric mean"
        f" over {kinds} kinds of request (95 % interval over prompts), and the mean time per token,"
        " plain → chosen per round."
        f" {record.source}",
    )


def training_table(record: "recordings.Recording") -> Markdown:
    """Return agreement and accepted tokens of heads that trained for the same processor time."""
    data = record.data
    rows = [
        (
            name,
            f"{row['seconds']:.0f} s",
            f"{row['tokens'] / 1e3:.0f}",
            interval(row["agrees"]),
            interval(row["accepted"]),
            "" if name == "EAGLE-1" else interval(row["gain"]["accepted"]),
        )
        for name, row in data["arms"].items()
    ]
    heads = (
        "head",
        "time",
        "thousand tokens",
        "agreement",
        "accepted of 3",
        "difference to EAGLE-1",
    )
    return table(
        heads,
        rows,
        f"After training from scratch, on {data['held_out']} held-out greedy answers of SmolLM2"
        f" (95 % interval over answers). {record.source}",
    )
