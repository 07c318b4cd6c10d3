"""Medusa, beyond what the registry runs for every drafter: which head speaks for which token,
accepted branches, other shapes of tree, and the shipped heads.
"""

import json

import broken
import pytest
import torch
from caches import contents, watched_caches
from heads_zoo import random_heads, taught_heads
from models_zoo import FAMILIES, PROMPT, VOCABULARY, build, logits_of, native, shipped
from text_laws import NATIVE, SAMPLINGS, TINY, distance, exact_text_law, model_named, own_text_law

from specdec_lite import CausalLM, TokenTree, generate, stream
from specdec_lite.acceptance import speculative_sampling, typical
from specdec_lite.drafters import MedusaDrafter
from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.medusa import SHIPPED, load_report
from specdec_lite.engine.cache import Scores
from specdec_lite.loading.corpus import evaluation_prompts
from specdec_lite.loading.weights import fingerprint, save
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling, outcomes
from specdec_lite.training.losses import final_states, head_logits

# Three levels, unequal branches.
SPARSE = TokenTree([0, 1, 0, 2, 1, 0, 0], [-1, -1, 0, -1, 0, 1, 2])
WIDE = TokenTree.cartesian([range(6), range(3)])
FIVE = ["native", "Llama", "GPT2", "Gemma2", "Qwen3"]


# Which head speaks for which token --------------------------------------------------------------


class Counting(CausalLM):
    """A target that counts: after token t comes t + 1, and the hidden state is t itself, one-hot."""

    def __init__(self, size=24):
        self.vocab_size = self.hidden_size = size
        self.num_layers = 1
        self.max_positions = 10**6
        self.device = torch.device("cpu")
        self.dtype = torch.float64
        self.shift = torch.eye(size, dtype=torch.float64).roll(1, dims=1)

    def new_cache(self, batch=1, capacity=0):
        return type("Length", (), {"length": 0, "keep": lambda self, indices: None})()

    def head(self, hidden):
        return hidden @ self.shift

    def score(self, tokens, cache, tree=None, hidden_layers=(), last=False, **options):
        states = torch.eye(self.vocab_size, dtype=torch.float64)[torch.as_tensor(tokens)][None]
        return Scores(self.head(states), dict.fromkeys(hidden_layers, states))


def counting_heads(target, shifts):
    """Head k turns the one-hot state of t into that of t + shifts[k], which the target's own head
    then shifts by one.
    """
    heads = Heads(target.hidden_size, len(shifts)).double().requires_grad_(False)
    heads.up.copy_(torch.eye(target.hidden_size).expand_as(heads.up))
    for k, shift in enumerate(shifts):
        heads.down[k] = 9 * torch.eye(target.hidden_size).roll(shift, dims=1)
    return heads


def test_head_k_speaks_for_the_token_k_places_after_the_root():
    """With heads that are right by construction everything is accepted; one place off, nothing is."""
    target = Counting()

    def counted(*shifts):
        heads = counting_heads(target, shifts)
        drafter = MedusaDrafter(target, heads, TokenTree.chain([0] * 3))
        return generate(target, [3, 4, 5], drafter, 16)

    right = counted(1, 2, 3)
    assert right.tokens.tolist() == [(6 + i) % 24 for i in range(16)]
    assert right.stats.acceptance_rate == 1 and right.stats.target_passes == 4
    for off in (counted(0, 1, 2), counted(2, 3, 4)):
        assert torch.equal(off.tokens, right.tokens) and off.stats.accepted == 0


class Watched(MedusaDrafter):
    """Notes (committed tokens, the logits its heads gave) of every round."""

    def start(self, context):
        self.seen = []
        session = super().start(context)
        propose = session.propose

        def noted(context):
            if context.scores is not None:
                hidden = context.scores.hidden["final"][0, -1]
                self.seen.append((context.tokens.tolist(), self.logits(hidden)))
            return propose(context)

        session.propose = noted
        return session


@pytest.mark.parametrize("name", NATIVE)
def test_drafting_reads_what_training_taught(name):
    """The training forward over the whole text, at the row of t_{m-2}, equals the session's logits."""
    target = model_named(name)
    heads = taught_heads("native") if name == "native" else random_heads(target)
    drafter = Watched(target, heads, SPARSE)
    text = torch.tensor([PROMPT + generate(target, PROMPT, drafter, 30).tokens.tolist()])
    if name == "native":
        hidden = final_states(target.model, text)
    else:
        scores = target.score(text, target.new_cache(), hidden_layers=("final",))
        hidden = scores.hidden["final"]
    trained = [head_logits(target.model, heads, hidden, index)[0] for index in range(3)]
    for committed, logits in drafter.seen:
        rows = torch.stack([of_head[len(committed) - 2] for of_head in trained])
        assert committed == text[0, : len(committed)].tolist()
        assert (rows - logits).abs().max() < 1e-5
    assert len({len(committed) for committed, _ in drafter.seen}) > 5


def test_the_tree_holds_the_likeliest_guesses_of_its_heads():
    target = native()
    drafter = Watched(target, random_heads(target), SPARSE)
    steps = list(stream(target, PROMPT, drafter, 20))
    for step, (_, logits) in zip(steps, drafter.seen):
        order = logits.argsort(-1, descending=True)
        if len(step.tree) == len(SPARSE):
            assert step.tree.parents == SPARSE.parents
            assert step.tree.tokens.equal(order[SPARSE.depth, SPARSE.tokens])
    assert len(steps[0].tree) == len(SPARSE)
    assert [step.draft_passes for step in steps] == [len(step.tree) > 0 for step in steps]


# Greedy: accepted branches, and one pass for a tree ---------------------------------------------


@pytest.mark.parametrize("name", [*NATIVE, *FAMILIES])
def test_branches_that_are_accepted_leave_greedy_text_and_cache_as_they_are(name, monkeypatch):
    target, heads = model_named(name), taught_heads(name)
    plain = generate(target, PROMPT, max_new_tokens=36).tokens
    made, committed, branches = watched_caches(target, monkeypatch), list(PROMPT), set()
    for step in stream(target, PROMPT, MedusaDrafter(target, heads, SPARSE), 36):
        committed += step.tokens
        branches.add(step.path)
        assert made[0].length == len(committed) - 1
    assert committed[len(PROMPT) :] == plain.tolist() and max(map(len, branches)) >= 2
    fresh = target.new_cache()
    target.score(committed[:-1], fresh)
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(contents(made[0]), contents(fresh)))
    out = generate(target, PROMPT, MedusaDrafter(target, random_heads(target), WIDE), 36)
    assert torch.equal(out.tokens, plain) and out.stats.accepted
    assert any(step.kind == "recovered" for step in out.steps)


def test_greedy_text_under_typical_acceptance_too():
    target = native()
    drafter = MedusaDrafter(target, taught_heads("native"), SPARSE)
    out = generate(target, PROMPT, drafter, 36, rule=typical())
    assert torch.equal(out.tokens, generate(target, PROMPT, max_new_tokens=36).tokens)
    assert out.stats.accepted


@pytest.mark.parametrize("name", FIVE)
def test_one_tree_pass_in_float32_equals_a_pass_per_path_and_keeps_the_right_rows(name):
    in_float32 = name == "native"
    target = native(dtype=torch.float32) if in_float32 else CausalLM(build(name, FAMILIES[name]))
    best = TokenTree.best([[0.5, 0.2, 0.1]] * 3, 16)
    tree = TokenTree(best.tokens + 20, best.parents)
    for path in [(), *tree.paths()]:
        cache, fresh = target.new_cache(), target.new_cache()
        target.score(PROMPT[:-1], cache)
        logits = target.score([PROMPT[-1], *tree.tokens.tolist()], cache, tree).logits[0]
        text = PROMPT + tree.tokens[list(path)].tolist()
        alone = logits_of(target, text)[len(PROMPT) - 1 :]
        rows = (0, *(node + 1 for node in path))
        assert (logits[list(rows)] - alone).abs().max() < 1e-4
        cache.keep(rows)
        target.score(text, fresh)
        assert cache.length == fresh.length
        assert all((a - b).abs().max() < 1e-4 for a, b in zip(contents(cache), contents(fresh)))


def test_a_mask_of_each_node_alone_is_seen_by_that_check(monkeypatch):
    target, tree = native(), TokenTree(WIDE.tokens + 20, WIDE.parents)
    fed = [*PROMPT, *tree.tokens.tolist()]
    right = target.score(fed, target.new_cache(), tree).logits
    alone = property(lambda self: torch.eye(len(self), dtype=torch.bool))
    monkeypatch.setattr(TokenTree, "mask", alone)
    assert (target.score(fed, target.new_cache(), tree).logits - right).abs().max() > 0.1


# Sampling: the law is the target's, and its broken relatives' is not ----------------------------

TWO_LEVELS = TokenTree([0, 1, 0, 1], [-1, -1, 0, 0])
WHOLE = TokenTree.cartesian([range(2), range(2)])


def tiny(seed, size=4):
    """A tiny target and heads for it."""
    target = native(seed=5, vocab_size=size, **TINY)
    return target, random_heads(target, 2, seed)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("shape", [WHOLE, TokenTree.chain([0, 0])], ids=["dense", "chain"])
def test_the_exact_law_of_text_sampled_with_other_shapes(shape, sampling):
    target, heads = tiny(0)
    law = exact_text_law(target, MedusaDrafter(target, heads, shape), sampling, 3)
    assert distance(law, own_text_law(target, sampling, 3)) < 1e-12


class Reported(MedusaDrafter):
    """Reports rows of probs with its tokens: one-hot ones, which is right, or the heads' own soft
    ones, which is a published bug.
    """

    soft = False

    def start(self, context):
        session = super().start(context)
        propose = session.propose

        def report(context):
            proposal = propose(context)
            if not len(proposal.tree):
                return proposal
            rows = torch.eye(self.target.vocab_size, dtype=torch.float64)[proposal.tree.tokens]
            if self.soft:
                laws = self.logits(context.scores.hidden["final"][0, -1]).softmax(-1)
                rows = laws[proposal.tree.depth]
            return Proposal(proposal.tree, rows)

        session.propose = report
        return session


class Soft(Reported):
    soft = True


def worst(kind, rule=None):
    """The largest distance from the target's law over a few heads."""
    apart = []
    for seed in range(3):
        target, heads = tiny(seed, 3)
        law = exact_text_law(target, kind(target, heads, TWO_LEVELS), Sampling(), 3, rule)
        apart.append(distance(law, own_text_law(target, Sampling(), 3)))
    return max(apart)


def test_chosen_children_may_be_reported_as_one_hot_rows():
    assert worst(Reported) < 1e-12


def test_top_k_children_with_a_soft_q_are_caught():
    assert worst(Soft) > 0.05


def longest_of_independent_paths(proposal, target_probs, rng):
    rule = broken.longest_of_independent_paths if len(proposal.tree) else speculative_sampling
    return rule(proposal, target_probs, rng)


def test_independent_paths_of_which_the_longest_is_kept_are_caught():
    assert worst(Reported, longest_of_independent_paths) > 0.02


def test_typical_acceptance_is_caught_and_says_so_itself():
    assert worst(MedusaDrafter, typical()) > 0.05 and not typical().lossless


def test_the_first_level_is_accepted_with_the_mass_of_its_children():
    target, heads = tiny(1, 7)
    drafter = MedusaDrafter(target, heads, TokenTree([0, 1], [-1, -1]))
    first = list(outcomes(lambda rng: next(stream(target, [1, 2], drafter, 3, 1.0, rng=rng))))
    accepted = sum(weight for step, weight in first if step.path)
    assert accepted == pytest.approx(sum(first[0][0].p), abs=1e-12) and 0.02 < accepted < 0.98


# What it takes and refuses ----------------------------------------------------------------------


def test_drafts_fit_into_what_may_still_be_emitted_and_a_prompt_of_one_token_waits_a_round():
    target = native()
    drafter = MedusaDrafter(target, random_heads(target), SPARSE)
    for wanted in range(1, 6):
        first = next(stream(target, PROMPT, drafter, wanted))
        assert first.tree.parents == SPARSE.prune(SPARSE.above(wanted - 1))[0].parents
    steps = list(stream(target, PROMPT[:1], drafter, 8))
    assert len(steps[0].tree) == 0 and len(steps[1].tree) > 0
    nothing = MedusaDrafter(target, random_heads(target), TokenTree([], []))
    empty = generate(target, PROMPT, nothing, 8)
    assert empty.stats.target_passes == 8 and empty.stats.drafted == 0


@pytest.mark.parametrize(
    "tree, message",
    [
        (TokenTree.chain([0] * 4), "tree has 4 levels: there are 3 heads"),
        (TokenTree([VOCABULARY], [-1]), f"must be in 0 … {VOCABULARY - 1}"),
        (TokenTree([-1], [-1]), "tree holds ranks -1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(tree, message):
    with pytest.raises(ValueError, match=message):
        MedusaDrafter(native(), random_heads(native()), tree)


def test_other_objects_are_refused():
    target = native()
    for arguments, message in (
        ((target.model, random_heads(target), SPARSE), "target is a Transformer"),
        ((target, target, SPARSE), "heads is a CausalLM"),
        ((target, random_heads(target), [0, 0]), "tree is a list: must be a TokenTree of ranks"),
    ):
        with pytest.raises(TypeError, match=message):
            MedusaDrafter(*arguments)
    with pytest.raises(TypeError, match="target is a str"):
        MedusaDrafter.from_pretrained("target")
    with pytest.raises(
        ValueError, match="heads read hidden states of size 32, the target's have size 16"
    ):
        MedusaDrafter(native(**TINY), random_heads(target), SPARSE)


def test_heads_from_a_folder(tmp_path):
    target = native()
    heads = random_heads(target)
    save(tmp_path, heads, target, heads.config)
    with pytest.raises(ValueError, match="must be a folder that holds report.json"):
        MedusaDrafter.from_pretrained(target, tmp_path)
    (tmp_path / "report.json").write_text(
        json.dumps({"tree": {"tokens": [0, 1, 0], "parents": [-1, -1, 0]}})
    )
    assert MedusaDrafter.from_pretrained(target, tmp_path).tree == TokenTree([0, 1, 0], [-1, -1, 0])
    assert MedusaDrafter.from_pretrained(target, str(tmp_path), TokenTree.chain([0])).levels == 1
    with pytest.raises(ValueError, match="trained on another target"):
        MedusaDrafter.from_pretrained(native(seed=3), tmp_path)


# The shipped heads ------------------------------------------------------------------------------


def test_the_shipped_heads_are_small_and_belong_to_the_shipped_target():
    report = load_report()
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 8_000_000
    assert report["target"] == fingerprint(shipped().target), (
        "train them again: python -m specdec_lite.training medusa"
    )
    assert MedusaDrafter.from_pretrained(shipped().target).tree == TokenTree.best(
        report["accuracies"]["greedy"], len(report["tree"]["tokens"])
    )


def test_the_shipped_tree_pays_and_no_more_than_its_guesses_do():
    target = shipped().target
    ids = [shipped().tokenizer.encode(items[0]["text"]) for items in evaluation_prompts().values()]
    sparse = MedusaDrafter.from_pretrained(target)
    chain = MedusaDrafter(target, sparse.heads, TokenTree.chain([0] * sparse.heads.count))
    tau = {}
    for name, drafter in (("sparse", sparse), ("chain", chain)):
        runs = [generate(target, prompt, drafter, 64).stats for prompt in ids]
        tau[name] = sum(s.tokens for s in runs) / sum(s.target_passes for s in runs)
    assert tau["sparse"] > tau["chain"] > 1.05


@pytest.mark.slow
def test_greedy_text_on_every_evaluation_prompt():
    """One pass over prompt and text: each token is the argmax after what precedes it, but for the
    rounding of float32.
    """
    target, drafter = shipped().target, MedusaDrafter.from_pretrained(shipped().target)
    for item in (item for items in evaluation_prompts().values() for item in items):
        prompt = shipped().tokenizer.encode(item["text"])
        tokens = generate(target, prompt, drafter, 32).tokens
        rows = target.score([*prompt, *tokens[:-1].tolist()], target.new_cache()).logits[
            0, len(prompt) - 1 :
        ]
        short = rows.amax(-1) - rows.gather(-1, tokens[:, None])[:, 0]
        assert len(rows) == 32 and bool((short <= 1e-5 * rows.abs().amax(-1)).all())
