"""The drawing of prompt lookup's copies: its rounds, its lines and its words."""

import re

from letters import Letters

from specdec_book.viz import arcs
from specdec_book.viz.arcs import COLUMNS
from specdec_lite.drafters import PromptLookupDrafter
from specdec_lite.measure.replay import replay

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
ANSWER = [3, 4, 5, 6, 0, 0, 7, 8, 9, 1, 2, 3]


def test_every_proposal_has_a_line_and_every_token_a_word():
    drawn = arcs(Letters(), PROMPT, ANSWER, PromptLookupDrafter(3), 24)
    steps = replay(PromptLookupDrafter(3), PROMPT, ANSWER, 24)
    assert [(row[2], row[3]) for row in drawn.rounds] == [
        (len(step.tree), step.accepted) for step in steps if len(step.tree)
    ]
    text = [*PROMPT, *ANSWER]
    proposals = [step.tree.tokens.tolist() for step in steps if len(step.tree)]
    assert [text[source : source + n] for _, source, n, _ in drawn.rounds] == proposals
    html = drawn._repr_html_().partition("<figure")[2]  # without the style sheet
    assert html.count("<path d") == len(drawn.rounds) and html.count("<text") == len(text)
    assert html.count("stroke-dasharray") == sum(not row[3] for row in drawn.rounds) > 0
    assert 'aria-label="12 tokens after 11:' in html


def test_lines_end_at_the_width_and_the_answer_begins_beside_the_request():
    drawn = arcs(Letters(), [1] * 60, [2] * 10, PromptLookupDrafter(3), 24)
    points = drawn.points()
    assert len({y for _, y in points[:COLUMNS]}) == 1 and points[COLUMNS][1] > points[0][1]
    assert points[60][1] == points[0][1] and points[60][0] > max(x for x, _ in points[:60])
    assert not re.search(r"[xy]=\"-", drawn._repr_html_())


def test_accepted_copies_are_marked_in_both_texts():
    drawn = arcs(Letters(), PROMPT, ANSWER, PromptLookupDrafter(3), 24)
    copied = {
        i for at, source, _, n in drawn.rounds for j in range(n) for i in (at + j, source + j)
    }
    assert drawn._repr_html_().count("<rect") == len(copied)
