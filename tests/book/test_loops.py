"""Each method can be written from its page: the page's visible cells alone hold what its loop needs.

A page ends each method with its decoding loop in plain functions. The loop is a generator
`name(target, …, ids, count, …)` that yields (drafted tokens, emitted tokens) for each round. Here
the loop's definition is taken out of the page with the definitions and imports that it needs. A later
cell of the page asserts that its rounds are the library's, and the book's build runs that cell.
"""

import ast
import builtins
import re
import symtable

import pytest
from chapters import cells, has_tag, statements
from conftest import ROOT

BLOCKS = {
    "specdec_lite": {"TokenTree", "sampling", "theory", "CausalLM"},
    "specdec_lite.tree": {"TokenTree"},
    "specdec_lite.engine.ragged": {"row_caches", "score_rows"},
    "torch": None,
    "torch.nn": None,
    "torch.nn.functional": None,
    **dict.fromkeys(("bisect", "collections", "functools", "heapq", "itertools", "math", "random")),
}
"""Modules that a loop may import, and which of their names (None: all). No drafter, no session."""
LONGEST = 45
"""Lines of one loop's function."""
LOOPS = {
    "04_blockwise_parallel": "blockwise",
    "05_draft_then_verify": "speculative",
    "07b_better_rule": "speculative_blocks",
    "08_model_free": "prompt_lookup suffix_decoding",
    "09_self_drafts": "early_exit skipped_sublayers fewer_bits sparse_cache look_ahead triforce",
    "10_medusa": "medusa_decoding",
    "10b_recycling": "recycling",
    "11_token_trees": "specinfer sequoia",
    "12b_one_pass": "pard dflash selected",
    "13_eagle": "eagle",
    "13b_confidence_trees": "eagle2",
    "14_lookahead": "jacobi_decoding lookahead",
    "15_when_to_stop": "stopping",
    "15b_hide_drafting": "saguaro pearl amusd",
    "15c_several_drafters": "bandit cascade",
    "16b_batches": "batched",
    "17b_verify_what_survives": "scheduled",
}
"""Page → its loops; a chapter that is not listed has no method of its own."""


def free_names(function: ast.AST) -> set[str]:
    """Return the names that a definition reads from its module."""
    table = symtable.symtable(ast.unparse(function), "page", "exec")
    names, tables = set(), [table]
    while tables:
        one = tables.pop()
        names |= {s.get_name() for s in one.get_symbols() if s.is_referenced() and s.is_global()}
        tables += one.get_children()
    names |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    return names - {s.get_name() for s in table.get_symbols() if s.is_assigned()}


def visible(page: str) -> list[ast.stmt]:
    """Return the statements of a page's visible cells; of hidden cells, the imports."""
    return [
        part
        for cell in cells(ROOT / "notebooks" / f"{page}.ipynb", "code")
        for part in statements(cell.source)
        if not has_tag(cell, "hide-input") or isinstance(part, ast.Import | ast.ImportFrom)
    ]


def written(page: str, name: str) -> str:
    """Return the source of a loop with all that it needs, from its page alone.

    Raises:
        AssertionError: the page does not show something that the loop reads.
    """
    definitions, imported = {}, {}
    for statement in visible(page):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:  # a constant of the page
                ast.literal_eval(statement.value)
            except ValueError:
                continue
            definitions.setdefault(statement.targets[0].id, statement)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                imported[alias.asname or alias.name.partition(".")[0]] = (statement, alias)
    assert name in definitions, f"{page} defines no function {name}"
    lines, needed, seen = [], [name], set()
    while needed:
        one = needed.pop()
        if one in seen or hasattr(builtins, one):
            continue
        seen.add(one)
        if one in definitions:
            lines.append(ast.unparse(definitions[one]))
            needed += free_names(definitions[one])
            continue
        assert one in imported, f"{page}: {name} reads {one}, which no visible cell defines"
        statement, alias = imported[one]
        module = getattr(statement, "module", None) or alias.name
        allowed = BLOCKS.get(module, ())
        assert allowed is None or alias.name in allowed, f"{page}: {name} imports {module}.{one}"
        plain = isinstance(statement, ast.Import)
        kind = ast.Import([alias]) if plain else ast.ImportFrom(module, [alias], 0)
        lines.append(ast.unparse(ast.fix_missing_locations(kind)))
    return "\n\n".join(reversed(lines)) + "\n"


@pytest.mark.parametrize(
    "page, name", [(page, name) for page, names in LOOPS.items() for name in names.split()]
)
def test_a_loop_is_whole_fits_on_a_screen_and_is_compared_with_the_library(page: str, name: str):
    for node in ast.parse(written(page, name)).body:
        assert not hasattr(node, "name") or node.end_lineno - node.lineno < LONGEST, node.name
    code = [cell.source for cell in cells(ROOT / "notebooks" / f"{page}.ipynb", "code")]
    uses = [source for source in code if re.search(rf"(?<!def )\b{name}\b", source)]
    compares = [source for source in code if "generate" in source and "assert" in source]
    assert uses and any(re.search(r"assert .*==", source) for source in compares)


def test_what_a_page_does_not_show_is_named():
    with pytest.raises(AssertionError, match="no function nothing"):
        written("05_draft_then_verify", "nothing")
