"""Heads are read from the config.json that their authors publish, or refused by what is not known.

published_heads.json states the facts: the head, the repository that has its config, and the
entries that describe a head. Sizes are shrunk here, and the tensors are random.
"""

import json
from pathlib import Path

import pytest
import torch
from heads_zoo import published_tensors
from models_zoo import PROMPT, native
from safetensors.torch import save_file

from specdec_lite import drafters as d, generate
from specdec_lite.drafters.block_head import BlockParts

HEADS = json.loads(Path(__file__).with_name("published_heads.json").read_text("utf-8"))
TARGET = native(num_layers=94)  # as deep as Qwen3-235B, so that ids of layers stay as published
PLAIN = generate(TARGET, PROMPT, None, 6).tokens
SIZES = dict(hidden_size=32, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2)
SIZES |= dict(head_dim=8, max_position_embeddings=512, vocab_size=48, mask_token_id=47)
SIZES |= dict(markov_rank=6, selector_rank=6)
READERS = {
    "eagle3": lambda folder: d.EagleDrafter.from_pretrained(TARGET, 3, folder),
    "blocks": lambda folder: d.BlockDiffusionDrafter.from_pretrained(TARGET, folder),
    "medusa": lambda folder: d.MedusaDrafter.from_pretrained(TARGET, folder),
    "mtp": lambda folder: d.MtpDrafter.from_pretrained(TARGET, folder),
}


def shrunk(config):
    return {k: shrunk(v) if isinstance(v, dict) else SIZES.get(k, v) for k, v in config.items()}


def write(folder, reader, published):
    """Write a head of small size in the folder, as its authors do."""
    layer = published.get("transformer_layer_config", published)
    words = 20 * (published.get("draft_vocab_size", 0) < layer.get("vocab_size", 0))
    words *= "draft_vocab_size" in published
    config = shrunk(published) | ({"draft_vocab_size": words or 48} if words else {})
    (folder / "config.json").write_text(json.dumps(config))
    if reader == "medusa" and "medusa_num_heads" in config:
        names = {"0.linear.weight": (32, 32), "0.linear.bias": (32,), "1.weight": (48, 32)}
        heads = {f"{i}.{name}": torch.randn(*n) for i in range(5) for name, n in names.items()}
        torch.save(heads, folder / "medusa_lm_head.pt")
        return
    if reader == "medusa":
        names = [f"blocks.{i}.layers.0.weight" for i in range(config["num_heads"])]
        tensors = {name: torch.randn(32, 32) for name in names}
    else:
        own = config | config.get("dflash_config", {})
        ids = own.get("target_layer_ids") or own.get("aux_hidden_state_layer_ids") or range(3)
        kind = "peagle" if "PEagleDraftModel" in config["architectures"] else reader
        layers = (config.get("transformer_layer_config") or config)["num_hidden_layers"]
        tensors = published_tensors(TARGET, kind, own, layers, len(ids), words)
        if config.get("fc_norm"):
            tensors |= {f"fc_norm.{i}.weight": torch.ones(32) for i in range(3)}
        if config.get("norm_before_fc"):
            tensors["input_norm.weight"] = torch.ones(96)
        if words:
            tensors["d2t"] = torch.arange(words)  # the even tokens
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("row", HEADS, ids=[row["head"].split("/")[-1] for row in HEADS])
def test_a_published_config_is_read_or_refused_by_name(row, tmp_path):
    write(tmp_path, row["reader"], row["config"])
    if "refused" in row:
        with pytest.raises(ValueError, match=row["refused"]):
            READERS[row["reader"]](tmp_path)
        return
    drafter = READERS[row["reader"]](tmp_path)
    out = generate(TARGET, PROMPT, drafter, 6)
    assert torch.equal(out.tokens, PLAIN)
    if "levels" in row:
        assert drafter.limits().levels == row["levels"]
    else:
        layers = row["layers"] or [2, 47, 91]
        assert [*drafter.head.layers] == layers and f"layers={layers}" in repr(drafter.head)
    if "parts" in row:
        assert drafter.head.parts == BlockParts(**row["parts"])
    if row["reader"] == "eagle3" and row["config"].get("draft_vocab_size"):
        assert all(token % 2 == 0 for step in out.steps for token in step.tree.tokens.tolist())
