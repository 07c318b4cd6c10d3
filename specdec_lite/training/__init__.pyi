from specdec_lite.training.evaluation import held_out_logits as held_out_logits, measure as measure
from specdec_lite.training.loop import (
    Plan as Plan,
    adamw as adamw,
    batches as batches,
    initialize as initialize,
    next_token_loss as next_token_loss,
    train as train,
)
from specdec_lite.training.pair import (
    DRAFT as DRAFT,
    TARGET as TARGET,
    distillation_loss as distillation_loss,
)
from specdec_lite.training.token_streams import (
    MIXTURE as MIXTURE,
    VOCABULARY as VOCABULARY,
    prepare as prepare,
    tokenize as tokenize,
    train_tokenizer as train_tokenizer,
)
