"""Every marked number in prose equals the recording or the formula that it names.

`benchmarks/quote.py` describes the marks and writes the numbers anew. Every sentence with a measured
number has a mark or a source; `python tests/measured.py` lists those without.
"""

import re
from pathlib import Path

import pytest
from measured import CHECKED, pages, unsupported

from benchmarks import quote

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages()


def faults(text: str) -> list[str]:
    """Return what is wrong with the marked numbers of a text."""
    marked = [(match, quote.expected(match)) for match in quote.MARKED.finditer(text)]
    return [
        f"{match[0]} must be {right}: run `python -m benchmarks quote`"
        for match, right in marked
        if right != match[0].removesuffix(match["mark"])
    ]


every_page = pytest.mark.parametrize("page", PAGES)


@every_page
def test_marked_numbers_equal_their_recordings(page):
    text = PAGES[page]
    assert faults(text) == []
    assert len(re.findall("<!-- (?:recorded|computed)", text)) == len(quote.MARKED.findall(text)), (
        "a mark is malformed"
    )


@every_page
def test_every_measured_number_has_a_mark_or_a_source(page):
    assert [*unsupported(PAGES[page])] == [], (
        "mark these numbers, or name their source (tests/measured.py says how)"
    )


@every_page
def test_a_test_that_a_page_names_reads_that_page(page):
    for path in CHECKED.findall(PAGES[page]):
        assert Path(page).name in (ROOT / path).read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    "text",
    [
        "It is 1.88× as fast.",
        "It takes 32 ms.",
        "It decodes 160 tokens per second.",
        "α fell from .64 to .54.",
        "It is 1.88×<!-- computed: 1.88 --> as fast, not 2×.",
        "| draft | 1.88× |",
        "[Chapter 5](05_draft_then_verify.ipynb) has 1.88×.",
        "- Seen [elsewhere](https://example.org).\n- It is 1.88× as fast.",
        "````{dropdown} More\nIt is 1.88× as fast.\n````",
    ],
)
def test_a_measured_number_without_support_is_found(text):
    assert len([*unsupported(text)]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It is 1.88×<!-- computed: 1.88 --> as fast.",
        "Two drafts of 20 ms<!-- given --> each.",
        "The paper has 1.88× ([its table](https://example.org)).",
        "From [others](https://example.org):\n\n| draft | 1.88× |",
        "Checked below.<!-- checked: tests/test_theory.py -->\n\n| draft | 1.88× |",
        "With 95 % intervals, vLLM 0.32.0 and Python 3.11.",
        "Four rounds of 2 × 128 tokens.",
        "```python\nspeedup = 1.88\n```",
        "## Three questions\n\nIs 1.88× fast?",
    ],
)
def test_other_numbers_need_no_support(text):
    assert [*unsupported(text)] == []


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("about 0.64", False),
        ("about .64", False),
        ("64 %", False),
        ("−0.64", True),
        ("0.65", True),
        ("no number", True),
    ],
)
def test_a_wrong_number_is_found(text, wrong):
    mark = '<!-- recorded: longer-training: data["before"]["held_out"]["all"]["alpha"] -->'
    assert bool(faults(text + mark)) == wrong
    assert faults(quote.renew(text + mark)) == []


def test_a_marked_word_equals_its_recording():
    mark = "<!-- recorded: formats-smollm2: fastest_format(data) -->"
    assert not faults("int4" + mark) and faults("float32" + mark)


def test_an_estimate_is_quoted_with_its_interval():
    mark = '<!-- computed: {"value": 1.5, "interval": [1.25, 2]} -->'
    assert quote.renew(f"1.00× [0.90, 1.10]{mark}") == f"1.50× [1.25, 2.00]{mark}"
    assert faults(f"1.50× [1.25, 2.01]{mark}") and not faults(f"1.50× [1.25, 2.00]{mark}")
    assert [*unsupported(f"It is 1.50× [1.25, 2.00]{mark} as fast.")] == []


def test_a_number_keeps_its_digits_and_its_unit():
    marks = {"2.00×": "2.50×", "2": "2", "-1 %": "250 %", ".1": "2.5", "1,000": "2"}
    for old, new in marks.items():
        assert (
            quote.renew(f"It is {old}<!-- computed: 2.5 -->.")
            == f"It is {new}<!-- computed: 2.5 -->."
        )
