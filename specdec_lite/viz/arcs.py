"""A text in which a line goes from every proposal of prompt lookup to the place it was copied from.

What lives here: a plain SVG, the same in a notebook and on a page. What does not: moving any of it
(`lookup`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from specdec_lite.drafters.prompt_lookup import PromptLookupDrafter, PromptLookupSession
from specdec_lite.measure.replay import replay
from specdec_lite.speculation import Context

COLUMNS = 46
WIDTH, HEIGHT, MARGIN = 7.8, 30, 12
"""Of a character and of a line, and the room around the text, in pixels."""
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
        """Of every token (x, y) of its first letter; a line ends at COLUMNS, and where the answer
        begins.
        """
        column = line = 0
        found = []
        for i, word in enumerate(self.words):
            if i == self.start or column + len(word) > COLUMNS and column:
                column, line = 0, line + (1.6 if i == self.start else 1)
            found.append((MARGIN + WIDTH * column, MARGIN + HEIGHT * (line + 0.8)))
            column += len(word)
            if "\n" in word:
                column, line = 0, line + 1
        return found

    def _repr_html_(self) -> str:
        places = self.places()
        text = "".join(
            f'<text x="{x:.1f}" y="{y:.1f}" textLength="{WIDTH * len(shown):.1f}" fill="'
            f'{MUTED if i < self.start else INK}">{escape(shown)}</text>'
            for i, (word, (x, y)) in enumerate(zip(self.words, places))
            if (shown := word.replace("\n", "").replace(" ", "\u00a0")).strip("\u00a0")
        )
        lines = "".join(self._line(places, *row) for row in self.rounds)
        width = 2 * MARGIN + WIDTH * COLUMNS
        height = max(y for _, y in places) + MARGIN
        return (
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(repr(self))}"'
            ' style="color-scheme: inherit; width: 100%; max-width: 36rem; height: auto; display:'
            ' block; margin: 0 auto" font-family="ui-monospace, Menlo, Consolas, monospace"'
            f' font-size="13" xml:space="preserve">{lines}{text}</svg>'
        )

    def _line(self, places, at: int, source: int, drafted: int, accepted: int) -> str:
        (x1, y1), (x2, y2) = places[at], places[source]
        y1, y2 = y1 - 11, y2 + 3
        bend = (y1 + y2) / 2
        look = (
            f'stroke="{USED}" stroke-width="{1 + accepted / 4:.2f}"'
            if accepted
            else f'stroke="{WASTED}" stroke-dasharray="3 4"'
        )
        return (
            f'<path d="M{x1 + 3:.1f} {y1:.1f}C{x1 + 3:.1f} {bend:.1f} {x2 + 3:.1f} {bend:.1f}'
            f' {x2 + 3:.1f} {y2:.1f}" fill="none" opacity=".75" {look}/>'
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
