"""Pages that quote the scoreboard compute what they quote from the one board, and agree with it."""

import re

import pytest
from chapters import CHAPTERS, text_of
from conftest import ROOT

from specdec_book.recordings import board
from specdec_book.viz import board_figures
from specdec_book.viz.board_figures import advice, best_by_kind, methods_by_text


def test_no_page_reads_counts_or_costs_past_the_board():
    """Nor does a page type one of their numbers: a mark would name the recording."""
    for path in CHAPTERS:
        assert not re.search(r"load\(\s*f?[\"']scoreboard-c", text_of(path, "code")), path.name
    for path in [*(ROOT / "book").glob("*.md"), *CHAPTERS]:
        assert "recorded: scoreboard-c" not in path.read_text(encoding="utf-8"), path.name


def test_the_advice_is_computed_where_it_is_quoted():
    assert "```{which-draft}" in (ROOT / "book" / "cheat_sheet.md").read_text(encoding="utf-8")
    assert "advice()" in text_of(ROOT / "notebooks" / "19_will_it_pay.ipynb", "code")


@pytest.mark.parametrize("model", board.SUFFIX)
def test_the_advice_agrees_with_the_board(model):
    each = board.load(model)
    column = 1 if model == "smollm2" else 2
    temperature = each.temperatures[0 if model == "smollm2" else -1]
    best = best_by_kind(each, temperature)
    heads, rows, sentence = advice()
    assert f"T = {temperature:g}" in heads[column] and each.size in sentence
    for kind, *cells in rows:
        if kind in best:
            name, entry = best[kind]
            expected = f"{name}: {entry['over_best']['value']:.2f}×"
            assert cells[column - 1].startswith(expected)
    assert all(each.data["about"][name]["lossless"] for name, _ in best.values())


@pytest.mark.parametrize("model", board.SUFFIX)
def test_the_figure_has_the_numbers_of_the_board(model):
    each = board.load(model)
    temperature = each.temperatures[0]
    (bars,) = methods_by_text(each, temperature).data
    best = {(name, kind) for kind, (name, _) in best_by_kind(each, temperature).items()}
    assert len(bars.hovertext) == len(bars.text) == len(bars.customdata)
    for (name, _), kind, text, card in zip(bars.customdata, bars.x, bars.text, bars.hovertext):
        value = each.entry(name, kind, temperature)["over_best"]["value"]
        assert re.sub("</?b>", "", text) == f"{value:.2f}" and name in card
        assert text.startswith("<b>") == ((name, kind) in best)  # bold is the best of its kind
        assert board_figures.chapter_of(each.data["about"][name]["chapter"]) in card


def test_chapters_are_named_on_cards():
    names = {"notebooks/08_model_free": "chapter 8", "notebooks/07b_better_rule": "chapter 7b"}
    names |= {"notebooks/a2_blockwise_heads": "appendix A2", "": "not in the book"}
    assert {page: board_figures.chapter_of(page) for page in names} == names
