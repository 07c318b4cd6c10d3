"""Blocks on the target's features: each session is the unrolled training, row by row; and broken
variants, which no output shows.
"""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from broken_drafts import Altered
from caches import contents
from chosen import one_in, one_of
from features_zoo import KINDS, random_head
from models_zoo import PROMPT, native
from text_laws import TINY, distance, exact_text_law, own_text_law

from specdec_lite import TokenTree, generate, stream
from specdec_lite.drafters import ConfidenceTree, EagleDrafter, MtpDrafter
from specdec_lite.drafters.eagle import FeatureSession
from specdec_lite.drafters.lengths import Confidence
from specdec_lite.drafters.trees import expand_confidence_tree
from specdec_lite.engine.cache import additive
from specdec_lite.loading.weights import save
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context
from specdec_lite.training.anchors import anchor_acceptance
from specdec_lite.training.unroll import unroll

TARGET = native(num_layers=3)
GROWTH = ConfidenceTree(3, 3, 9)
IDS = torch.tensor([1, 4, 5, 9, 17, 20, 28, 33, 41, 47])
KIND = pytest.mark.parametrize("kind", KINDS)


def trained(head, text, depth):
    """Return the state after the last pair of text[: len − depth] and `depth` drafted tokens."""
    tokens = torch.tensor([[*text, 0]])
    layers = tuple(dict.fromkeys((*head.layers, "final")))
    hidden = TARGET.score(tokens, TARGET.new_cache(), hidden_layers=layers).hidden
    outputs = unroll(head, hidden, TARGET.embed(tokens), depth + 1)
    return head.leave(list(outputs)[depth][0, len(text) - depth - 2])


class Noted(FeatureSession):
    """Compare every drafted state with that of training."""

    apart = 0.0
    compared = 0

    def _draft(self, context, first):
        self.committed = context.tokens.tolist()
        self.paths = [[]]
        return super()._draft(context, first)

    def _score_level(self, tokens, above):
        logits = super()._score_level(tokens, above)
        pairs = zip(tokens.tolist(), above.tolist())
        self.paths = [[*self.paths[parent], token] for token, parent in pairs]
        for path, state in zip(self.paths, self.states):
            right = trained(self.head, [*self.committed, *path], len(path))
            Noted.apart = max(Noted.apart, float((right - state).abs().max()))
            Noted.compared += 1
        return logits


class NotedDrafter(EagleDrafter):
    session = Noted

    def __init__(self, *args):
        super().__init__(*args)
        self.hidden_layers = (0, 1, 2, "final")

    def start(self, context):
        return self.session(self.target, self.head, self.body, self.draft, context)


def apart(kind, session=Noted, draft=GROWTH, ids=None):
    """Return the largest difference between a drafted state and that of training."""
    drafter = NotedDrafter(TARGET, random_head(TARGET, kind, ids), draft)
    drafter.session = session
    Noted.apart = 0.0
    Noted.compared = 0
    generate(TARGET, PROMPT, drafter, 16)
    assert Noted.compared > 40
    return Noted.apart


@KIND
@pytest.mark.parametrize("ids", [None, IDS], ids=["V", "10 of V"])
def test_training_and_drafting_compute_the_same_state_at_every_node(kind, ids):
    assert apart(kind, ids=ids) < 1e-10


class Stale(Noted):
    """Broken: drafted entries stay in the cache, so accepted tokens keep predicted features."""

    def observe(self, verdict, scores):
        self.followed.observe(verdict)


class Unshifted(Noted):
    """Broken: pair a state with its own token, not with the next one."""

    def _score(self, tokens, states, tree=None, cached=0):
        return super()._score(tokens.roll(1), states, tree, cached)


class PositionLate(Noted):
    """Broken: read every state of the target one position late."""

    def propose(self, context):
        hidden = {layer: rows.roll(1, 1) for layer, rows in context.scores.hidden.items()}
        scores = type(context.scores)(context.scores.logits, hidden)
        return super().propose(type(context)(**{**fields(context), "scores": scores}))


class LayerOff(Noted):
    """Broken: read every state of the target one block early."""

    early = {0: 0, 1: 0, "final": 2}

    def propose(self, context):
        read = context.scores.hidden
        hidden = {layer: read[self.early[layer]] for layer in self.head.layers}
        scores = type(context.scores)(context.scores.logits, hidden)
        return super().propose(type(context)(**{**fields(context), "scores": scores}))


class PairShort(Noted):
    """Broken: use the prediction of the last token as that of the next one."""

    def _score(self, tokens, states, tree=None, cached=0):
        logits, states = super()._score(tokens, states, tree, cached)
        return logits, states.roll(1, 0) if tree is None else states


def fields(context):
    return {name: getattr(context, name) for name in context.__dataclass_fields__}


BROKEN = [Unshifted, PositionLate, LayerOff, PairShort]


@pytest.mark.parametrize("broken, kind", one_in(6, [(Stale, "eagle1"), *product(BROKEN, KINDS)]))
def test_the_comparison_detects_broken_sessions(broken, kind):
    plain = generate(TARGET, PROMPT, max_new_tokens=16).tokens
    drafter = NotedDrafter(TARGET, random_head(TARGET, kind), GROWTH)
    drafter.session = broken
    assert torch.equal(generate(TARGET, PROMPT, drafter, 16).tokens, plain)
    assert apart(kind, broken) > 1e-3


def test_the_comparison_detects_a_training_mask_that_is_off_by_one(monkeypatch):
    further = lambda seen, dtype: additive(seen | F.pad(seen, (1, -1)), dtype)
    monkeypatch.setattr("specdec_lite.training.unroll.additive", further)
    assert apart("eagle1") > 1e-3


# Between rounds, and the emitted distribution -----------------------------------------------------


@KIND
def test_after_each_round_the_cache_equals_that_of_a_new_session(kind):
    head = random_head(TARGET, kind)
    drafter = EagleDrafter(TARGET, head, GROWTH)
    sessions = []
    drafter.start = lambda context: (
        sessions.append(EagleDrafter.start(drafter, context)) or (sessions[-1])
    )
    committed = list(PROMPT)
    for step in stream(TARGET, PROMPT, drafter, 12):
        pairs = len(committed) - 1
        text = torch.tensor(committed)
        hidden = TARGET.score(
            text[:-1], TARGET.new_cache(), hidden_layers=tuple({*head.layers, "final"})
        ).hidden
        fresh = drafter.body.new_cache()
        state = head.begin([hidden[layer][0] for layer in head.layers])
        rows = head.enter(TARGET.embed(text[1:]), state)[None]
        drafter.body.score(text[1:], fresh, states=(0, rows))
        committed += step.tokens
        assert sessions[0].followed.trim(torch.tensor(committed[1:])) == pairs
        for ours, theirs in zip(contents(sessions[0].cache), contents(fresh)):
            assert (ours - theirs).abs().max() < 1e-10


class Reranked(Altered, EagleDrafter):
    """Broken: draw a tree and keep the node with the largest q."""

    def altered(self, session, proposal, context):
        count = len(proposal.tree)
        if count < 2:
            return proposal
        q = [float(proposal.probs[i, t]) for i, t in enumerate(proposal.tree.tokens.tolist())]
        kept = max(range(count), key=q.__getitem__)
        return Proposal(proposal.tree.prune([kept])[0], proposal.probs[[kept]])


def law(kind, draft, sampling, ids=None):
    """Return the distance of the text's distribution from the target's."""
    target = native(seed=5, vocab_size=3, **TINY)
    drafter = kind(target, random_head(target, ids=ids, scale=0.6), draft)
    ours = exact_text_law(target, drafter, sampling, 3)
    return distance(ours, own_text_law(target, sampling, 3))


def test_reranking_drawn_nodes_changes_the_distribution():
    assert law(Reranked, TokenTree([0, 1], [-1, -1]), Sampling()) > 0.02


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
    proposal, values = expand_confidence_tree(context, first, expand, ConfidenceTree(3, 4, 4))
    assert proposal.tree == TokenTree.chain([1, 2, 3, 4]) and values == [0.0] * 4


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
    tree = expand_confidence_tree(context, first, expand, ConfidenceTree(3, 3, 8))[0].tree
    kept = {tuple(tree.tokens[list(tree.path(node))].tolist()) for node in range(len(tree))}
    assert kept == set(sorted(value, key=lambda path: -value[path])[:8]) and len(value) == 21


# Weights and what is refused ---------------------------------------------------------------------


def test_heads_load_for_both_versions_and_bad_arguments_are_rejected(tmp_path):
    head = random_head(TARGET, ids=IDS)
    save(tmp_path, head, TARGET, head.config, torch.float64)
    drafter = EagleDrafter.from_pretrained(TARGET, 2, tmp_path)
    assert drafter.draft == ConfidenceTree() and torch.equal(drafter.head.ids, IDS)
    assert drafter.limits().nodes == 16 and EagleDrafter(TARGET, head).limits().is_chain
    with pytest.raises(ValueError, match="version=4"):
        EagleDrafter.from_pretrained(TARGET, 4)
    with pytest.raises(ValueError, match="another target"):
        EagleDrafter.from_pretrained(native(seed=3), 1, tmp_path)
    with pytest.raises(ValueError, match="other weights"):
        MtpDrafter.from_pretrained(TARGET, tmp_path)
    with pytest.raises(TypeError, match="head is a CausalLM"):
        EagleDrafter(TARGET, TARGET)
    with pytest.raises(ValueError, match="size 16"):
        EagleDrafter(TARGET, random_head(native(**TINY)))
    with pytest.raises(ValueError, match="nodes=0"):
        ConfidenceTree(nodes=0)
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
    "draft", [3, Confidence(3, 0.2), TokenTree([0, 1, 0, 2], [-1, -1, 0, -1]), GROWTH]
)
@pytest.mark.parametrize("temperature", one_of(__name__, [0.0, 1.0]))
def test_narrow_rows_draft_the_same_tokens(kind, draft, temperature, monkeypatch):
    head = random_head(TARGET, kind, ids=IDS)
    drafter = (MtpDrafter if kind == "mtp" else EagleDrafter)(TARGET, head, draft)

    def drafts():
        output = generate(TARGET, PROMPT, drafter, 24, temperature, seed=3)
        return [(step.tree.tokens.tolist(), step.tree.parents) for step in output.steps]

    narrow = drafts()
    begin = FeatureSession.__init__

    def wide(session, *arguments):
        begin(session, *arguments)
        session.ids = None

    monkeypatch.setattr(FeatureSession, "__init__", wide)
    assert drafts() == narrow
    assert {token for tokens, _ in narrow for token in tokens} <= set(IDS.tolist())
