"""Many prompts together: rows of different lengths share one target pass per round.

Every row has its own drafter session, chance and cache, so it emits what it would emit alone. The
rows share the pass and wait for the slowest of them. Source: Qian et al. 2024, arXiv 2404.15778
(BASS), without its kernels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Unpack

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Session
from specdec_lite.decoding import Output
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.ragged import BatchStorage, row_caches, score_rows
from specdec_lite.options import OptionNames, Request, ids_and_mask, prepare
from specdec_lite.proposal import Proposal, Step
from specdec_lite.sampling import Rng, SeededRng
from specdec_lite.scheduling import FirstDrop
from specdec_lite.speculation import (
    check_cache,
    commit,
    elapsed,
    fed_tokens,
    now,
    process_scores,
    propose,
    verify,
)


@dataclass(slots=True)
class Row:
    """One prompt in a batch, with all that `generate` would store for it.

    Attributes:
        number: of its prompt.
        request: its prompt and options.
        context: of its next round.
        session: of its drafter.
        cache: its row of the target's cache.
        steps: its rounds so far.
        stopped: whether it has emitted a stop token.
    """

    number: int
    request: Request
    context: Context
    session: Session
    cache: Cache
    steps: list[Step] = field(default_factory=list)
    stopped: bool = False

    @property
    def is_done(self) -> bool:
        """Return whether no token remains to be emitted."""
        return self.stopped or self.context.wanted < 1


def generate_batch(
    target: CausalLM,
    prompts: Sequence,
    drafter: Drafter | None = None,
    *values,
    seeds: Sequence[int | None] | None = None,
    n: int = 1,
    schedule: FirstDrop | None = None,
    row_options: Sequence[OptionNames] | None = None,
    **options: Unpack[OptionNames],
) -> list[Output]:
    """Decode every prompt as `generate` would, all of them together.

    A row that is done leaves the batch, and later passes have fewer rows. A step's `verifying` is
    the time of the whole pass, which all rows wait for; its `drafting` and `other` are its own. Rows
    equal their single runs up to rounding, since a batch multiplies matrices of another shape: in
    half precision a greedy text may differ after a near-tie.

    Args:
        target: a `CausalLM`. A Hugging Face model that cannot take the mask of a tree runs a pass
            for each row.
        prompts: at least one row of ids; rows may have different lengths. Or a tokenizer's encoding
            of several texts; entries that its attention_mask marks as padding are left out.
        drafter: drafts for each row by itself; None for plain decoding.
        values: options of `generate` for every row, in its order from max_new_tokens on.
        seeds: one per output; None to seed all from the operating system.
        n: samples per prompt, ≥ 1, with seeds of their own.
        schedule: chooses which drafted tokens each pass verifies, as `scheduling.FirstDrop` does;
            None: all of them.
        row_options: options of `generate` for each prompt, as dictionaries; they replace those for
            every row. A processor that counts from the end of the prompt needs them.
        options: options of `generate` for every row, by name.

    Returns:
        n outputs per prompt: all of the first prompt, then all of the second, and so on.

    Raises:
        TypeError: as `generate` does, before any model runs.
        ValueError: likewise; also if prompts is empty, or seeds or row_options has another length.
    """
    if not hasattr(checks.model("target", target), "backend"):
        raise TypeError(f"target is a {type(target).__name__}: a batch needs a CausalLM")
    prompts = rows_of(prompts)
    if not prompts:
        raise ValueError("prompts is empty: must hold at least one row of token ids")
    each_row = options_of_rows(row_options, len(prompts))
    copies = range(checks.whole("n", n, 1))
    rngs = sources_of_chance(seeds, len(prompts) * len(copies))
    requests = [
        prepare(target, prompt, drafter, *values, **(options | own))
        for prompt, own in zip(prompts, each_row)
        for _ in copies
    ]
    for request in requests:
        check_prompt_lengths(request)
    rows, storage = start_rows(requests, rngs)
    return decode_rows(storage, rows, schedule)


def options_of_rows(row_options: Sequence[OptionNames] | None, count: int) -> list[OptionNames]:
    """Return each prompt's own options; none if they are not given."""
    rows = [OptionNames()] * count if row_options is None else list(row_options)
    if len(rows) != count or not all(isinstance(own, Mapping) for own in rows):
        raise ValueError(
            f"row_options={row_options!r:.80}: must be one dictionary of options for each of {count}"
            " prompts"
        )
    return rows


def check_prompt_lengths(request: Request) -> None:
    """Raise if a processor counts from another place than the end of the prompt."""
    for each in request.options.processors:
        own, length = getattr(each, "prompt_length", None), len(request.tokens)
        if own not in (None, length):
            raise ValueError(
                f"processors has a {type(each).__name__} with prompt_length={own}, and a prompt has"
                f" {length} tokens: must be equal; give each prompt its own in row_options"
            )


def sources_of_chance(seeds: Sequence[int | None] | None, count: int) -> list[SeededRng]:
    """Return one rng per output, after checking the number of seeds."""
    if isinstance(seeds, int):
        raise TypeError(f"seeds={seeds!r}: must be one seed per output, as a list")
    seeds = [None] * count if seeds is None else list(seeds)
    if len(seeds) != count:
        raise ValueError(f"seeds has {len(seeds)} entries: must be one for each of {count} outputs")
    return [SeededRng(seed) for seed in seeds]


def rows_of(prompts) -> list:
    """Return one row of token ids for each prompt; of a tokenizer's encoding, without its padding."""
    if not isinstance(prompts, Mapping):
        return list(prompts)
    rows, masks = ids_and_mask("prompts", prompts)
    if len(rows) and not hasattr(rows[0], "__len__"):  # the encoding of a single text
        rows, masks = [rows], None if masks is None else [masks]
    if masks is None:
        return list(rows)
    pairs = zip(rows, masks)
    return [[int(token) for token, kept in zip(row, mask) if int(kept)] for row, mask in pairs]


def start_rows(
    requests: Sequence[Request], rngs: Sequence[Rng]
) -> tuple[list[Row], BatchStorage | None]:
    """Run the prefill of every prompt, and start the drafter for it."""
    capacity = max(request.capacity for request in requests)
    storage, caches = row_caches(requests[0].target, len(requests), capacity)
    rows = []
    for number, (request, cache, rng) in enumerate(zip(requests, caches, rngs)):
        context, session = request.begin(cache, rng)
        rows.append(Row(number, request, context, session, cache))
    return rows, storage


def decode_rows(
    storage: BatchStorage | None, rows: list[Row], schedule: FirstDrop | None = None
) -> list[Output]:
    """Run rounds until every row is done."""
    done: dict[int, Output] = {}
    while rows:
        run_round(storage, rows, schedule)
        done |= {row.number: Output.of(row.steps) for row in rows if row.is_done}
        remaining = [index for index, row in enumerate(rows) if not row.is_done]
        if storage is not None and 0 < len(remaining) < len(rows):
            storage.keep_rows(remaining)
        rows = [rows[index] for index in remaining]
    return [done[number] for number in sorted(done)]


def run_round(
    storage: BatchStorage | None, rows: Sequence[Row], schedule: FirstDrop | None = None
) -> None:
    """Let every row draft, score the scheduled drafts in one pass, then verify and commit each row."""
    target, hidden_layers = rows[0].request.target, rows[0].request.hidden_layers
    proposals: list[Proposal] = []
    drafted = []
    passes = [row.session.passes for row in rows]
    for row in rows:
        start = now(target.device)
        # A pass over several rows cannot begin after a block with the states of one row.
        proposals.append(replace(propose(row.session, row.context), states=None))
        check_cache(row.session, row.context)
        drafted.append((start, now(target.device)))
    if schedule is not None:
        proposals = schedule.schedule(proposals)
    start = now(target.device)
    fed = [fed_tokens(target, row.context, proposal) for row, proposal in zip(rows, proposals)]
    caches = [row.cache for row in rows]
    trees = [proposal.tree for proposal in proposals]
    all_scores = score_rows(target, storage, fed, caches, trees, hidden_layers)
    verified = now(target.device)
    for index, (row, proposal, scores) in enumerate(zip(rows, proposals, all_scores)):
        began = perf_counter()
        options, stops = row.request.options, row.request.stops
        scores = process_scores(options.processors, row.context.tokens, proposal.tree, scores)
        verdict = verify(options.rule, proposal, scores, row.context)
        step, row.context = commit(row.cache, row.context, proposal, verdict, scores, stops)
        row.session.observe(verdict, scores)
        if schedule is not None:
            schedule.observe(proposal, verdict)
        row.stopped = step.tokens[-1] in stops
        timed = replace(
            row.request.reported(step, row.context),
            draft_passes=row.session.passes - passes[index],
            drafting=elapsed(*drafted[index]),
            verifying=elapsed(start, verified),
            other=perf_counter() - began,
        )
        row.steps.append(timed)
