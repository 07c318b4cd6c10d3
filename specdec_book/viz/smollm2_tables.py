"""SmolLM2's heads after equal training time, as a table."""

from IPython.display import Markdown

from specdec_book import recordings
from specdec_book.viz.tables import table


def interval(spread: dict, digits: int = 2) -> str:
    """Return a value and its interval, without an interval of no width (one prompt)."""
    low, high = spread["interval"]
    if low == high:
        return f"{spread['value']:.{digits}f}"
    return f"{spread['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


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
