"""Two words drafted at once, and what the guess of the second one may see."""

import traitlets

from specdec_lite.viz.interactive import Interactive


class SecondWord(Interactive):
    """Heads that draft “of course” and “no problem” at once: what the second sees, the Markov bias
    that it is given, and the row that is handed to the rule.

    sees: head 2 is told the first word. bias: 0 … 5, added to the logit of the word that fits the
    first one. honest: the row handed over is the one that was drawn from; else the one before the
    bias. The target's laws are the module's own. Raises TraitError for anything else.
    """

    module = "second_word"
    label = "Two words drafted at once: what the guess of the second may see"

    sees = traitlets.Bool(False).tag(sync=True)
    bias = traitlets.Float(0.0, min=0.0, max=5.0).tag(sync=True)
    honest = traitlets.Bool(True).tag(sync=True)
