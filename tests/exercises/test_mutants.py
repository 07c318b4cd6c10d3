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
    "numbers of one sign are rounded towards 0": r"my_free_tokens: .*(/ batch|// 2 // batch)\)",
    "every value is doubled, and only their order counts": r"my_(keep|lengths): .*\b2\.0\b.*",
    "any negative number does": r"masks: .*\[-2\] \* length|my_(proposal|costs): .*(n - 2|, -1)\W+.*",
    "the last row is zeros, and so is 0 divided by 2": r"my_mask: if .*|my_siblings: .* or 2\).*",
    "there is one axis only": r"my_round: .*cumsum\(-1\).*",
    "no set has more tokens, that of all has the value of the empty one": r"my_best: sets .*",
    "no case is so close": r"my_optimal_gamma: if s >= .*|(alpha_from_tau|my_implied_alpha): if .*",
    "the halvings end alike": r"(alpha_from_tau|my_implied_alpha): (low, high = |for _ in ).*",
}
"""Patterns of an exercise's name and its changed line, by the reason why nothing changes."""


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
@pytest.mark.parametrize("exercise", one_in(4, exercises(), mark=pytest.mark.weekly))
def test_a_check_rejects_its_solution_after_any_small_change(exercise, monkeypatch):
    monkeypatch.setattr(answer, "SECONDS", 0.2)
    name, scope = exercise.name, exercise.solution.__globals__
    source = "".join(linecache.getlines(exercise.solution.__code__.co_filename))
    changed = [(line, defined(mutant, name, scope)) for mutant, line in mutants(source)]
    survivors = [f"{name}: {line}" for line, function in changed if exercise.check(function)]
    equivalent = "|".join(EQUIVALENT.values())
    assert changed and [each for each in survivors if not re.fullmatch(equivalent, each)] == []
