"""How numbers are written in tables and under figures."""

import pytest
from IPython.display import HTML

from specdec_book.viz import table
from specdec_book.viz.captions import spaced_percent


@pytest.mark.parametrize(
    "text, shown",
    [
        ("3.7%", "3.7\u00a0%"),
        ("80 % band", "80 % band"),
        ("−0%", "0\u00a0%"),
        ("+0%", "0\u00a0%"),
        ("−0.5%", "−0.5\u00a0%"),
        ("+10%", "+10\u00a0%"),
        ("%d", "%d"),
    ],
)
def test_a_percent_sign_has_a_space_and_zero_no_sign(text: str, shown: str):
    assert spaced_percent(text) == shown


def test_code_and_html_in_a_table_keep_their_percent_signs():
    text = table(["a", "b"], [["`i % 8` or `5%`", HTML('<i style="width:5%">9%</i>')]], "99%").data
    assert "`5%`" in text and "width:5%" in text and "99\u00a0%" in text
