"""Every exercise's check rejects its solution after any small change, unless both are equal."""

import ast
import linecache
import re
from collections.abc import Iterator

import pytest
from chosen import one_in
from solutions import defined, exercises

from specdec_book.exercises import answer

PAIRS = (
    "Add Sub, Sub Add, Mult Div, Div Mult, Div FloorDiv, FloorDiv Div, Pow Mult, Eq NotEq, NotEq Eq,"
    " Lt LtE, Lt Gt, LtE Lt, LtE GtE, Gt GtE, GtE Gt, GtE LtE, And Or, Or And, min max, max min,"
    " minimum maximum, maximum minimum, sum prod, cumsum cumprod, cumprod cumsum"
).split(", ")
"""Operators and functions, each with what replaces it."""
EQUIVALENT = {
    "numbers of one sign are rounded towards 0, as `int` does": {
        "my_free_tokens: return int(throughput / bandwidth * bytes_per_weight / 2 / batch)",
        "my_free_tokens: return int(throughput / bandwidth * bytes_per_weight // 2 // batch)",
    },
    "every value is doubled, and only their order counts": {
        "my_keep: values.append(chance * (values[parent] if parent >= 0 else 2.0))",
        "my_lengths: alive = 2.0",
    },
    "any negative number, an empty slice, a row of zeros or the only axis does the same": {
        "masks: row = moves[state] if state >= 0 else [-2] * length",
        "my_proposal: for end in range(length - 1, n - 2, -1):",
        "my_mask: if True:",
        "my_mask: if parent >= -1:",
        "my_siblings: p = [r / (sum(rest) or 2) for r in rest]",
        "my_round: added = int((row.cumsum(-1) <= last).sum())",
    },
    "no set has more tokens, and that of all tokens has the value of the empty one": {
        "my_best: sets = [h for n in range(length + 2) for h in combinations(range(length), n)]",
        "my_best: sets = [h for n in range(length + 0) for h in combinations(range(length), n)]",
    },
    "no case is so close to a limit, and the halvings end at the same number": {
        "my_optimal_gamma: if s >= top + 1e-12:",
        *(
            f"{name}: {line}"
            for name in ("alpha_from_tau", "my_implied_alpha")
            for line in (
                "low, high = (-1.0, 1.0)",
                "low, high = (0.0, 2.0)",
                "for _ in range(61):",
                "for _ in range(59):",
            )
        ),
        "alpha_from_tau: if theory.expected_tokens(middle, gamma) <= tau:",
        "my_implied_alpha: if theory.walltime_improvement(middle, gamma, c) <= speedup:",
    },
}


def others(name: str) -> list[str]:
    """Return what replaces an operator or a function."""
    return [new for old, new in map(str.split, PAIRS) if old == name]


def changes(node: ast.AST, parameters: list[str]) -> Iterator[tuple[str, object]]:
    """Yield (field, changed value) for every small change of a node."""
    operators = lambda old: [getattr(ast, new)() for new in others(type(old).__name__)]
    match node:
        case ast.BinOp() | ast.BoolOp():
            yield from (("op", new) for new in operators(node.op))
        case ast.UnaryOp(op=ast.USub()):
            yield "op", ast.UAdd()
        case ast.Compare():
            yield from (("ops", [new]) for new in operators(node.ops[0]))
        case ast.Constant(value=int() | float()):
            yield from (("value", node.value + step) for step in (1, -1))
        case ast.Call(args=[first, second, *rest]):
            if not re.search("(min|max)(imum)?$|^zip$", ast.unparse(node.func)):
                yield "args", [second, first, *rest]
        case ast.Attribute():
            yield from (("attr", new) for new in others(node.attr))
        case ast.Name(ctx=ast.Load()):
            exchanged = parameters if node.id in parameters else []
            yield from (("id", new) for new in [*others(node.id), *exchanged])
        case ast.Slice():
            yield from ((end, None) for end in ("lower", "upper"))
        case ast.If() | ast.IfExp() | ast.While():
            yield from (("test", ast.Constant(value)) for value in (True, False))
        case ast.comprehension():
            yield "ifs", []


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield (changed source, its changed line) for every small change of a function.

    It makes no difference whose length is taken: the lists of a case have one length.
    """
    tree = ast.parse(source)
    parameters = [each.arg for each in tree.body[-1].args.args]
    lines_of = lambda text: re.sub(r"len\(\w+(\[-?\d\])?\)", "length", text).splitlines()
    original = lines_of(ast.unparse(tree))
    for node in list(ast.walk(tree)):
        for field, value in list(changes(node, parameters)):
            old = getattr(node, field)
            setattr(node, field, value)
            changed = ast.unparse(tree)
            setattr(node, field, old)
            lines = [line for line in lines_of(changed) if line not in original]
            if lines:
                yield changed, lines[0].strip()


@pytest.mark.filterwarnings("ignore")  # of divisions by 0
@pytest.mark.parametrize("exercise", one_in(4, exercises()))
def test_a_check_rejects_its_solution_after_any_small_change(exercise, monkeypatch):
    monkeypatch.setattr(answer, "SECONDS", 0.2)
    name, scope = exercise.name, exercise.solution.__globals__
    source = "".join(linecache.getlines(exercise.solution.__code__.co_filename))
    changed = [(line, defined(mutant, name, scope)) for mutant, line in mutants(source)]
    survivors = {f"{name}: {line}" for line, function in changed if exercise.check(function)}
    assert changed and survivors <= set().union(*EQUIVALENT.values())
