"""Training: everything that is shipped trained, from scratch, on text that every machine has.

    python -m specdec_lite.training pair --out specdec_lite/weights/pair

`text`: tokenizer and token streams. `loop`: plan, batches, optimisers, the resumable loop. For heads
on a target: `own_text`, what it writes itself; `features`, its hidden states, stored once; `losses`.
One module per product beside them: its own losses, its measurements, and the options of its
command. Interrupt a run at any time: it resumes from `--work`.
"""

from specdec_lite.training.loop import Plan, batches, initialise, next_token_loss, optimizers, train
from specdec_lite.training.pair import (
    DRAFT,
    TARGET,
    distillation_loss,
    held_out_logits,
    measure,
    write_card,
)
from specdec_lite.training.text import MIXTURE, VOCABULARY, prepare, tokenize, train_tokenizer

__all__ = [
    "DRAFT",
    "MIXTURE",
    "Plan",
    "TARGET",
    "VOCABULARY",
    "batches",
    "distillation_loss",
    "held_out_logits",
    "initialise",
    "measure",
    "next_token_loss",
    "optimizers",
    "prepare",
    "tokenize",
    "train",
    "train_tokenizer",
    "write_card",
]
