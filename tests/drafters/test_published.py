"""Published heads: each format is read and drafts what its layers compute, or is refused by name.

Rows of the tables are checkpoints, as EAGLE's, Medusa's and DFlash's authors, `speculators` and
SpecForge store them.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from drafted_rows import differences
from heads_zoo import published_tensors, random_blocks, random_head
from models_zoo import PROMPT, build, native
from published_zoo import BLOCK, FULL, SLIDING, TARGET, WINDOWED, Checkpoint, block_states
from safetensors.torch import load_file, save_file

from specdec_lite import CausalLM, TokenTree, generate
from specdec_lite.drafters import (
    BlockDiffusionDrafter,
    ConfidenceTree,
    EagleDrafter,
    MedusaDrafter,
    MtpDrafter,
)
from specdec_lite.drafters.block_diffusion import BlockParts, read_blocks
from specdec_lite.drafters.eagle import Eagle3Head, read_eagle
from specdec_lite.drafters.heads import read_medusa
from specdec_lite.training.export import export, export_blocks

PLAIN = generate(TARGET, PROMPT, max_new_tokens=24).tokens
WORDS = tuple(token for token in range(47, 0, -1) if token % 3)
IDS = "eagle_aux_hidden_state_layer_ids"


def ramp(size, first=0.5, last=2.0):
    return torch.linspace(first, last, size).double()


DSPARK = dict(projector_type="dspark", markov_head_type="vanilla", markov_rank=6)
DSPARK |= dict(enable_confidence_head=True, confidence_head_with_markov=True)
DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 6, "selector_top_k": 5}
FC_NORMS = {f"fc_norm.{i}.weight": ramp(32, i + 1) for i in range(3)}
HALF = {"use_sliding_window": True, "sliding_window": 3}  # a layer's number says its kind


def eagle3(own=(), speculators="", kind="eagle3", **options):
    return Checkpoint(kind, own, speculators=speculators, **options)


def blocks(own=(), entries=(), **options):
    return Checkpoint("blocks", own, entries, **options)


CHECKPOINTS = {
    "EAGLE-1": Checkpoint("eagle"),
    "EAGLE-1 with a bias": Checkpoint("eagle", extra={"fc.bias": ramp(32, -1)}),
    "EAGLE-1 of speculators": Checkpoint("eagle", speculators="eagle"),
    "EAGLE-3": eagle3(),
    "EAGLE-3 in its authors' file": eagle3(file="pytorch_model.bin"),
    "EAGLE-3, some tokens in another order": eagle3(words=WORDS),
    "EAGLE-3 with the target's projection": eagle3(drop=("lm_head.weight",)),
    "EAGLE-3, the target's config": eagle3({"num_hidden_layers": 8, "target_hidden_size": 32}),
    "EAGLE-3 of speculators": eagle3({"norm_before_residual": False}, "eagle3"),
    "EAGLE-3, normed before the residual": eagle3({"norm_before_residual": True}, "eagle3"),
    "EAGLE-3, normed before fusing": eagle3(
        {"norm_before_fc": True}, "eagle3", extra={"input_norm.weight": ramp(96)}
    ),
    "EAGLE-3, normed states": eagle3({"norm_output": True}, "eagle3"),
    "EAGLE-3.1": eagle3({"fc_norm": True, "norm_output": True}, "eagle3", extra=FC_NORMS),
    "EAGLE-3, other depths": eagle3({IDS: [1, 3, 6]}, "eagle3", reads=(1, 3, 6)),
    "EAGLE-3, depths counted as outputs": eagle3(
        {"eagle_config": {IDS: [1, 2, 5]}}, reads=(2, 3, 6)
    ),
    "EAGLE-3, depths counted as inputs": eagle3(
        {"eagle_config": {IDS: [2, 3, 6]}}, reads=(2, 3, 6)
    ),
    "P-EAGLE": eagle3(kind="peagle"),
    "P-EAGLE with the target's embedding": eagle3(kind="peagle", drop=("embed_tokens.weight",)),
    "P-EAGLE of speculators": eagle3({"norm_before_residual": True}, "peagle", "peagle"),
    "DFlash": blocks(),
    "DFlash, a window in every layer": blocks({}, WINDOWED | {"layer_types": [SLIDING] * 2}),
    "DFlash, mixed layers": blocks({}, WINDOWED),
    "DFlash, a window that is not causal": blocks(
        {"causal": False}, WINDOWED | {"layer_types": [FULL, SLIDING]}
    ),
    "DFlash, a window of its own": blocks({"use_swa": True, "swa_window_size": 5}),
    "DFlash, all causal": blocks({}, {"is_causal": True}),
    "DFlash from the anchor": blocks({"sample_from_anchor": True}),
    "DFlash of speculators": blocks(speculators="dflash"),
    "DFlash of speculators, some tokens": blocks(words=WORDS, speculators="dflash"),
    "DSpark": blocks(DSPARK),
    "DSpark, not from the anchor": blocks(DSPARK, {"dspark_config": {"sample_from_anchor": False}}),
    "DSpark of speculators, some tokens": blocks(DSPARK, words=WORDS, speculators="dspark"),
    "DFlash 2": blocks(DFLASH2, WINDOWED | {"layer_types": [SLIDING] * 2, "is_causal": False}),
    "Medusa": Checkpoint("medusa", file="medusa_lm_head.pt"),
    **{
        f"DFlash, a window from layer {first}": blocks({}, HALF | {"max_window_layers": first})
        for first in range(3)
    },
    **{
        f"DFlash of speculators, a window, non causal: {says}": blocks(
            {}, WINDOWED | {"sliding_window_non_causal": says}, speculators="dflash"
        )
        for says in (False, True)
    },
}
RANKS = TokenTree([0, 1, 0], [-1, -1, 0])


def load(name, folder, **options):
    """Return the drafter of a head in a folder."""
    kind = CHECKPOINTS[name].kind
    if kind == "blocks":
        return BlockDiffusionDrafter.from_pretrained(TARGET, folder, **options)
    if kind == "medusa":
        return MedusaDrafter.from_pretrained(TARGET, folder, **{"tree": RANKS} | options)
    version = 1 if kind == "eagle" else 3
    return EagleDrafter.from_pretrained(TARGET, version, folder, **{"draft": 3} | options)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_published_head_drafts_what_its_layers_compute(name, tmp_path):
    row = CHECKPOINTS[name].write(tmp_path)
    apart, steps = differences(TARGET, load(name, tmp_path), PROMPT, row.rows)
    assert len(apart) > 3 and max(apart) < 1e-10
    longest = BLOCK - (not row.from_anchor) if row.kind == "blocks" else 3
    assert max(len(step.tree) for step in steps) == longest
    in_turn = row.kind in ("eagle", "eagle3")
    assert all(s.draft_passes == (len(s.tree) if in_turn else 1) for s in steps if len(s.tree))
    drafter = load(name, tmp_path)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)
    if row.kind in ("eagle3", "peagle"):  # its config builds it again
        again = type(drafter.head)(**drafter.head.config)
        assert again.state_dict().keys() == drafter.head.state_dict().keys()


def without(**parts):
    return lambda head: setattr(head, "parts", replace(head.parts, **parts))


def unconvolved(head):
    for block in head.blocks:
        for around in (block.around_attention, block.around_mlp):
            around.forward = lambda x, sublayer, norm=around.norm: sublayer(norm(x))


IGNORED = [
    ("DFlash, a window in every layer", without(windows=())),
    ("DFlash, a window in every layer", without(windows=(4, 4))),
    ("DFlash, a window in every layer", without(causal=())),
    ("DFlash, mixed layers", without(windows=(None, 3))),
    ("DFlash, a window that is not causal", without(causal=(False, True))),
    ("DFlash, a window of its own", without(windows=())),
    ("DFlash, all causal", without(causal=())),
    ("DSpark", lambda head: setattr(head, "correction", None)),
    ("DFlash 2", lambda head: setattr(head, "correction", None)),
    ("DFlash 2", unconvolved),
    ("DFlash 2", without(windows=())),
    ("P-EAGLE", lambda head: head.mask.zero_()),
    ("P-EAGLE", lambda head: head.more.__delitem__(1)),
    ("P-EAGLE", lambda head: setattr(head, "embedding", None)),
    ("P-EAGLE", lambda head: setattr(head, "mask_id", 3)),
]


@pytest.mark.parametrize("name, change", IGNORED)
def test_the_comparison_detects_parts_that_are_ignored(name, change, tmp_path):
    row = CHECKPOINTS[name].write(tmp_path)
    drafter = load(name, tmp_path)
    change(drafter.head)
    if row.kind == "peagle":
        drafter.body = drafter.head.body(TARGET)
    assert max(differences(TARGET, drafter, PROMPT, row.rows, new=12)[0]) > 1e-3


def test_the_confidence_of_dspark_ends_drafts(tmp_path):
    row = CHECKPOINTS["DSpark"].write(tmp_path)
    drafter, w = load("DSpark", tmp_path, least=0.5), row.tensors()
    weight, bias = (w[f"confidence_head.proj.{name}"] for name in ("weight", "bias"))
    text, ended = torch.tensor(PROMPT), 0
    for step in generate(TARGET, PROMPT, drafter, 40, 1.0, seed=2).steps:
        if len(PROMPT) + 40 - len(text) <= BLOCK:
            break  # this draft ends with the text
        scores = TARGET.score(text[:-1], TARGET.new_cache(), hidden_layers=row.layers)
        states = block_states(row, [scores.hidden[layer][0] for layer in row.layers], text)
        before = [int(text[-1]), *step.tree.tokens.tolist()]
        count = len(step.tree)
        for position in range(1, min(count + 1, BLOCK)):
            token = w["markov_head.markov_w1.weight"][before[position]]
            goes_on = weight @ torch.cat((states[position], token)) + bias >= 0
            assert bool(goes_on) == (position < count)
            ended += not goes_on
        text = torch.cat((text, torch.tensor(step.tokens)))
    assert ended > 2
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)


def test_a_hugging_face_target_gives_no_state_after_its_last_block(tmp_path):
    target = CausalLM(build("Llama", {"num_hidden_layers": 8}).double())
    eagle3({IDS: [0, 2, 7]}).write(tmp_path)
    out = generate(target, PROMPT, EagleDrafter.from_pretrained(target, 3, tmp_path, 3), 24)
    assert torch.equal(out.tokens, generate(target, PROMPT, max_new_tokens=24).tokens)
    eagle3({IDS: [0, 2, 8]}).write(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path}: hidden_layers.*after the last block"):
        EagleDrafter.from_pretrained(target, 3, tmp_path, 3)


# Configs as they are published -----------------------------------------------------------------------
# published_heads.json states the facts: the head, the repository that has its config, and the
# entries that describe a head. Sizes are shrunk here, and the tensors are random.

HEADS = json.loads(Path(__file__).with_name("published_heads.json").read_text("utf-8"))
DEEP = native(num_layers=94)  # as deep as Qwen3-235B, so that ids of layers stay as published
DEEPER = generate(DEEP, PROMPT, None, 6).tokens
SIZES = dict(hidden_size=32, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2)
SIZES |= dict(head_dim=8, max_position_embeddings=512, vocab_size=48, mask_token_id=47)
SIZES["target_hidden_size"] = 32
SIZES |= dict(markov_rank=6, selector_rank=6)
READERS = {
    "eagle3": EagleDrafter,
    "blocks": BlockDiffusionDrafter,
    "medusa": MedusaDrafter,
    "mtp": MtpDrafter,
}


def shrunk(config):
    return {k: shrunk(v) if isinstance(v, dict) else SIZES.get(k, v) for k, v in config.items()}


def write_small(folder, reader, published):
    """Write a head of small size in the folder, as its authors do."""
    layer = published.get("transformer_layer_config", published)
    words = 20 * (published.get("draft_vocab_size", 0) < layer.get("vocab_size", 0))
    words *= "draft_vocab_size" in published
    config = shrunk(published) | ({"draft_vocab_size": words or 48} if words else {})
    if copied := reader == "eagle3" and config.get("num_hidden_layers", 1) > 4:
        config["num_hidden_layers"] = DEEP.num_layers  # as the published config states its target's
    (folder / "config.json").write_text(json.dumps(config))
    if reader == "medusa" and "medusa_num_heads" in config:
        CHECKPOINTS["Medusa"].store(folder, CHECKPOINTS["Medusa"].tensors())
        return
    if reader == "medusa":
        names = [f"blocks.{i}.layers.0.weight" for i in range(config["num_heads"])]
        tensors = {name: torch.randn(32, 32) for name in names}
    else:
        own = config | config.get("dflash_config", {}) | config.get("dspark_config", {})
        ids = own.get("target_layer_ids") or own.get("aux_hidden_state_layer_ids") or range(3)
        kind = "peagle" if "PEagleDraftModel" in config["architectures"] else reader
        layers = (config.get("transformer_layer_config") or config)["num_hidden_layers"]
        layers = 1 if copied else layers
        tensors = published_tensors(DEEP, kind, own, layers, len(ids), words)
        if config.get("fc_norm"):
            tensors |= {f"fc_norm.{i}.weight": torch.ones(32) for i in range(3)}
        if config.get("norm_before_fc"):
            tensors["input_norm.weight"] = torch.ones(96)
        if words:
            tensors["d2t"] = torch.arange(words)  # the even tokens
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("row", HEADS, ids=[row["head"].split("/")[-1] for row in HEADS])
def test_a_published_config_is_read_or_refused_by_name(row, tmp_path):
    kind = READERS[row["reader"]]
    write_small(tmp_path, row["reader"], row["config"])
    version = {"version": 3} if kind is EagleDrafter else {}
    if "refused" in row:
        with pytest.raises(ValueError, match=row["refused"]):
            kind.from_pretrained(DEEP, path=tmp_path, **version)
        return
    drafter = kind.from_pretrained(DEEP, path=tmp_path, **version)
    out = generate(DEEP, PROMPT, drafter, 6)
    assert torch.equal(out.tokens, DEEPER)
    if "levels" in row:
        assert drafter.limits().levels == row["levels"]
    else:
        layers = row["layers"] or [2, 47, 91]
        assert [*drafter.head.layers] == layers and f"layers={layers}" in repr(drafter.head)
    if "parts" in row:
        assert drafter.head.parts == BlockParts(**row["parts"])
    if row["reader"] == "eagle3" and row["config"].get("draft_vocab_size"):
        assert all(token % 2 == 0 for step in out.steps for token in step.tree.tokens.tolist())


# Heads that are exported here ---------------------------------------------------------------------


def eagle3_head():
    torch.manual_seed(0)
    return Eagle3Head.for_target(TARGET, torch.tensor(WORDS)).double().requires_grad_(False)


def block_head(words):
    return random_blocks(TARGET, 4, words=words, layers=(2, 5), qk_norm=True)


names_of = lambda *about: {*published_tensors(TARGET, *about)}
EXPORTED = {
    "EAGLE-1": (
        *(lambda: random_head(TARGET), export, lambda folder: read_eagle(folder, TARGET, 1)),
        names_of("eagle", None, 1),
        dict(architectures=["LlamaForCausalLM"], num_hidden_layers=1),
    ),
    "EAGLE-3": (
        *(eagle3_head, export, lambda folder: read_eagle(folder, TARGET, 3)),
        names_of("eagle3", None, 1) | {"d2t", "t2d"},
        dict(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=len(WORDS)),
    ),
    **{
        f"DFlash, {words} tokens": (
            lambda words=words: block_head(words),
            lambda folder, head, target, dtype: export_blocks(folder, head, target, 47, dtype),
            lambda folder: read_blocks(folder, TARGET),
            names_of("blocks") | ({"d2t", "lm_head.weight"} if words else set()),
            dict(architectures=["DFlashDraftModel"], block_size=4)
            | dict(dflash_config={"mask_token_id": 47, "target_layer_ids": [1, 4]})
            | (dict(draft_vocab_size=words) if words else {}),
        )
        for words in (0, 20)
    },
}
"""Name → make, write, read, the names of vLLM's tensors, and entries of its config."""


@pytest.mark.parametrize("make, write, read, names, entries", EXPORTED.values(), ids=EXPORTED)
def test_an_exported_head_is_read_back(make, write, read, names, entries, tmp_path):
    """So it computes what is compared above, under the names that vLLM loads."""
    head = make()
    for weight in head.parameters():  # norms and new heads are not random
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
    write(tmp_path, head, TARGET, torch.float64)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name.replace("midlayer.", "layers.0.") for name in stored} == names
    assert entries.items() <= json.loads((tmp_path / "config.json").read_text()).items()
    again = read(tmp_path)
    assert again.config == head.config
    own, found = head.state_dict(), again.state_dict()
    assert own.keys() == found.keys()
    assert all(torch.allclose(own[name], found[name], atol=1e-6) for name in own)
    assert getattr(again, "layers", ()) == getattr(head, "layers", ())
    if (file := tmp_path / "mask_embedding.pt").exists():
        file.unlink()
        assert torch.equal(read(tmp_path).embedding.weight[0], TARGET.embed(torch.tensor(47)))


def test_medusa_heads_as_vllm_stores_them_compute_what_they_do_there(tmp_path):
    matrices, x = torch.randn(3, 32, 32).double(), torch.randn(32).double()
    own = {f"blocks.{i}.layers.0.weight": matrix for i, matrix in enumerate(matrices)}
    own["lm_heads.0.weight"] = TARGET.projection.clone()  # a copy for each head may be stored
    for more in ("", "blocks.0.layers.0.bias", "lm_heads.1.weight"):
        save_file(
            own | ({more: torch.zeros(48, 32)} if more else {}), tmp_path / "model.safetensors"
        )
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "medusa", "num_heads": 3}))
        if more:
            with pytest.raises(ValueError, match=more):
                read_medusa(tmp_path, TARGET)
            continue
        drafter = MedusaDrafter.from_pretrained(TARGET, tmp_path)
        assert drafter.limits().levels == 3 and torch.allclose(
            drafter.heads(x), x + F.silu(matrices @ x)
        )


# What is refused ----------------------------------------------------------------------------------


class Attack:
    """A pickled object that would run code."""

    def __reduce__(self):
        return print, ("code of the file was run",)


def edit(row, folder, entries, tensors):
    """Change entries of config.json; replace tensors, by zeros of a shape, or drop them (None)."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    for name, value in entries.items():
        nested = isinstance(value, dict) and isinstance(config.get(name), dict)
        config[name] = config[name] | value if nested else value
    file.write_text(json.dumps(config))
    if tensors:
        path = folder / row.file
        stored = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
        new = {n: torch.zeros(t) if isinstance(t, tuple) else t for n, t in tensors.items()}
        row.store(folder, {n: t for n, t in (stored | new).items() if t is not None})


def own(**options):
    return {"dflash_config": options}


NAN = torch.full((32, 96), float("nan"))
FLOAT8 = torch.zeros(32, 96, dtype=torch.float8_e4m3fn)
OFFSETS = lambda count: torch.zeros(count, dtype=torch.long)  # noqa: E731
ROWS = Path(__file__).with_name("published_refused.txt").read_text("utf-8")
REFUSED = re.findall(r"^(.*) \| (.*) \| (.*) → (.*)$", ROWS, flags=re.M)


@pytest.mark.parametrize("name, entries, tensors, message", REFUSED)
def test_what_is_not_known_or_does_not_fit_is_refused(
    name, entries, tensors, message, tmp_path, capsys
):
    edit(CHECKPOINTS[name].write(tmp_path), tmp_path, eval(entries), eval(tensors))
    with pytest.raises(ValueError, match=message):
        load(name, tmp_path)
    assert "was run" not in capsys.readouterr().out


def test_other_versions_files_and_trees_are_refused(tmp_path):
    CHECKPOINTS["P-EAGLE"].write(tmp_path)
    assert EagleDrafter.from_pretrained(TARGET, 3, tmp_path).limits().is_chain
    with pytest.raises(ValueError, match="P-EAGLE head drafts a chain"):
        load("P-EAGLE", tmp_path, draft=ConfidenceTree(2, 2, 3))
    with pytest.raises(ValueError, match="version=1"):
        EagleDrafter.from_pretrained(TARGET, 1, tmp_path)
    edit(CHECKPOINTS["DFlash"].write(tmp_path), tmp_path, {"max_position_embeddings": 20}, {})
    assert generate(TARGET, PROMPT, load("DFlash", tmp_path), 6).tokens.equal(PLAIN[:6])
    with pytest.raises(ValueError, match="the drafter's context length of 20"):
        generate(TARGET, PROMPT, load("DFlash", tmp_path), 7)
    for stored in ({"mask_token_id": 3}, {"embedding": torch.zeros(32).char()}, Attack()):
        torch.save(stored, tmp_path / "mask_embedding.pt")
        with pytest.raises(ValueError, match="mask_embedding.pt"):
            load("DFlash", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.bin")
    with pytest.raises(ValueError, match="safetensors"):
        load("EAGLE-3", tmp_path)
    CHECKPOINTS["Medusa"].write(tmp_path)
    edit(CHECKPOINTS["Medusa"], tmp_path, {"medusa_num_heads": 1}, {})
    assert MedusaDrafter.from_pretrained(TARGET, tmp_path).limits().levels == 1
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="medusa_lm_head.pt"):
        load("Medusa", tmp_path)
