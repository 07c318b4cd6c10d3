"""Convert a Llama-type GGUF file to safetensors, with config.json and tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from specdec_lite import _extras

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Name of a block's weight in GGUF → its name in Hugging Face."""
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
"""Name of a weight outside the blocks in GGUF → its name in Hugging Face."""
CONTROL = 3
"""GGUF's type of a token that never represents text."""


def convert(path: Path, folder: Path, about: str) -> None:
    """Write the model of a Llama-type GGUF file as plain transformers reads it.

    Args:
        path: the GGUF file.
        folder: existing folder; receives config.json, model.safetensors (float32), tokenizer.json
            and tokenizer_config.json.
        about: description of the model, for the metadata of model.safetensors.
    """
    gguf = _extras.load("gguf")
    reader = gguf.GGUFReader(path)

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    heads = {
        "attn_q": field("llama.attention.head_count"),
        "attn_k": field("llama.attention.head_count_kv"),
    }
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type)))
        if tensor.name in TOP_NAMES:
            state[TOP_NAMES[tensor.name]] = weight
            continue
        _, layer, name, _ = tensor.name.split(".")
        if name in heads:
            weight = split_halves(weight, heads[name])
        state[f"model.layers.{layer}.{NAMES[name]}.weight"] = weight
    save_file(state, folder / "model.safetensors", {"format": "pt", "about": about})
    read_tokenizer(field).save_pretrained(folder)
    _llama_config(field).save_pretrained(folder)


def _llama_config(field: Callable[[str], Any]):
    """Return the Hugging Face config of the model; `field` returns the file's metadata by name."""
    from transformers import LlamaConfig

    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=field("llama.vocab_size"),
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        head_dim=field("llama.rope.dimension_count"),
        rms_norm_eps=round(field("llama.attention.layer_norm_rms_epsilon"), 12),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        max_position_embeddings=field("llama.context_length"),
        tie_word_embeddings=True,
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
        pad_token_id=field("tokenizer.ggml.padding_token_id"),
        dtype="float32",
    )


def split_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a query or key matrix from GGUF's order to Hugging Face's.

    Rotary embedding rotates pairs of rows. GGUF stores the two rows of a pair next to each other;
    Hugging Face stores all first rows of a head, then all second rows.

    Args:
        weight: [heads · h, …], with any number of dimensions after the first.
        heads: number of query or key heads.
    """
    pairs = weight.view(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def read_tokenizer(field: Callable[[str], Any]) -> "PreTrainedTokenizerBase":
    """Build the Hugging Face tokenizer of a GGUF file with a byte-level BPE of type "smollm".

    In this type every digit is a token of its own before the text is split into words. The GGUF
    reader of transformers does not know the type and splits the spaces before a number
    differently.

    Args:
        field: function that returns the file's metadata by name.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds)
            if kind == CONTROL
        ]
    )
    special = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=field("llama.context_length"),
        clean_up_tokenization_spaces=False,
        chat_template=field("tokenizer.chat_template"),
        **{
            f"{name}_token": tokens[field(f"tokenizer.ggml.{gguf_name}_token_id")]
            for name, gguf_name in special.items()
        },
    )
