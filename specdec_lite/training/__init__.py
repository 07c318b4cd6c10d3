"""Training: everything that ships trained, from scratch, on text that every machine has.

    python -m specdec_lite.training pair --out specdec_lite/weights/pair

Every product is a module: its losses, and the options of its command. They share the loop (`loop`,
`checkpoint`), the command line (`commands`), the corpus as `token_streams`, what the target writes
itself (`own_text`, `smollm2_text`), its stored hidden states (`features`) and the `losses`. Heads
that are compared with each other share `anchors` and `head_trainer`. `export` and `export_parallel`
write heads for engines. Interrupt a run at any time: it resumes from `--work`.
"""

from specdec_lite import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
