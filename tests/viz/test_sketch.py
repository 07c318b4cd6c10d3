"""Sketches and tables show the numbers that they were given."""

import re
from itertools import product

import pytest
from IPython.display import HTML
from markdown_it import MarkdownIt

from specdec_book.viz import Sketch, sketches, table
from specdec_book.viz.captions import source_note
from specdec_book.viz.sketch import WIDTH
from specdec_book.viz.tables import acceptance_text, exit_depth_text
from specdec_lite import TokenTree

TREE = TokenTree.cartesian([[0, 1], [2, 3, 4]])
WINDOW = sketches.lookahead_window(
    "the",
    [["a"], ["b", "c"]],
    ["d", "e"],
    [("the", "b", "d"), ("a", "c", "e")],
    [["c"], ["d", "e"]],
)
DRAWN = {
    "round": sketches.round_bar(4, 0.05, 1.1, 0.06, 3.1, 1.08),
    "overlap": sketches.overlap([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], "ABC"),
    "kept": sketches.kept_and_refilled(
        [0.5, 0.3, 0.2],
        {
            "from p": ([0.3, 0.3, 0.2], [0.1, 0.06, 0.04]),
            "from residual": ([0.3, 0.3, 0.2], [0.2, 0, 0]),
        },
        "ABC",
        "Only the refill from the residual ends at p.",
    ),
    "emitted": sketches.emitted_mass([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], "ABC"),
    "pass": sketches.verify_pass(3),
    "tested": sketches.tested_strip(5, 2),
    "tree": sketches.token_tree(TREE, list("abcdefgh"), "root", accepted=(1, 5)),
    "heads": sketches.heads(4, ["a", "b", "c", "d", "e", "f", "g"]),
    "account": sketches.account([0.5, 2.0]),
    **{f"own {i}": each for i, each in enumerate(sketches.self_drafts())},
    **{f"window {i}": each for i, each in enumerate(WINDOW)},
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_stays_in_its_frame_and_has_its_text(name):
    drawing = DRAWN[name]
    boxes = [
        tuple(map(float, found))
        for found in re.findall(
            r'<rect x="([-\d.e]+)" y="([-\d.e]+)" width="([-\d.e]+)" height="([-\d.e]+)"',
            "".join(drawing.parts),
        )
    ]
    assert boxes and drawing.alt in drawing._repr_html_().replace("&#x27;", "'")
    for x, y, width, height in boxes:
        assert x >= 0 and width >= 0 and x + width <= drawing.width + 1e-6
        assert y >= 0 and height >= 0 and y + height <= drawing.height


def test_no_drawing_is_wider_than_a_phone():
    assert max(drawing.width for drawing in DRAWN.values()) <= WIDTH


def test_the_numbers_in_the_drawings_are_computed():
    cost = 4 * 0.05 + 1.1 + 0.06
    assert f"{3.1 * 1.08 / cost:.1f} times" in DRAWN["round"].caption
    assert "2 of 3 tested drafts were accepted, but 2 of 5" in DRAWN["tested"].caption
    assert "0.5, 0.5 token by token" in DRAWN["account"].alt
    assert "0.5, 1 as a block" in DRAWN["account"].alt
    assert "f follows b" in DRAWN["tree"].alt and "a follows root" in DRAWN["tree"].alt


def widths(html: str, kind: str) -> list[float]:
    bars = re.findall(r"<rect [^>]*>", html)
    return [float(re.search(r' width="([\d.]+)"', bar)[1]) for bar in bars if f"-{kind})" in bar]


def test_solid_bars_are_the_overlap_and_the_rest_balances():
    html = DRAWN["overlap"]._repr_html_()
    solid = widths(html, "accepted")
    assert [x / solid[0] for x in solid] == pytest.approx([1, 1, 2 / 3], rel=1e-4)
    (over,), (excess,) = widths(html, "recovered"), widths(html, "rejected")
    assert over == pytest.approx(excess) == pytest.approx(solid[0] * 2 / 3, rel=1e-4)
    assert "residual 0.20" in html and "excess 0.20" in html
    assert "80\u00a0% in total" in DRAWN["overlap"].caption
    bars = [widths(html, kind) for kind in ("target", "draft")]
    assert [[x / solid[0] * 0.3 for x in row] for row in bars] == [
        pytest.approx(row, rel=1e-4) for row in ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2])
    ]


@pytest.mark.parametrize("gamma", [1, 4])
def test_every_row_tests_the_draft_at_the_next_position(gamma):
    drawing = sketches.verify_pass(gamma)
    html = drawing.html()
    assert [int(n) for n in re.findall(r"tests x(\d+)", html)] == list(range(1, gamma + 1))
    assert len(re.findall(r">row \d+<", html)) == gamma + 1 and ">bonus<" in html
    assert f"{gamma + 1} rows" in drawing.alt and repr(drawing) == drawing.alt


def test_the_parts_that_a_method_skips_are_dashed():
    row = sketches.self_drafts()
    html = row._repr_html_()
    assert all(words in html for words in sketches.SELF_DRAFTS.values())
    assert html.count("<svg") == html.count('role="img"') == len(row) == 5
    assert html.count("<style>") == 1 and "sparse cache" in repr(row)
    dashed = [each.html().count("dasharray") for each in row]
    assert dashed == [2 * (sketches.BLOCKS - 3), len(sketches.SKIPPED), 0, 0, sketches.BLOCKS - 3]


def test_a_text_with_depths_needs_a_depth_per_token():
    html = exit_depth_text(["a", "<b>", "\n"], [1, 30, 15], 30).data
    assert "&lt;b&gt;" in html and "⏎" in html and "<b>" not in html
    with pytest.raises(ValueError, match="shorter|longer"):
        exit_depth_text(["a"], [1, 2], 3)


def test_a_text_with_rates_needs_a_rate_per_token():
    rated = acceptance_text(["a", "<b>"], [0.5, 1.0]).data
    assert "from 50% to 100%, 75% on average." in rated
    assert "&lt;b&gt;" in rated and ">50<" in rated and ">100<" in rated
    with pytest.raises(ValueError, match="shorter|longer"):
        acceptance_text(["a", "b"], [0.5])


def test_markup_in_words_is_escaped():
    html = Sketch(20, "a < b", "<script>").words(1, 1, "<b>").box(0, 0, 9, 9, "draft")._repr_html_()
    assert "<script>" not in html and "<b>" not in html and 'aria-label="a &lt; b"' in html


@pytest.mark.parametrize("alt", ["", "  ", None])
def test_a_drawing_without_alternative_text_is_rejected(alt):
    with pytest.raises(ValueError, match="alt="):
        Sketch(10, alt)


def test_a_table_is_markdown_with_equal_rows():
    shown = table(("a", "b"), [(1, 2)], "from there").data
    assert shown == "*from there*\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    with pytest.raises(ValueError, match="rows holds"):
        table(("a", "b"), [(1,)])


def test_texts_from_outside_are_no_markup_in_a_table():
    tag = "<img src=x onerror=a()>"
    shown = table((tag, "b"), [(tag, "x | y\n`a<b | c`")], tag, fold=tag, source=tag).data
    assert "<img" not in shown and shown.count("&lt;img") == 5
    assert shown.splitlines()[-3].endswith(r"| x \| y<br>`a<b \| c` |")
    assert "| <b>1</b> |" in table("a", [(HTML("<b>1</b>"),)]).data
    # Whatever backticks and backslashes are around a tag, Markdown shows it as text.
    cells = ["".join(parts) for parts in product(["`", "``", "\\", "<b>", "x"], repeat=5)]
    parsed = MarkdownIt().enable("table").parse(table("a", [(cell,) for cell in cells]).data)
    kinds = {part.type for block in parsed for part in block.children or ()}
    assert "code_inline" in kinds and "html_inline" not in kinds


def test_a_source_is_a_closed_note_in_the_caption():
    shown = table("a", [(1,)], "finding", source="12 texts & one machine").data
    title, note = shown.index("*finding*"), shown.index('<details class="sdl-source">')
    assert title < note < shown.index("| a |")
    assert "12 texts &amp; one machine</span></details>" in shown


def test_a_negative_number_of_a_table_has_a_minus_sign():
    cells = "-0.5 [-1.0, +0.2]", "-γs", "2026-11-23", -3e-7
    assert table("abcd", [cells]).data.endswith("| −0.5 [−1.0, +0.2] | -γs | 2026-11-23 | −3e−07 |")


def test_rejected_mass_is_recovered_and_lower_bars_are_p():
    html = DRAWN["emitted"]._repr_html_()
    drafted, emitted = widths(html, "accepted")[::2], widths(html, "accepted")[1::2]
    (gone,), (back,) = widths(html, "rejected"), widths(html, "recovered")
    assert drafted == emitted and gone == pytest.approx(back, rel=1e-4)
    unit = emitted[1] / 0.3
    assert [(emitted[0] + back) / unit, emitted[2] / unit] == pytest.approx([0.5, 0.2], rel=1e-4)
    overlap = DRAWN["overlap"]
    assert overlap.width == DRAWN["emitted"].width
    assert widths(overlap._repr_html_(), "accepted")[0] == pytest.approx(emitted[0])


def test_kept_and_refilled_mass_is_compared_with_p():
    html = DRAWN["kept"]._repr_html_()
    assert "keeps 80\u00a0%, off by 0.100" in html and "keeps 80\u00a0%, emits p" in html
    kept, refilled = widths(html, "accepted"), widths(html, "recovered")
    unit = kept[0] / 0.3
    assert [x / unit for x in kept] == pytest.approx([0.3, 0.3, 0.2] * 2, rel=1e-4)
    assert [x / unit for x in refilled] == pytest.approx([0.1, 0.06, 0.04, 0.2, 0, 0], abs=1e-4)


def test_the_source_of_numbers_shows_its_command_as_code():
    note = source_note("recorded < now by `python -m benchmarks --turns 4`")
    assert "recorded &lt; now by <code>python -m benchmarks --turns 4</code></span>" in note
