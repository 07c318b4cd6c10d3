"""Hypothesis strategies that several tests share."""

from hypothesis import strategies as st

from specdec_lite import TokenTree


@st.composite
def trees(draw, size=12):
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(0, size)))]
    return TokenTree([draw(st.integers(0, 3)) for _ in parents], parents)
