"""The claims of chapter 20: each with its source, its verdict and its evidence.

The chapter's cells decide every claim again and assert the verdict that is given here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from IPython.display import HTML, Markdown

from specdec_book.viz.sketch import style
from specdec_book.viz.tables import table

STYLES = {
    "holds": "sdl-holds",
    "holds with a condition": "sdl-condition",
    "does not hold": "sdl-not",
    "not decided here": "sdl-open",
}
"""Class of each verdict's badge."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. All texts are Markdown; links are relative to the folder of the notebooks.

    Attributes:
        text: The claim.
        source: Where it is printed.
        verdict: One of STYLES.
        finding: The right number, or the condition under which the claim holds.
        evidence: Links to the pages, tests and recordings that decide it.
    """

    text: str
    source: str
    verdict: str
    finding: str
    evidence: str


CLAIMS = {
    1: Claim(
        "At γ = 5 a pass emits 3.16, 3.97, 4.87, 5.23 tokens for α = 0.7, 0.8, 0.9, 0.95",
        "post",
        "does not hold",
        "2.94, 3.69, 4.69, 5.30",
        "[chapter 7](07_how_fast.ipynb), [test](../tests/test_theory.py)",
    ),
    2: Claim(
        "… and 1.97 tokens for α = 0.5", "post", "holds", "1.97", "[chapter 7](07_how_fast.ipynb)"
    ),
    3: Claim(
        "If a draft takes 4 ms and a target pass 40 ms, K = 8 is best at α = 0.8 "
        "(2.71×), and K = 3 at α = 0.5 (1.47×)",
        "post",
        "does not hold",
        "K = 6, 2.47×; K = 2, 1.46×",
        "[chapter 7](07_how_fast.ipynb)",
    ),
    4: Claim(
        "Four drafts of 2 ms and one pass of 40 ms replace 160 ms: 3.33×",
        "post",
        "holds with a condition",
        "true for a round of four tokens; 2.80× on average at α = 0.8",
        "[chapter 7](07_how_fast.ipynb)",
    ),
    5: Claim(
        "A 70B model at batch 1 keeps an A100 busy for 0.64 % of the time",
        "post",
        "holds with a condition",
        "if its 140 GB fitted into 80 GB",
        "[chapter 2](02_memory_wall.ipynb)",
    ),
    6: Claim(
        "The acceptance rate is accepted ÷ drafted",
        "[vLLM](https://docs.vllm.ai/)",
        "holds with a condition",
        "as engines define it; it is not α: at α = 0.82 and γ = 4 it is 0.624",
        "[chapter 7](07_how_fast.ipynb), [chapter 19](19_will_it_pay.ipynb)",
    ),
    7: Claim(
        "k heads write m tokens in m/k + 1 passes",
        "[Stern 2018](https://arxiv.org/abs/1811.03115)",
        "holds with a condition",
        "if every block is accepted whole",
        "[chapter 4](04_blockwise_parallel.ipynb)",
    ),
    8: Claim(
        "Medusa's 2 × 3 tree has 6 continuations, its 2 × 2 × 2 tree 8",
        "[Cai 2024](https://arxiv.org/abs/2401.10774), post",
        "holds",
        "6 paths with 8 nodes, 8 paths with 14 nodes",
        "[chapter 10](10_medusa.ipynb)",
    ),
    9: Claim(
        "p = (0.5, 0.3, 0.2), q = (0.3, 0.5, 0.2): B is accepted with 0.6, otherwise A is "
        "emitted; the same for (0.6, 0.3, 0.1), (0.4, 0.5, 0.1)",
        "tutorials",
        "holds",
        "both examples are right",
        "[chapter 6](06_why_lossless.ipynb)",
    ),
    10: Claim(
        "Accept a token whose q is 0",
        "post",
        "does not hold",
        "it is never drawn if q is honest; if q is not, accepting it is biased",
        "[chapter 6](06_why_lossless.ipynb), [broken](../tests/broken.py)",
    ),
    11: Claim(
        "The adjusted distribution keeps p from falling below q",
        "tutorials",
        "does not hold",
        "it is p − q where that is positive and 0 elsewhere",
        "[chapter 6](06_why_lossless.ipynb)",
    ),
    12: Claim(
        "The target computes no more than without speculation",
        "series",
        "does not hold",
        "1.49 times as many operations at α = 0.8, γ = 4; 1.55 times with drafts that cost 0.05 passes",
        "[chapter 7](07_how_fast.ipynb)",
    ),
    13: Claim(
        "After a rejection the draft model's cache must be rebuilt",
        "post",
        "does not hold",
        "it is cropped to the accepted tokens",
        "[chapter 5](05_draft_then_verify.ipynb), [test](../tests/test_invariants.py)",
    ),
    14: Claim(
        "Lenient greedy decoding accepts x if p(x) is at most l · max p",
        "[Leviathan 2023](https://arxiv.org/abs/2211.17192), A.5",
        "does not hold",
        "at *least* l · max p; a misprint, as the sentence before it shows",
        "[chapter 7b](07b_better_rule.ipynb), [rule](../specdec_lite/acceptance/lossy.py)",
    ),
    15: Claim(
        "Lenience raises the acceptance rate",
        "[Leviathan 2023](https://arxiv.org/abs/2211.17192)",
        "holds",
        "it does, and the distribution changes",
        "[chapter 7b](07b_better_rule.ipynb)",
    ),
    16: Claim(
        "EAGLE multiplies feature and embedding",
        "notes",
        "does not hold",
        "it concatenates them, in the paper's figure and in our head: 2·d numbers",
        "[chapter 13](13_eagle.ipynb)",
    ),
    17: Claim(
        "EAGLE's classification loss is larger than its feature loss, hence the weight 0.1",
        "[Li 2024](https://arxiv.org/abs/2401.15077)",
        "holds",
        "17 times as large with our head, on one text",
        "[chapter 13](13_eagle.ipynb)",
    ),
    18: Claim(
        "Lookahead does not preserve the distribution",
        "[Li 2024](https://arxiv.org/abs/2401.15077)",
        "holds with a condition",
        "true with a lossy rule only; see 29",
        "[chapter 14](14_lookahead.ipynb), [matrix](../results/losslessness/amd-epyc.json)",
    ),
    19: Claim(
        "Medusa does not preserve the distribution",
        "[Li 2024](https://arxiv.org/abs/2401.15077)",
        "holds with a condition",
        "true with typical acceptance; false with a lossless rule",
        "[chapter 10](10_medusa.ipynb), [matrix](../results/losslessness/amd-epyc.json)",
    ),
    20: Claim(
        "Every drafter of this book is lossless with a lossless rule",
        "[this book](../book/lossless.md)",
        "holds",
        "every pairing was enumerated",
        "[promise](../book/lossless.md), [matrix](../tests/matrix.py)",
    ),
    21: Claim(
        "Acceptance rises with temperature",
        "post",
        "holds with a condition",
        "for some pairs; for others it falls",
        "[chapter 18](18_predictable_text.ipynb), [recording](../results/jacobi-and-stopping/amd-epyc.json)",
    ),
    22: Claim(
        "Code is easier to draft than prose",
        "post",
        "holds with a condition",
        "for n-gram counts and our greedy draft model; copying prefers edits",
        "[chapter 18](18_predictable_text.ipynb), [recording](../results/model-free-tokens/amd-epyc.json)",
    ),
    23: Claim(
        "Verifying k tokens takes as long as decoding one",
        "series",
        "holds with a condition",
        "where memory is the limit",
        "[chapter 2](02_memory_wall.ipynb), [chapter 16](16_gpu_timing.ipynb)",
    ),
    24: Claim(
        "In the worst case, speculation is as fast as plain decoding",
        "tutorials",
        "does not hold",
        "it needs no more target *passes*, but it takes more time",
        "[scoreboard](a3_scoreboard.ipynb)",
    ),
    25: Claim(
        "Speculation is two to three times as fast, on large models and GPUs",
        "[Leviathan 2023](https://arxiv.org/abs/2211.17192), post",
        "not decided here",
        "the formula allows it; this book measures small models",
        "[chapter 16](16_gpu_timing.ipynb), [chapter 19](19_will_it_pay.ipynb)",
    ),
    26: Claim(
        "Decoding a hundred tokens one by one takes as long as verifying a hundred in one pass",
        "post",
        "does not hold",
        "it takes a hundred times as long",
        "[chapter 2](02_memory_wall.ipynb)",
    ),
    27: Claim(
        "A draft with another tokenizer cannot be verified",
        "post",
        "does not hold",
        "the draft can be restricted to the tokens that both vocabularies contain",
        "[catalog](../book/methods.md)",
    ),
    28: Claim(
        "Accepted, and speedup: code 0.85–0.95, 2.5–3.5×; JSON 0.90–0.95, 3–4×; creative "
        "text 0.4–0.6, 1.2–1.5×; proofs 0.3–0.5, 1–1.3×",
        "post",
        "holds with a condition",
        "at 11 of 160 settings of γ and c the formula overlaps all four ranges; at γ = 5, c = 0.1 "
        "it gives JSON at most 3.53×",
        "[chapter 18](18_predictable_text.ipynb)",
    ),
    29: Claim(
        "Lookahead provably preserves the distribution",
        "post",
        "holds with a condition",
        "with a lossless rule, such as the one of this book",
        "[chapter 14](14_lookahead.ipynb), [matrix](../results/losslessness/amd-epyc.json)",
    ),
    30: Claim(
        "If the draft is greedy and the target samples, the guarantees do not hold",
        "[an issue](https://github.com/z-lab/dflash/issues/74)",
        "does not hold",
        "that code keeps a draft only where it equals the target's own sample, and then any draft is "
        "lossless",
        "[chapter 6](06_why_lossless.ipynb)",
    ),
    31: Claim(
        "EAGLE-3.1 has up to twice the acceptance length of EAGLE-3 in long contexts",
        "[its authors](https://github.com/vllm-project/vllm-project.github.io/blob/main/"
        "_posts/2026-05-26-eagle-3-1.md)",
        "not decided here",
        "the post measures 2.03 to 1.66× over plain decoding, and prints no length",
        "[published](../results/published.json)",
    ),
    32: Claim(
        "DFlash gives up to 15 times the throughput on Blackwell",
        "its vendor, quoted in [a study](https://github.com/InventiveHQ/"
        "speculative-decoding-consumer-gpus)",
        "not decided here",
        "over plain decoding it needs α ≥ 0.99 in blocks of 16, and rounds as cheap as a plain step",
        "[chapter 7](07_how_fast.ipynb)",
    ),
}


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
