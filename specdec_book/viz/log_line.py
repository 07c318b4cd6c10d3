"""The reader of log lines: what an engine prints about speculative decoding, in the book's terms."""

import traitlets

from specdec_book.viz.interactive import Interactive


class LogLine(Interactive):
    """A box for a log line, and τ, γ and α that follow from it, as `explain` reads them.

    Attributes:
        text: A log line, counters or JSON of an engine.
        gamma: Drafted tokens per round, 1 … 64, if the text lacks it; 0: not given.
    """

    module = "log_line"
    label = "Read a log line: τ, γ and α that follow from what an engine prints"

    text = traitlets.Unicode("")
    gamma = traitlets.Int(0, min=0, max=64)
