"""How a draft ages: what the experiment counts."""

from types import SimpleNamespace

from benchmarks.ageing import counts_by_position


def test_a_round_counts_where_it_begins():
    rounds = [((5, 6, 7), 2, 3), ((8,), 0, 1), ((9, 9, 9, 9), 3, 3), ((1,), 0, 1)]
    steps = [SimpleNamespace(tokens=t, accepted=a, tested=n) for t, a, n in rounds]
    counts = counts_by_position(SimpleNamespace(steps=steps), window=4, most=8)
    assert counts == [[2, 4], [3, 4]]  # the third round begins at 4, the last one at 8
