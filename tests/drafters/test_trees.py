"""Test the drafters of trees: shapes, draws, fed nodes, and what each inner session observes."""

import pytest
from models_zoo import PROMPT, native, perturbed

from specdec_lite import TokenTree, generate, stream
from specdec_lite.acceptance import k_seq, sample_and_match, speculative_sampling
from specdec_lite.drafters import (
    FixedTreeDrafter,
    MergedDrafter,
    ModelDrafter,
    SequoiaDrafter,
    SpecExecDrafter,
)
from specdec_lite.drafters.trees import balanced, with_replacement
from specdec_lite.measure.timing import Costs

TARGET = native()
DRAFT = perturbed(TARGET)


def steps_of(drafter, temperature=1.0, **options):
    return list(stream(TARGET, PROMPT, drafter, 40, temperature, seed=5, **options))


def fits(tree, shape, node=-1, place=-1):
    """Return whether every node has the children that the shape gives it."""
    below = list(zip(tree.children(node), shape.children(place), strict=True))
    return all(fits(tree, shape, child, twin) for child, twin in below)


def test_every_full_round_has_the_shape_and_one_pass_per_inner_level():
    shape = TokenTree([0, 0, 1, 0], [-1, -1, 0, 0])
    steps = steps_of(FixedTreeDrafter(DRAFT, shape))
    assert all(fits(step.tree, shape) and step.draft_passes == 2 for step in steps[:-3])
    assert all(len(set(s.tree.tokens[list(s.tree.children(-1))].tolist())) == 2 for s in steps[:-3])


@pytest.mark.parametrize(
    "drafter, temperature",
    [
        (FixedTreeDrafter(TARGET, balanced([2, 1, 1])), 0.0),
        (FixedTreeDrafter(TARGET, balanced([1, 1, 1])), 1.0),
        (SpecExecDrafter(TARGET, 4, width=1), 0.0),
    ],
    ids=["a tree", "a drawn chain", "SpecExec's chain"],
)
def test_the_target_as_its_own_draft_is_always_accepted(drafter, temperature):
    """A cache that is one position off, or a wrong mask, would lower acceptance and keep the text."""
    steps = steps_of(drafter, temperature)
    assert all(step.accepted == step.tree.levels for step in steps)
    assert max(step.accepted for step in steps) >= 3


def test_rows_that_run_out_of_tokens_have_fewer_children():
    steps = steps_of(FixedTreeDrafter(DRAFT, balanced([4, 1])), top_k=2)
    assert {len(step.tree.children(-1)) for step in steps[:-2]} == {2}


def test_independent_draws_share_nodes_under_k_seq():
    drafter = FixedTreeDrafter(TARGET, balanced([3, 2]), with_replacement)
    steps = steps_of(drafter, 0.4, rule=k_seq(6))
    assert all(step.accepted == 2 for step in steps[:-2]), "p = q: rho is 1"
    assert any(len(step.tree) < step.drafted for step in steps)


def test_k_seq_refuses_a_shape_that_it_cannot_verify_before_decoding():
    class Never(FixedTreeDrafter):
        def start(self, context):
            raise AssertionError("decoding began")

    for drafter, message in (
        (Never(TARGET, balanced([3, 1]), with_replacement), "at most 2 draws"),
        (Never(TARGET, balanced([2, 1])), "independent"),
    ):
        with pytest.raises(ValueError, match=message):
            steps_of(drafter, rule=k_seq(2))
    assert steps_of(FixedTreeDrafter(TARGET, balanced([1, 1])), rule=k_seq(2))


def test_sequoia_takes_the_clock_into_account():
    assert len(SequoiaDrafter(DRAFT, 16).tree) == 16
    assert SequoiaDrafter(DRAFT, 16, depth=2).tree.levels == 2
    slow = Costs({1: 1.0, 2: 2.0, 32: 32.0}, draft_in_loop=0.1, overhead=0.0)
    assert SequoiaDrafter(DRAFT, 16, costs=slow).limits().nodes == 0
    assert generate(TARGET, PROMPT, SequoiaDrafter(DRAFT, 16, costs=slow), 8).stats.tokens == 8


def test_specexec_keeps_the_likeliest_nodes_under_both_rules():
    step = steps_of(SpecExecDrafter(DRAFT, 6, width=3))[0]
    assert len(step.tree) == 6 and step.draw_counts == (1,) * 6 and set(step.q) == {1.0}
    walked, matched = (
        sum(s.accepted for s in steps_of(SpecExecDrafter(DRAFT, 6), rule=rule)) > 0
        for rule in (speculative_sampling, sample_and_match)
    )
    assert walked and matched


def test_merged_sessions_follow_the_text():
    """If one draft is the target itself, everything is accepted and each cache follows the text."""
    steps = steps_of(MergedDrafter([ModelDrafter(TARGET, 3), ModelDrafter(DRAFT, 3)]))
    assert all(step.accepted == step.tree.levels for step in steps)
    assert all(step.draft_passes == 6 for step in steps[:-3])
    both = steps_of(MergedDrafter([ModelDrafter(DRAFT, 3)] * 3), 0.0)
    one = steps_of(ModelDrafter(DRAFT, 3), 0.0)
    assert [s.tokens for s in both] == [s.tokens for s in one], "greedy drafts fall together"
    assert all(len(step.tree) == len(other.tree) for step, other in zip(both, one))
