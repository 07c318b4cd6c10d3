"""Write a Llama model of this library as a GGUF file, which llama.cpp reads."""

import json
from pathlib import Path

import gguf
from safetensors.torch import load_file
from torch import Tensor

from specdec_lite.loading.gguf_file import NAMES

OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
}
WITHIN = {theirs: ours for ours, theirs in NAMES.items()}


def write_gguf(folder: Path, path: Path) -> Path:
    """Write a folder of safetensors with a byte-level BPE tokenizer as float32 GGUF.

    Pass prompts as ids, because the file does not describe how to split a text into tokens.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(
        writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")), config
    )
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for shard in sorted(folder.glob("*.safetensors")):
        for name, weight in load_file(shard).items():
            theirs = gguf_name(name)
            kind = theirs.split(".")[2] if name not in OUTSIDE else ""
            if kind in heads:
                weight = interleave(weight, heads[kind])
            writer.add_tensor(theirs, weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict, config: dict) -> None:
    """Add the vocabulary to a GGUF file."""
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [kinds.CONTROL if token in special else kinds.NORMAL for token in range(len(tokens))]
    )
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    )
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def gguf_name(name: str) -> str:
    """Return the GGUF name of a weight: model.layers.3.mlp.up_proj.weight → blk.3.ffn_up.weight."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, *within, _ = name.split(".")
    return f"blk.{layer}.{WITHIN['.'.join(within)]}.weight"


def interleave(weight: Tensor, heads: int) -> Tensor:
    """Return the rows of a query or key matrix in the order of a GGUF file.

    This is the inverse of `loading.gguf_file.split_halves`.

    Shapes: weight [rows, columns].
    """
    pairs = weight.view(heads, 2, -1, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
