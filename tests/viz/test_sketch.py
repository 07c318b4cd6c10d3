"""Plain drawings and tables: what they show is what they were given."""

import re

import pytest

from specdec_lite import TokenTree
from specdec_lite.viz import Sketch, sketches, table
from specdec_lite.viz.sketch import WIDTH
from specdec_lite.viz.tables import accepted_text, settled_text

TREE = TokenTree.cartesian([[0, 1], [2, 3, 4]])
DRAWN = {
    "round": sketches.round_bar(4, 0.05, 1.1, 0.06, 3.1, 1.08),
    "overlap": sketches.overlap([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], "ABC"),
    "emitted": sketches.emitted([0.5, 0.3, 0.2], [0.3, 0.5, 0.2], "ABC"),
    "pass": sketches.verify_pass(3),
    "tested": sketches.tested_strip(5, 2),
    "tree": sketches.token_tree(TREE, list("abcdefgh"), "root", kept=(1, 5)),
    "heads": sketches.heads(4, ["a", "b", "c", "d", "e", "f", "g"]),
    "launches": sketches.launches(8, 5, 2.5),
    "account": sketches.account([0.5, 2.0]),
    **{f"own {i}": each for i, each in enumerate(sketches.own_drafts())},
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_stays_inside_its_frame_and_says_what_it_shows(name):
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


def test_no_drawing_is_wider_than_a_phone_shows_at_its_size():
    assert max(drawing.width for drawing in DRAWN.values()) <= WIDTH


def test_the_numbers_in_the_drawings_are_computed():
    spent = 4 * 0.05 + 1.1 + 0.06
    assert f"{3.1 * 1.08 / spent:.2f} times" in DRAWN["round"].caption
    assert "2 of 3 tested, but 2 of 5 drafted" in DRAWN["tested"].caption
    assert "0.5, 0.5;" in DRAWN["account"].alt and "0.5, 1." in DRAWN["account"].alt
    assert "f follows b" in DRAWN["tree"].alt and "a follows root" in DRAWN["tree"].alt


def widths(html: str, kind: str) -> list[float]:
    bars = re.findall(r"<rect [^>]*>", html)
    return [float(re.search(r' width="([\d.]+)"', bar)[1]) for bar in bars if f"-{kind})" in bar]


def test_solid_bars_are_the_overlap_and_dashed_ones_sum_to_the_same_on_both_sides():
    html = DRAWN["overlap"]._repr_html_()
    solid = widths(html, "accepted")
    assert [x / solid[0] for x in solid] == pytest.approx([1, 1, 2 / 3], rel=1e-4)
    (over,), (excess,) = widths(html, "recovered"), widths(html, "rejected")
    assert over == pytest.approx(excess) == pytest.approx(solid[0] * 2 / 3, rel=1e-4)
    assert "overhang 0.20" in html and "too much 0.20" in html
    assert "β = 0.80" in DRAWN["overlap"].caption


@pytest.mark.parametrize("gamma", [1, 4])
def test_every_row_judges_the_draft_one_place_further(gamma):
    drawing = sketches.verify_pass(gamma)
    html = drawing.html()
    assert [int(n) for n in re.findall(r"judges x(\d+)", html)] == list(range(1, gamma + 1))
    assert len(re.findall(r">row \d+<", html)) == gamma + 1 and ">bonus<" in html
    assert f"{gamma + 1} rows" in drawing.alt and repr(drawing) == drawing.alt


def test_what_each_method_leaves_out_is_dashed():
    row = sketches.own_drafts()
    html = row._repr_html_()
    assert all(f"{method}: {words}" in html for method, words in sketches.OWN_DRAFTS.items())
    assert html.count("<svg") == html.count('role="img"') == len(row) == 5
    assert html.count("<style>") == 1 and "sparse cache" in repr(row)
    dashed = [each.html().count("dasharray") for each in row]
    assert dashed == [2 * (sketches.BLOCKS - 3), len(sketches.SKIPPED), 0, 0, sketches.BLOCKS - 3]


def test_a_settled_text_shows_its_words_and_wants_a_depth_for_each():
    html = settled_text(["a", "<b>", "\n"], [1, 30, 15], 30).data
    assert "&lt;b&gt;" in html and "⏎" in html and "<b>" not in html
    with pytest.raises(ValueError, match="2 numbers for 1 tokens"):
        settled_text(["a"], [1, 2], 3)


def test_an_accepted_text_shows_percents_and_wants_a_rate_for_each():
    rated = accepted_text(["a", "<b>"], [0.5, 1.0]).data
    assert "from 50% to 100%, 75% on average." in rated
    assert "&lt;b&gt;" in rated and ">50<" in rated and ">100<" in rated
    with pytest.raises(ValueError, match="1 numbers for 2 tokens"):
        accepted_text(["a", "b"], [0.5])


def test_words_cannot_break_out_of_a_drawing():
    html = Sketch(20, "a < b", "<script>").words(1, 1, "<b>").box(0, 0, 9, 9, "draft")._repr_html_()
    assert "<script>" not in html and "<b>" not in html and 'aria-label="a &lt; b"' in html


@pytest.mark.parametrize("alt", ["", "  ", None])
def test_a_drawing_without_words_for_it_is_refused(alt):
    with pytest.raises(ValueError, match="alt must say in words"):
        Sketch(10, alt)


def test_a_table_is_markdown_and_wants_equal_rows():
    shown = table(("a", "b"), [(1, 2)], "from there").data
    assert shown == "*from there*\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    with pytest.raises(ValueError, match="one has 1 cells, the table 2 columns"):
        table(("a", "b"), [(1,)])


def test_a_negative_number_of_a_table_has_a_minus_sign():
    cells = "-0.5 [-1.0, +0.2]", "-γs", "2026-11-23", -3e-7
    assert table("abcd", [cells]).data.endswith("| −0.5 [−1.0, +0.2] | -γs | 2026-11-23 | −3e−07 |")


def test_what_is_rejected_comes_back_and_the_lower_bars_are_p():
    html = DRAWN["emitted"]._repr_html_()
    drafted, emitted = widths(html, "accepted")[::2], widths(html, "accepted")[1::2]
    (gone,), (back,) = widths(html, "rejected"), widths(html, "recovered")
    assert drafted == emitted and gone == pytest.approx(back, rel=1e-4)
    unit = emitted[1] / 0.3
    assert [(emitted[0] + back) / unit, emitted[2] / unit] == pytest.approx([0.5, 0.2], rel=1e-4)
    overlap = DRAWN["overlap"]
    assert overlap.width == DRAWN["emitted"].width
    assert widths(overlap._repr_html_(), "accepted")[0] == pytest.approx(emitted[0])
