"""EAGLE: which nodes its trees keep, drafts of a reduced vocabulary, and reranking, which is biased."""

import pytest
import torch
from chosen import one_of
from drafted_rows import altered, changed
from heads_zoo import FEATURE_HEADS, random_head
from models_zoo import PROMPT, native
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import TokenTree, generate, stream
from specdec_lite.contract import Context
from specdec_lite.drafters import ConfidenceTree, EagleDrafter, MtpDrafter
from specdec_lite.drafters.lengths import Confidence
from specdec_lite.drafters.trees import expand_confidence_tree
from specdec_lite.loading.weights import save
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.training.anchors import anchor_acceptance

TARGET = native(num_layers=3)
IDS = torch.tensor([1, 4, 5, 9, 17, 20, 28, 33, 41, 47])
KIND = pytest.mark.parametrize("kind", FEATURE_HEADS)


def reranked(session, proposal, context):
    """Broken: draw a tree and keep the node with the largest q."""
    count = len(proposal.tree)
    if count < 2:
        return proposal
    q = [float(proposal.probs[i, t]) for i, t in enumerate(proposal.tree.tokens.tolist())]
    kept = max(range(count), key=q.__getitem__)
    return Proposal(proposal.tree.prune([kept])[0], proposal.probs[[kept]])


def test_reranking_drawn_nodes_changes_the_distribution():
    target = native(seed=5, vocab_size=3, **TINY)
    head = random_head(target, scale=0.6)
    drafter = altered(EagleDrafter(target, head, TokenTree([0, 1], [-1, -1])), reranked)
    law = exact_text_law(target, drafter, Sampling(), 3)
    assert distance(law, own_text_law(target, Sampling(), 3)) > 0.02


def test_among_equal_values_the_parent_is_kept():
    """If q is 1, child and parent have equal values; the nodes kept must still form a tree."""
    sure = torch.full((48,), -1e9, dtype=torch.float64)
    context = Context(torch.tensor([1]), None, Sampling(0.0), None, 9, 48)

    calls = iter(range(2, 9))

    def expand(tokens, above):
        rows = sure.repeat(len(tokens), 1)
        rows[:, next(calls)] = 0.0
        return rows

    first = sure[None].clone()
    first[0, 1] = 0.0
    proposal = expand_confidence_tree(context, first, expand, ConfidenceTree(3, 4, 4))
    assert proposal.tree == TokenTree.chain([1, 2, 3, 4])


def test_the_confidence_tree_keeps_the_best_of_all_nodes():
    rows = torch.randn(200, 48, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    place = iter(range(200))
    value = {}
    paths = [()]

    def expand(tokens, above):
        if len(tokens):
            paths[:] = [(*paths[i], token) for token, i in zip(tokens.tolist(), above.tolist())]
        logits = rows[[next(place) for _ in paths]]
        for path, row in zip(paths, logits.log_softmax(-1)):
            for chance, token in zip(*(part.tolist() for part in row.topk(3))):
                value[(*path, token)] = value.get(path, 0.0) + chance
        return logits

    context = Context(torch.tensor([1]), None, Sampling(1.0), SeededRng(0), 9, 48)
    first = expand(torch.tensor([]), torch.tensor([]))
    tree = expand_confidence_tree(context, first, expand, ConfidenceTree(3, 3, 8)).tree
    kept = {tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))}
    assert kept == set(sorted(value, key=lambda path: -value[path])[:8]) and len(value) == 21


# Weights and what is refused ---------------------------------------------------------------------


def test_versions_have_their_own_trees_and_heads_of_another_target_are_refused(tmp_path):
    head = random_head(TARGET, ids=IDS)
    save(tmp_path, head, TARGET, head.config, torch.float64)
    drafter = EagleDrafter.from_pretrained(TARGET, 2, tmp_path)
    assert drafter.draft == ConfidenceTree() and torch.equal(drafter.head.ids, IDS)
    assert drafter.limits().nodes == 16 and EagleDrafter(TARGET, head).limits().is_chain
    with pytest.raises(ValueError, match="other weights"):
        MtpDrafter.from_pretrained(TARGET, tmp_path)
    with pytest.raises(ValueError, match="another target"):
        generate(native(num_layers=3), PROMPT, drafter, 4)


def test_offline_acceptance_equals_that_of_the_first_node_in_decoding():
    """Compare offline agreement and online acceptance round by round, in the same contexts."""
    target = native(seed=5, vocab_size=3, **TINY)
    head = random_head(target, scale=0.6)
    steps = list(stream(target, [1, 2, 0], EagleDrafter(target, head, 1), 40))
    text = torch.tensor([[1, 2, 0, *(token for step in steps for token in step.tokens)]])
    layers = (*head.layers, "final")
    states = target.score(text, target.new_cache(), hidden_layers=layers).hidden
    anchors = torch.arange(1, text.shape[1] - 1)
    agrees = anchor_acceptance(head, target, text, states, anchors, 1)["agrees"][0, :, 0].bool()
    length = 3
    online = []
    for step in steps[:-2]:
        online.append((bool(step.path), bool(agrees[length - 2])))
        length += len(step.tokens)
    assert {True, False} == {kept for kept, _ in online}
    assert all(kept == offline for kept, offline in online)


# Chosen tokens need no rows over the target's vocabulary --------------------------------------------


@KIND
@pytest.mark.parametrize(
    "draft",
    [3, Confidence(3, 0.2), TokenTree([0, 1, 0, 2], [-1, -1, 0, -1]), ConfidenceTree(3, 3, 9)],
)
@pytest.mark.parametrize("temperature", one_of(__name__, [0.0, 1.0]))
def test_narrow_rows_draft_the_same_tokens(kind, draft, temperature):
    head = random_head(TARGET, kind, ids=IDS)
    make = MtpDrafter if kind == "mtp" else EagleDrafter

    def drafts(change):
        drafter = changed(make(TARGET, head, draft), change)
        output = generate(TARGET, PROMPT, drafter, 24, temperature, seed=3)
        return [(step.tree.tokens.tolist(), step.tree.parents) for step in output.steps]

    narrow = drafts(lambda session: None)
    assert drafts(lambda session: setattr(session, "ids", None)) == narrow
    assert {token for tokens, _ in narrow for token in tokens} <= set(IDS.tolist())
