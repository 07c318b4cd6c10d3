"""A request beside its answer, with a line from every proposal of prompt lookup to its source.

The drawing is a plain SVG, the same in a notebook and on a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from specdec_book.viz.sketch import framed, style

if TYPE_CHECKING:
    from specdec_lite.drafters.copying import PromptLookupDrafter

COLUMNS = 20
"""Characters per line, in the request and in the answer."""
WIDTH, HEIGHT, MARGIN, GAP = 7.8, 20, 8, 44
"""Width of a character, height of a line, space around the texts and between them, in px."""
INK = "light-dark(#24292f, #e6e8eb)"
MUTED = "light-dark(#57606a, #a6afba)"
USED = "light-dark(#00795a, #2fc49b)"
WASTED = "light-dark(#b84e00, #ff9a5c)"


@dataclass(frozen=True, slots=True)
class Arcs:
    """A request, its answer and the copies that prompt lookup proposed.

    Attributes:
        words: Texts of the tokens of request and answer.
        start: Position of the answer's first token.
        rounds: For each round with a draft: position of its first new token, position where the
            copy begins, tokens drafted, tokens accepted.
    """

    words: tuple[str, ...]
    start: int
    rounds: tuple[tuple[int, int, int, int], ...]

    def __repr__(self) -> str:
        drafted, accepted = (sum(row[i] for row in self.rounds) for i in (2, 3))
        return (
            f"{len(self.words) - self.start} tokens after {self.start}: {len(self.rounds)} proposals"
            f" of {drafted} tokens, {accepted} of them accepted."
        )

    def points(self) -> list[tuple[float, float]]:
        """Return (x, y) of the first character of every token, in px.

        A line ends at COLUMNS, empty lines are left out, and the answer begins beside the request.
        """
        left, column, line = MARGIN, 0, 0
        points = []
        for i, word in enumerate(self.words):
            if i == self.start:
                left, column, line = MARGIN + WIDTH * COLUMNS + GAP, 0, 0
            if column + len(word) > COLUMNS and column:
                column, line = 0, line + 1
            points.append((left + WIDTH * column, MARGIN + HEIGHT * (line + 0.6)))
            empty = not column and not word.strip()
            column += len(word)
            if "\n" in word:
                column, line = 0, line + (not empty)
        return points

    def _repr_html_(self) -> str:
        points = self.points()
        text = "".join(
            f'<text x="{x:.1f}" y="{y:.1f}" textLength="{WIDTH * len(line):.1f}"'
            f' style="fill: {MUTED if i < self.start else INK}; font-size: 13px">{escape(line)}</text>'
            for i, (word, (x, y)) in enumerate(zip(self.words, points))
            if (line := word.replace("\n", "").replace(" ", "\u00a0")).strip("\u00a0")
        )
        accepted = {start + i for row in self.rounds for start in row[:2] for i in range(row[3])}
        under = "".join(
            f'<rect x="{x:.1f}" y="{y - 12:.1f}" width="{WIDTH * len(self.words[i]):.1f}"'
            f' height="17" fill="{USED}" fill-opacity="0.22"/><path class="sdl-under"'
            f' d="M{x:.1f} {y + 5:.1f}h{WIDTH * len(self.words[i]):.1f}" stroke="{USED}"/>'
            for i, (x, y) in enumerate(points)
            if i in accepted and self.words[i].strip()
        )
        lines = "".join(self._line(points, *row) for row in self.rounds)
        width = 2 * (MARGIN + WIDTH * COLUMNS) + GAP + MARGIN
        height = max(y for _, y in points) + MARGIN
        svg = (
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(repr(self))}"'
            ' style="color-scheme: inherit; width: 100%; max-width: 27rem; height: auto; display:'
            ' block; margin: 0 auto" font-family="ui-monospace, Menlo, Consolas, monospace"'
            f' xml:space="preserve">{lines}{under}{text}</svg>'
        )
        accepted_tokens, new = sum(row[3] for row in self.rounds), len(self.words) - self.start
        caption = (
            f"Lookup copies {accepted_tokens} of the {new} tokens of this answer. Left: the request. Right:"
            " the answer. Green: copied and accepted. A line leads"
            " from a copy to its source; dashed: no token of it was accepted."
        )
        return f"{style()}{framed('sdl sdl-sketch', svg, caption)}"

    def _line(self, points, position: int, source: int, drafted: int, accepted: int) -> str:
        """Return the curve of one copy.

        A copy from the request crosses the gap; a copy from the answer goes around its right edge.
        """
        y1, y2 = points[source][1] - 4, points[position][1] - 4
        x1 = MARGIN + WIDTH * COLUMNS + 4
        x2, bend = x1 + GAP - 8, x1 + GAP / 2 - 4
        if source >= self.start:
            x1 = x2 = x2 + WIDTH * COLUMNS + 8
            bend = x1 + 2 * MARGIN
        stroke = (
            f'stroke="{USED}" stroke-width="{1 + accepted / 4:.2f}"'
            if accepted
            else f'stroke="{WASTED}" stroke-dasharray="3 4"'
        )
        return (
            f'<path d="M{x1:.1f} {y1:.1f}C{bend:.1f} {y1:.1f} {bend:.1f} {y2:.1f}'
            f' {x2:.1f} {y2:.1f}" fill="none" {stroke}/>'
        )


def arcs(
    tokenizer,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    drafter: "PromptLookupDrafter",
    vocab_size: int,
) -> Arcs:
    """Draw from where prompt lookup would have copied an answer."""
    from specdec_lite.drafters.copying import PromptLookupDrafter, PromptLookupSession
    from specdec_lite.measure.replay import replay

    sources: list[int] = []

    class RecordingSession(PromptLookupSession):
        def propose(self, context):
            proposal = super().propose(context)
            sources.append(self.source if len(proposal.tree) else -1)
            return proposal

    recorder = PromptLookupDrafter(
        drafter.length, max(drafter.orders), min(drafter.orders), drafter.latest
    )
    recorder.start = lambda context: RecordingSession(recorder)
    steps = replay(recorder, prompt_ids, answer_ids, vocab_size)
    rounds = []
    position = len(prompt_ids)
    for step, source in zip(steps, sources):
        if source >= 0:
            rounds.append((position, source, len(step.tree), step.accepted))
        position += len(step.tokens)
    words = tuple(tokenizer.decode([int(token)]) for token in (*prompt_ids, *answer_ids))
    return Arcs(words, len(prompt_ids), tuple(rounds))
