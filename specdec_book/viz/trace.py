"""A decoded text that marks every drafted token as accepted, rejected or unused.

`trace` shows finished steps as plain HTML, the same in a notebook and on a page.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from specdec_book.viz.sketch import style
from specdec_lite.decoding import Output, Stats
from specdec_lite.proposal import Step

KINDS = {
    "accepted": "drafted, verified and accepted",
    "rejected": "drafted, verified and rejected",
    "recovered": "chosen by the target in place of a rejected token",
    "bonus": "added by the target after all drafts were accepted",
    "unused": ("drafted but not used: after a rejection or a stop token, or off the accepted path"),
    "sampled": "decoded without a draft",
}
DISCARDED = {"rejected", "unused"}


def quoted(text: str) -> str:
    """Return a token's text in quotes, with escaped line ends."""
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a pass.

    Attributes:
        kind: A key of KINDS.
        text: The token's text.
        p: Target's probability of a drafted token; None if the step did not record it.
        q: Drafter's probability of it, 1 for a chosen token; None if not recorded.
        u: Uniform of its test; None if there was no test.
    """

    kind: str
    text: str
    p: float | None = field(default=None, compare=False)
    q: float | None = field(default=None, compare=False)
    u: float | None = field(default=None, compare=False)

    def description(self, number: int) -> str:
        """Return one line about the token, which a reader opens on it."""
        numbers = "" if self.p is None else f", p = {self.p:.2g}, q = {self.q:.2g}"
        numbers += "" if self.u is None else f", u = {self.u:.2g}"
        return f"pass {number}: {self.kind}, {KINDS[self.kind]}{numbers}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The tokens of a generation, as `trace` returns them.

    Attributes:
        passes: The tokens of each target pass, in the order of display.
        stats: Counts of the whole generation.
        prompt: End of the text before the first pass.
    """

    passes: tuple[tuple[Piece, ...], ...]
    stats: Stats
    prompt: str

    def __repr__(self) -> str:
        words = lambda row: " · ".join(f"{piece.kind} {quoted(piece.text)}" for piece in row)
        lines = [f"pass {n}: {words(row)}" for n, row in enumerate(self.passes, start=1)]
        return "\n".join([self.summary, *lines])

    @property
    def summary(self) -> str:
        """The counts of the generation, in a sentence."""
        s, count = self.stats, self.count
        drafts = (
            f", {count('accepted')} accepted, {count('rejected')} rejected, {count('recovered')}"
            f" recovered and {count('bonus')} bonus"
            if s.drafted
            else ""
        )
        return (
            f"{s.tokens} tokens in {s.target_passes} target passes (τ ="
            f" {s.mean_acceptance_length:.2f}){drafts}."
        )

    def count(self, kind: str) -> int:
        """Return the number of tokens of one kind, a key of KINDS."""
        return sum(piece.kind == kind for row in self.passes for piece in row)

    def _repr_html_(self) -> str:
        kinds = [kind for kind in KINDS if self.count(kind)]
        legend = "".join(f"<li>{_token(kind, kind)} {escape(KINDS[kind])}</li>" for kind in kinds)
        switch = (
            '<label><input type="checkbox" checked> show discarded drafts</label>'
            if DISCARDED & set(kinds)
            else ""
        )
        text = "".join(_pass(number, row) for number, row in enumerate(self.passes, start=1))
        return (
            f'{style()}<section class="sdl sdl-fates sdl-trace" aria-label="Token'
            f' trace"><p class="sdl-summary">{escape(self.summary)}</p><ul'
            f' class="sdl-legend">{legend}</ul>{switch}<div class="sdl-text"><span'
            f' class="sdl-prompt">{escape(self.prompt)}</span>{text}</div>'
            f"{self._strip()}{self._table()}</section>"
        )

    def _strip(self) -> str:
        """Return the tokens as boxes, one column per pass, which shows what each pass gained."""
        box = '<i class="sdl-{}"></i>'.format
        columns = "".join(
            f"<span>{''.join(box(piece.kind) for piece in row)}</span>" for row in self.passes
        )
        return f'<div class="sdl-strip" aria-hidden="true">{columns}</div>'

    def _table(self) -> str:
        columns = [kind for kind in KINDS if self.count(kind)]
        head = "".join(f'<th scope="col">{name}</th>' for name in ("pass", *columns))
        rows = ""
        for number, row in enumerate(self.passes, start=1):
            cells = (
                " ".join(quoted(piece.text) for piece in row if piece.kind == kind)
                for kind in columns
            )
            body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            rows += f'<tr><th scope="row">{number}</th>{body}</tr>'
        return (
            '<details><summary>Table of all passes</summary><div class="sdl-scroll"'
            ' tabindex="0" role="group" aria-label="Trace as a table"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
        )


def trace(output: Output, tokenizer, prompt: str = "") -> Trace:
    """Show every drafted token of a generation and whether it was accepted."""
    pieces = tuple(_pieces(step, tokenizer) for step in output.steps)
    return Trace(pieces, output.stats, shorten_prompt(prompt, 400))


def shorten_prompt(prompt: str, length: int = 240) -> str:
    """Return the last `length` characters of a prompt, after an ellipsis if some are missing."""
    return prompt if len(prompt) <= length else "…" + prompt[-length:]


def _pieces(step: Step, tokenizer) -> tuple[Piece, ...]:
    drafts = step.tree.tokens.tolist()
    rejected = rejected_nodes(step)
    unused = [node for node in range(len(drafts)) if node not in {*step.path, *rejected}]
    uniforms = dict(zip(verified_nodes(step), step.coins))

    def piece(kind: str, node: int) -> Piece:
        p, q = (step.p[node], step.q[node]) if step.p else (None, None)
        return Piece(kind, tokenizer.decode([drafts[node]]), p, q, uniforms.get(node))

    groups = (("accepted", step.path), ("rejected", rejected), ("unused", unused))
    row = [piece(kind, node) for kind, nodes in groups for node in nodes]
    if step.token is not None:
        row.append(Piece(str(step.kind), tokenizer.decode([step.token])))
    return tuple(row)


def verified_nodes(step: Step) -> tuple[int, ...]:
    """Return the node of each test, in the order of the tests.

    Empty if several draws landed on one node: a test then has no node of its own.
    """
    if step.tree.is_chain:
        return tuple(range(step.tested))
    if max(step.draw_counts) > 1:
        return ()
    drawn = (
        [child for child in step.tree.children(parent) if step.draw_counts[child]][:count]
        for parent, count in zip((-1, *step.path), step.tests)
    )
    return tuple(node for nodes in drawn for node in nodes)


def rejected_nodes(step: Step) -> tuple[int, ...]:
    """Return the nodes that were verified and rejected.

    These are the earlier siblings of accepted nodes, and all children of the node where the walk
    ended in a recovered token.
    """
    parents = (-1, *step.path)
    earlier = [
        child
        for parent, accepted in zip(parents, step.path)
        for child in step.tree.children(parent)
        if child < accepted
    ]
    return (*earlier, *(step.tree.children(parents[-1]) if step.kind == "recovered" else ()))


def _token(kind: str, text: str, description: str = "") -> str:
    tag = "del" if kind in DISCARDED else "ins" if kind in ("recovered", "bonus") else "span"
    mark = '<span class="sdl-newline" aria-hidden="true">⏎</span>'
    html = escape(text).replace("\n", mark if tag == "del" else mark + "\n")
    title = f' title="{escape(description)}"' if description else ""
    return f'<{tag} class="sdl-token sdl-{kind}"{title}>{html}</{tag}>'


def _pass(number: int, row: Sequence[Piece]) -> str:
    html, last = '<span class="sdl-pass">', None
    for piece in row:
        if piece.kind != last:
            html += f'<span class="sdl-hidden"> {piece.kind}: </span>'
        html += _token(piece.kind, piece.text, piece.description(number))
        last = piece.kind
    return html + "</span>"
