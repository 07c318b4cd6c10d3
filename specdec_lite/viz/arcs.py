"""A request and its answer side by side: a line goes from every proposal of prompt lookup to the
place it was copied from.

What lives here: a plain SVG, the same in a notebook and on a page. What does not: moving any of it
(`lookup`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from specdec_lite.drafters.prompt_lookup import PromptLookupDrafter, PromptLookupSession
from specdec_lite.measure.replay import replay
from specdec_lite.speculation import Context

COLUMNS = 24
"""Characters of a line of either text."""
WIDTH, HEIGHT, MARGIN, GAP = 7.8, 22, 12, 56
"""Of a character and of a line, the room around the texts and between them, in pixels."""
INK = "light-dark(#24292f, #e6e8eb)"
MUTED = "light-dark(#57606a, #a6afba)"
USED = "light-dark(#00795a, #2fc49b)"
WASTED = "light-dark(#b84e00, #ff9a5c)"


@dataclass(frozen=True, slots=True)
class Arcs:
    """What `arcs` returns. words: token texts. start: where the answer begins. rounds: (place of
    the first new token, where its copy begins, tokens drafted, tokens accepted) for each that
    drafted.
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

    def places(self) -> list[tuple[float, float]]:
        """Of every token (x, y) of its first letter; a line ends at COLUMNS, empty ones are left
        out, and the answer begins beside the request.
        """
        left, column, line = MARGIN, 0, 0
        found = []
        for i, word in enumerate(self.words):
            if i == self.start:
                left, column, line = MARGIN + WIDTH * COLUMNS + GAP, 0, 0
            if column + len(word) > COLUMNS and column:
                column, line = 0, line + 1
            found.append((left + WIDTH * column, MARGIN + HEIGHT * (line + 0.6)))
            empty = not column and not word.strip()
            column += len(word)
            if "\n" in word:
                column, line = 0, line + (not empty)
        return found

    def _repr_html_(self) -> str:
        places = self.places()
        text = "".join(
            f'<text x="{x:.1f}" y="{y:.1f}" textLength="{WIDTH * len(shown):.1f}" fill="'
            f'{MUTED if i < self.start else INK}">{escape(shown)}</text>'
            for i, (word, (x, y)) in enumerate(zip(self.words, places))
            if (shown := word.replace("\n", "").replace(" ", "\u00a0")).strip("\u00a0")
        )
        copied = {place + i for row in self.rounds for place in row[:2] for i in range(row[3])}
        under = "".join(
            f'<rect x="{x:.1f}" y="{y + 4:.1f}" width="{WIDTH * len(self.words[i]):.1f}"'
            f' height="2" fill="{USED}"/>'
            for i, (x, y) in enumerate(places)
            if i in copied and self.words[i].strip()
        )
        lines = "".join(self._line(places, *row) for row in self.rounds)
        width = 2 * (MARGIN + WIDTH * COLUMNS) + GAP + MARGIN
        height = max(y for _, y in places) + MARGIN
        return (
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(repr(self))}"'
            ' style="color-scheme: inherit; width: 100%; max-width: 40rem; height: auto; display:'
            ' block; margin: 0 auto" font-family="ui-monospace, Menlo, Consolas, monospace"'
            f' font-size="13" xml:space="preserve">{lines}{under}{text}</svg>'
        )

    def _line(self, places, at: int, source: int, drafted: int, accepted: int) -> str:
        """Across the gap; from a place in the answer itself, round its right edge."""
        y1, y2 = places[source][1] - 4, places[at][1] - 4
        x1 = MARGIN + WIDTH * COLUMNS + 4
        x2, bend = x1 + GAP - 8, x1 + GAP / 2 - 4
        if source >= self.start:
            x1 = x2 = x2 + WIDTH * COLUMNS + 8
            bend = x1 + 2 * MARGIN
        look = (
            f'stroke="{USED}" stroke-width="{1 + accepted / 4:.2f}"'
            if accepted
            else f'stroke="{WASTED}" stroke-dasharray="3 4"'
        )
        return (
            f'<path d="M{x1:.1f} {y1:.1f}C{bend:.1f} {y1:.1f} {bend:.1f} {y2:.1f}'
            f' {x2:.1f} {y2:.1f}" fill="none" {look}/>'
        )


def arcs(
    tokenizer,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    drafter: PromptLookupDrafter,
    vocab_size: int,
) -> Arcs:
    """Draw where prompt lookup would have copied an answer from.

    Args:
        tokenizer: anything with `decode(ids)`.
        prompt_ids, answer_ids, vocab_size: as for `measure.replay.replay`.
        drafter: one without references.
    """
    sources: list[int] = []

    class Watched(PromptLookupSession):
        def propose(self, context: Context):
            proposal = super().propose(context)
            sources.append(self.copied[1] if len(proposal.tree) else -1)
            return proposal

    watched = PromptLookupDrafter(
        drafter.length, max(drafter.orders), min(drafter.orders), drafter.latest
    )
    watched.start = lambda context: Watched(watched)
    steps = replay(watched, prompt_ids, answer_ids, vocab_size)
    rounds = []
    at = len(prompt_ids)
    for step, source in zip(steps, sources):
        if source >= 0:
            rounds.append((at, source, len(step.tree), step.accepted))
        at += len(step.tokens)
    words = tuple(tokenizer.decode([int(token)]) for token in (*prompt_ids, *answer_ids))
    return Arcs(words, len(prompt_ids), tuple(rounds))
