"""Each method can be written from its page: the page's visible cells alone draft and decode.

A page ends each method with its decoding loop in plain functions. The loop is a generator
`name(target, …, ids, count, …)` that yields (drafted tokens, emitted tokens) for each round. Here
the loop's definition is taken out of the page with the definitions and imports that it needs,
written to a file of its own, and run beside the library: drafts and texts must be equal, token for
token. A row of `LOOPS` is a method; a chapter without a row has no method of its own.
"""

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch

from specdec_lite import (
    acceptance,
    corpus,
    drafters as d,
    generate,
    generate_batch,
    load_pair,
    sampling,
)
from specdec_lite.drafters.block_head import Selector
from specdec_lite.drafters.model_trees import RATES
from specdec_lite.drafters.self_drafts import Chunks
from specdec_lite.scheduling import Confidence, FirstDrop
from specdec_lite.simulation import clock

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
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
SECONDS = lambda rows, drafted: 1 + 0.03 * drafted


@dataclass(frozen=True)
class Loop:
    """A method's loop on its page, and the same method in the library.

    Attributes:
        page: stem of the notebook.
        name: of the generator function.
        ours: returns the rounds that the page's function yields for a prompt and a number of tokens.
        library: returns the library's drafter.
        options: of `generate`: temperature, seed and the acceptance rule.
    """

    page: str
    name: str
    ours: Callable
    library: Callable
    options: tuple = ()


@cache
def pair():
    return load_pair(device="cpu", dtype="float32")


PROMPTS = [prompt["text"] for kind in corpus.evaluation_prompts().values() for prompt in kind[:2]][
    :6
]
COUNT = 48


def chain_of_a_model(temperature: float) -> Loop:
    rng = lambda: (sampling.Sampling(temperature), sampling.SeededRng(5))
    return Loop(
        "05_draft_then_verify",
        "speculative",
        lambda loop, ids, count: loop(pair().target, pair().draft, ids, count, 4, *rng()),
        lambda: d.ModelDrafter(pair().draft, 4),
        (("temperature", temperature), ("seed", 5)),
    )


def blocks_of_a_model() -> Loop:
    rng = lambda: (sampling.Sampling(1.0), sampling.SeededRng(5))
    return Loop(
        "07b_better_rule",
        "speculative_blocks",
        lambda loop, ids, count: loop(pair().target, pair().draft, ids, count, 8, *rng()),
        lambda: d.ModelDrafter(pair().draft, 8),
        (("temperature", 1.0), ("seed", 5), ("rule", acceptance.block_verification)),
    )


def blockwise() -> Loop:
    drafter = cache(lambda: d.BlockwiseDrafter.from_pretrained(pair().target, k=4))
    weights = lambda: list(zip(drafter().heads.up, drafter().heads.down))
    return Loop(
        "04_blockwise_parallel",
        "blockwise",
        lambda loop, ids, count: loop(pair().target, weights(), ids, count, 4),
        drafter,
    )


def stop_by_confidence(loop, ids, count):
    rng = sampling.SeededRng(5)
    sure = lambda row, token: row[token] >= 0.4
    return loop(pair().target, pair().draft, ids, count, 8, sure, sampling.Sampling(1.0), rng)


LOOPS = {
    "draft model, T = 0": chain_of_a_model(0.0),
    "draft model, T = 1": chain_of_a_model(1.0),
    "block verification": blocks_of_a_model(),
    "blockwise": blockwise(),
}


def eagle(version: str, drafter: Callable) -> Loop:
    return Loop(
        "13_eagle",
        "eagle",
        lambda loop, ids, count: loop(pair().target, drafter().head, version, ids, count, 4),
        drafter,
    )


def tree_of_models(temperature: float) -> Loop:
    rng = lambda: (sampling.Sampling(temperature), sampling.SeededRng(5))
    return Loop(
        "11_token_trees",
        "specinfer",
        lambda loop, ids, count: loop(pair().target, [pair().draft] * 2, ids, count, 3, *rng()),
        lambda: d.MergedDrafter([d.ModelDrafter(pair().draft, 3) for _ in range(2)]),
        (("temperature", temperature), ("seed", 5)),
    )


def tree_of_rates(temperature: float) -> Loop:
    rng = lambda: (sampling.Sampling(temperature), sampling.SeededRng(5))
    return Loop(
        "11_token_trees",
        "sequoia",
        lambda loop, ids, count: loop(pair().target, pair().draft, RATES, 16, ids, count, *rng()),
        lambda: d.SequoiaDrafter(pair().draft, 16),
        (("temperature", temperature), ("seed", 5)),
    )


@cache
def selecting() -> d.MarkovDrafter:
    """Return Medusa's heads with a selector that was not trained."""
    torch.manual_seed(0)
    selector = Selector(pair().target.vocab_size, 16, width=pair().target.hidden_size)
    torch.nn.init.normal_(selector.after.weight, std=0.05)
    return d.MarkovDrafter(pair().target, medusa_drafter().heads, selector)


LOOPS |= {
    "SpecInfer, T = 0": tree_of_models(0.0),
    "SpecInfer, T = 1": tree_of_models(1.0),
    "Sequoia, T = 0": tree_of_rates(0.0),
    "Sequoia, T = 1": tree_of_rates(1.0),
    "PARD": Loop(
        "12b_one_pass",
        "pard",
        lambda loop, ids, count: loop(
            pair().target, d.PardDrafter.from_pretrained(pair().target).model, ids, count, 4
        ),
        lambda: d.PardDrafter.from_pretrained(pair().target),
    ),
    "DFlash": Loop(
        "12b_one_pass",
        "dflash",
        lambda loop, ids, count: loop(
            pair().target, d.BlockDiffusionDrafter.from_pretrained(pair().target).head, ids, count
        ),
        lambda: d.BlockDiffusionDrafter.from_pretrained(pair().target),
    ),
    "DFlash 2's selector": Loop(
        "12b_one_pass",
        "selected",
        lambda loop, ids, count: loop(
            pair().target, selecting().heads, selecting().correction, ids, count
        ),
        lambda: selecting(),
    ),
    "EAGLE-1": eagle("EAGLE-1", lambda: d.EagleDrafter.from_pretrained(pair().target)),
    "EAGLE-3": eagle("EAGLE-3", lambda: d.EagleDrafter.from_pretrained(pair().target, 3, draft=4)),
    "MTP": eagle("MTP", lambda: d.MtpDrafter.from_pretrained(pair().target)),
    "EAGLE-2": Loop(
        "13b_confidence_trees",
        "eagle2",
        lambda loop, ids, count: loop(
            pair().target, d.EagleDrafter.from_pretrained(pair().target).head, ids, count
        ),
        lambda: d.EagleDrafter.from_pretrained(pair().target, version=2),
    ),
}

LOOPS |= {
    "stop by confidence": Loop(
        "15_when_to_stop",
        "stopping",
        stop_by_confidence,
        lambda: d.ModelDrafter(pair().draft, d.lengths.Confidence(8, 0.4)),
        (("temperature", 1.0), ("seed", 5)),
    ),
    "bandit": Loop(
        "15c_several_drafters",
        "bandit",
        lambda loop, ids, count: loop(pair().target, pair().draft, ids, count, 0.2, 0.04),
        lambda: d.BanditDrafter(
            [d.PromptLookupDrafter(8, 3, 2), d.ModelDrafter(pair().draft, 4)],
            c=0.2,
            t=0.04,
            weight=8,
        ),
    ),
    "Saguaro": Loop(  # its drafts are those of ordinary speculation, only earlier
        "15b_hide_drafting",
        "saguaro",
        lambda loop, ids, count: (
            r[:2] for r in loop(pair().target, pair().draft, ids, count, 4, 3)
        ),
        lambda: d.ModelDrafter(pair().draft, 4),
    ),
    "cascade": Loop(
        "15c_several_drafters",
        "cascade",
        lambda loop, ids, count: loop(
            pair().target,
            pair().draft,
            ids,
            count,
            6,
            3,
            sampling.Sampling(1.0),
            sampling.SeededRng(5),
        ),
        lambda: d.CascadeDrafter(pair().draft, d.PromptLookupDrafter(3), 6),
        (("temperature", 1.0), ("seed", 5)),
    ),
}


def greedy(page: str, name: str, library: Callable, given: Callable = tuple) -> Loop:
    """Return a greedy loop whose arguments are the target, ids, count, and what `given` returns."""
    return Loop(
        page, name, lambda loop, ids, count: loop(pair().target, ids, count, *given()), library
    )


def earlier_texts() -> list[list[int]]:
    return [pair().tokenizer.encode(prompt) for prompt in PROMPTS[:3]]


def suffix_with_memory():
    drafter = d.SuffixDrafter(16)
    for text in earlier_texts():
        drafter.learn(text)
    return drafter


COPYING, SELF = "08_model_free", "09_self_drafts"
LOOPS |= {
    "prompt lookup": greedy(COPYING, "prompt_lookup", lambda: d.PromptLookupDrafter(8)),
    "suffix decoding": greedy(COPYING, "suffix_decoding", lambda: d.SuffixDrafter(16)),
    "suffix decoding with a memory": greedy(
        COPYING, "suffix_decoding", suffix_with_memory, lambda: (earlier_texts(),)
    ),
    "token recycling": greedy(
        "10b_recycling", "recycling", lambda: d.TokenRecyclingDrafter(pair().target)
    ),
    "Jacobi": greedy("14_lookahead", "jacobi_decoding", lambda: d.JacobiDrafter(8)),
    "Lookahead": greedy("14_lookahead", "lookahead", d.LookaheadDrafter),
}


@cache
def exit_drafter():
    return d.EarlyExitDrafter.from_pretrained(pair().target, gamma=3)


@cache
def pass_drafter():
    return d.PassDrafter.from_pretrained(pair().target)


@cache
def eight_bits():
    return d.QuantizedDrafter(pair().target, 8, 3)


SKIP = {(0, "attention"), (5, "mlp")}
LOOPS |= {
    "early exit": greedy(
        SELF, "early_exit", exit_drafter, lambda: (exit_drafter().layers, exit_drafter().adapter)
    ),
    "early exit, no adapter": greedy(
        SELF, "early_exit", lambda: d.EarlyExitDrafter(pair().target, 6, 3), lambda: (6,)
    ),
    "skipped sublayers": greedy(
        SELF,
        "skipped_sublayers",
        lambda: d.LayerSkipDrafter(pair().target, SKIP, 3),
        lambda: (SKIP,),
    ),
    "fewer bits": greedy(SELF, "fewer_bits", eight_bits, lambda: (eight_bits().model,)),
    "sinks and a window": greedy(
        SELF, "sparse_cache", lambda: d.SparseCacheDrafter(pair().target, 4, 32, 3)
    ),
    "look-ahead rows": greedy(SELF, "look_ahead", pass_drafter, lambda: (pass_drafter().rows,)),
    "TriForce": greedy(
        SELF,
        "triforce",
        lambda: d.SparseCacheDrafter(pair().target, 4, 16, 3, select=Chunks((4,), budget=32)),
        lambda: (pair().draft, []),
    ),
}


@cache
def medusa_drafter():
    return d.MedusaDrafter.from_pretrained(pair().target)


def medusa(temperature: float) -> Loop:
    def ours(loop, ids, count):
        heads, tree = medusa_drafter().heads, medusa_drafter().tree
        rng = sampling.Sampling(temperature), sampling.SeededRng(5)
        return loop(pair().target, heads, tree, ids, count, *rng)

    options = (("temperature", temperature), ("seed", 5))
    return Loop("10_medusa", "medusa_decoding", ours, medusa_drafter, options)


LOOPS |= {f"Medusa, T = {temperature:g}": medusa(temperature) for temperature in (0.0, 1.0)}


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
    statements = []
    for cell in nbformat.read(NOTEBOOKS / f"{page}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            lines = [x for x in cell.source.splitlines() if not x.lstrip().startswith(("%", "!"))]
            text = "\n".join(lines)
            try:
                body = ast.parse(text).body
            except SyntaxError:  # the set-up cell without its magic command
                body = [s for line in lines if "import" in line for s in imports_of(line)]
            if "hide-input" in cell.metadata.get("tags", ()):
                body = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]
            statements += body
    return statements


def imports_of(line: str) -> list[ast.stmt]:
    """Return the import of one line of a cell, or nothing."""
    try:
        return ast.parse(line.strip()).body
    except SyntaxError:
        return []


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


def load(page: str, name: str, folder: Path) -> Callable:
    """Return a page's function, from a file of its own."""
    file = folder / "written.py"
    file.write_text(written(page, name), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("written", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def encoded(which: slice) -> list[list[int]]:
    return [pair().tokenizer.encode(prompt) for prompt in PROMPTS[which]]


def sizes(prompts: int):
    """Parametrize a test: `make test` decodes a few short texts, and `make test-long` all of them."""
    whole = pytest.param(slice(None), COUNT, marks=pytest.mark.registry)
    return pytest.mark.parametrize("which, count", [(slice(prompts), 24), whole])


@sizes(1)
@pytest.mark.parametrize("method", LOOPS)
def test_a_method_written_from_its_page_drafts_like_the_library(
    method: str, which: slice, count: int, tmp_path: Path
):
    loop = LOOPS[method]
    function = load(loop.page, loop.name, tmp_path)
    for ids in encoded(which):
        rounds = [
            (list(map(int, drafted)), list(map(int, emitted)))
            for drafted, emitted in loop.ours(function, ids, count)
        ]
        out = generate(
            pair().target, ids, loop.library(), count, stop_token_ids=(), **dict(loop.options)
        )
        steps = [(step.tree.tokens.tolist(), list(step.tokens)) for step in out.steps]
        assert [t for _, emitted in rounds for t in emitted] == out.tokens.tolist()
        assert rounds[:-1] == steps[:-1]  # the text's end may cut the last round's draft


@sizes(2)
@pytest.mark.parametrize("name", ["pearl", "amusd"])
def test_an_overlap_written_from_its_page_decodes_in_the_time_of_its_schedule(
    name: str, which: slice, count: int, tmp_path: Path
):
    """It drafts other blocks than any drafter of one device; its rounds are those of the clock."""
    function = load("15b_hide_drafting", name, tmp_path)
    for ids in encoded(which):
        plain = generate(pair().target, ids, None, count, stop_token_ids=()).tokens
        rounds = list(function(pair().target, pair().draft, ids, count, 4))
        assert [token for _, emitted in rounds for token in emitted] == plain.tolist()
        text = [*ids, *plain.tolist()]
        logits = pair().draft.score(text, pair().draft.new_cache()).logits[0, len(ids) - 1 : -1]
        ranks = (logits > logits.gather(-1, plain[:, None])).sum(-1).tolist()
        record = clock.Record(ranks, 0.25, lambda k: 1.0)
        schedule = clock.pearl(record, 4) if name == "pearl" else clock.amusd(record)
        assert len(rounds) == schedule.rounds


BATCHED = {
    "16b_batches": ("batched", (), None),
    "17b_verify_what_survives": ("scheduled", (SECONDS,), FirstDrop(SECONDS, Confidence(0))),
}
"""Page → its loop of a batch, what this is given besides, and the library's schedule."""


@sizes(4)
@pytest.mark.parametrize("page", BATCHED)
def test_a_batch_written_from_its_page_equals_the_library(
    page: str, which: slice, count: int, tmp_path: Path
):
    name, more, schedule = BATCHED[page]
    function, prompts = load(page, name, tmp_path), encoded(which)
    rounds: list[list] = [[] for _ in prompts]
    given = pair().target, pair().draft, prompts, count, 6, *more
    seeds = range(len(prompts))
    for row, drafted, emitted in function(*given, sampling.Sampling(1.0), seeds):
        rounds[row].append((drafted, emitted))
    drafter = d.ModelDrafter(pair().draft, 6)
    outs = generate_batch(
        pair().target, prompts, drafter, count, 1.0, seeds=seeds, schedule=schedule
    )
    assert rounds == [[(s.tree.tokens.tolist(), list(s.tokens)) for s in out.steps] for out in outs]


SHOWN = {(loop.page, loop.name) for loop in LOOPS.values()}
SHOWN |= {(page, name) for page, (name, *_) in BATCHED.items()}


@pytest.mark.parametrize("page, name", sorted(SHOWN))
def test_a_loop_fits_on_a_screen(page: str, name: str):
    source = written(page, name)
    for node in ast.parse(source).body:
        assert not hasattr(node, "name") or node.end_lineno - node.lineno < LONGEST, node.name


def test_what_a_page_does_not_show_is_named():
    with pytest.raises(AssertionError, match="no function nothing"):
        written("05_draft_then_verify", "nothing")
