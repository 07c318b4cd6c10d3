"""What rules promise, for every rule × every draft that it takes: the distribution, exactly, by
enumeration; the bookkeeping of every verdict; the settings. Each published bug is a negative control.
"""

import copy
import math
import pickle
from functools import partial

import broken
import pytest
import torch
from broken import backwards, draw_tree, grow
from hypothesis import given, settings, strategies as st
from text_laws import bias, random_law

from specdec_lite import acceptance as a, theory
from specdec_lite.acceptance import (
    NOTHING,
    Proposal,
    block_distribution,
    block_verification,
    draw_chain,
    exact_match,
    k_seq,
    output_distribution,
    sample_and_match,
    speculative_sampling,
    traversal_verification,
)
from specdec_lite.drafters.trees import (
    Family,
    drawn_then_chosen,
    merge,
    with_replacement,
    without_replacement,
)
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.tree import TokenTree

EXACT = 1e-12
row = partial(torch.tensor, dtype=torch.float64)
P, Q = row([0.5, 0.3, 0.2]), row([0.3, 0.5, 0.2])


def two_drafts(law, gamma, rng):
    """Return two merged chains of different models, as in SpecInfer."""
    other = lambda prefix: (law(prefix) ** 2 + 0.1) / (law(prefix) ** 2 + 0.1).sum()
    return merge([draw_chain(law, gamma, rng), draw_chain(other, gamma, rng)])[0]


def uneven(law, gamma, rng):
    """Return a drawn chain of γ tokens, and beside its first token one more draw."""
    chain = draw_chain(law, gamma, rng)
    tokens, parents = [*chain.tree.tokens.tolist(), rng.draw(law(()))], [*chain.tree.parents, -1]
    return Proposal(TokenTree(tokens, parents), torch.cat((chain.probs, law(())[None])))


CHAINS = {"a chain": draw_chain, "a chosen chain": grow(broken.chosen(1))}
INDEPENDENT = {
    "with replacement": draw_tree(with_replacement, 2),
    "with replacement, not merged": grow(broken.with_replacement(2)),
}
TREES = INDEPENDENT | {
    "without replacement": draw_tree(without_replacement, 2),
    "all tokens without replacement": grow(broken.without_replacement(3)),
    "chosen": draw_tree(lambda q, *_: Family(*q.topk(2)[::-1], [None] * 2), 2),
    "drawn, then chosen": draw_tree(drawn_then_chosen, 2),
    "chosen, then drawn": draw_tree(backwards(drawn_then_chosen), 2),
    "two drafts merged": two_drafts,
    "uneven": uneven,
}
LOSSLESS = {
    speculative_sampling: CHAINS | TREES,
    sample_and_match: CHAINS | TREES,
    traversal_verification: CHAINS | TREES,
    block_verification: CHAINS,
    k_seq(2): CHAINS | INDEPENDENT,
    k_seq(1): CHAINS,
}
FROM_BELOW = (block_verification, traversal_verification)


def well_formed(rule):
    """Return a rule after which the verdict's path, token, kind and tests are checked."""

    def verify(proposal, target_probs, rng):
        verdict = rule(proposal, target_probs, rng)
        path, tests = verdict.path, verdict.tests
        last = path[-1] if path else -1
        draws = [proposal.draws.get(node, ()) for node in (-1, *path)]
        assert path == proposal.tree.path(last) and target_probs[last + 1][verdict.token] > 0
        merged = len({node for node, _ in sum(proposal.draws.values(), ())}) < len(
            sum(proposal.draws.values(), ())
        )
        if rule not in FROM_BELOW or not merged:  # below a merged draw traversal may not go
            assert verdict.kind == ("recovered" if draws[-1] else "bonus" if path else "sampled")
        if rule in FROM_BELOW:
            assert len(tests) == proposal.tree.levels and verdict.tested == sum(tests)
            assert rule is traversal_verification or set(tests) <= {1}
        else:
            reached = [draws[level][count - 1][0] for level, count in enumerate(tests)]
            assert reached[: len(path)] == [*path] and min(tests, default=1) > 0
            assert [*tests[len(path) :]] == [len(draws[-1])] * bool(draws[-1])
        return verdict

    return verify


def pairs(seed, vocabulary):
    """Yield (target, draft): two random ones, two with impossible tokens, and nearly the same two."""
    target = random_law(seed, vocabulary)

    def nearly(prefix):
        """A draft that is the target, run in other batches: residuals of 1e-18 and less."""
        q = target(prefix).clone()
        q[int(q.argmin())] *= 1 + 2**-52 * (seed % 4 - len(prefix))
        return q

    yield target, random_law(seed + 9, vocabulary)
    yield random_law(seed, vocabulary, zeros=True), random_law(seed + 9, vocabulary, zeros=True)
    yield target, target
    yield target, nearly


LONG = {("with replacement", 3), ("with replacement, not merged", 3)}
LONG |= {("all tokens without replacement", 2)}
"""Ways to draft and numbers of levels that take minutes where they have the mark `registry`."""
CASES = [
    pytest.param(
        *(rule, way, gamma, vocabulary),
        id=f"{rule.name} {way} {gamma} {vocabulary}",
        marks=pytest.mark.weekly if marks and (way, gamma) in LONG else marks,
    )
    for rule, ways in LOSSLESS.items()
    for way in ways
    for gamma, vocabulary, marks in (
        ((1, 5, ()), (2, 3, ()), (3, 2, ()), (3, 5, pytest.mark.registry))
        if way in CHAINS
        else ((1, 3, ()), (2, 2, ()), (2, 3, pytest.mark.registry), (3, 2, pytest.mark.registry))
    )
    if (way, gamma, vocabulary) != ("all tokens without replacement", 3, 2)
]


@pytest.mark.parametrize("rule, way, gamma, vocabulary", CASES)
def test_a_lossless_rule_keeps_the_targets_distribution(rule, way, gamma, vocabulary):
    draft_with = LOSSLESS[rule][way]
    for target, draft in pairs(3, vocabulary):
        assert bias(target, draft, well_formed(rule), gamma, draft_with) < EXACT


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.2, 1.0, 3.0]), st.booleans())
@settings(max_examples=12, deadline=None)
def test_any_two_distributions_at_any_temperature(seed, temperature, zeros):
    at = lambda law: lambda prefix: Sampling(temperature)(law(prefix).log())
    target, draft = at(random_law(seed, 2, zeros)), at(random_law(seed + 1, 2))
    for rule, ways in LOSSLESS.items():
        assert bias(target, draft, rule, 2, draw_chain) < EXACT
        if "without replacement" in ways:
            assert bias(target, draft, rule, 2, ways["without replacement"]) < EXACT


# Lossy rules, and the rules of the longest path ---------------------------------------------------

RATES = {
    speculative_sampling: theory.acceptance_rate,
    sample_and_match: lambda p, q: p @ q,
    a.rejection_sampling: lambda p, q: (q / p)[p > 0].min(),
}


@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans(), st.floats(0.05, 1))
@settings(max_examples=30, deadline=None)
def test_one_token_is_accepted_as_its_formula_states(seed, vocabulary, zeros, lenience):
    p, q = random_law(seed, vocabulary, zeros)(()), random_law(seed + 1, vocabulary)(())
    for rule, rate in RATES.items():  # q covers p, so rejection sampling is lossless too
        law = block_distribution(lambda _: p, lambda _: q, well_formed(rule), 1)
        assert law.mean_length - 1 == pytest.approx(rate(p, q).item(), abs=EXACT)
        assert (output_distribution(p, q, rule) - p).abs().max() < EXACT
    apart = []
    for rule in (a.lenient(lenience), a.lenient_scaled(lenience)):
        emitted = output_distribution(p, q, rule)
        assert (emitted <= p / lenience + EXACT).all()
        apart.append((emitted - p).abs().sum().item() / 2)
    # The first reading is as close as any rule that accepts this many.
    most = theory.lenient_acceptance_rate(p, q, lenience).item()
    least = max(0, most - torch.minimum(p, q).sum().item())
    assert apart[0] == pytest.approx(least, abs=EXACT) and apart[0] <= apart[1] + EXACT


def test_lossy_rules_by_hand():
    """l = .8 keeps min(q, p/l) = (.3, .375, .2); the missing .125 comes from p − q = (.2, 0, 0), or
    from p − .8·q = (.26, 0, .04). Rejection sampling is biased where q leaves out a token of p.
    """
    emitted = [
        output_distribution(P, Q, rule(0.8)).tolist() for rule in (a.lenient, a.lenient_scaled)
    ]
    assert emitted[0] == pytest.approx([0.425, 0.375, 0.2])
    assert emitted[1] == pytest.approx([0.3 + 0.125 * 26 / 30, 0.375, 0.2 + 0.125 * 4 / 30])
    two = output_distribution([0.5, 0.5, 0], [0.2, 0, 0.8], a.rejection_sampling)
    assert two.tolist() != pytest.approx([0.5, 0.5, 0])
    assert output_distribution([0, 1.0], [1.0, 0], a.rejection_sampling).tolist() == [0, 1]


NAMES = {
    "speculative_sampling": speculative_sampling,
    "sample_and_match": sample_and_match,
    "block_verification": block_verification,
    "traversal_verification": traversal_verification,
    "exact_match": exact_match,
    "rejection_sampling": a.rejection_sampling,
    "k_seq(2)": k_seq(2),
    "lenient(1)": a.lenient(1),
    "lenient(0.6)": a.lenient(lenience=0.6),
    "lenient_scaled(1)": a.lenient_scaled(1),
    "lenient_scaled(0.6)": a.lenient_scaled(0.6),
    "lenient_argmax(0.5)": a.lenient_argmax(0.5),
    "typical(0.09, 0.3)": a.typical(),
    "typical(0.2, 0.4)": a.typical(0.2, delta=0.4),
    "typical(0.0, 0.0)": a.typical(0.0, 0.0),
    "top_k_match(2)": a.top_k_match(2),
    "distance_match(1)": a.distance_match(1),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_named_tagged_pickled_and_copied(name):
    """The tag is what enumeration finds; exact match refuses the rows of this enumeration."""
    rule = NAMES[name]
    assert rule.name == name and rule.chains_only == (rule is block_verification)
    laws = [(random_law(s), random_law(s + 9, 3, zeros)) for s in range(3) for zeros in (0, 1)]
    if rule is not exact_match:
        worst = max(bias(target, draft, well_formed(rule), 1) for target, draft in laws)
        assert rule.lossless is (worst < EXACT)
    assert exact_match.lossless is True and getattr(rule, "independent_draws", 2) == 2
    p = torch.stack((Q, P)) if rule is not exact_match else torch.eye(3)[:2]
    proposal, verdict = Proposal(TokenTree.chain([1]), p[1:]), None
    for again in (rule, pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert verdict in (None, again(proposal, p, SeededRng(1)))
        verdict = again(proposal, p, SeededRng(1))
        assert (again.name, again.lossless) == (name, rule.lossless)
        assert again is rule or repr(again) == name
    empty = rule(NOTHING, torch.eye(5)[[2]], SeededRng(0))
    assert (empty.path, empty.token, empty.kind, empty.tests) == ((), 2, "sampled", ())


def entropy(p):
    return -sum(x * math.log(x) for x in p if x)


typical = lambda epsilon, delta: lambda p, x: p[x] > min(epsilon, delta * math.exp(-entropy(p)))
ranked = lambda p: sorted(range(len(p)), key=lambda x: (-p[x], x))
PASSES = [
    (a.typical(), typical(0.09, 0.3)),
    (a.typical(0.3, 0.35), typical(0.3, 0.35)),
    (a.typical(0.9, 0.9), typical(0.9, 0.9)),
    (a.typical(0.0, 0.0), typical(0, 0)),
    (a.typical(0.2, math.inf), typical(0.2, math.inf)),
    (a.typical(0.25, 99), typical(0.25, 99)),
    (a.lenient_argmax(0.5), lambda p, x: p[x] >= 0.5 * max(p)),
    (a.lenient_argmax(0.8), lambda p, x: p[x] >= 0.8 * max(p)),
    (a.lenient_argmax(1.0), lambda p, x: p[x] == max(p)),
    (a.top_k_match(1), lambda p, x: x == ranked(p)[0]),
    (a.top_k_match(2), lambda p, x: p[x] > 0 and x in ranked(p)[:2]),
    (a.top_k_match(4), lambda p, x: p[x] > 0),
    (a.distance_match(0), lambda p, x: x == ranked(p)[0]),
    (a.distance_match(1), lambda p, x: abs(x - ranked(p)[0]) <= 1),
    (a.distance_match(0.5, lambda x, y: (x != y).double()), lambda p, x: x == ranked(p)[0]),
    (a.distance_match(1, lambda x, y: (x != y).double()), lambda p, x: True),
    (exact_match, lambda p, x: p[x] == 1),
]


@pytest.mark.parametrize("rule, passes", PASSES, ids=[rule.name for rule, _ in PASSES])
def test_the_longest_path_that_passes_is_kept(rule, passes):
    """On random trees, rows with many ties and some candidates: a search over all nodes. Of equally
    long paths the likelier wins, then the first. At temperature 0 other rules agree.
    """
    generator = torch.Generator().manual_seed(1)
    number = lambda low, high: int(torch.randint(low, high, (), generator=generator))
    for _ in range(60):
        parents = [number(-1, node) for node in range(number(1, 7))]
        tree = TokenTree.merge([TokenTree([number(0, 4) for _ in parents], parents)])[0]
        counts = torch.randint(0, 4, (len(tree) + 1, 4), generator=generator).double()
        counts[counts.sum(-1) == 0] = 1
        rows = counts / counts.sum(-1, keepdim=True)
        if rule is exact_match:
            rows = torch.eye(4, dtype=torch.float64)[rows.argmax(-1)]
        kept = {node for node in range(len(tree)) if number(0, 5)}
        proposal = Proposal(tree, candidates=frozenset(kept) if number(0, 2) else None)
        best, best_key = (), (0, 0.0)
        for node in range(len(tree)):
            path, prob, is_good = tree.path(node), 1.0, True
            for above, here in zip((-1, *path), path):
                p, x = rows[above + 1].tolist(), int(tree.tokens[here])
                is_good &= passes(p, x) and (proposal.candidates is None or here in kept)
                prob *= p[x]
            if is_good and (len(path), prob) > best_key:
                best, best_key = path, (len(path), prob)
        verdict = well_formed(rule)(proposal, rows, SeededRng(0))
        assert verdict.path == best
        assert verdict.token == int(rows[(best or (-1,))[-1] + 1].argmax())
        for other in (speculative_sampling, sample_and_match) if rule is exact_match else ():
            assert well_formed(other)(proposal, rows, SeededRng(0)) == verdict


# How block rules compare, and what they count -----------------------------------------------------


def test_block_verification_beats_token_by_token_in_the_papers_example():
    target, draft = lambda _: row([1 / 3, 2 / 3]), lambda _: row([2 / 3, 1 / 3])
    for rule, drafted in ((speculative_sampling, 10 / 9), (block_verification, 11 / 9)):
        law = block_distribution(target, draft, rule, 2)
        assert law.mean_length - 1 == pytest.approx(drafted, abs=EXACT)


@given(seed=st.integers(0, 10**6), gamma=st.integers(1, 3), zeros=st.booleans())
@settings(max_examples=15, deadline=None)
def test_block_verification_never_accepts_fewer_and_traversal_is_the_same(seed, gamma, zeros):
    vocabulary = 2 if gamma == 3 else 3
    target, draft = random_law(seed, vocabulary, zeros), random_law(seed + 1, vocabulary)
    walk, block, traversal = (
        block_distribution(target, draft, rule, gamma)
        for rule in (speculative_sampling, block_verification, traversal_verification)
    )
    assert block.mean_length >= walk.mean_length - EXACT
    assert gamma > 1 or block.mean_length == pytest.approx(walk.mean_length, abs=EXACT)
    for text in {*block.blocks, *traversal.blocks}:
        weights = [law.blocks.get(text, 0.0) for law in (block, traversal)]
        assert weights[0] == pytest.approx(weights[1], abs=EXACT)


def test_traversal_counts_the_draws_it_looks_at():
    """Both siblings and the child of the first are rejected, from the leaves up."""
    rows = torch.eye(4).double()
    proposal = Proposal(TokenTree([0, 1, 2], [-1, 0, -1]))
    verdict = traversal_verification(proposal, rows[[3, 0, 0, 0]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind) == ((), 3, "recovered")
    assert verdict.tests == (2, 1)
    verdict = traversal_verification(proposal, rows[[0, 1, 3, 0]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind) == ((0, 1), 3, "bonus")
    assert verdict.tests == (1, 1)


@pytest.mark.parametrize("leftover", [1e-18, 5e-324])
def test_block_verification_of_rows_that_differ_by_less_than_rounding(leftover):
    q, rows = row([[0.5, 0.5], [0, 1]]), row([[0.5, 0.5], [leftover, 1], [0.25, 0.75]])
    proposal = Proposal(TokenTree.chain([0, 1]), q)
    verdicts = [block_verification(proposal, rows, SeededRng(seed)) for seed in range(20)]
    assert {verdict.path for verdict in verdicts} == {(0, 1)}
    assert {verdict.token for verdict in verdicts} == {0, 1}


# Negative controls: each is caught by the very same measure, and how far it is off is stated ------

SHARPER = lambda q: q**2 / (q**2).sum()
ONLY_BEST_TWO = lambda q: Sampling(top_k=2)(q.log())


def one_uniform_for_all_tests(proposal, target_probs, rng):
    """Use one u for the whole block: what a test reveals about u biases the next test."""

    class Stale:
        below, draw = 1.0, rng.draw

        def flip(self, prob):
            kept = prob >= self.below or rng.flip(prob / self.below)
            self.below = min(self.below, prob)
            return kept

    return speculative_sampling(proposal, target_probs, Stale())


soft = lambda count: grow(broken.chosen(count, soft=True))
drawn_twice = grow(broken.with_replacement(2))
dishonest = grow(broken.without_replacement(2, honest=False))
reordered = grow(broken.without_replacement(2, ordered=True))
drops = broken.stops_at_unsure(0.4, keep_it=False)
MARGINS = {
    "recovered from p": (broken.recovered_from_p, draw_chain, 2, 0.05),
    "one uniform for all tests": (one_uniform_for_all_tests, draw_chain, 2, 0.02),
    "residual not carried": (broken.residual_not_carried, drawn_twice, 1, 0.02),
    "bonus by argmax": (broken.bonus_by_argmax, draw_chain, 2, 0.05),
    "soft q for an argmax draft": (speculative_sampling, soft(1), 1, 0.05),
    "top-k children with a soft q": (speculative_sampling, soft(2), 1, 0.05),
    "q before temperature": (speculative_sampling, broken.adjusted_too_late(SHARPER), 1, 0.02),
    "q before top-k": (speculative_sampling, broken.adjusted_too_late(ONLY_BEST_TWO), 1, 0.02),
    "a drawn token dropped after a look at its q": (speculative_sampling, drops, 2, 0.02),
    "block verification with an early break": (broken.block_with_early_break, draw_chain, 2, 0.01),
    "independent paths, longest wins": (broken.longest_of_independent_paths, drawn_twice, 1, 0.05),
    "equal draws merged into one draw": (
        speculative_sampling,
        grow(broken.with_replacement(3), merge="draws"),
        1,
        0.01,
    ),
    "without replacement, the original q": (speculative_sampling, dishonest, 1, 0.02),
    "drawn siblings sorted by q": (speculative_sampling, grow(broken.sorted_by_q(2)), 1, 0.02),
    "drawn without replacement, then sorted": (speculative_sampling, reordered, 1, 0.02),
    "K-SEQ with rho = 1 and a clamp": (
        broken.k_seq_clamped(1.0),
        INDEPENDENT["with replacement"],
        1,
        0.02,
    ),
    "an ancestor's weight computed again": (broken.traversal(again=True), drawn_twice, 2, 0.01),
    "rejected siblings forgotten": (broken.traversal(independent=True), drawn_twice, 2, 0.02),
}


@pytest.mark.parametrize("rule, propose, gamma, margin", MARGINS.values(), ids=MARGINS)
def test_broken_variants_are_caught(rule, propose, gamma, margin):
    worst = max(bias(random_law(s), random_law(s + 9), rule, gamma, propose) for s in range(3))
    assert worst > margin


def test_the_controls_own_frames_are_right_where_nothing_is_broken():
    laws = random_law(0), random_law(9)
    assert bias(*laws, broken.traversal(), 2, drawn_twice) < EXACT
    stops = broken.stops_at_unsure(0.4, keep_it=True)
    assert bias(*laws, speculative_sampling, 2, stops) < EXACT
    p, q = (law(()) for law in laws)
    rule = broken.k_seq_clamped(a.multi.plan(p, q, 2)[0])
    assert bias(lambda _: p, lambda _: q, rule, 1, INDEPENDENT["with replacement"]) < 1e-9


def test_accepting_where_q_is_zero_is_biased_and_refused():
    draws_all_scores_few = grow(lambda q, rng: [(rng.draw(q), ONLY_BEST_TWO(q))])
    assert bias(random_law(0), random_law(9), broken.accepts_q_zero, 1, draws_all_scores_few) > 0.01
    for rule in (speculative_sampling, a.lenient(1)):
        with pytest.raises(ValueError, match="draft probability 0"):
            bias(random_law(0), random_law(9), rule, 1, draws_all_scores_few)


# Bad input ----------------------------------------------------------------------------------------

CHAIN, TWO = TokenTree.chain([0]), TokenTree.chain([1, 2])
third = torch.full((2, 3), 1 / 3)
hot = torch.eye(3, dtype=torch.float64)
on = lambda rule, proposal, rows: lambda: rule(proposal, rows, SeededRng(0))
run = lambda rule, way: lambda: block_distribution(random_law(0), random_law(9), rule, 1, way)
BAD = [
    (run(k_seq(2), TREES["without replacement"]), "rows at a node"),
    (run(k_seq(2), TREES["chosen"]), "rows at a node"),
    (run(k_seq(2), two_drafts), "rows at a node"),
    (run(k_seq(1), TREES["with replacement"]), r"k_seq\(1\)"),
    (on(exact_match, Proposal(CHAIN), torch.stack([P, P])), "one-hot"),
    (on(exact_match, NOTHING, P[None]), "one-hot"),
    (on(exact_match, Proposal(CHAIN), torch.stack([hot[0], P])), "one-hot"),
    *(
        (on(block_verification, proposal, torch.stack([P, P, P])), "chains")
        for proposal in (
            Proposal(TokenTree([0, 1], [-1, -1]), torch.stack([P, P])),
            Proposal(CHAIN, torch.stack([P, P]), nodes=[0, 0]),
            Proposal(CHAIN, candidates=frozenset()),
        )
    ),
    (lambda: Proposal(TWO, third, [0.7, 1.2]), "cannot be interpreted as an integer"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message for _, message in BAD])
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_ruling_out_drawn_nodes_is_biased_and_chosen_ones_is_legal(monkeypatch):
    def drops_unlikely(law, gamma, rng):
        token = rng.draw(q := law(()))
        kept = frozenset({0} if q[token] > 0.4 else ())
        return Proposal(TokenTree.chain([token]), q[None], candidates=kept)

    with pytest.raises(ValueError, match="was drawn"):
        bias(random_law(0), random_law(9), speculative_sampling, 1, drops_unlikely)
    one = Proposal(TokenTree([0, 2], [-1, -1]), torch.stack([hot[0], P]), candidates=frozenset({1}))
    assert one.draws == {-1: ((1, 1),)}
    monkeypatch.setattr(Proposal, "_check_candidates", lambda self, draws: None)
    laws = [(random_law(s), random_law(s + 9)) for s in range(3)]
    assert max(bias(*each, speculative_sampling, 1, drops_unlikely) for each in laws) > 0.02
