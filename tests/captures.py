"""A stand-in for a captured graph on a machine without a GPU."""

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


def replayed(run):
    """Return (a replay, its static outputs): every replay runs again and writes to the outputs."""
    out = tree_map_only(Tensor, Tensor.clone, run())

    def replay():
        for one, fresh in zip(tree_leaves(out), tree_leaves(run()), strict=True):
            if one is not None:
                one.copy_(fresh)

    return replay, out
