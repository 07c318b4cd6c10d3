"""How a recording is laid out: rows on one line where they fit, so that files and diffs are short."""

import json

from hypothesis import given, strategies as st

from specdec_lite.measure.stamps import WIDTH, laid_out

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
)  # fmt: skip


@given(JSON)
def test_a_layout_keeps_the_values(value):
    assert json.loads(laid_out(value)) == value


def test_rows_that_fit_are_on_one_line():
    value = {"rows": [[0.5] * 10, list(range(100))], "empty": {}, "name": "é"}
    lines = laid_out(value).splitlines()
    assert f"  {[0.5] * 10}," in lines and ' "name": "é"' in lines
    assert all(len(line) <= WIDTH + 10 for line in lines) and len(lines) > 100
