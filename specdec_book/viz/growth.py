"""Two trees of one size: one expanded by the draft's confidence, one with a fixed shape."""

from collections.abc import Sequence
from copy import copy

import torch
import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_book.viz.sketch import visible
from specdec_lite.contract import Context
from specdec_lite.decoding import generate
from specdec_lite.drafters.eagle import EagleDrafter, FeatureSession
from specdec_lite.drafters.trees import ConfidenceTree
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.tree import TokenTree

MAX_NODES = 12
STATIC_TREE = TokenTree.best([[0.6, 0.15, 0.08, 0.05]] * 5, MAX_NODES)


class TreeGrowth(Interactive):
    """Trees that grow node by node up to a budget, the likeliest node first.

    A tree is a list of at most 12 nodes {"word", "parent", "worth", "right"}, parents before
    children. "worth": product of q along the node's path. "right": whether the target's greedy text
    runs through the node.
    """

    module = "growth"
    label = "A tree that grows with the drafter's confidence, beside a tree with a fixed shape"

    contexts = traitlets.List(traitlets.Dict(), minlen=1)  # {"text", "grown", "static"} each
    budget = traitlets.Int(8, min=1, max=MAX_NODES)  # nodes on display
    context = traitlets.Int(0, min=0)  # number of the text on display

    @classmethod
    def of(cls, drafter: EagleDrafter, tokenizer, texts: Sequence[str], **traits) -> "TreeGrowth":
        """Return both trees that a drafter proposes greedily after each text."""
        return cls(contexts=[draft_trees(drafter, tokenizer, text) for text in texts], **traits)


class RecordingSession(FeatureSession):
    """A session that records the logits [V] of every expanded node."""

    def _score(self, tokens, states, tree=None, cached=0):
        logits, following = super()._score(tokens, states, tree, cached)
        if tree is None:  # after the text; its levels are scored by `_score_level`
            self.paths, self.rows = [()], {(): self._spread(logits)[0]}
        return logits, following

    def _spread(self, logits):
        return self.head.spread(logits, self.target.vocab_size)

    def _score_level(self, tokens, above):
        logits = super()._score_level(tokens, above)
        self.paths = [
            (*self.paths[parent], token) for token, parent in zip(tokens.tolist(), above.tolist())
        ]
        self.rows.update(zip(self.paths, self._spread(logits)))
        return logits


@torch.inference_mode()
def draft_trees(drafter: EagleDrafter, tokenizer, text: str, levels: int = 5) -> dict:
    """Return one context of `TreeGrowth` as JSON types."""
    target = drafter.target
    ids = torch.tensor(tokenizer.encode(text))
    truth = generate(target, ids, max_new_tokens=levels, stop_token_ids=()).tokens.tolist()
    scores = target.score(ids[:-1], target.new_cache(), hidden_layers=drafter.hidden_layers)
    context = Context(ids, scores, Sampling(0.0), SeededRng(0), levels + 1, target.vocab_size, None)
    pool = ConfidenceTree(4, levels, 4 + 16 * levels)
    trees = {"text": tokenizer.decode(ids[-16:])}
    for name, draft in (("grown", pool), ("static", STATIC_TREE)):
        other = copy(drafter)
        other.draft = draft
        session = RecordingSession(other, context)
        tree = session.propose(context).tree
        trees[name] = nodes_of(tree, session.rows, truth, tokenizer, name == "grown")
    return trees


def nodes_of(
    tree: TokenTree, rows: dict, truth: list[int], tokenizer, by_worth: bool
) -> list[dict]:
    """Return the first 12 nodes of a tree as JSON types.

    Shapes: rows [V].
    """
    tokens = tree.tokens.tolist()
    worth: list[float] = []
    for token, parent in zip(tokens, tree.parents):
        above = worth[parent] if parent >= 0 else 1.0
        path = tuple(tokens[node] for node in tree.path(parent))
        worth.append(above * float(rows[path].softmax(-1)[token]))
    nodes = range(len(tree))
    order = sorted(nodes, key=lambda node: -worth[node]) if by_worth else list(nodes)
    order = order[:MAX_NODES]
    rank = {-1: -1} | {node: number for number, node in enumerate(order)}
    return [
        {
            "word": visible(tokenizer.decode([tokens[node]])),
            "parent": rank[tree.parents[node]],
            "worth": round(worth[node], 4),
            "right": [tokens[n] for n in tree.path(node)] == truth[: len(tree.path(node))],
        }
        for node in order
    ]
