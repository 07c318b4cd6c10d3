"""What travels between a drafter, a rule and the loop: a proposal, the verdict on it, and the step."""

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from operator import index

import torch
from torch import Tensor

from specdec_lite.checks import SUM_TOLERANCE
from specdec_lite.transfer import download, upload
from specdec_lite.tree import TokenTree

Draws = tuple[tuple[int, int | None], ...]
"""The acceptable children of one node in sibling order, each as (node, row of probs or None)."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A drafted tree, and the distributions that its draws were really made from.

    Attributes:
        tree: the drafted tokens.
        probs: [d, V], one row per draw, in sibling order, after temperature, top-k, top-p and any
            exclusion. None if every token was *chosen*, not drawn, which is the same as a draw from
            a one-hot row.
        nodes: [d], the node on which each draw landed; two draws may land on one node. None if draw
            i made node i.
        candidates: the nodes that may be accepted; None for all. A node that is left out must have
            been chosen, since a drawn token may not be discarded after its value was looked at.
        states: (b, rows [1, n+1, d]) of the root and every node, computed in a view of the
            target's cache. The target's pass begins after block b with these rows.
        draws: for every node that has acceptable children, its `Draws`.
        numbers: what verification starts from, once it was read; see `read`.

    Raises:
        TypeError: tree is not a TokenTree, or probs is not a tensor.
        ValueError: the arguments do not fit together.
    """

    tree: TokenTree
    probs: Tensor | None = None
    nodes: Sequence[int] | None = None
    candidates: frozenset[int] | None = None
    states: tuple[int, Tensor] | None = None
    draws: dict[int, Draws] = field(init=False, repr=False)
    numbers: "DraftNumbers | None" = field(init=False, repr=False, default=None)

    def __post_init__(self):
        if not isinstance(self.tree, TokenTree):
            raise TypeError(f"tree is a {type(self.tree).__name__}: must be a TokenTree")
        if self.probs is not None and not isinstance(self.probs, Tensor):
            raise TypeError(
                f"probs is a {type(self.probs).__name__}: must be a tensor [d, V], or None"
            )
        nodes = self._nodes_of_draws()
        rows = [None] * len(nodes) if self.probs is None else range(len(nodes))
        if self.candidates is not None:
            self._check_candidates(zip(nodes, rows))
        siblings: dict[int, list[tuple[int, int | None]]] = {}
        for node, row in zip(nodes, rows):
            if self.candidates is None or node in self.candidates:
                siblings.setdefault(self.tree.parents[node], []).append((node, row))
        draws = {parent: tuple(children) for parent, children in siblings.items()}
        # A frozen dataclass allows no other way to set a field that follows from the others.
        object.__setattr__(self, "draws", draws)

    def _nodes_of_draws(self) -> Sequence[int]:
        """Return the node of every draw, after checking that draws and nodes fit."""
        count = len(self.tree)
        if self.probs is None:
            if self.nodes is not None:
                raise ValueError("nodes without probs: give one row of probs per draw, or neither")
            return range(count)  # chosen tokens: one draw per node, each from a one-hot row
        nodes = range(count) if self.nodes is None else [index(node) for node in self.nodes]
        if len(nodes) != len(self.probs):
            raise ValueError(
                f"probs has {len(self.probs)} rows for {len(nodes)} draws: give exactly one row"
                " for every draw"
            )
        if self.nodes is not None and set(nodes) != set(range(count)):
            raise ValueError(
                f"nodes={list(nodes)}: every one of the {count} nodes must come from a draw, and"
                " every draw must land on a node"
            )
        return nodes

    def _check_candidates(self, draws: Iterable[tuple[int, int | None]]) -> None:
        """Raise ValueError if a candidate does not exist or a drawn node is not a candidate."""
        candidates = self.candidates or frozenset()
        unknown = sorted(candidates - set(range(len(self.tree))))
        if unknown:
            raise ValueError(
                f"candidates contains {unknown[0]}: the tree's nodes are 0 … {len(self.tree) - 1}"
            )
        tokens = self.tree.tokens.tolist()
        for node, row in draws:
            if node not in candidates and not self._is_chosen(tokens[node], row):
                raise ValueError(
                    f"candidates leaves out node {node}, which was drawn: only chosen tokens"
                    " (one-hot rows) may be left out, since discarding a drawn token changes"
                    " the distribution of the text"
                )

    def _is_chosen(self, token: int, row: int | None) -> bool:
        """Return whether a draw's row is one-hot on its token."""
        if row is None or self.probs is None:
            return True
        return 0 <= token < self.probs.shape[-1] and bool(self.probs[row, token] == 1)

    def trimmed(self, levels: int) -> "Proposal":
        """Return the first levels of the proposal; legal because it looks at no token.

        Nodes keep their order. Nodes that are numbered level by level keep their numbers.

        Args:
            levels: the largest number of levels, ≥ 0.
        """
        if self.tree.levels <= levels:
            return self
        tree, old = self.tree.prune(self.tree.above(levels))
        new = {node: number for number, node in enumerate(old)}
        if self.probs is None:
            probs = nodes = None
        else:
            rows = [row for row, node in enumerate(self._nodes_of_draws()) if node in new]
            probs = self.probs[rows]
            nodes = None if self.nodes is None else [new[self.nodes[row]] for row in rows]
        candidates = self.candidates
        if candidates is not None:
            candidates = frozenset(new[node] for node in candidates if node in new)
        states = self.states
        if states is not None:  # row 0 is the root's
            block, hidden = states
            states = block, hidden[:, [0, *(node + 1 for node in old)]]
        return Proposal(tree=tree, probs=probs, nodes=nodes, candidates=candidates, states=states)

    def check_contents(self, vocab_size: int) -> None:
        """Look at every token and every row; for those who write a drafter, and for every test.

        It reads the device, and at a large vocabulary it costs as much as drawing.

        Args:
            vocab_size: the target's V.

        Raises:
            ValueError: a token is outside the target's vocabulary, or a row is not a distribution.
        """
        outside = [token for token in self.tree.tokens.tolist() if not 0 <= token < vocab_size]
        if outside:
            raise ValueError(
                f"the drafter proposed token {outside[0]}: the target's token ids are 0 …"
                f" {vocab_size - 1}"
            )
        if self.probs is None:
            return
        if not bool(((self.probs.sum(-1) - 1).abs() < SUM_TOLERANCE).all()):
            sums = self.probs.sum(-1).tolist()
            raise ValueError(f"the drafter's probs must sum to 1 in every row; they sum to {sums}")
        if bool((self.probs < 0).any()):
            least = self.probs.min().item()
            raise ValueError(f"the drafter's probs contain {least}: probabilities must be ≥ 0")

    @property
    def is_plain_chain(self) -> bool:
        """Return whether this is a chain with one draw per level and no node ruled out."""
        return (
            self.tree.is_chain
            and self.candidates is None
            and all(len(draws) == 1 for draws in self.draws.values())
        )

    def read(self, target_probs: Tensor, **parts: Tensor) -> tuple["Proposal", dict[str, list]]:
        """Copy the numbers that verification starts from to the host, in one transfer.

        Args:
            target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
            parts: further tensors [n_i] on the same device to copy with them.

        Returns:
            This proposal with its `numbers`, and the values of the further tensors by name.
        """
        # p of every node and q of every draw are gathered on the device, so that a round waits for
        # it once; the rows of V numbers stay there.
        device = target_probs.device
        tokens = upload(self.tree.tokens, device)
        before = upload([parent + 1 for parent in self.tree.parents], device, torch.long)
        parts = {"tokens": tokens, "p": target_probs[before, tokens], **parts}
        probs = self.probs
        if probs is not None:
            probs = upload(probs, device)
            nodes = tokens if self.nodes is None else tokens[upload(list(self.nodes), device)]
            parts["q"] = probs.gather(-1, nodes[:, None])[:, 0]
        host = download(**parts)
        ids = tuple(map(int, host["tokens"]))
        other = copy(self)  # not `replace`, which would check the same proposal again
        object.__setattr__(other, "probs", probs)
        object.__setattr__(other, "numbers", DraftNumbers(ids, host["p"], host.get("q")))
        return other, host


@dataclass(frozen=True, slots=True)
class DraftNumbers:
    """The numbers of a proposal on the host.

    Attributes:
        tokens: the token of every node.
        p: for every node, the target's probability of its token.
        q: for every draw, the probability of its token in its row; None if all were chosen.
    """

    tokens: tuple[int, ...]
    p: list[float]
    q: list[float] | None

    def q_of(self, row: int | None) -> float:
        """Return the probability of a draw in its own row; 1 for a chosen token."""
        return 1.0 if row is None or self.q is None else self.q[row]

    def p_and_q(self, node: int, row: int | None) -> tuple[float, float]:
        """Return p(x) and q(x) of a draw x, where p is the target's own row."""
        return self.p[node], positive(self.q_of(row), self.tokens[node])


def positive(q: float, token: int) -> float:
    """Return q(x) of a token x that was drawn; raise ValueError if it is 0."""
    if not q > 0:
        raise ValueError(
            f"token {token} has draft probability {q}: it cannot have been drawn from this row of"
            " probs"
        )
    return q


NOTHING = Proposal(TokenTree((), ()))
"""The empty proposal, for a round in which there is nothing to propose."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided on a proposal. The round fills in the last four attributes.

    Attributes:
        path: the accepted nodes, from the root's child down.
        token: the token that follows them.
        kind: "recovered" (after a rejection), "bonus" (after a fully accepted path), or "sampled"
            (nothing was tested).
        tests: number of draws tested at each level.
        tokens: the token of every node.
        p: for every node, the target's probability of its token.
        q: for every node, its token's probability in the row of its first draw; 1 if chosen.
        coins: the uniforms of the tests, in order.
    """

    path: tuple[int, ...]
    token: int
    kind: str
    tests: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    p: tuple[float, ...] = ()
    q: tuple[float, ...] = ()
    coins: tuple[float, ...] = ()

    @property
    def tested(self) -> int:
        """Return the number of draws tested."""
        return sum(self.tests)


@dataclass(frozen=True, slots=True)
class Step:
    """What one round did, cut off after the first stop token.

    Attributes:
        tokens: the emitted ids in order.
        tree: what was drafted.
        path: the accepted nodes of the tree.
        token: the token that the target added; None if a drafted stop token ended the text.
        kind: "recovered", "bonus" or "sampled", as in `Verdict`; None if token is None.
        tests: number of draws tested at each level.
        p: for every node, the target's probability of its token.
        q: for every node, the drafter's probability of its token; 1 if chosen.
        draw_counts: number of draws that landed on each node; 0 if it could not be accepted.
        coins: the uniforms of the tests, in order; empty if the rule draws none.
        logprobs: for every emitted token, its log-probability under the target's logits, after
            processors and before temperature, top-k and top-p; empty unless they were asked for.
        draft_passes: forward passes of the drafter.
        drafting: seconds spent drafting (on a GPU between events in its queue).
        verifying: seconds spent in the target's pass (on a GPU between events in its queue).
        other: seconds spent on everything else.
    """

    tokens: tuple[int, ...]
    tree: TokenTree
    path: tuple[int, ...]
    token: int | None
    kind: str | None
    tests: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    draw_counts: tuple[int, ...]
    coins: tuple[float, ...] = ()
    logprobs: tuple[float, ...] = ()
    draft_passes: int = 0
    drafting: float = 0.0
    verifying: float = 0.0
    other: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole round."""
        return self.drafting + self.verifying + self.other

    @property
    def accepted(self) -> int:
        """Return the number of accepted nodes."""
        return len(self.path)

    @property
    def tested(self) -> int:
        """Return the number of draws tested."""
        return sum(self.tests)

    @property
    def drafted(self) -> int:
        """Return the number of draws made, without levels after a stop token.

        A node that could not be accepted is not a draw.
        """
        if self.kind is not None:
            return sum(self.draw_counts)
        depth = self.tree.depth.tolist()
        return sum(count for count, level in zip(self.draw_counts, depth) if level < len(self.path))

    @classmethod
    def of(cls, proposal: Proposal, verdict: Verdict, stops: Collection[int] = ()) -> "Step":
        """Return the step that a verdict makes, cut off after the first stop token."""
        # The proposal's tokens may be on a device; the verdict's were read already.
        tree = TokenTree.trusted(torch.tensor(verdict.tokens).long(), proposal.tree.parents)
        emitted = [*(verdict.tokens[node] for node in verdict.path), verdict.token]
        stop = next((i for i, token in enumerate(emitted) if token in stops), len(emitted))
        is_cut = stop < len(verdict.path)  # a drafted token ends the text
        counts = [0] * len(tree)
        for children in proposal.draws.values():
            for node, _ in children:
                counts[node] += 1
        return cls(
            tokens=tuple(emitted[: stop + 1]),
            tree=tree,
            path=verdict.path[: stop + 1],
            token=None if is_cut else verdict.token,
            kind=None if is_cut else verdict.kind,
            tests=verdict.tests[: stop + 1] if is_cut else verdict.tests,
            p=verdict.p,
            q=verdict.q,
            draw_counts=tuple(counts),
            coins=verdict.coins,
        )


def with_logprobs(step: Step, logits: Tensor) -> Step:
    """Return a step with the log-probabilities of its tokens.

    Shapes: logits [n+1, V] of the root and of the accepted path, so row i precedes token i.
    """
    rows = logits[: len(step.tokens)]
    rows = rows if rows.dtype == torch.float64 else rows.float()
    tokens = upload(list(step.tokens), rows.device)
    values = rows.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    return replace(step, logprobs=tuple(values.tolist()))


def one_hot(token: int, like: Tensor) -> Tensor:
    """Return the distribution of a chosen token: all probability on it.

    Args:
        token: an id.
        like: [V], whose shape, dtype and device the result has.
    """
    row = torch.zeros_like(like)
    row[token] = 1
    return row
