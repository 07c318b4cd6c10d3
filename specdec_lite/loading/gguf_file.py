"""Convert a Llama-type GGUF file to safetensors, with config.json and tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from specdec_lite import _extras
from specdec_lite.engine.hf_state import FUSED
from specdec_lite.engine.int4 import GROUP, Codes, attach, let_rows_alone
from specdec_lite.engine.transformer import Transformer

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
    """Write the model of a Llama-type GGUF file as plain transformers reads it."""
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


def attach_codes(model: Transformer, path: Path) -> Transformer:
    """Let a model multiply by the 4-bit weights of the file that it was converted from.

    The file has the blocks' matrices in Q4_1 and the embedding, which is also the vocabulary
    projection, in Q8_0. Scales are stored in float16 and rounded to bfloat16 here; nothing else is
    rounded.
    """
    reader = _extras.load("gguf").GGUFReader(path)
    matrices = {tensor.name: tensor for tensor in reader.tensors}
    heads = {"attn_q": model.config.num_heads, "attn_k": model.config.num_kv_heads}
    names = {theirs: name for name, theirs in NAMES.items()}
    attach(model.head, read_codes(matrices["token_embd.weight"]))
    for number, block in enumerate(model.blocks):
        for part in ("qkv", "out", "gate_up", "down"):
            codes = []
            for theirs in FUSED[part]:
                name = names[theirs]
                each = read_codes(matrices[f"blk.{number}.{name}.weight"])
                if name in heads:
                    each = Codes(*(split_halves(rows, heads[name]) for rows in each.parts))
                codes.append(each)
            attach(getattr(block, part), Codes.stack(codes))
    let_rows_alone(model)
    return model


def read_codes(tensor: Any) -> Codes:
    """Return the weights of a matrix of a GGUF file, which are stored in Q4_1 or Q8_0."""
    rows = torch.from_numpy(np.array(tensor.data))
    if tensor.tensor_type.name == "Q4_1":
        # per group: scale, minimum, then the codes of i and i + 16 in one byte
        groups = rows.unflatten(1, (-1, 4 + GROUP // 2))
        scales, minima = groups[..., :4].contiguous().view(torch.float16).float().unbind(-1)
        pairs = groups[..., 4:]
        return Codes.of_4_bits(torch.cat((pairs & 15, pairs >> 4), -1).flatten(1), scales, minima)
    groups = rows.unflatten(1, (-1, 2 + GROUP))  # per group: scale, then the codes
    scales = groups[..., :2].contiguous().view(torch.float16).float().squeeze(-1)
    return Codes(groups[..., 2:].contiguous().view(torch.int8).flatten(1), scales)


def split_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a query or key matrix from GGUF's order to Hugging Face's.

    Rotary embedding rotates pairs of rows. GGUF stores the two rows of a pair next to each other;
    Hugging Face stores all first rows of a head, then all second rows.

    Shapes: weight [heads · h, …].
    """
    pairs = weight.view(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def read_tokenizer(field: Callable[[str], Any]) -> "PreTrainedTokenizerBase":
    """Build the Hugging Face tokenizer of a GGUF file with a byte-level BPE of type "smollm".

    In this type every digit is a token of its own before the text is split into words. The GGUF
    reader of transformers does not know the type and splits the spaces before a number
    differently.
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
