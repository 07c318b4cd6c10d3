"""The numbers of the recording of batches. The tests assert no time."""

from types import SimpleNamespace

from benchmarks import serving


def test_the_minimum_counts_rounds_that_contain_all_rows():
    step = lambda count: SimpleNamespace(tokens=[0] * count)
    outputs = [
        SimpleNamespace(steps=[step(3), step(1), step(2)]),
        SimpleNamespace(steps=[step(1), step(2)]),
    ]
    assert serving.tokens_per_pass(outputs) == (7 / 4, 1.0)


def test_the_first_turn_is_a_warm_up_and_a_used_budget_ends_the_turns():
    calls = []
    data = serving.medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 0.0)
    assert calls == ["a", "b"] * 2 and all(seconds >= 0 for seconds in data.values())
