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
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from chapters import cells, has_tag, statements
from conftest import ROOT

from specdec_lite import (
    acceptance,
    corpus,
    drafters as d,
    generate,
    generate_batch,
    load_pair,
    sampling,
)
from specdec_lite.drafters.model_trees import RATES
from specdec_lite.drafters.parallel import Selector
from specdec_lite.drafters.self_drafts import Chunks
from specdec_lite.scheduling import Confidence, FirstDrop
from specdec_lite.simulation import clock

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
COUNT = 48


@cache
def pair():
    return load_pair(device="cpu", dtype="float32")


PROMPTS = [prompt["text"] for kind in corpus.evaluation_prompts().values() for prompt in kind[:2]][
    :6
]


@dataclass(frozen=True)
class Loop:
    """A method's loop on its page, and the same method in the library.

    The page's function is called with the target, `before`, a prompt, a number of tokens, `after`
    and, with a temperature, the sampling and the draws.

    Attributes:
        page: stem of the notebook.
        name: of the generator function.
        library: returns the library's drafter.
        before, after: return arguments of the page's function from that drafter.
        temperature: None for a loop that is greedy.
        rule: of the library's `generate`.
    """

    page: str
    name: str
    library: Callable
    before: Callable = lambda drafter: ()
    after: Callable = lambda drafter: ()
    temperature: float | None = None
    rule: Callable | None = None

    def rounds(self, function: Callable, drafter, ids: list[int], count: int) -> list:
        """Return (drafted tokens, emitted tokens) of each round of the page's function."""
        draws = () if self.temperature is None else (sampling.Sampling(self.temperature), rng())
        given = *self.before(drafter), ids, count, *self.after(drafter), *draws
        return [
            (list(map(int, drafted)), list(map(int, emitted)))
            for drafted, emitted, *_ in function(pair().target, *given)
        ]

    def options(self) -> dict:
        """Return the options of the library's `generate`."""
        return {"temperature": self.temperature or 0.0, "seed": SEED, "rule": self.rule}


SEED = 5
rng = lambda: sampling.SeededRng(SEED)


def given(*values) -> Callable:
    """Return what gives a page's function these values, whatever the drafter is."""
    return lambda drafter: values


def draft(drafter) -> tuple:
    return (pair().draft,)


def eagle(name: str, drafter: Callable) -> Loop:
    return Loop("13_eagle", "eagle", drafter, lambda x: (x.head, name), given(4))


def earlier_texts() -> list[list[int]]:
    return [pair().tokenizer.encode(prompt) for prompt in PROMPTS[:3]]


def suffix_with_memory():
    drafter = d.SuffixDrafter(16)
    for text in earlier_texts():
        drafter.learn(text)
    return drafter


def selecting() -> d.MarkovDrafter:
    """Return Medusa's heads with a selector that was not trained."""
    torch.manual_seed(0)
    selector = Selector(pair().target.vocab_size, 16, width=pair().target.hidden_size)
    torch.nn.init.normal_(selector.after.weight, std=0.05)
    return d.MarkovDrafter(pair().target, trained(d.MedusaDrafter)().heads, selector)


def trained(kind: type, **options) -> Callable:
    """Return what loads the trained drafter of a class."""
    return lambda: kind.from_pretrained(pair().target, **options)


SKIP = {(0, "attention"), (5, "mlp")}
COPYING, SELF, ONE_PASS = "08_model_free", "09_self_drafts", "12b_one_pass"
LOOPS = {
    "draft model": Loop(
        "05_draft_then_verify",
        "speculative",
        lambda: d.ModelDrafter(pair().draft, 4),
        draft,
        given(4),
    ),
    "SpecInfer": Loop(
        "11_token_trees",
        "specinfer",
        lambda: d.MergedDrafter([d.ModelDrafter(pair().draft, 3) for _ in range(2)]),
        lambda x: ([pair().draft] * 2,),
        given(3),
    ),
    "Sequoia": Loop(
        "11_token_trees",
        "sequoia",
        lambda: d.SequoiaDrafter(pair().draft, 16),
        lambda x: (pair().draft, RATES, 16),
    ),
    "Medusa": Loop(
        "10_medusa", "medusa_decoding", trained(d.MedusaDrafter), lambda x: (x.heads, x.tree)
    ),
}
LOOPS = {
    f"{name}, T = {temperature:g}": replace(loop, temperature=temperature)
    for name, loop in LOOPS.items()
    for temperature in (0.0, 1.0)
} | {
    "block verification": Loop(
        "07b_better_rule",
        "speculative_blocks",
        lambda: d.ModelDrafter(pair().draft, 8),
        draft,
        given(8),
        1.0,
        acceptance.block_verification,
    ),
    "blockwise": Loop(
        "04_blockwise_parallel",
        "blockwise",
        trained(d.BlockwiseDrafter, k=4),
        lambda x: ([*zip(x.heads.up, x.heads.down)],),
        given(4),
    ),
    "PARD": Loop(ONE_PASS, "pard", trained(d.PardDrafter), lambda x: (x.model,), given(4)),
    "DFlash": Loop(ONE_PASS, "dflash", trained(d.BlockDiffusionDrafter), lambda x: (x.head,)),
    "DFlash 2's selector": Loop(ONE_PASS, "selected", selecting, lambda x: (x.heads, x.correction)),
    "EAGLE-1": eagle("EAGLE-1", trained(d.EagleDrafter)),
    "EAGLE-3": eagle("EAGLE-3", trained(d.EagleDrafter, version=3, draft=4)),
    "MTP": eagle("MTP", trained(d.MtpDrafter)),
    "EAGLE-2": Loop(
        "13b_confidence_trees", "eagle2", trained(d.EagleDrafter, version=2), lambda x: (x.head,)
    ),
    "stop by confidence": Loop(
        "15_when_to_stop",
        "stopping",
        lambda: d.ModelDrafter(pair().draft, d.lengths.Confidence(8, 0.4)),
        draft,
        given(8, lambda row, token: row[token] >= 0.4),
        1.0,
    ),
    "bandit": Loop(
        "15c_several_drafters",
        "bandit",
        lambda: d.BanditDrafter(
            [d.PromptLookupDrafter(8, 3, 2), d.ModelDrafter(pair().draft, 4)],
            c=0.2,
            t=0.04,
            weight=8,
        ),
        draft,
        given(0.2, 0.04),
    ),
    "Saguaro": Loop(  # its drafts are those of ordinary speculation, only earlier
        "15b_hide_drafting", "saguaro", lambda: d.ModelDrafter(pair().draft, 4), draft, given(4, 3)
    ),
    "cascade": Loop(
        "15c_several_drafters",
        "cascade",
        lambda: d.CascadeDrafter(pair().draft, d.PromptLookupDrafter(3), 6),
        draft,
        given(6, 3),
        1.0,
    ),
    "prompt lookup": Loop(COPYING, "prompt_lookup", lambda: d.PromptLookupDrafter(8)),
    "suffix decoding": Loop(COPYING, "suffix_decoding", lambda: d.SuffixDrafter(16)),
    "suffix decoding with a memory": Loop(
        COPYING, "suffix_decoding", suffix_with_memory, after=lambda x: (earlier_texts(),)
    ),
    "token recycling": Loop(
        "10b_recycling", "recycling", lambda: d.TokenRecyclingDrafter(pair().target)
    ),
    "Jacobi": Loop("14_lookahead", "jacobi_decoding", lambda: d.JacobiDrafter(8)),
    "Lookahead": Loop("14_lookahead", "lookahead", d.LookaheadDrafter),
    "early exit": Loop(
        SELF,
        "early_exit",
        trained(d.EarlyExitDrafter, gamma=3),
        after=lambda x: (x.layers, x.adapter),
    ),
    "early exit, no adapter": Loop(
        SELF, "early_exit", lambda: d.EarlyExitDrafter(pair().target, 6, 3), after=given(6)
    ),
    "skipped sublayers": Loop(
        SELF,
        "skipped_sublayers",
        lambda: d.LayerSkipDrafter(pair().target, SKIP, 3),
        after=given(SKIP),
    ),
    "fewer bits": Loop(
        SELF,
        "fewer_bits",
        lambda: d.QuantizedDrafter(pair().target, 8, 3),
        after=lambda x: (x.model,),
    ),
    "sinks and a window": Loop(
        SELF, "sparse_cache", lambda: d.SparseCacheDrafter(pair().target, 4, 32, 3)
    ),
    "look-ahead rows": Loop(SELF, "look_ahead", trained(d.PassDrafter), after=lambda x: (x.rows,)),
    "TriForce": Loop(
        SELF,
        "triforce",
        lambda: d.SparseCacheDrafter(pair().target, 4, 16, 3, select=Chunks((4,), budget=32)),
        after=lambda x: (pair().draft, []),
    ),
}


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
    function, drafter = load(loop.page, loop.name, tmp_path), loop.library()
    for ids in encoded(which):
        rounds = loop.rounds(function, drafter, ids, count)
        out = generate(pair().target, ids, drafter, count, stop_token_ids=(), **loop.options())
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
