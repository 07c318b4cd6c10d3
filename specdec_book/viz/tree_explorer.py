"""The tree-mask explorer: a token tree, its attention mask, and its expected tokens per pass."""

from collections import Counter

import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_lite.tree import TokenTree

MAX_NODES = 16
MAX_DEPTH = 6
MASKS = ("tree", "causal")
SAMPLE = {
    "context": "Once upon a time there was a",
    "accuracies": [
        [0.6, 0.15, 0.08, 0.04],
        [0.45, 0.14, 0.08, 0.05],
        [0.32, 0.12, 0.07, 0.05],
        [0.22, 0.1, 0.06, 0.04],
    ],
    "guesses": [
        ["little", "girl", "boy", "dog"],
        ["girl", "boy", "named", "dog"],
        ["named", "who", "called", "and"],
        ["Lily", "Tom", "Max", "Mia"],
    ],
}


class TreeExplorer(Interactive):
    """A token tree that the reader edits, with its mask, its positions and its value.

    The value of a tree is 1 + Σ over nodes of the product of accuracies along the node's path: the
    expected tokens per target pass if the heads are right independently (Cai et al. 2024, section
    2.3.3). A node's r-th child holds the r-th guess. `parents` and `mask_kind` follow the reader: a
    kernel reads the tree as `TokenTree(tokens, explorer.parents)`.

    Attributes:
        parents: At most 16 nodes as in `TokenTree`: parents[i] < i, -1 for children of the root.
        accuracies: One row per head, at most 6. accuracies[d][r] is the probability that guess r of
            head d is right if the path to it is; a row does not increase and sums to at most 1.
        budget: Number of nodes in the reader's task, 1 … 16.
        mask_kind: Mask on display: "tree" (ancestors and itself) or "causal" (all earlier nodes).
        guesses: Words of the guesses, by head and rank; may be empty.
        context: The committed text; may be empty.
    """

    module = "tree_explorer"
    label = (
        "Tree-mask explorer: a token tree, the mask that keeps its branches apart, and what the"
        " tree is worth"
    )

    parents = traitlets.List(traitlets.Int(), [-1, -1, 0, 0, 0, 1, 1, 1])
    accuracies = traitlets.List(
        traitlets.List(traitlets.Float(min=0, max=1)),
        SAMPLE["accuracies"],
        minlen=1,
        maxlen=MAX_DEPTH,
    )
    budget = traitlets.Int(8, min=1, max=MAX_NODES)
    mask_kind = traitlets.Enum(MASKS, "tree")
    guesses = traitlets.List(traitlets.List(traitlets.Unicode()))
    context = traitlets.Unicode()

    def __init__(self, **traits):
        if "accuracies" not in traits:
            traits = {"guesses": SAMPLE["guesses"], "context": SAMPLE["context"]} | traits
        super().__init__(**traits)
        check_parents(self.parents, self.accuracies)

    @traitlets.validate("parents")
    def _is_tree(self, proposal):
        check_parents(proposal.value, None)
        return proposal.value

    @traitlets.validate("accuracies")
    def _are_probabilities(self, proposal):
        for head, row in enumerate(proposal.value):
            if (
                not row
                or sum(row) > 1 + 1e-9
                or any(later > earlier for earlier, later in zip(row, row[1:]))
            ):
                raise traitlets.TraitError(
                    f"accuracies[{head}]={row}: must hold at least one probability, must not"
                    " increase from rank to rank and must sum to at most 1"
                )
        return proposal.value


def check_parents(parents: list[int], accuracies: list[list[float]] | None) -> None:
    """Check that parents form a tree for which the heads have guesses."""
    if len(parents) > MAX_NODES:
        raise traitlets.TraitError(f"parents has {len(parents)} nodes: must be at most {MAX_NODES}")
    try:
        depth = TokenTree([0] * len(parents), parents).depth.tolist()
    except ValueError as error:
        raise traitlets.TraitError(str(error)) from None
    if accuracies is None:
        return
    for node, level in enumerate(depth):
        if level >= len(accuracies):
            raise traitlets.TraitError(
                f"parents puts node {node} at depth {level}: accuracies has {len(accuracies)}"
                f" heads, so at most {len(accuracies) - 1}"
            )
    for parent, count in Counter(parents).items():
        ranks = len(accuracies[depth[parent] + 1 if parent >= 0 else 0])
        if count > ranks:
            raise traitlets.TraitError(
                f"parents gives node {parent} {count} children: accuracies has {ranks} guesses"
                " there"
            )
