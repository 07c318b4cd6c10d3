"""Training: everything that ships trained, from scratch, on text that every machine has.

    python -m specdec_lite.training pair --out specdec_lite/weights/pair

Every head is a row of the table in `heads`, and `pair` and `draft` have losses of their own. All
share the loop (`loop`), the corpus as `token_streams`, what the target writes itself (`own_text`,
`texts`), its stored hidden states (`features`) and the `losses`. `export` writes heads for engines.
Interrupt a run at any time: it resumes from `--work`.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
