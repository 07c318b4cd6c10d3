"""A decoded text with the fate of every drafted token: accepted, rejected, recovered, bonus.

What lives here: `trace`, a picture of finished steps in plain HTML, the same in a notebook and on a
page. What does not: stepping through a round (`stepper`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from specdec_lite.decoding import Output, Stats
from specdec_lite.speculation import Step
from specdec_lite.viz.interactive import STATIC

KINDS = {
    "accepted": "drafted, and kept by the target",
    "rejected": "drafted, tested and turned down",
    "recovered": "put by the target in place of a rejected token",
    "bonus": "added by the target after a draft accepted to its end",
    "unused": (
        "drafted, never used: behind a rejection or a stop token, or beside the accepted path"
    ),
    "sampled": "decoded without a draft",
}
THROWN_AWAY = {"rejected", "unused"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a pass: its kind (a key of KINDS), its text and, of a draft, the probabilities
    that the target (p) and the drafter (q; 1: chosen) gave it and the uniform (u) of its test,
    where the step knows them.
    """

    kind: str
    text: str
    p: float | None = field(default=None, compare=False)
    q: float | None = field(default=None, compare=False)
    u: float | None = field(default=None, compare=False)

    def told(self, number: int) -> str:
        """What is known of it, in a line: the card that a reader opens on it."""
        odds = "" if self.p is None else f", p = {self.p:.2g}, q = {self.q:.2g}"
        odds += "" if self.u is None else f", u = {self.u:.2g}"
        return f"pass {number}: {self.kind}, {KINDS[self.kind]}{odds}"


@dataclass(frozen=True, slots=True)
class Trace:
    """What `trace` returns. passes: one row of pieces per target pass, in the order in which they
    are shown.
    """

    passes: tuple[tuple[Piece, ...], ...]
    stats: Stats
    prompt: str

    def __repr__(self) -> str:
        lines = [
            " · ".join(
                f"{piece.kind} {json.dumps(piece.text, ensure_ascii=False)}" for piece in row
            )
            for row in self.passes
        ]
        return "\n".join(
            [
                self.summary,
                *(f"pass {number}: {line}" for number, line in enumerate(lines, start=1)),
            ]
        )

    @property
    def summary(self) -> str:
        """The counts in a sentence."""
        s, count = self.stats, self.count
        drafted = (
            f", {count('accepted')} accepted, {count('rejected')} rejected, {count('recovered')}"
            f" recovered and {count('bonus')} bonus"
            if s.drafted
            else ""
        )
        return (
            f"{s.tokens} tokens in {s.target_passes} target passes (τ ="
            f" {s.mean_acceptance_length:.2f}){drafted}."
        )

    def count(self, kind: str) -> int:
        """How many tokens are of this kind."""
        return sum(piece.kind == kind for row in self.passes for piece in row)

    def _repr_html_(self) -> str:
        style = (STATIC / "interactive.css").read_text(encoding="utf-8")
        kinds = [kind for kind in KINDS if self.count(kind)]
        legend = "".join(f"<li>{_token(kind, kind)} {escape(KINDS[kind])}</li>" for kind in kinds)
        switch = (
            '<label><input type="checkbox" checked> show the drafts that were thrown away</label>'
            if THROWN_AWAY & set(kinds)
            else ""
        )
        text = "".join(_pass(number, row) for number, row in enumerate(self.passes, start=1))
        return (
            f'<style>{style}</style><section class="sdl sdl-fates sdl-trace" aria-label="Token'
            f' trace"><p class="sdl-summary">{escape(self.summary)}</p><ul'
            f' class="sdl-legend">{legend}</ul>{switch}<div class="sdl-text"><span'
            f' class="sdl-prompt">{escape(self.prompt)}</span>{text}</div>'
            f"{self._strip()}{self._table()}</section>"
        )

    def _strip(self) -> str:
        """The same tokens as boxes, a column a pass: how much each brought."""
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
                " ".join(
                    json.dumps(piece.text, ensure_ascii=False)
                    for piece in row
                    if piece.kind == kind
                )
                for kind in columns
            )
            rows += (
                f'<tr><th scope="row">{number}</th>'
                + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
                + "</tr>"
            )
        return (
            '<details><summary>The same as a table, pass by pass</summary><div class="sdl-scroll"'
            ' tabindex="0" role="group" aria-label="Trace as a table"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
        )


def trace(
    output_or_steps: Output | Sequence[Step], tokenizer, prompt: str | Sequence[int] | None = None
) -> Trace:
    """Show what became of every drafted token of a generation.

    output_or_steps: what `generate` returned, or a list of `Step`s. tokenizer: anything with
    `decode(ids)`. prompt: the text or the ids before it; its end is shown in front. TypeError for
    anything else in place of steps.
    """
    steps = output_or_steps.steps if isinstance(output_or_steps, Output) else list(output_or_steps)
    wrong = next((step for step in steps if not isinstance(step, Step)), None)
    if wrong is not None:
        raise TypeError(
            f"output_or_steps holds a {type(wrong).__name__}: must be an Output or a list of Steps"
        )
    if prompt is None:
        before = ""
    else:
        before = prompt if isinstance(prompt, str) else tokenizer.decode(list(map(int, prompt)))
    return Trace(
        tuple(_pieces(step, tokenizer) for step in steps), Stats.of(steps), shown_end(before, 400)
    )


def shown_end(prompt: str, most: int = 240) -> str:
    """The last `most` characters of a prompt, with an ellipsis where some were cut."""
    return prompt if len(prompt) <= most else "…" + prompt[-most:]


def _pieces(step: Step, tokenizer) -> tuple[Piece, ...]:
    drafted = step.tree.tokens.tolist()
    gone = rejected_nodes(step)
    unused = [node for node in range(len(drafted)) if node not in step.path and node not in gone]

    coins = dict(zip(nodes_of_tests(step), step.coins))

    def draft(kind: str, node: int) -> Piece:
        odds = (step.p[node], step.q[node]) if step.p else (None, None)
        return Piece(kind, tokenizer.decode([drafted[node]]), *odds, coins.get(node))

    fates = (("accepted", step.path), ("rejected", gone), ("unused", unused))
    row = [draft(kind, node) for kind, nodes in fates for node in nodes]
    if step.token is not None:
        row.append(Piece(step.kind, tokenizer.decode([step.token])))
    return tuple(row)


def nodes_of_tests(step: Step) -> tuple[int, ...]:
    """The nodes of the tests, in their order; empty where several draws landed on one node, for
    then a test has no node of its own.
    """
    if step.tree.is_chain:
        return tuple(range(step.tested))
    if max(step.draws) > 1:
        return ()
    drawn = (
        [child for child in step.tree.children(parent) if step.draws[child]][:count]
        for parent, count in zip((-1, *step.path), step.tests)
    )
    return tuple(node for nodes in drawn for node in nodes)


def rejected_nodes(step: Step) -> tuple[int, ...]:
    """The nodes that were tested and turned down: earlier siblings of accepted nodes, and every
    child where the walk ended.
    """
    parents = (-1, *step.path)
    earlier = [
        child
        for parent, kept in zip(parents, step.path)
        for child in step.tree.children(parent)
        if child < kept
    ]
    return (*earlier, *(step.tree.children(parents[-1]) if step.kind == "recovered" else ()))


def _token(kind: str, text: str, told: str = "") -> str:
    tag = "del" if kind in THROWN_AWAY else "ins" if kind in ("recovered", "bonus") else "span"
    mark = '<span class="sdl-newline" aria-hidden="true">⏎</span>'
    shown = escape(text).replace("\n", mark if tag == "del" else mark + "\n")
    title = f' title="{escape(told)}"' if told else ""
    return f'<{tag} class="sdl-token sdl-{kind}"{title}>{shown}</{tag}>'


def _pass(number: int, row: Sequence[Piece]) -> str:
    html, last = '<span class="sdl-pass">', None
    for piece in row:
        if piece.kind != last:
            html += f'<span class="sdl-hidden"> {piece.kind}: </span>'
        html, last = html + _token(piece.kind, piece.text, piece.told(number)), piece.kind
    return html + "</span>"
