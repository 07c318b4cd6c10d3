"""Two words drafted by parallel heads, and the information that the second head has."""

import traitlets

from specdec_book.viz.interactive import Interactive


class SecondWord(Interactive):
    """Two heads that draft “of course” and “no problem” in one pass.

    The target's distributions are part of the module.

    Attributes:
        sees: Whether head 2 is given the first word.
        bias: Markov bias added to the logit of the word that fits the first one, 0 … 5.
        honest: Whether the rule is given the row that the word was drawn from; else it is given
            the row before the bias.
    """

    module = "second_word"
    label = "Two words drafted in one pass: how much the second head knows of the first word"

    sees = traitlets.Bool(False)
    bias = traitlets.Float(0.0, min=0.0, max=5.0)
    honest = traitlets.Bool(True)
