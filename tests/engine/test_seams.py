"""The options of a pass: trees over cached nodes, passes from states, views and copies of a cache.

Each is compared with one plain pass over the same text.
"""

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from models_zoo import PROMPT, WINDOW, hugging_face, native
from strategies import trees

from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.tree import TokenTree

MODELS = {"full attention": native(num_layers=3), "window": native(num_layers=3, window=WINDOW)}
EVERY = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def level_by_level(tree):
    """Return the same tree with its nodes numbered by level."""
    depth = tree.depth.tolist()
    order = sorted(range(len(tree)), key=lambda node: (depth[node], node))
    new = {-1: -1} | {node: index for index, node in enumerate(order)}
    parents = [new[tree.parents[node]] for node in order]
    return TokenTree(tree.tokens[order], parents)


def prefilled(model):
    cache = model.new_cache()
    model.score(PROMPT[:-1], cache)
    return cache


FIXED = StaticLM(MODELS["full attention"], 64, sizes=(1, 2, 3, 5, 10))


@pytest.mark.parametrize("kind", [*MODELS, "Llama", "Gemma2", "Mistral", "fixed shapes"])
@settings(max_examples=25)
@given(tree=trees(size=9).filter(len).map(level_by_level), alone=st.booleans())
@example(TokenTree(range(20, 36), [-1, -1, *range(14)]), True)
def test_a_tree_scored_by_level_equals_one_scored_at_once(kind, tree, alone):
    """The windows are shorter than the example's paths, where a cached node's slot is not its place.

    The root is fed alone, or with the nodes of the first level.
    """
    model = FIXED if kind == "fixed shapes" else MODELS.get(kind) or hugging_face(kind)
    if kind == "fixed shapes":
        tree = tree.prune(range(min(9, len(tree))))[0]
    tokens = tree.tokens.tolist()
    at_once, in_parts = prefilled(model), prefilled(model)
    whole = model.score([PROMPT[-1], *tokens], at_once, tree).logits[0]
    rows = [model.score([PROMPT[-1]], in_parts).logits[0]] if alone else []
    stored = 0
    for level in range(1, tree.levels + 1):
        count = len(tree.above(level))
        part = TokenTree(tokens[:count], tree.parents[:count])
        root = [] if alone or stored else PROMPT[-1:]
        fed = [*root, *tokens[stored:count]]
        rows.append(model.score(fed, in_parts, part, cached=stored).logits[0])
        stored = count
    close = 1e-5 if kind in ("Gemma2", "Mistral") else 1e-10  # they round angles to float32
    assert (torch.cat(rows) - whole).abs().max() < close
    leaf = tree.path(len(tree) - 1)
    after = []
    for cache in (at_once, in_parts):
        assert cache.root == len(PROMPT) - 1
        cache.keep((0, *(node + 1 for node in leaf)))
        assert cache.length == len(PROMPT) + len(leaf)
        after.append(model.score([3], cache).logits)
    assert (after[0] - after[1]).abs().max() < close


@EVERY
@pytest.mark.parametrize("block", [0, 1, 3])
def test_a_pass_may_start_after_any_block(model, block):
    """A view has computed and stored the blocks before it."""
    fed = [PROMPT[-1], 4, 8]
    cache = prefilled(model)
    whole = model.score(fed, cache, hidden_layers=(block, "final"))
    other = prefilled(model)
    if block:
        model.score(fed, other.view(layers=block))
    rows = whole.hidden[block]
    rest = model.score(fed, other, hidden_layers=(block, "final"), states=(block, rows))
    assert (rest.logits - whole.logits).abs().max() < 1e-12
    assert torch.equal(rest.hidden[block], rows)
    again = [model.score([7], each).logits for each in (cache, other)]
    assert (again[0] - again[1]).abs().max() < 1e-12, "the keys after the block are stored"


@EVERY
def test_a_selection_keeps_true_positions(model):
    """A copy of all entries equals the cache; a copy of some equals a mask of the others."""
    cache = prefilled(model)
    fed = [PROMPT[-1], 4, 8]
    whole = model.score(fed, prefilled(model)).logits
    copy = cache.select(range(cache.length))
    assert (model.score(fed, copy).logits - whole).abs().max() < 1e-12
    assert cache.length == len(PROMPT) - 1, "drafted tokens do not reach the full cache"
    slots = [0, 1, 5, 6, 7, 8]
    few = cache.select(slots, room=1)
    assert few.positions().tolist() == slots and few.shift == len(PROMPT) - 1 - len(slots)
    ours = torch.cat([model.score([token], few).logits for token in fed], dim=1)
    theirs = masked(model, fed, slots)
    assert (ours - theirs).abs().max() < 1e-12
    tree = TokenTree([4, 8], [-1, -1])
    branches = model.score([PROMPT[-1], 4, 8], cache.select(slots), tree).logits[0]
    assert (branches[1] - theirs[0, 1]).abs().max() < 1e-12


def masked(model, fed, slots):
    """Return the logits of `fed` after the prompt, of which only the entries `slots` are visible.

    It is one pass of the bare module with a mask.
    """
    cache = prefilled(model)
    count, length = len(fed), cache.length
    mask = torch.ones(count, length + count, dtype=torch.bool).tril(length)
    mask[:, [slot for slot in range(length) if slot not in slots]] = False
    positions = torch.arange(length, length + count)
    if model.model.config.window is not None:
        keys = torch.arange(length + count)
        mask &= keys[None] > positions[:, None] - model.model.config.window
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill_(~mask, -torch.inf)
    cache.storage.reserve(length + count)
    ids = torch.tensor([fed])
    return model.model(ids, cache.storage.tensors, length, positions, bias)


def test_a_view_leaves_sublayers_out():
    """As if they returned zeros; the whole model has filled the cache."""
    model = native(num_layers=3)
    cache = prefilled(model)
    views = cache.view(skip=[(1, "attention"), (2, "mlp")]), cache.view(), cache.view()
    ours, plain = (model.score([PROMPT[-1]], view).logits for view in views[:2])
    model.model.blocks[1].out.weight.zero_()
    model.model.blocks[2].down.weight.zero_()
    silent = model.score([PROMPT[-1]], views[2]).logits
    assert (ours - silent).abs().max() < 1e-12 and (ours - plain).abs().max() > 0.1
    assert cache.length == len(PROMPT) - 1


@pytest.mark.parametrize("kind", ["full attention", "Llama", "fixed shapes"])
def test_a_pass_without_logits_has_the_same_states_and_keys(kind):
    model = MODELS.get(kind) or hugging_face("Llama")
    if kind == "fixed shapes":
        model = StaticLM(MODELS["full attention"], 64, sizes=(1, 10))
    with_head, without = model.new_cache(), model.new_cache()
    right = model.score(PROMPT, with_head, hidden_layers=(1, "final"))
    scores = model.score(PROMPT, without, hidden_layers=(1, "final"), logits=False)
    assert all(torch.allclose(scores.hidden[b], right.hidden[b]) for b in (1, "final"))
    assert scores.logits.shape[1] == (10 if kind == "Llama" else 0)
    after = [model.score([3], cache).logits for cache in (with_head, without)]
    assert (after[0] - after[1]).abs().max() < 1e-10


def test_stored_keys_can_be_read_from_native_models():
    model = MODELS["full attention"]
    cache = prefilled(model)
    for layer in range(3):
        assert cache.keys(layer).shape == (1, 2, len(PROMPT) - 1, 8)
        assert torch.equal(cache.keys(layer)[0], cache.storage.tensors.keys[layer, 0, :, :9])
