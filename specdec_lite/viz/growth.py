"""Two trees of one size side by side: one that grows where the draft is sure, one of a fixed shape."""

from collections.abc import Sequence

import torch
import traitlets

from specdec_lite.decoding import generate
from specdec_lite.drafters.eagle import EagleDrafter
from specdec_lite.drafters.feature_session import FeatureSession
from specdec_lite.drafters.grow import Growth
from specdec_lite.sampling import Sampling, SeededRng
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree
from specdec_lite.viz.interactive import Interactive
from specdec_lite.viz.sketch import seen

MAX_NODES = 24
SHAPE = TokenTree.best([[0.6, 0.15, 0.08, 0.05]] * 5, MAX_NODES)


class TreeGrowth(Interactive):
    """Trees that grow node by node under a budget, in the order of their worth.

    contexts: list of {"text", "grown", "static"}; either tree is a list of at most 24 nodes
    {"word", "parent", "worth", "right"}, the most valuable first, parents before children. worth:
    the product of q along the node's path. right: whether the target's greedy text goes through it.
    budget: nodes shown, 1 … 24. context: which text, from 0. Raises TraitError for anything else.
    """

    module = "growth"
    label = "A tree that grows with the draft's confidence, beside one of a fixed shape"

    contexts = traitlets.List(traitlets.Dict(), minlen=1).tag(sync=True)
    budget = traitlets.Int(8, min=1, max=MAX_NODES).tag(sync=True)
    context = traitlets.Int(0, min=0).tag(sync=True)

    @traitlets.validate("contexts")
    def _are_trees(self, proposal):
        for number, entry in enumerate(proposal.value):
            for name in ("grown", "static"):
                nodes = entry.get(name, ())
                parents = [node.get("parent", place) for place, node in enumerate(nodes)]
                ordered = all(-1 <= parent < place for place, parent in enumerate(parents))
                if not 1 <= len(nodes) <= MAX_NODES or not ordered:
                    raise traitlets.TraitError(
                        f"contexts[{number}][{name!r}]: must hold 1 … {MAX_NODES} nodes, each with"
                        " a parent before it"
                    )
        return proposal.value

    @classmethod
    def of(cls, drafter: EagleDrafter, tokenizer, texts: Sequence[str], **traits) -> "TreeGrowth":
        """What this drafter would propose after each text, greedily, grown and of a fixed shape."""
        return cls(contexts=[entry(drafter, tokenizer, text) for text in texts], **traits)


class Noted(FeatureSession):
    """Keeps the logits of every node that was expanded."""

    def _drafted(self, context, first):
        self.rows = {-1: first[0]}
        return super()._drafted(context, first)

    def _expand(self, tree, nodes):
        logits = super()._expand(tree, nodes)
        self.rows.update(zip(nodes, logits))
        return logits


@torch.inference_mode()
def entry(drafter: EagleDrafter, tokenizer, text: str, levels: int = 5) -> dict:
    """One context of `TreeGrowth`, as JSON types."""
    target = drafter.target
    ids = torch.tensor(tokenizer.encode(text), device=target.device)
    truth = generate(target, ids, max_new_tokens=levels).tokens.tolist()
    scores = target.score(ids[:-1], target.new_cache(), hidden_layers=drafter.hidden_layers)
    context = Context(ids, scores, Sampling(0.0), SeededRng(0), levels + 1, target.vocab_size, None)
    pool = Growth(4, levels, 4 + 16 * levels)
    made = {"text": tokenizer.decode(ids[-16:])}
    for name, draft in (("grown", pool), ("static", SHAPE)):
        session = Noted(target, drafter.head, drafter.body, draft, context)
        tree = session.propose(context).tree
        made[name] = nodes_of(tree, session.rows, truth, tokenizer, name == "grown")
    return made


def nodes_of(
    tree: TokenTree, rows: dict, truth: list[int], tokenizer, by_worth: bool
) -> list[dict]:
    """The first 24 nodes, in the order of their worth where that is the order of growth."""
    tokens = tree.tokens.tolist()
    worth: list[float] = []
    for token, parent in zip(tokens, tree.parents):
        above = worth[parent] if parent >= 0 else 1.0
        worth.append(above * float(rows[parent].softmax(-1)[token]))
    nodes = range(len(tree))
    order = sorted(nodes, key=lambda node: -worth[node]) if by_worth else list(nodes)
    order = order[:MAX_NODES]
    place = {-1: -1} | {node: number for number, node in enumerate(order)}
    return [
        {
            "word": seen(tokenizer.decode([tokens[node]])),
            "parent": place[tree.parents[node]],
            "worth": round(worth[node], 4),
            "right": [tokens[n] for n in tree.path(node)] == truth[: len(tree.path(node))],
        }
        for node in order
    ]
