"""Training adapters and look-ahead rows: training computes what drafting computes."""

import pytest
import torch
from drafted_rows import altered, changed, differences
from heads_zoo import exit_head, lookahead
from models_zoo import PROMPT, native
from torch import nn

from specdec_lite import generate, stream
from specdec_lite.drafters import EarlyExitDrafter, PassDrafter
from specdec_lite.loading.weights import save, shipped_folder
from specdec_lite.training.losses import exit_states, lookahead_chains

TARGET = native(num_layers=4)
TEXT = torch.tensor([[*PROMPT, 11, 4, 40, 22, 6, 19]])


def exits(target, adapter=lambda states: states):
    """Return the function of a path's rows behind block 2, as an adapter is trained on them."""

    def rows(context, drafted):
        text = torch.cat((context.tokens, drafted))[None]
        states = exit_states(target.model, text, 2)[0, len(context.tokens) - 1 :]
        return target.model.head(adapter(states)).softmax(-1)

    return rows


def test_an_adapter_is_trained_on_what_it_drafts_from():
    adapter = exit_head(TARGET, 2)
    drafter = EarlyExitDrafter(TARGET, 2, 2, adapter=adapter)
    assert max(differences(TARGET, drafter, PROMPT, exits(TARGET, adapter))[0]) < 1e-10


@pytest.mark.parametrize("norm", [None, "right", "next"])
def test_the_wrong_norm_at_an_exit_changes_its_distribution(norm, monkeypatch):
    """The text remains the target's for every norm before the head of the exit."""
    target = native(num_layers=4)
    generator = torch.Generator().manual_seed(3)
    for part in (target.model, *target.model.blocks):
        weight = part.norm.weight if part is target.model else part.norm1.weight
        weight += 0.5 * torch.randn(weight.shape, generator=generator)
    model = target.model
    exit_norm = {None: nn.Identity(), "right": model.norm, "next": model.blocks[2].norm1}[norm]

    def exit_through(session):
        propose = session.propose

        def normed(context):
            with monkeypatch.context() as patch:
                patch.setitem(model._modules, "norm", exit_norm)
                return propose(context)

        session.propose = normed

    drafter = changed(EarlyExitDrafter(target, 2, 2), exit_through)
    plain = generate(target, TEXT[0], max_new_tokens=20).tokens
    assert torch.equal(generate(target, TEXT[0], drafter, 20).tokens, plain)
    error = max(differences(target, drafter, PROMPT, exits(target))[0])
    assert error < 1e-10 if norm == "right" else error > 0.01


def test_lookahead_rows_are_trained_on_what_they_draft_from():
    rows, proposals = lookahead(TARGET, 3), []
    noted = lambda session, proposal, context: proposals.append(proposal) or proposal
    next(stream(TARGET, TEXT[0], altered(PassDrafter(TARGET, rows), noted), 8, 1.0, seed=0))
    length = TEXT.shape[1]
    anchors = torch.tensor([4, length - 1])
    positions, mask = lookahead_chains(anchors, length, 3)
    assert positions[length:].tolist() == [5, 6, 7, length, length + 1, length + 2]
    assert mask[length:, :length].sum(1).tolist() == [5, 5, 5, *[length] * 3]
    fed = torch.cat((TARGET.model.embedding(TEXT), rows.rows.repeat(2, 1)[None]), 1)
    states = {"final": None}
    TARGET.model(
        torch.zeros(fed.shape[:2], dtype=torch.long),
        positions=positions,
        bias=mask,
        keep=states,
        states=(0, fed),
    )
    expected = TARGET.model.head(states["final"][0, -3:]).softmax(-1)
    assert (proposals[0].probs[1:] - expected).abs().max() < 1e-10


def test_the_shipped_file_of_a_target_is_found(tmp_path):
    other = native(seed=8)
    for name, target in (("a", other), ("b", TARGET)):
        save(tmp_path / name, rows := lookahead(target), target, rows.config)
    assert shipped_folder(tmp_path, TARGET) == tmp_path / "b"
    with pytest.raises(ValueError, match="holds a, b"):
        shipped_folder(tmp_path, native(seed=9))
