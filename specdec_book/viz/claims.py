"""The claims of chapter 20 (`static/claims.json`): each with source, verdict and evidence.

The chapter's cells decide every claim again and assert the verdict that is given here.
"""

import json
from collections.abc import Iterable
from types import SimpleNamespace

from IPython.display import HTML, Markdown

from specdec_book.viz.interactive import STATIC
from specdec_book.viz.sketch import style
from specdec_book.viz.tables import table

STYLES = {
    "holds": "sdl-holds",
    "holds with a condition": "sdl-condition",
    "does not hold": "sdl-not",
    "not decided here": "sdl-open",
}
"""Class of each verdict's badge."""
FILE = STATIC / "claims.json"
ROWS = json.loads(FILE.read_text("utf-8"), object_hook=lambda row: SimpleNamespace(**row))
CLAIMS = dict(enumerate(ROWS, start=1))
"""The claims by number: text, source (where it is printed), verdict (one of STYLES), finding (the right
number, or the condition under which the claim holds), evidence (links to the pages, tests and
recordings that decide it). All are Markdown; links are relative to the folder of the notebooks."""


def claims_table() -> Markdown:
    """Return the table of claims. The number of a claim is its address, such as `#claim-6`."""
    return table(
        ("", "claim", "source", "verdict", "what we find", "evidence"),
        [
            (
                HTML(f'<a id="claim-{number}" href="#claim-{number}">{number}</a>'),
                claim.text,
                claim.source,
                HTML(f'<span class="sdl-badge {STYLES[claim.verdict]}">{claim.verdict}</span>'),
                claim.finding,
                claim.evidence,
            )
            for number, claim in CLAIMS.items()
        ],
    )


def claims_overview() -> HTML:
    """Show one box per claim in a row per verdict; a box leads to its claim.

    The radio buttons hide each row of the table with another verdict, at first all but those that
    do not hold. They need no script. The row of a link's claim is always shown.
    """
    hidden = "".join(
        f"body:has(#show-{style}:checked) tr:has(.sdl-badge):not(:has(.{style})){{display:none}}"
        f"@media (min-width: 45.01rem) {{ body:has(#show-{style}:checked) {{"
        f" tr:nth-child(odd of :has(.{style})) {{ background: {ZEBRA.format('low')} }}"
        f" tr:nth-child(even of :has(.{style})) {{ background: {ZEBRA.format('high')} }} }} }}"
        for style in STYLES.values()
    )
    rows = "".join(
        _row(verdict, [n for n, claim in CLAIMS.items() if claim.verdict == verdict])
        for verdict in STYLES
    )
    return HTML(
        f'{style()}<style>{CSS}{hidden}</style><figure class="sdl sdl-sketch" style="max-width: none">'
        f"<p><strong>{finding()}</strong></p>"
        '<fieldset class="sdl-claims"><legend>Show in the table</legend>'
        '<div><label><input type="radio" name="claims"> '
        f"<b>all {len(CLAIMS)} claims</b></label></div>{rows}</fieldset>"
        "<figcaption>Each number leads to its claim.</figcaption></figure>"
    )


def finding() -> str:
    """Return how many claims hold as they are printed, in a sentence."""
    holding = sum(claim.verdict == "holds" for claim in CLAIMS.values())
    return f"{holding} of {len(CLAIMS)} claims hold as they are printed"


def _row(verdict: str, numbers: Iterable[int]) -> str:
    style, boxes = STYLES[verdict], ""
    checked = " checked" * (verdict == "does not hold")
    for number in (numbers := list(numbers)):
        boxes += (
            f'<a class="sdl-badge {style}" href="#claim-{number}" aria-label="claim {number}">'
            f"{number}</a>"
        )
    return (
        f'<div><label><input type="radio" name="claims" id="show-{style}"{checked}> '
        f"<b>{verdict}: {len(numbers)}</b></label><span>{boxes}</span></div>"
    )


ZEBRA = "var(--pst-color-table-row-zebra-{}-bg)"
"""Color of every second row; the rows that are shown alternate, not those that exist."""

CSS = """
.sdl-claims { margin: 1rem 0; padding: 0.4rem 1rem 0.8rem; border: 1px solid; border-radius: 8px; }
.sdl-claims legend { float: none; width: auto; margin: 0; padding: 0 0.4rem; font-size: 0.9rem; }
.sdl-claims div { display: grid; grid-template-columns: 15rem 1fr; gap: 0 1rem; margin: 0.4rem 0; }
.sdl-claims label { display: flex; gap: 0.5rem; align-items: center; min-height: 1.9rem; }
.sdl-claims div > span { display: flex; flex-wrap: wrap; gap: 0.35rem; }
.sdl-claims a { min-width: 2.2rem; text-align: center; text-decoration: none; }
tr:has(:target) { display: table-row !important; outline: 3px solid; outline-offset: -3px; }
@media (max-width: 40rem) { .sdl-claims div { grid-template-columns: 1fr; } }
"""
