"""Blockwise decoding: the invariants of every drafter, the pass counts of the paper, the heads'
file, and that training is what drafting reads.
"""

import copy
import math

import pytest
import torch
from caches import contents, watched_caches
from heads_zoo import random_heads, taught_heads
from models_zoo import FAMILIES, PROMPT, VOCABULARY, hugging_face, native
from safetensors.torch import save_file
from text_laws import NATIVE, SAMPLINGS, TINY, distance, exact_text_law, model_named, own_text_law

from specdec_lite import generate, load_pair, results, stream
from specdec_lite.acceptance import (
    Proposal,
    block_verification,
    distance_match,
    sample_and_match,
    top_k_match,
)
from specdec_lite.drafters import BlockwiseDrafter
from specdec_lite.drafters.blockwise import SHIPPED, BlockwiseSession
from specdec_lite.drafters.heads import FILE, Heads, fingerprint, load_heads, save_heads
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.proposal import NOTHING
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context
from specdec_lite.training.blockwise import final_states, head_logits
from specdec_lite.tree import TokenTree


class Known:
    """Drafts `gamma` tokens from a text given beforehand; changed(token) lets it be wrong."""

    hidden_layers, passes = (), 0

    def __init__(self, text, gamma, changed=lambda token: token):
        self.text, self.gamma, self.changed = text, gamma, changed

    def start(self, context):
        return self

    def propose(self, context):
        at = len(context.tokens)
        return Proposal(
            TokenTree.chain(
                [self.changed(t) for t in self.text[at : at + min(self.gamma, context.wanted - 1)]]
            )
        )

    def observe(self, verdict, scores):
        pass


# Greedy: the target's own text, in fewer passes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NATIVE, *FAMILIES])
def test_greedy_text_is_the_targets_own(name, monkeypatch):
    target, heads = model_named(name), taught_heads(name)
    plain = generate(target, PROMPT, max_new_tokens=36).tokens
    assert plain.unique().numel() > 3, "a text this plain would hide mistakes"
    made, committed, kinds = watched_caches(target, monkeypatch), list(PROMPT), set()
    for step in stream(target, PROMPT, BlockwiseDrafter(target, heads, 4), 36):
        committed += step.tokens
        kinds.add(step.kind)
        assert made[0].length == len(committed) - 1
    assert committed[len(PROMPT) :] == plain.tolist() and "bonus" in kinds
    fresh = target.new_cache()
    target.score(committed[:-1], fresh)
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(contents(made[0]), contents(fresh)))
    for k in (2, 4):
        out = generate(target, PROMPT, BlockwiseDrafter(target, random_heads(target), k), 36)
        assert torch.equal(out.tokens, plain) and any(
            step.kind == "recovered" for step in out.steps
        )


@pytest.mark.parametrize("rule", [block_verification, sample_and_match], ids=lambda rule: rule.name)
def test_greedy_text_under_the_sampling_rules_too(rule):
    target = native()
    out = generate(
        target, PROMPT, BlockwiseDrafter(target, taught_heads("native"), 4), 36, rule=rule
    )
    assert (
        torch.equal(out.tokens, generate(target, PROMPT, max_new_tokens=36).tokens)
        and out.stats.accepted
    )


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 24, 25])
def test_an_oracle_needs_m_over_k_passes_after_the_first_and_a_hopeless_drafter_no_more_than_m(
    k, m
):
    target = native()
    text = PROMPT + generate(target, PROMPT, max_new_tokens=m).tokens.tolist()
    oracle = generate(target, PROMPT, Known(text, k - 1), m)
    hopeless = generate(
        target, PROMPT, Known(text, k - 1, lambda token: (token + 1) % VOCABULARY), m
    )
    assert oracle.tokens.tolist() == hopeless.tokens.tolist() == text[len(PROMPT) :]
    assert oracle.stats.target_passes == math.ceil(m / k) and hopeless.stats.target_passes == m


def test_heads_are_never_worse_than_m_passes():
    target = native()
    for k in (2, 4):
        assert (
            generate(
                target, PROMPT, BlockwiseDrafter(target, random_heads(target), k), 30
            ).stats.target_passes
            <= 30
        )
        assert (
            generate(
                target, PROMPT, BlockwiseDrafter(target, taught_heads("native"), k), 30
            ).stats.target_passes
            < 25
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_of_one_is_plain_decoding(temperature):
    target = native()
    out = generate(
        target, PROMPT, BlockwiseDrafter(target, random_heads(target), 1), 20, temperature, seed=3
    )
    plain = generate(target, PROMPT, None, 20, temperature, seed=3)
    assert (
        torch.equal(out.tokens, plain.tokens)
        and out.stats.target_passes == 20
        and out.stats.drafted == out.stats.draft_passes == 0
    )
    assert all(step.kind == "sampled" for step in out.steps)


def test_drafts_are_no_longer_than_what_may_still_be_emitted_and_one_pass_makes_them():
    target = native()
    steps = list(stream(target, PROMPT, BlockwiseDrafter(target, taught_heads("native"), 4), 9))
    left = [9 - sum(len(s.tokens) for s in steps[:i]) for i in range(len(steps))]
    assert [len(s.tree) for s in steps] == [min(3, wanted - 1) for wanted in left] and all(
        s.draft_passes == (len(s.tree) > 0) for s in steps
    )


def test_a_prompt_of_one_token_has_no_row_to_read_and_starts_plainly():
    target = native()
    out = generate(target, PROMPT[:1], BlockwiseDrafter(target, random_heads(target), 4), 12)
    assert out.steps[0].kind == "sampled" and len(out.steps[1].tree) == 3
    assert torch.equal(out.tokens, generate(target, PROMPT[:1], max_new_tokens=12).tokens)


def test_a_stop_token_inside_an_accepted_block_ends_the_text_there():
    target, heads = native(), taught_heads("native")
    steps = list(stream(target, PROMPT, BlockwiseDrafter(target, heads, 4), 36))
    long = next(step for step in steps if step.accepted == 3)
    plain = [token for step in steps for token in step.tokens]
    out = generate(
        target, PROMPT, BlockwiseDrafter(target, heads, 4), 36, stop_token_ids=[long.tokens[1]]
    )
    assert out.tokens.tolist() == plain[: plain.index(long.tokens[1]) + 1]


# Sampling: the target's law, exactly ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own", [None, 0, 2.0], ids=["as the target", "argmax", "temperature of its own"]
)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_exact_law_of_the_text_is_the_targets(sampling, own):
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = BlockwiseDrafter(target, random_heads(target, 2, seed=1), 3, own)
    assert (
        distance(exact_text_law(target, drafter, sampling, 3), own_text_law(target, sampling, 3))
        < 1e-12
    )


def test_the_same_check_rejects_a_row_of_another_head():
    class OtherRow(BlockwiseDrafter):
        def start(self, context):
            session, propose = super().start(context), BlockwiseSession.propose
            session.propose = lambda context: (
                lambda made: made if made is NOTHING else Proposal(made.tree, made.probs.flip(0))
            )(propose(session, context))
            return session

    target = native(seed=5, vocab_size=3, **TINY)
    drafter = OtherRow(target, random_heads(target, 2, seed=1, scale=2.0), 3)
    assert (
        distance(
            exact_text_law(target, drafter, Sampling(), 3), own_text_law(target, Sampling(), 3)
        )
        > 0.01
    )


def test_the_same_check_rejects_argmax_drafts_scored_with_a_soft_row():
    class Soft(BlockwiseDrafter):
        def start(self, context):
            session, propose = super().start(context), BlockwiseSession.propose
            session.propose = lambda context: (
                lambda made: (
                    made
                    if made is NOTHING
                    else Proposal(TokenTree.chain(made.probs.argmax(-1).tolist()), made.probs)
                )
            )(propose(session, context))
            return session

    target = native(seed=5, vocab_size=3, **TINY)
    drafter = Soft(target, random_heads(target, 2, seed=1), 3)
    assert (
        distance(
            exact_text_law(target, drafter, Sampling(), 3), own_text_law(target, Sampling(), 3)
        )
        > 0.01
    )


def test_a_seed_makes_a_run_repeatable():
    target = native()
    run = lambda seed: (
        generate(
            target, PROMPT, BlockwiseDrafter(target, random_heads(target), 4), 24, 1.0, seed=seed
        ).tokens
    )
    assert torch.equal(run(1), run(1)) and not torch.equal(run(1), run(2))


# The paper's approximate rules: greedy text, nearly -----------------------------------------------------------------------

ROWS = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.7, 0.0], [0.25] * 4], dtype=torch.float64)


def judged(rule, tokens, rows=ROWS):
    return rule(Proposal(TokenTree.chain(tokens)), rows, SeededRng(0))


def test_top_k_match_keeps_what_is_among_the_k_likeliest():
    assert [judged(top_k_match(k), [1, 2]).path for k in (1, 2)] == [(), (0, 1)]
    assert [judged(top_k_match(k), [2, 1]).path for k in (1, 2, 3)] == [(), (), (0, 1)]
    assert judged(top_k_match(4), [3, 0]).path == ()  # p = 0: never
    assert [
        judged(top_k_match(k), [token], ROWS[[2, 0]]).path for k, token in ((1, 0), (1, 1), (2, 1))
    ] == [(0,), (), (0,)]  # ties rank by id
    verdict = judged(top_k_match(2), [1, 0])
    assert (verdict.path, verdict.token, verdict.kind) == ((0,), 2, "recovered")


def test_distance_match_keeps_what_is_near_the_argmax():
    assert [judged(distance_match(epsilon), [1, 0]).path for epsilon in (0, 1, 2)] == [
        (),
        (0,),
        (0, 1),
    ]
    unlike = lambda drafted, likeliest: (drafted != likeliest).double()
    assert judged(distance_match(0.5, unlike), [1]).path == () and judged(
        distance_match(1, unlike), [1]
    ).path == (0,)


@pytest.mark.parametrize("rule", [top_k_match(1), distance_match(0)], ids=lambda rule: rule.name)
def test_at_their_strictest_both_write_the_greedy_text(rule):
    target = native()
    out = generate(
        target,
        PROMPT,
        BlockwiseDrafter(target, taught_heads("native"), 4, draft_temperature=0),
        36,
        temperature=1.0,
        rule=rule,
        seed=0,
    )
    assert (
        torch.equal(out.tokens, generate(target, PROMPT, max_new_tokens=36).tokens)
        and out.stats.accepted
        and not rule.lossless
    )


def test_laxer_rules_accept_more_and_change_the_text():
    target, heads = native(), random_heads(native())
    run = lambda rule: generate(
        target,
        PROMPT,
        BlockwiseDrafter(target, heads, 4, draft_temperature=0),
        60,
        1.0,
        rule=rule,
        seed=0,
    )
    outs = [run(rule) for rule in (top_k_match(1), top_k_match(8), top_k_match(VOCABULARY))]
    passes = [out.stats.target_passes for out in outs]
    assert (
        passes[0] > passes[1] > passes[2] == 15
        and outs[0].tokens.tolist() != outs[2].tokens.tolist()
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: top_k_match(0), "k=0: must be a whole number ≥ 1"),
        (lambda: top_k_match(1.5), "k=1.5"),
        (lambda: distance_match(-1), "epsilon=-1: must be a number ≥ 0"),
        (lambda: distance_match(float("nan")), "epsilon=nan"),
    ],
)
def test_bad_thresholds_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Training = drafting ----------------------------------------------------------------------------------------------------


class Spy(BlockwiseDrafter):
    """Keeps what every round saw and drafted."""

    def start(self, context):
        session, propose, self.seen = super().start(context), BlockwiseSession.propose, []

        def watched(context):
            self.seen.append((context.tokens, propose(session, context)))
            return self.seen[-1][1]

        session.propose = watched
        return session


@pytest.mark.parametrize("name", ["native", "native, all options"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_training_forward_equals_what_the_session_drafts_from(name, temperature):
    target, heads = model_named(name), taught_heads(name)
    spy, sampling = Spy(target, heads, 4), Sampling(temperature)
    generate(target, PROMPT, spy, 24, temperature, seed=1)
    assert len({len(tokens) for tokens, _ in spy.seen}) == len(spy.seen) > 5
    for tokens, proposal in spy.seen:
        hidden = final_states(
            target.model, tokens[None, :-1]
        )  # as in training: a window, its last token a label
        rows = (
            torch.stack(
                [
                    head_logits(target.model, heads, hidden, i)[0, -1]
                    for i in range(len(proposal.tree))
                ]
            )
            if len(proposal.tree)
            else None
        )
        if rows is not None and temperature:
            assert (sampling(rows) - proposal.probs).abs().max() < 1e-5
        elif rows is not None:
            assert rows.argmax(-1).tolist() == proposal.tree.tokens.tolist()


class Shifted(BlockwiseDrafter):
    """The published kind of bug: the target's own head, whose token is committed already, takes the
    first draft's place.
    """

    def start(self, context):
        session, propose = super().start(context), BlockwiseSession.propose

        def shifted(context):
            made = propose(session, context)
            if not len(made.tree):
                return made
            return Proposal(
                TokenTree.chain([int(context.tokens[-1]), *made.tree.tokens.tolist()[:-1]])
            )

        session.propose = shifted
        return session


def test_a_shift_by_one_is_seen_in_the_acceptance_alone():
    target, heads = native(), taught_heads("native")
    right, wrong = (
        generate(target, PROMPT, kind(target, heads, 4), 20) for kind in (BlockwiseDrafter, Shifted)
    )
    assert torch.equal(right.tokens, wrong.tokens)
    assert right.stats.acceptance_rate > 0.8 and wrong.stats.acceptance_rate < 0.2


# The module and its file --------------------------------------------------------------------------------------------------


def test_fresh_heads_are_copies_of_the_targets_own():
    target = native()
    hidden = torch.randn(2, 5, target.hidden_size, dtype=target.dtype)
    heads = Heads(target.hidden_size, 3).to(target.dtype)
    assert torch.equal(heads(hidden), hidden[:, :, None].expand(2, 5, 3, -1)) and heads.count == 3
    taught = taught_heads("native")
    assert torch.allclose(taught(hidden, slice(1, 2))[..., 0, :], taught(hidden)[..., 1, :])


def test_saved_heads_are_loaded_in_the_targets_dtype(tmp_path):
    target, heads = native(dtype=torch.float32), random_heads(native(dtype=torch.float32), 4)
    save_heads(tmp_path, heads, target)
    for path in (tmp_path, tmp_path / FILE, str(tmp_path)):
        loaded = load_heads(path, target)
        assert (
            torch.equal(loaded.up, heads.up.bfloat16().float())
            and loaded.up.dtype == torch.float32
            and loaded.count == 4
        )
    drafter = BlockwiseDrafter.from_pretrained(target, tmp_path, k=5)
    assert drafter.k == 5 and torch.equal(drafter.heads.down, heads.down.bfloat16().float())
    assert not any(weight.requires_grad for weight in loaded.parameters())


def test_the_fingerprint_tells_targets_apart_and_dtypes_not():
    stored = native(dtype=torch.bfloat16, scale=0.02)
    marks = {
        fingerprint(type(stored)(stored.model.to(dtype)))
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    }
    assert len(marks) == 1 and marks.isdisjoint(
        {fingerprint(native(seed=1)), fingerprint(native(seed=0, num_layers=3))}
    )
    assert fingerprint(hugging_face("Llama")) == fingerprint(hugging_face("Llama"))
    stored = native(dtype=torch.float32)
    assert (
        len(
            {
                fingerprint(type(stored)(copy.deepcopy(stored.model).to(dtype)))
                for dtype in (torch.bfloat16, torch.float32, torch.float64)
            }
        )
        == 1
    )
    merged = copy.deepcopy(stored.model)
    merged.blocks[1].down.weight.data += (
        0.01 * torch.ones(32, 1) @ torch.ones(1, 48)
    )  # a fine-tuning that leaves the embeddings alone
    assert fingerprint(type(stored)(merged)) != fingerprint(stored)


def test_heads_of_another_dtype_are_refused():
    target = native(dtype=torch.bfloat16)
    with pytest.raises(
        ValueError,
        match=r"heads are torch.float32 on cpu, the target is torch.bfloat16 on cpu: .*heads.to\(",
    ):
        BlockwiseDrafter(target, Heads(32, 3), k=4)
    BlockwiseDrafter(target, Heads(32, 3).to(target.device, target.dtype), k=4)


def test_files_that_are_not_these_heads_are_refused(tmp_path):
    target, other = native(), native(seed=1)
    save_heads(tmp_path / "other", random_heads(other), other)
    with pytest.raises(ValueError, match="trained on another target"):
        BlockwiseDrafter.from_pretrained(target, tmp_path / "other")
    with pytest.raises(ValueError, match="must be a folder that holds heads.safetensors"):
        load_heads(tmp_path / "nowhere", target)
    save_file({"weight": torch.zeros(2)}, tmp_path / "else.safetensors")
    with pytest.raises(ValueError, match="not the weights of heads"):
        load_heads(tmp_path / "else.safetensors", target)
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_heads(tmp_path / "pickle.safetensors", target)


@pytest.mark.parametrize("k", [0, -1, 5, 2.0, "2", None])
def test_bad_block_sizes_are_refused(k):
    with pytest.raises(ValueError, match=r"k=.*must be a whole number in 1 … 4"):
        BlockwiseDrafter(native(), random_heads(native()), k)


def test_what_does_not_fit_is_refused():
    target = native()
    with pytest.raises(TypeError, match="target is a Transformer"):
        BlockwiseDrafter(target.model, random_heads(target))
    with pytest.raises(TypeError, match="target is a Transformer"):
        BlockwiseDrafter.from_pretrained(target.model)
    with pytest.raises(TypeError, match="heads is a str"):
        BlockwiseDrafter(target, "heads")
    with pytest.raises(ValueError, match="size 16, the target's have size 32"):
        BlockwiseDrafter(target, Heads(16, 3))
    with pytest.raises(ValueError, match="temperature=-1"):
        BlockwiseDrafter(target, random_heads(target), 2, draft_temperature=-1)


def test_the_session_reads_the_last_row_it_is_given():
    target, heads = native(), random_heads(native())
    rows = torch.randn(1, 6, target.hidden_size, dtype=target.dtype)
    drafter = BlockwiseDrafter(target, heads, 4)
    context = Context(
        torch.tensor(PROMPT),
        Scores(rows, {"final": rows}),
        Sampling(0),
        SeededRng(0),
        9,
        VOCABULARY,
    )
    drafted = drafter.start(context).propose(context).tree.tokens.tolist()
    assert drafted == target.head(heads(rows[0, -1])).argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [None, 0, 2.0])
def test_guesses_are_drawn_at_the_drafts_own_temperature(temperature):
    target, heads = native(), random_heads(native())
    rows = torch.randn(1, 6, target.hidden_size, dtype=target.dtype)
    context = Context(
        torch.tensor(PROMPT),
        Scores(rows, {"final": rows}),
        Sampling(1.0),
        SeededRng(0),
        9,
        VOCABULARY,
    )
    proposal = (
        BlockwiseDrafter(target, heads, 4, draft_temperature=temperature)
        .start(context)
        .propose(context)
    )
    logits = target.head(heads(rows[0, -1]))
    if temperature == 0:
        assert (
            proposal.probs is None and proposal.tree.tokens.tolist() == logits.argmax(-1).tolist()
        )
    else:
        assert torch.equal(proposal.probs, Sampling(temperature or 1.0)(logits))


# What ships ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return load_pair(dtype="float32")


def test_the_shipped_heads_are_small_and_belong_to_the_shipped_target(shipped):
    file = SHIPPED / FILE
    assert file.stat().st_size <= 3_000_000 and {path.suffix for path in SHIPPED.iterdir()} <= {
        ".safetensors",
        ".md",
        ".json",
    }
    drafter = BlockwiseDrafter.from_pretrained(shipped.target)
    assert drafter.k == 4 and drafter.heads.count == 7
    with pytest.raises(ValueError, match=r"k=9: must be a whole number in 1 … 8"):
        BlockwiseDrafter.from_pretrained(shipped.target, k=9)
    with pytest.raises(ValueError, match="trained on another target"):
        BlockwiseDrafter.from_pretrained(shipped.draft)


@pytest.mark.slow
def test_shipped_heads_write_the_greedy_text_on_every_evaluation_prompt(shipped):
    drafter, tested, accepted = BlockwiseDrafter.from_pretrained(shipped.target), 0, 0
    for prompt in (
        shipped.tokenizer.encode(item["text"])
        for items in evaluation_prompts().values()
        for item in items
    ):
        plain = generate(shipped.target, prompt, max_new_tokens=48).tokens
        out = generate(shipped.target, prompt, drafter, 48)
        if not torch.equal(out.tokens, plain):  # excused by a near tie alone
            at = int((out.tokens != plain).nonzero()[0])
            logits = shipped.target.score(
                [*prompt, *plain[:at].tolist()], shipped.target.new_cache(), last=True
            ).logits[0, -1]
            best = logits.topk(2)
            assert best.values[0] - best.values[1] < 1e-3 and {
                int(plain[at]),
                int(out.tokens[at]),
            } == set(best.indices.tolist())
        tested, accepted = tested + out.stats.tested, accepted + out.stats.accepted
    assert accepted / tested > 0.1  # heads that know nothing of the text: about 1 in 2048


def test_the_recording_is_of_the_shipped_target_and_every_head_learnt(shipped):
    recorded = results.load("blockwise").data
    assert recorded["target"] == fingerprint(shipped.target)
    runs = {(run["regime"], run["loss_kind"]): run for run in recorded["runs"]}
    assert set(runs) == {
        ("frozen", "random"),
        ("frozen", "mean"),
        ("distilled", "mean"),
        ("finetuned", "mean"),
    }
    for run in runs.values():
        assert all(
            after < before
            for after, before in zip(run["held_out"]["loss"][1:], recorded["untrained"]["loss"][1:])
        )
        assert run["blocks"]["k"] == [1, 2, 4, 6, 8] and run["blocks"]["all"][0] == 1.0
    for kind in ("random", "mean"):
        blocks = runs["frozen", kind]["blocks"]
        assert (
            set(blocks["identical_to_greedy"]) == {blocks["prompts"]}
            and runs["frozen", kind]["change"]["texts_changed"] == 0
        )
