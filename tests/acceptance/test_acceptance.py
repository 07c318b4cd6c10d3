"""Every rule against the distribution it promises, exactly, by enumeration.

Each published bug is a negative control.
"""

import copy
import math
import pickle
from itertools import product

import broken
import pytest
import torch
from broken import grow
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from text_laws import bias, random_law

from specdec_lite import acceptance, theory
from specdec_lite.acceptance import (
    NOTHING,
    Proposal,
    block_distribution,
    block_verification,
    distance_match,
    draw_chain,
    exact_match,
    lenient,
    lenient_argmax,
    lenient_scaled,
    output_distribution,
    ratio,
    rejection_sampling,
    sample_and_match,
    speculative_sampling,
    top_k_match,
    typical,
)
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.tree import TokenTree

EXACT = 1e-12
LOSSLESS = [speculative_sampling, sample_and_match, block_verification]
P, Q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.5, 0.2])


# Lossless rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    "gamma, vocabulary", [(1, 5), (2, 3), (3, 2), pytest.param(3, 5, marks=pytest.mark.registry)]
)
@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: rule.name)
def test_chains_are_lossless(rule, gamma, vocabulary, zeros):
    for seed in range(2):
        assert (
            bias(
                random_law(seed, vocabulary, zeros),
                random_law(seed + 9, vocabulary, zeros),
                rule,
                gamma,
            )
            < EXACT
        )


@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: rule.name)
def test_chains_are_lossless_if_p_and_q_differ_by_rounding_alone(rule):
    """A draft that is the target, run in other batches, leaves residuals of 1e-18 and less."""
    for seed in range(12):
        target = random_law(seed)

        def draft(prefix):
            q = target(prefix).clone()
            q[int(q.argmin())] *= 1 + 2**-52 * (seed % 4 - len(prefix))
            return q

        assert bias(target, draft, rule, 2) < EXACT


@pytest.mark.parametrize("gamma", [2, 3])
@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: rule.name)
def test_chosen_chains_are_lossless(rule, gamma):
    assert bias(random_law(1), random_law(2), rule, gamma, grow(broken.chosen(1))) < EXACT


TREES = {
    "drawn with replacement": grow(broken.with_replacement(2)),
    "drawn with replacement, equal nodes merged": grow(broken.with_replacement(2), merge="nodes"),
    "drawn without replacement": grow(broken.without_replacement(2)),
    "all tokens drawn without replacement": grow(broken.without_replacement(3)),
    "chosen": grow(broken.chosen(2)),
    "drawn, then chosen": grow(broken.mixed(2)),
}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("propose", TREES.values(), ids=TREES)
@pytest.mark.parametrize(
    "rule", [speculative_sampling, sample_and_match], ids=lambda rule: rule.name
)
def test_trees_are_lossless(rule, propose, zeros):
    assert bias(random_law(3, 3, zeros), random_law(4), rule, 1, propose) < EXACT
    assert bias(random_law(5, 2, zeros), random_law(6, 2), rule, 2, propose) < EXACT


def test_a_tree_three_tokens_wide_and_two_levels_deep_is_lossless():
    assert (
        bias(random_law(7), random_law(8), speculative_sampling, 2, grow(broken.mixed(3))) < EXACT
    )


def test_the_tags_say_what_enumeration_finds():
    rules = [
        *LOSSLESS,
        lenient(1),
        lenient(0.6),
        lenient_scaled(1),
        lenient_scaled(0.6),
        rejection_sampling,
        typical(),
        lenient_argmax(0.6),
    ]
    cases = [
        (random_law(s, 3), random_law(s + 9, 3, zeros)) for s in range(3) for zeros in (False, True)
    ]
    for rule in rules:
        worst = max(bias(target, draft, rule, 1) for target, draft in cases)
        assert (worst < EXACT) == rule.lossless, (rule.name, worst)


def test_every_rule_is_named_with_its_settings_and_tagged():
    tagged = {
        "speculative_sampling": speculative_sampling,
        "sample_and_match": sample_and_match,
        "block_verification": block_verification,
        "exact_match": exact_match,
        "lenient(1)": lenient(1),
        "lenient_scaled(1)": lenient_scaled(1),
    }
    lossy = {
        "rejection_sampling": rejection_sampling,
        "lenient(0.5)": lenient(0.5),
        "lenient_scaled(0.5)": lenient_scaled(0.5),
        "typical(0.09, 0.3)": typical(),
        "lenient_argmax(0.5)": lenient_argmax(0.5),
        "top_k_match(2)": top_k_match(2),
        "distance_match(1)": distance_match(1),
    }
    assert {name: rule.name for name, rule in (tagged | lossy).items()} == {
        name: name for name in tagged | lossy
    }
    assert all(rule.lossless is True for rule in tagged.values()) and all(
        rule.lossless is False for rule in lossy.values()
    )


def test_rejection_sampling_is_exact_exactly_where_q_covers_p():
    assert bias(random_law(0), random_law(1), rejection_sampling, 2) < EXACT
    assert output_distribution(
        [0.5, 0.5, 0], [0.2, 0, 0.8], rejection_sampling
    ).tolist() != pytest.approx([0.5, 0.5, 0])
    assert output_distribution([0, 1.0], [1.0, 0], rejection_sampling).tolist() == [0, 1]


def test_equal_distributions_leave_no_residual_and_no_nan():
    for rule in LOSSLESS:
        law = random_law(11)
        assert bias(law, law, rule, 2) < EXACT
        blocks = block_distribution(law, law, rule, 2).blocks
        assert rule is sample_and_match or all(
            len(block) == 3 for block, weight in blocks.items() if weight > 1e-15
        )


@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_pair_of_distributions_one_token(seed, vocabulary, zeros):
    p, q = random_law(seed, vocabulary, zeros)(()), random_law(seed + 1, vocabulary, not zeros)(())
    for rule in LOSSLESS:
        assert (output_distribution(p, q, rule) - p).abs().max() < EXACT


RATES = {
    speculative_sampling: theory.acceptance_rate,
    sample_and_match: theory.sample_and_match_acceptance_rate,
    rejection_sampling: theory.rejection_sampling_acceptance_rate,
}


@pytest.mark.parametrize("rule", RATES, ids=lambda rule: rule.name)
@given(seed=st.integers(0, 10**6), vocabulary=st.integers(2, 6), zeros=st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_pair_of_distributions_is_accepted_as_its_formula_states(rule, seed, vocabulary, zeros):
    p, q = random_law(seed, vocabulary, zeros)(()), random_law(seed + 1, vocabulary)(())
    law = block_distribution(lambda _: p, lambda _: q, rule, 1)
    assert law.mean_length - 1 == pytest.approx(RATES[rule](p, q).item(), abs=1e-12)
    assert (
        rule is not rejection_sampling or (output_distribution(p, q, rule) - p).abs().max() < EXACT
    )


@st.composite
def next_token_laws(draw, vocabulary, depth):
    """Draw a distribution for every prefix of up to `depth` tokens; some tokens are impossible."""
    prefixes = [
        prefix
        for length in range(depth + 1)
        for prefix in product(range(vocabulary), repeat=length)
    ]
    weights = draw(
        arrays(
            float,
            (len(prefixes), vocabulary),
            elements=st.one_of(st.just(0.0), st.floats(1e-3, 1)),
            fill=st.nothing(),
        )
    )
    weights[weights.sum(1) == 0] = 1
    return dict(zip(prefixes, torch.tensor(weights / weights.sum(1, keepdims=True)))).__getitem__


@given(st.integers(1, 2), st.integers(2, 3), st.data())
@settings(max_examples=25, deadline=None)
def test_any_pair_of_distributions_whole_blocks(gamma, vocabulary, data):
    target = data.draw(next_token_laws(vocabulary, gamma))
    draft = data.draw(next_token_laws(vocabulary, gamma))
    assert all(bias(target, draft, rule, gamma) < EXACT for rule in LOSSLESS)


@pytest.mark.parametrize("seed", range(6))
def test_the_rule_agrees_with_the_one_inside_transformers(seed, monkeypatch):
    """Equal uniforms give equally many accepted tokens, and the next one is drawn from equal rows."""
    from transformers.generation.utils import _speculative_sampling

    torch.manual_seed(seed)
    p = torch.rand(4, 6, dtype=torch.float64).softmax(-1)
    q = torch.rand(3, 6, dtype=torch.float64).mul(3).softmax(-1)
    tokens, uniforms, drawn_from = q.multinomial(1)[:, 0], torch.rand(3, dtype=torch.float64), []

    class Given:
        left = uniforms.tolist()

        def flip(self, prob):
            return self.left.pop(0) <= prob

        def draw(self, probs):
            drawn_from.append(probs)
            return 0

    verdict = speculative_sampling(Proposal(TokenTree.chain(tokens), q), p, Given())
    monkeypatch.setattr(torch, "rand_like", lambda like: uniforms.view_as(like))
    monkeypatch.setattr(
        torch,
        "multinomial",
        lambda probs, num_samples: (
            drawn_from.append(probs[0]) or torch.zeros(1, 1, dtype=torch.long)
        ),
    )
    _, matches = _speculative_sampling(tokens[None], q.log()[None], 3, p.log()[None])
    assert len(verdict.path) == matches and torch.allclose(*drawn_from, atol=1e-12)


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


def test_a_draw_from_p_after_a_rejection_emits_what_chapter_15c_says():
    """min(p, q) plus the rejected share of p, as Spec-RL decodes."""
    rows = lambda row: lambda text: row
    blocks = block_distribution(rows(P), rows(Q), broken.recovered_from_p, 1)
    assert blocks.completed(rows(P), 1).tolist() == pytest.approx([0.40, 0.36, 0.24])


MARGINS = {
    "recovered from p": (broken.recovered_from_p, draw_chain, 2, 0.05),
    "one uniform for all tests": (one_uniform_for_all_tests, draw_chain, 2, 0.02),
    "residual not carried": (
        broken.residual_not_carried,
        grow(broken.with_replacement(2)),
        1,
        0.02,
    ),
    "bonus by argmax": (broken.bonus_by_argmax, draw_chain, 2, 0.05),
    "soft q for an argmax draft": (
        speculative_sampling,
        grow(broken.chosen(1, soft=True)),
        1,
        0.05,
    ),
    "top-k children with a soft q": (
        speculative_sampling,
        grow(broken.chosen(2, soft=True)),
        1,
        0.05,
    ),
    "q before temperature": (speculative_sampling, broken.adjusted_too_late(SHARPER), 1, 0.02),
    "q before top-k": (speculative_sampling, broken.adjusted_too_late(ONLY_BEST_TWO), 1, 0.02),
    "a drawn token dropped after a look at its q": (
        speculative_sampling,
        broken.stops_at_unsure(0.4, keep_it=False),
        2,
        0.02,
    ),
    "block verification with an early break": (broken.block_with_early_break, draw_chain, 2, 0.01),
    "independent paths, longest wins": (
        broken.longest_of_independent_paths,
        grow(broken.with_replacement(2)),
        1,
        0.05,
    ),
    "equal draws merged into one draw": (
        speculative_sampling,
        grow(broken.with_replacement(3), merge="draws"),
        1,
        0.01,
    ),
    "without replacement, scored with the original q": (
        speculative_sampling,
        grow(broken.without_replacement(2, honest=False)),
        1,
        0.02,
    ),
    "drawn siblings sorted by q": (speculative_sampling, grow(broken.sorted_by_q(2)), 1, 0.02),
    "drawn without replacement, then sorted": (
        speculative_sampling,
        grow(broken.without_replacement(2, ordered=True)),
        1,
        0.02,
    ),
}


@pytest.mark.parametrize("rule, propose, gamma, margin", MARGINS.values(), ids=MARGINS)
def test_broken_variants_are_caught(rule, propose, gamma, margin):
    worst = max(
        bias(random_law(seed), random_law(seed + 9), rule, gamma, propose) for seed in range(3)
    )
    assert worst > margin


def test_stopping_after_the_unsure_token_is_legal():
    assert (
        bias(
            random_law(0),
            random_law(9),
            speculative_sampling,
            2,
            broken.stops_at_unsure(0.4, keep_it=True),
        )
        < EXACT
    )


def test_an_argmax_draft_with_its_soft_q_emits_the_published_distribution():
    law = block_distribution(
        lambda _: P, lambda _: Q, speculative_sampling, 1, grow(broken.chosen(1, soft=True))
    ).completed(lambda _: P, 1)
    assert law.tolist() == pytest.approx([0.4, 0.6, 0], abs=1e-7)


def test_claim_accepting_where_q_is_zero_is_biased_and_refused():
    draws_all_scores_few = grow(lambda q, rng: [(rng.draw(q), ONLY_BEST_TWO(q))])
    assert bias(random_law(0), random_law(9), broken.accepts_q_zero, 1, draws_all_scores_few) > 0.01
    with pytest.raises(ValueError, match="draft probability 0"):
        bias(random_law(0), random_law(9), speculative_sampling, 1, draws_all_scores_few)


# The syllabus's claims on one position and one block ----------------------------------------------


@pytest.mark.parametrize(
    "p, q", [((0.5, 0.3, 0.2), (0.3, 0.5, 0.2)), ((0.6, 0.3, 0.1), (0.4, 0.5, 0.1))]
)
def test_claim_the_two_three_token_examples(p, q):
    """B is kept with .6 and replaced by A, so eight of ten drafts are accepted and p results."""
    p, q = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
    assert [min(1, ratio(p, q, token)) for token in range(3)] == pytest.approx([1, 0.6, 1])
    assert theory.residual(p, q).tolist() == [1, 0, 0] and output_distribution(
        p, q, speculative_sampling
    ).tolist() == pytest.approx(p.tolist(), abs=EXACT)
    assert block_distribution(
        lambda _: p, lambda _: q, speculative_sampling, 1
    ).mean_length - 1 == pytest.approx(0.8, abs=EXACT)


def test_claim_the_adjustment_does_not_keep_p_above_q():
    """B is emitted less often than drafted, so the residual of B is 0."""
    emitted = output_distribution(P, Q, speculative_sampling)
    assert (
        emitted[1] < Q[1]
        and emitted.tolist() == pytest.approx(P.tolist())
        and theory.residual(P, Q)[1] == 0
    )


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_claim_a_pass_emits_one_to_gamma_plus_one_tokens(gamma):
    blocks = block_distribution(lambda _: P, lambda _: Q, speculative_sampling, gamma).blocks
    lengths = [
        sum(weight for block, weight in blocks.items() if len(block) == k) for k in range(gamma + 2)
    ]
    assert (
        lengths == pytest.approx([0, *theory.token_count_distribution(0.8, gamma)], abs=1e-6)
        and max(map(len, blocks)) == gamma + 1
    )


def test_claim_argmax_lenience_as_printed_would_refuse_the_argmax():
    rows = [[0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]
    kept = [token for token in range(3) if judged(lenient_argmax(0.5), [token], rows).path]
    printed = [token for token in range(3) if rows[0][token] <= 0.5 * max(rows[0])]
    assert kept == [0, 1] and printed == [2]


# Rules that are not lossless, and what they promise instead ---------------------------------------


@pytest.mark.parametrize("rule", [lenient, lenient_scaled])
@given(seed=st.integers(0, 10**6), lenience=st.floats(0.05, 1), zeros=st.booleans())
@settings(max_examples=50, deadline=None)
def test_lenience_never_raises_a_token_above_p_over_l(rule, seed, lenience, zeros):
    p, q = random_law(seed, 5, zeros)(()), random_law(seed + 1, 5)(())
    assert (output_distribution(p, q, rule(lenience)) <= p / lenience + 1e-12).all()


def test_the_two_readings_of_lenience_by_hand():
    """l = .8 keeps min(q, p/l) = (.3, .375, .2); the missing .125 comes from p − q = (.2, 0, 0), or
    from p − .8·q = (.26, 0, .04).
    """
    first, second = (
        output_distribution(P.tolist(), Q.tolist(), rule(0.8)).tolist()
        for rule in (lenient, lenient_scaled)
    )
    assert first == pytest.approx([0.425, 0.375, 0.2]) and second == pytest.approx(
        [0.3 + 0.125 * 26 / 30, 0.375, 0.2 + 0.125 * 4 / 30]
    )


@given(seed=st.integers(0, 10**6), lenience=st.floats(0.05, 1))
@settings(max_examples=50, deadline=None)
def test_lenience_accepts_alpha_l_and_the_first_reading_is_closest(seed, lenience):
    p, q = random_law(seed, 5)(()), random_law(seed + 1, 5)(())
    first, second = (
        output_distribution(p, q, rule(lenience)) for rule in (lenient, lenient_scaled)
    )
    distance = lambda law: (law - p).abs().sum().item() / 2
    least = (
        1
        - torch.minimum(p, q).sum().item()
        - (1 - theory.lenient_acceptance_rate(p, q, lenience).item())
    )
    assert distance(first) == pytest.approx(max(0, least), abs=1e-12)
    assert distance(first) <= distance(second) + 1e-12


def judged(rule, tokens, rows, parents=None):
    tree = TokenTree.chain(tokens) if parents is None else TokenTree(tokens, parents)
    return rule(Proposal(tree), torch.tensor(rows, dtype=torch.float64), SeededRng(0))


def test_typical_acceptance_follows_its_threshold():
    flat, sharp = [0.25] * 4, [0.97, 0.01, 0.01, 0.01]
    threshold = min(
        0.09, 0.3 * torch.tensor(flat).pow(-torch.tensor(flat)).prod().pow(-1).item()
    )  # min(ε, δ/4): entropy ln 4
    assert threshold == pytest.approx(0.075)
    assert judged(typical(), [3], [flat, sharp]).path == (0,)
    assert judged(typical(0.3, 2.0), [3], [flat, sharp]).path == ()
    verdict = judged(typical(), [1], [sharp, flat])
    assert (verdict.path, verdict.token, verdict.kind, verdict.tests) == ((), 0, "recovered", (1,))
    assert judged(typical(epsilon=0.25), [3], [flat, sharp], None).path == (
        0,
    )  # 0.25 > min(.25, .075)
    assert (
        judged(typical(epsilon=0.25, delta=99), [3], [flat, sharp]).path == ()
    )  # strictly greater
    bound_by_epsilon_alone = typical(epsilon=0.2, delta=math.inf)
    assert judged(bound_by_epsilon_alone, [3], [flat, sharp]).path == (0,)


def test_the_thresholds_of_typical_acceptance_are_not_exchanged():
    """ε is the ceiling, δ the factor of e^−H. A token of .2 where the target is sure (H = .5): kept
    at ε = .09, refused at ε = .3, δ = .35 (bound .21).
    """
    sure, rest = [0.8, 0.2, 0.0], [0.5, 0.3, 0.2]
    assert (
        judged(typical(0.09, 0.3), [1], [sure, rest]).path == (0,)
        and judged(typical(0.3, 0.35), [1], [sure, rest]).path == ()
    )
    assert typical().name == "typical(0.09, 0.3)"


def test_every_level_of_typical_acceptance_has_an_entropy_of_its_own():
    """A token of .2 where the target is sure (bound .9·e^−.5 = .55): a bound from the sum of both
    levels' entropies would let it pass.
    """
    sure, flat = [0.8, 0.2, 0.0], [0.4, 0.3, 0.3]
    assert judged(typical(0.9, 0.9), [1, 0], [sure, flat, flat]).path == ()
    assert judged(typical(0.0, 0.0), [1, 0], [sure, flat, flat]).path == (0, 1), (
        "the ends of the allowed ranges"
    )


def test_of_two_typical_paths_the_longer_wins_and_of_equals_the_likelier():
    rows = [[0.4, 0.5, 0.1], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.2, 0.7, 0.1]]
    assert judged(typical(), [0, 1], rows[:3], [-1, -1]).path == (1,)
    assert judged(typical(), [0, 1, 0], rows[:4], [-1, -1, 0]).path == (0, 2)
    assert judged(typical(), [0, 1, 0, 0], rows, [-1, -1, 0, 1]).path == (1, 3)
    assert judged(typical(), [0, 0], rows[:3], [-1, -1]).path == (0,)


def test_typical_acceptance_of_one_hot_rows_is_exact_match():
    rows = torch.eye(4, dtype=torch.float64)[[2, 1, 3, 0, 2]]
    for tokens in ([2, 1, 3, 0], [2, 1, 0, 0], [1, 1, 3, 0]):
        proposal = Proposal(TokenTree.chain(tokens))
        assert typical()(proposal, rows, SeededRng(0)) == exact_match(proposal, rows, SeededRng(0))


def test_lenient_argmax_takes_near_ties_and_is_exact_match_at_one():
    rows = [[0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]
    assert judged(lenient_argmax(0.8), [1], rows).path == (0,)
    assert judged(lenient_argmax(0.81), [1], rows).path == ()
    assert judged(lenient_argmax(1.0), [1], rows).path == () and judged(
        lenient_argmax(1.0), [0], rows
    ).path == (0,)
    assert judged(lenient_argmax(0.8), [1, 2], [*rows, rows[0]]).path == (
        0,
        1,
    )  # each row has a maximum of its own
    assert judged(lenient_argmax(0.8), [0, 1], [*rows, rows[0]]).path == (0,)
    assert lenient_argmax(0.8).name == "lenient_argmax(0.8)"


def test_a_distance_of_ids_is_their_difference():
    rows = [[0.1, 0.1, 0.1, 0.7], [0.25] * 4]
    assert [judged(distance_match(1), [token], rows).path for token in range(4)] == [
        (),
        (),
        (0,),
        (0,),
    ]


def test_block_verification_beats_token_by_token_in_the_papers_example():
    target = lambda _: torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    draft = lambda _: torch.tensor([2 / 3, 1 / 3], dtype=torch.float64)
    assert block_distribution(
        target, draft, speculative_sampling, 2
    ).mean_length - 1 == pytest.approx(10 / 9, abs=EXACT)
    assert block_distribution(
        target, draft, block_verification, 2
    ).mean_length - 1 == pytest.approx(11 / 9, abs=EXACT)


@given(seed=st.integers(0, 10**6), gamma=st.integers(1, 3), zeros=st.booleans())
@settings(max_examples=25, deadline=None)
def test_block_verification_never_accepts_fewer(seed, gamma, zeros):
    target = random_law(seed, 2 if gamma == 3 else 3, zeros)
    draft = random_law(seed + 1, 2 if gamma == 3 else 3)
    blocks, tokens = (
        block_distribution(target, draft, rule, gamma).mean_length
        for rule in (block_verification, speculative_sampling)
    )
    assert blocks >= tokens - 1e-12
    assert gamma > 1 or blocks == pytest.approx(tokens, abs=1e-12)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_chosen_children_are_accepted_with_exactly_their_mass(seed):
    p, q = random_law(seed, 5)(()), random_law(seed + 1, 5)(())
    law = block_distribution(
        lambda _: p, lambda _: q, speculative_sampling, 1, grow(broken.chosen(2))
    )
    accepted = sum(weight for block, weight in law.blocks.items() if len(block) == 2)
    assert accepted == pytest.approx(p[q.topk(2).indices].sum().item(), abs=1e-12)


# Verdicts -----------------------------------------------------------------------------------------

ONE_HOT = torch.eye(5, dtype=torch.float64)


def test_exact_match_takes_the_longest_matching_path():
    #      root → 1 (0) → 2 (2) ;  root → 3 (1) → 4 (3) → 0 (4); the target says 3, 4, then 2
    tree = TokenTree([1, 3, 2, 4, 0], [-1, -1, 0, 1, 3])
    rows = ONE_HOT[[3, 2, 4, 0, 2, 1]]  # after root, nodes 0 … 4
    verdict = exact_match(Proposal(tree), rows, SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind, verdict.tests) == (
        (1, 3),
        2,
        "recovered",
        (2, 1, 1),
    )
    verdict = exact_match(Proposal(TokenTree.chain([3])), ONE_HOT[[3, 4]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind, verdict.tested) == ((0,), 4, "bonus", 1)


def test_exact_match_refuses_soft_rows_even_if_nothing_was_drafted():
    for proposal, rows in (
        (Proposal(TokenTree.chain([0])), torch.stack([P, P])),
        (NOTHING, P[None]),
        (Proposal(TokenTree.chain([0])), torch.stack([ONE_HOT[0, :3], P.double()])),
    ):
        with pytest.raises(ValueError, match="one-hot"):
            exact_match(proposal, rows, SeededRng(0))


@pytest.mark.parametrize(
    "rule",
    [
        speculative_sampling,
        sample_and_match,
        block_verification,
        exact_match,
        typical(),
        lenient(0.5),
    ],
    ids=lambda rule: rule.name,
)
def test_an_empty_proposal_is_legal_everywhere(rule):
    verdict = rule(NOTHING, ONE_HOT[[2]], SeededRng(0))
    assert (verdict.path, verdict.token, verdict.kind, verdict.tests) == ((), 2, "sampled", ())


@pytest.mark.parametrize(
    "rule", [speculative_sampling, sample_and_match, block_verification], ids=lambda rule: rule.name
)
def test_at_temperature_zero_every_lossless_rule_is_greedy(rule):
    rows, drafted = ONE_HOT[[1, 2, 3]], Proposal(TokenTree.chain([1, 0]), ONE_HOT[[1, 0]])
    assert [
        (v.path, v.token) for v in (rule(drafted, rows, SeededRng(seed)) for seed in range(5))
    ] == [((0,), 2)] * 5


def test_only_candidates_may_be_accepted():
    rows = ONE_HOT[[1, 2, 3]]
    for rule in (exact_match, speculative_sampling, sample_and_match):
        proposal = Proposal(TokenTree.chain([1, 2]), candidates=frozenset({1}))
        assert rule(proposal, rows, SeededRng(0)).path == ()


def test_tests_count_the_draws_looked_at():
    p = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    q = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    verdict = speculative_sampling(
        Proposal(TokenTree([0, 2, 1], [-1, -1, -1]), q.expand(3, -1)), p.expand(4, -1), SeededRng(0)
    )
    assert (verdict.path, verdict.tests, verdict.tested) == ((1,), (2,), 2)


def test_block_verification_tests_every_token_and_says_how_it_ended():
    rows = ONE_HOT[[1, 2, 3]]
    certain = lambda tokens: Proposal(TokenTree.chain(tokens), ONE_HOT[tokens])
    found = [
        block_verification(certain(tokens), rows, SeededRng(0))
        for tokens in ([1, 2], [1, 0], [0, 2])
    ]
    assert [(v.path, v.token, v.kind, v.tests) for v in found] == [
        ((0, 1), 3, "bonus", (1, 1)),
        ((0,), 2, "recovered", (1, 1)),
        ((), 1, "recovered", (1, 1)),
    ]


@pytest.mark.parametrize("leftover", [1e-18, 5e-324])
def test_block_verification_of_rows_that_differ_by_less_than_rounding(leftover):
    q = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    rows = torch.tensor([[0.5, 0.5], [leftover, 1.0], [0.25, 0.75]], dtype=torch.float64)
    found = [
        block_verification(Proposal(TokenTree.chain([0, 1]), q), rows, SeededRng(seed))
        for seed in range(20)
    ]
    assert {verdict.path for verdict in found} == {(0, 1)} and {
        verdict.token for verdict in found
    } == {0, 1}


def test_block_verification_refuses_trees_and_merged_draws():
    tree = Proposal(TokenTree([0, 1], [-1, -1]), torch.stack([P, P]))
    merged = Proposal(TokenTree.chain([0]), torch.stack([P, P]), nodes=[0, 0])
    for proposal in (tree, merged, Proposal(TokenTree.chain([0]), candidates=frozenset())):
        with pytest.raises(ValueError, match="chains"):
            block_verification(proposal, torch.stack([P, P, P]), SeededRng(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lenient(0),
        lambda: lenient(1.5),
        lambda: lenient_scaled(-1),
        lambda: lenient_argmax(2),
        lambda: typical(epsilon=-0.1),
        lambda: typical(epsilon=1),
        lambda: typical(epsilon=1.1),
        lambda: typical(delta=-1),
        lambda: typical(delta=None),
        lambda: typical(delta="x"),
        lambda: distance_match(None),
        lambda: lenient(float("nan")),
    ],
)
def test_bad_settings_name_the_argument_its_value_and_what_is_allowed(make):
    with pytest.raises(ValueError, match=r"(lenience|epsilon|delta)=.*must be"):
        make()


PROPOSALS = [
    (dict(tree=TokenTree.chain([1, 2]), nodes=[0, 1]), "nodes without probs"),
    (dict(tree=TokenTree.chain([1, 2]), probs=torch.ones(1, 3)), "1 rows for 2 draws"),
    (dict(tree=TokenTree.chain([1, 2]), probs=torch.ones(2, 3), nodes=[0, 0]), "2 nodes"),
    (
        dict(tree=TokenTree.chain([1]), probs=torch.ones(1, 3), nodes=[4]),
        "every draw must land on a node",
    ),
]


@pytest.mark.parametrize("arguments, message", PROPOSALS)
def test_proposals_that_do_not_fit_together_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Proposal(**arguments)


def test_everything_listed_is_there():
    assert all(hasattr(acceptance, name) for name in acceptance.__all__)


def test_siblings_after_the_accepted_one_are_not_tested():
    """Greedy, on a tree: rules that walk and rules that look for the longest path count the same
    tests.
    """
    tree = TokenTree([4, 1, 2, 3, 0, 2], [-1, -1, -1, 1, 1, 1])
    p = torch.zeros(7, 5)
    p[0, 1] = p[2, 0] = p[5, 3] = 1.0  # after the root 1, then 0, which has no children
    p[[1, 3, 4, 6], 0] = 1.0
    for rule in (exact_match, speculative_sampling, sample_and_match):
        verdict = rule(Proposal(tree), p, SeededRng(0))
        assert (verdict.path, verdict.tests, verdict.token) == ((1, 4), (2, 2), 3)
    p[2], p[5] = torch.eye(5)[4], 0.0  # nothing below 1 is right: all three children are tested
    for rule in (exact_match, speculative_sampling, sample_and_match):
        verdict = rule(
            Proposal(tree), p + torch.eye(5)[0] * (p.sum(-1, keepdim=True) == 0), SeededRng(0)
        )
        assert (verdict.path, verdict.tests, verdict.kind) == ((1,), (2, 3), "recovered")


SETTINGS_OF_RULES = [
    acceptance.typical(),
    acceptance.typical(0.2, delta=0.4),
    acceptance.lenient(0.5),
    acceptance.lenient_scaled(lenience=0.5),
    acceptance.lenient_argmax(0.5),
    acceptance.top_k_match(2),
    acceptance.distance_match(1.0),
    acceptance.k_seq(2),
]


@pytest.mark.parametrize("rule", SETTINGS_OF_RULES, ids=lambda rule: rule.name)
def test_a_rule_with_settings_can_be_pickled_and_copied(rule):
    p = torch.tensor([[0.1, 0.5, 0.4], [0.3, 0.3, 0.4]], dtype=torch.float64)
    proposal = Proposal(TokenTree.chain([1]), p[1:])
    verdict = rule(proposal, p, SeededRng(1))
    for again in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert again(proposal, p, SeededRng(1)) == verdict
        for mark in ("name", "lossless", "chains_only"):
            assert getattr(again, mark) == getattr(rule, mark)
        assert getattr(again, "independent_draws", 0) == getattr(rule, "independent_draws", 0)
