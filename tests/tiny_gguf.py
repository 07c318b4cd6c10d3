"""A small model in the form of SmolLM2's file, for tests of all that read that file."""

from pathlib import Path

import gguf
import numpy as np


def tiny_gguf(path: Path) -> None:
    """Write a Llama of two blocks in the layout of the real file, with Q4_1 and Q8_0.

    Its 112 tokens are rows of whole panels, as the live page multiplies them.
    """
    rng = np.random.default_rng(0)
    letters = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "ab", "ĠĠ"]
    tokens += [f"<{number}>" for number in range(11)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    numbers = dict(block_count=2, context_length=64, embedding_length=64, feed_forward_length=96)
    numbers |= dict(head_count=4, head_count_kv=2, rope_freq_base=1000.0, layer_norm_rms_eps=1e-5)
    numbers |= dict(vocab_size=len(tokens), rope_dimension_count=16, bos_token_id=1)
    numbers |= dict(eos_token_id=2, unk_token_id=0, pad_token_id=2)
    for name, number in numbers.items():
        getattr(writer, f"add_{name}")(number)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "Ġ Ġ"])
    writer.add_chat_template("{{ messages[0]['content'] }}")
    q4, q8 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0
    shapes = {"token_embd": (len(tokens), 64), "output_norm": (64,)}
    parts = dict(attn_norm=(64,), attn_q=(64, 64), attn_k=(32, 64), attn_v=(32, 64))
    parts |= dict(attn_output=(64, 64), ffn_norm=(64,), ffn_gate=(96, 64), ffn_up=(96, 64))
    parts |= dict(ffn_down=(64, 96))
    shapes |= {f"blk.{layer}.{name}": shape for layer in range(2) for name, shape in parts.items()}
    for name, shape in shapes.items():
        weight = rng.normal(scale=0.3, size=shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", weight)
            continue
        kind = q8 if name == "token_embd" else q4
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
