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


def test_what_fits_is_on_one_line():
    whole, broken = ["é" * (WIDTH - 6)], ["é" * (WIDTH - 5)]  # two spaces, brackets, quotes
    value = {"rows": [whole, broken, {"ü": [1, 2]}], "empty": {}}
    assert laid_out(value).splitlines() == [
        "{",
        ' "rows": [',
        f'  ["{whole[0]}"],',
        "  [",
        f'   "{broken[0]}"',
        "  ],",
        '  {"ü": [1, 2]}',
        " ],",
        ' "empty": {}',
        "}",
    ]
