"""The sizes of the shipped pair."""

from specdec_lite.engine.transformer import TransformerConfig
from specdec_lite.training.token_streams import VOCABULARY

TARGET = TransformerConfig(
    VOCABULARY,
    hidden_size=320,
    intermediate_size=896,
    num_layers=8,
    num_heads=5,
    num_kv_heads=5,
    head_size=64,
)
DRAFT = TransformerConfig(
    VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    head_size=64,
)
