"""Published heads are read: exported ones come back unchanged, random ones decode, others are named.

The folders have the names and shapes in which EAGLE's authors, `speculators` and vLLM store heads.
"""

import json

import pytest
import torch
from features_zoo import random_head
from heads_zoo import published_tensors, random_blocks
from models_zoo import PROMPT, build, native
from safetensors.torch import load_file, save_file
from text_laws import TINY

from specdec_lite import CausalLM, TokenTree, generate
from specdec_lite.drafters import BlockDiffusionDrafter, ConfidenceTree, EagleDrafter, MedusaDrafter
from specdec_lite.drafters.eagle_head import Eagle3Head
from specdec_lite.drafters.heads import ReducedHeads
from specdec_lite.drafters.published import read_eagle, read_medusa
from specdec_lite.drafters.published_blocks import read_blocks
from specdec_lite.training.export import export, export_blocks, export_medusa

TARGET = native(num_layers=8)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=24).tokens
IDS = torch.tensor([token for token in range(48) if token % 3])


def edit(folder, config=None, tensors=None, drop=()):
    """Change entries of config.json, and add, replace or drop tensors."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (config or {})))
    weights = load_file(folder / "model.safetensors") | (tensors or {})
    kept = {name: weight.contiguous() for name, weight in weights.items() if name not in drop}
    save_file(kept, folder / "model.safetensors")


def rename(folder, *pairs):
    """Rename the beginnings of tensor names."""
    renamed = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        for old, new in pairs:
            name = new + name.removeprefix(old) if name.startswith(old) else name
        renamed[name] = weight
    save_file(renamed, folder / "model.safetensors")


def eagle(kind, tmp_path, ids=None):
    torch.manual_seed(0)
    if kind == "eagle3":
        head = Eagle3Head.for_target(TARGET, IDS if ids is None else ids)
        head = head.double().requires_grad_(False)
    else:
        head = random_head(TARGET)
    export(tmp_path, head, TARGET, torch.float64)
    return head


def same_drafts(first, second):
    """Return whether two drafters draft the same tokens with the same probabilities."""
    runs = [generate(TARGET, PROMPT, each, 30, 1.0, seed=3) for each in (first, second)]
    trees, rows = (
        [[getattr(step, name) for step in run.steps] for run in runs] for name in ("tree", "q")
    )
    equal = all(a.tokens.tolist() == b.tokens.tolist() for a, b in zip(*trees))
    return equal and all(torch.allclose(torch.tensor(a), torch.tensor(b)) for a, b in zip(*rows))


@pytest.mark.parametrize("kind, version", [("eagle", 1), ("eagle3", 3)])
def test_an_exported_eagle_head_is_read_back(kind, version, tmp_path):
    head = eagle(kind, tmp_path)
    again = read_eagle(tmp_path, TARGET, version)
    own, read = head.state_dict(), again.state_dict()
    assert own.keys() == read.keys() and all(torch.equal(own[name], read[name]) for name in own)
    loaded = EagleDrafter.from_pretrained(TARGET, version, tmp_path, 3)
    assert same_drafts(loaded, EagleDrafter(TARGET, head, 3))
    assert torch.equal(generate(TARGET, PROMPT, loaded, 24).tokens, PLAIN)


def speculators(folder, kind, **entries):
    """Rewrite an exported folder as `speculators` stores it: sizes apart, other names."""
    config = json.loads((folder / "config.json").read_text())
    count = config.pop("draft_vocab_size", None)
    written = {
        "architectures": ["Eagle3Speculator" if kind == "eagle3" else "EagleSpeculator"],
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "default_proposal_method": "greedy"},
        "transformer_layer_config": config,
        **({"draft_vocab_size": count} if count else {}),
        **entries,
    }
    (folder / "config.json").write_text(json.dumps(written))
    own = {"midlayer.": "layers.0."} if kind == "eagle3" else {"layers.0.": "transformer."}
    own |= {} if kind == "eagle3" else {"fc.": "fusion_fc."}
    rename(folder, *own.items())


@pytest.mark.parametrize("kind, version", [("eagle", 1), ("eagle3", 3)])
def test_the_format_of_speculators_is_read(kind, version, tmp_path):
    head = eagle(kind, tmp_path)
    speculators(tmp_path, kind)
    copies = {"embed_tokens.weight": TARGET.backend.embedding.weight.detach()}
    if kind == "eagle":
        copies["lm_head.weight"] = TARGET.backend.head.weight.detach()
    edit(tmp_path, tensors=copies)
    loaded = EagleDrafter.from_pretrained(TARGET, version, tmp_path, 3)
    assert same_drafts(loaded, EagleDrafter(TARGET, head, 3))


@pytest.mark.parametrize("before", [True, False])
def test_a_norm_before_the_residual(before, tmp_path):
    """The first pair attends to itself alone: the block adds to the normed g, or to g."""
    head = eagle("eagle3", tmp_path)
    speculators(tmp_path, "eagle3", norm_before_residual=before)
    norm = torch.linspace(0.5, 2.0, 32, dtype=torch.float64)
    edit(tmp_path, tensors={"layers.0.hidden_norm.weight": norm})
    read = read_eagle(tmp_path, TARGET, 3)
    head.block.norm1.state.weight.data = norm
    g, e = torch.randn(2, 1, 1, 32, dtype=torch.float64)
    residual = torch.nn.functional.rms_norm(g, (32,), norm, head.shape.norm_eps)
    cos, sin = (table[:1] for table in TARGET.model.rotary(TARGET.device, TARGET.dtype))

    def through(module):
        x = module.enter(e, g)
        return (x + module.block.attention(x, cos, sin, None))[..., 32:]

    shift = residual - g if before else torch.zeros_like(g)
    assert torch.allclose(through(read), through(head) + shift)
    drafter = EagleDrafter.from_pretrained(TARGET, 3, tmp_path)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)


@pytest.mark.parametrize(
    "options",
    [{"fc_norm": True, "norm_output": True}, {"norm_before_fc": True}, {"norm_output": True}],
    ids=lambda options: "+".join(options),
)
def test_the_norms_of_eagle_3_1(options, tmp_path):
    """Each state is normed before the layers are fused, and the normed output is the next state."""
    eagle("eagle3", tmp_path)
    torch.manual_seed(1)
    x, weight = torch.randn(3, 5, 32).double(), torch.rand(3, 32).double() + 0.5
    stored = {"fc_norm": {f"fc_norm.{i}.weight": row for i, row in enumerate(weight)}}
    stored |= {"norm_before_fc": {"input_norm.weight": weight.flatten()}, "norm_output": {}}
    speculators(tmp_path, "eagle3", **options)
    edit(tmp_path, tensors={name: w for option in options for name, w in stored[option].items()})
    head = read_eagle(tmp_path, TARGET, 3)

    def normed(states, by):
        return states * (states.pow(2).mean(-1, keepdim=True) + head.shape.norm_eps).rsqrt() * by

    fused = torch.cat([*x], -1)
    if "fc_norm" in options:
        fused = torch.cat([normed(state, by) for state, by in zip(x, weight)], -1)
    if "norm_before_fc" in options:
        fused = normed(fused, weight.flatten())
    assert torch.allclose(head.begin([*x]), fused @ head.fuse.weight.T)
    output = torch.randn(5, 64).double()
    last = normed(output[:, 32:], head.norm.weight) if "norm_output" in options else output[:, 32:]
    assert torch.allclose(head.leave(output), last)
    drafter = EagleDrafter.from_pretrained(TARGET, 3, tmp_path)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)
    assert Eagle3Head(**head.config).state_dict().keys() == head.state_dict().keys()


def test_a_map_in_another_order_gives_the_same_drafts(tmp_path):
    head = eagle("eagle3", tmp_path)
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(1))
    rows = {"lm_head.weight": head.head.weight[order], "d2t": IDS[order] - torch.arange(len(IDS))}
    edit(tmp_path, tensors=rows)
    loaded = EagleDrafter.from_pretrained(TARGET, 3, tmp_path, 3)
    assert same_drafts(loaded, EagleDrafter(TARGET, head, 3))


def test_other_depths_and_a_bias_are_read(tmp_path):
    eagle("eagle3", tmp_path / "three")
    speculators(tmp_path / "three", "eagle3", eagle_aux_hidden_state_layer_ids=[1, 3, 6])
    assert read_eagle(tmp_path / "three", TARGET, 3).layers == (1, 3, 6)
    eagle("eagle3", tmp_path / "outputs")  # the same states, as SGLang and SpecForge count them
    for given, layers in (([1, 2, 5], (2, 3, 6)), ([2, 3, 6], (2, 3, 6))):
        nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": given}}
        edit(tmp_path / "outputs", nested)
        assert read_eagle(tmp_path / "outputs", TARGET, 3).layers == layers
    head = eagle("eagle", tmp_path / "one")
    bias = torch.linspace(-1, 1, 32, dtype=torch.float64)
    edit(tmp_path / "one", tensors={"fc.bias": bias})
    read = read_eagle(tmp_path / "one", TARGET, 1)
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    assert torch.allclose(read.enter(*x), head.enter(*x) + bias)
    drafter = EagleDrafter.from_pretrained(TARGET, 1, tmp_path / "one")
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)


def test_a_hugging_face_target_gives_no_state_after_its_last_block(tmp_path):
    target = CausalLM(build("Llama", {"num_hidden_layers": 8}).double())
    eagle("eagle3", tmp_path)
    edit(tmp_path, {"eagle_aux_hidden_state_layer_ids": [0, 2, 7]})
    out = generate(target, PROMPT, EagleDrafter.from_pretrained(target, 3, tmp_path, 3), 24)
    assert torch.equal(out.tokens, generate(target, PROMPT, max_new_tokens=24).tokens)
    edit(tmp_path, {"eagle_aux_hidden_state_layer_ids": [0, 2, 8]})
    with pytest.raises(ValueError, match=f"{tmp_path}: hidden_layers.*after the last block"):
        EagleDrafter.from_pretrained(target, 3, tmp_path, 3)


def test_exported_medusa_heads_are_read_back(tmp_path):
    heads = ReducedHeads(32, 3, 48).double().requires_grad_(False)
    torch.nn.init.normal_(heads.up, std=0.3, generator=torch.Generator().manual_seed(0))
    export_medusa(tmp_path, heads, TARGET, torch.float64)
    assert torch.equal(read_medusa(tmp_path, TARGET).up, heads.up)
    drafter = MedusaDrafter.from_pretrained(TARGET, tmp_path)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)
    assert drafter.limits().levels == 3
    edit(tmp_path, tensors={"blocks.0.layers.0.bias": torch.zeros(32)})
    with pytest.raises(ValueError, match="blocks.0.layers.0.bias"):
        read_medusa(tmp_path, TARGET)
    edit(
        tmp_path,
        tensors={"lm_heads.1.weight": torch.zeros(48, 32)},
        drop=["blocks.0.layers.0.bias"],
    )
    with pytest.raises(ValueError, match="lm_heads.1.weight"):
        read_medusa(tmp_path, TARGET)


def authors_medusa(folder, count=3, size=32, **config):
    """Write random heads as Medusa's authors do, and return their tensors."""
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: 0.3 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    tensors = {}
    for i in range(count):
        tensors[f"{i}.0.linear.weight"] = random(size, size)
        tensors[f"{i}.0.linear.bias"] = random(size)
        tensors[f"{i}.1.weight"] = random(48, size)
    config = {"medusa_num_heads": count, "medusa_num_layers": 1} | config
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / "medusa_lm_head.pt")
    return tensors


def test_medusa_heads_of_the_authors_are_read(tmp_path):
    """Head i computes x + SiLU(W x + b), then its own projection, and guesses i + 2 tokens ahead."""
    tensors = authors_medusa(tmp_path)
    drafter = MedusaDrafter.from_pretrained(TARGET, tmp_path, TokenTree([0, 1, 0], [-1, -1, 0]))
    x = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = drafter.logits(x)
    assert logits.shape == (5, 3, 48)
    for i in range(3):
        linear = x @ tensors[f"{i}.0.linear.weight"].T + tensors[f"{i}.0.linear.bias"]
        by_hand = (x + torch.nn.functional.silu(linear)) @ tensors[f"{i}.1.weight"].T
        assert torch.allclose(logits[:, i], by_hand)
        others = [logits[:, k] for k in range(3) if k != i]
        assert all((by_hand - other).abs().max() > 0.1 for other in others)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)
    authors_medusa(tmp_path, 3, medusa_num_heads=2)
    assert MedusaDrafter.from_pretrained(TARGET, tmp_path).limits().levels == 2


class Attack:
    """A pickled object that would run code."""

    def __reduce__(self):
        return print, ("code of the file was run",)


def test_medusa_files_that_do_not_fit_are_refused_and_run_no_code(tmp_path, capsys):
    tensors = authors_medusa(tmp_path)
    file = tmp_path / "medusa_lm_head.pt"
    for change, message in (
        ({"3.2.weight": torch.zeros(1)}, "holds 3.2.weight"),
        ({"0.1.weight": torch.zeros(47, 32)}, "0.1.weight has shape"),
        ({"0.0.linear.bias": torch.zeros(64)}, "size 64"),
        ({"0.0.linear.bias": Attack()}, "medusa_lm_head.pt"),
        ({"0.0.linear.bias": "text"}, "named tensors"),
    ):
        torch.save(tensors | change, file)
        with pytest.raises(ValueError, match=message):
            read_medusa(tmp_path, TARGET)
    assert "was run" not in capsys.readouterr().out
    torch.save({name: t for name, t in tensors.items() if name != "2.1.weight"}, file)
    with pytest.raises(ValueError, match="lacks 2.1.weight"):
        read_medusa(tmp_path, TARGET)
    file.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="medusa_lm_head.pt"):
        read_medusa(tmp_path, TARGET)
    for name, value in (("medusa_num_layers", 2), ("medusa_num_heads", 4)):
        authors_medusa(tmp_path, **{name: value})
        with pytest.raises(ValueError, match=f"{name}={value}"):
            read_medusa(tmp_path, TARGET)


@pytest.mark.parametrize("words", [0, 20])
def test_the_format_of_speculators_is_read_for_block_diffusion(words, tmp_path):
    """Sizes are stored apart, depths and the mask's token at the top, and no embedding."""
    head = random_blocks(TARGET, 4, words=words, layers=(2, 5), qk_norm=True)
    with torch.no_grad():
        head.embedding.weight[0] = TARGET.embed(torch.tensor(47))
    export_blocks(tmp_path, head, TARGET, 47, torch.float64)
    (tmp_path / "mask_embedding.pt").unlink()
    layer = json.loads((tmp_path / "config.json").read_text())
    for name in ("dflash_config", "block_size", "draft_vocab_size", "architectures"):
        layer.pop(name, None)
    config = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "speculators_config": {"algorithm": "dflash", "default_proposal_method": "greedy"},
        "draft_vocab_size": words or 48,
        "block_size": 4,
        "aux_hidden_state_layer_ids": [2, 5],
        "mask_token_id": 47,
        "projector_type": "dflash",
        "sample_from_anchor": False,
        "transformer_layer_config": layer,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    in_draft = torch.zeros(48, dtype=torch.bool)
    in_draft[head.words.ids if words else slice(None)] = True
    edit(tmp_path, tensors={"t2d": in_draft})
    loaded = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path)
    assert loaded.head.layers == (2, 5)
    assert same_drafts(loaded, BlockDiffusionDrafter(TARGET, head))


@pytest.mark.parametrize("words", [0, 20])
def test_an_exported_block_head_is_read_back(words, tmp_path):
    head = random_blocks(TARGET, 4, words=words, layers=(2, 5), qk_norm=True)
    export_blocks(tmp_path, head, TARGET, 47, torch.float64)
    again = read_blocks(tmp_path, TARGET)
    own, read = head.state_dict(), again.state_dict()
    assert own.keys() == read.keys() and all(torch.allclose(own[n], read[n]) for n in own)
    assert again.layers == head.layers and again.size == 4
    loaded = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path)
    assert same_drafts(loaded, BlockDiffusionDrafter(TARGET, head))
    (tmp_path / "mask_embedding.pt").unlink()
    fallback = read_blocks(tmp_path, TARGET).embedding.weight[0]
    assert torch.equal(fallback, TARGET.embed(torch.tensor(47)))


WRONG = {
    "of another size": (dict(config={"hidden_size": 64}), "size 64"),
    "with two layers": (dict(config={"num_hidden_layers": 2}), "2 layers"),
    "without a weight": (dict(drop=["fc.weight"]), "lacks fuse.weight"),
    "with an unknown weight": (dict(tensors={"layers.1.x": torch.zeros(1)}), "layers.1.x"),
    "with embeddings of its own": (
        dict(tensors={"embed_tokens.weight": torch.zeros(48, 32)}),
        "embed_tokens.weight",
    ),
    "with another activation": (dict(config={"hidden_act": "gelu"}), "not a plain Llama's"),
    "with a map beyond the vocabulary": (dict(tensors={"d2t": torch.full((len(IDS),), 40)}), "d2t"),
    "for parallel drafting without a mask": (dict(config={"parallel_drafting": True}), "mask_tok"),
    "with a window": (dict(config={"layer_types": ["sliding_attention"]}), "a window is not known"),
    "without the norms of its option": (dict(config={"fc_norm": True}), "lacks each.0.weight"),
    "with a weight that is no number": (
        dict(tensors={"fc.weight": torch.full((32, 96), float("nan"))}),
        "fuse.weight holds NaN",
    ),
    "with a matrix of another shape": (
        dict(tensors={"midlayer.mlp.down_proj.weight": torch.zeros(32, 40)}),
        "block.down.weight",
    ),
    "that reads layers which do not exist": (
        dict(config={"eagle_aux_hidden_state_layer_ids": [2, 5, 9]}),
        "are none of 0",
    ),
}


@pytest.mark.parametrize("change, message", WRONG.values(), ids=WRONG)
def test_a_head_that_does_not_fit_is_refused_by_name(change, message, tmp_path):
    eagle("eagle3", tmp_path)
    edit(tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        EagleDrafter.from_pretrained(TARGET, 3, tmp_path)


def test_a_head_of_another_version_and_other_files_are_refused(tmp_path):
    eagle("eagle3", tmp_path)
    with pytest.raises(ValueError, match="version=1"):
        EagleDrafter.from_pretrained(TARGET, 1, tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.bin")
    with pytest.raises(ValueError, match="safetensors"):
        EagleDrafter.from_pretrained(TARGET, 3, tmp_path)


def test_a_head_stored_as_its_authors_do_is_read(tmp_path):
    head = eagle("eagle3", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    loaded = EagleDrafter.from_pretrained(TARGET, 3, tmp_path, 3)
    assert same_drafts(loaded, EagleDrafter(TARGET, head, 3))


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    eagle("eagle3", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"fc.weight": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin"):
        read_eagle(tmp_path, TARGET, 3)


def test_a_head_without_a_matrix_of_its_own_reads_the_targets(tmp_path):
    head = eagle("eagle3", tmp_path)
    edit(tmp_path, drop=["lm_head.weight"])
    read = read_eagle(tmp_path, TARGET, 3)
    assert torch.equal(read.head.weight, TARGET.backend.head.weight[head.ids])


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        (
            {},
            {"d2t": torch.zeros(20, dtype=torch.long)},
            "d2t has 20 entries, lm_head.weight has 32",
        ),
        (
            {},
            {"d2t": torch.zeros(40, dtype=torch.long)},
            "d2t has 40 entries, lm_head.weight has 32",
        ),
        ({}, {"d2t": torch.zeros(0, dtype=torch.long)}, "d2t has shape"),
        ({}, {"t2d": torch.arange(48) % 3 == 0}, "t2d marks other tokens"),
        ({}, {"d2t": torch.zeros(32)}, "d2t has shape .* dtype torch.float32"),
        ({"eagle_aux_hidden_state_layer_ids": 3}, {}, "layer_ids=3: must be a list"),
        ({"eagle_aux_hidden_state_layer_ids": ["1"]}, {}, "must be a list"),
        ({"parallel_drafting": True, "pard_token": 7}, {}, "lacks mask_hidden"),
        ({"parallel_drafting": True, "mask_token_id": 48}, {}, "mask_token_id=48"),
        ({"pard_token": 7}, {"mask_hidden": torch.zeros(1, 1, 64)}, "mask has shape"),
        ({"use_aux_hidden_state": False}, {}, "use_aux_hidden_state=false"),
        (
            {},
            {"fc.weight": torch.zeros(32, 96, dtype=torch.float8_e4m3fn)},
            "fc.weight has torch.fl",
        ),
        ({"eagle_config": {"use_aux_hidden_state": False}}, {}, "use_aux_hidden_state=false"),
    ],
)
def test_entries_and_tensors_that_do_not_fit_are_named(config, tensors, message, tmp_path):
    eagle("eagle3", tmp_path)
    edit(tmp_path, config, tensors)
    with pytest.raises(ValueError, match=message):
        read_eagle(tmp_path, TARGET, 3)


# P-EAGLE ------------------------------------------------------------------------------------------


def p_eagle(folder, target, own_embedding=True, **entries):
    """Write a P-EAGLE head of three blocks as SpecForge does, and return its tensors."""
    tensors = published_tensors(target, "peagle", layers=3, reads=3)
    if not own_embedding:
        del tensors["embed_tokens.weight"]
    config = {
        "architectures": ["PEagleDraftModel"],
        "model_type": "llama",
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 256,
        "eagle_aux_hidden_state_layer_ids": [0, 1, target.num_layers],
        "parallel_drafting": True,
        "mask_token_id": target.vocab_size - 2,
        **entries,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def p_eagle_rows(target, tensors, text, count, before=False):
    """Return the probabilities of `count` tokens after a text, by a plain computation."""
    norm = lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * w
    layers = (0, 1, target.num_layers)
    hidden = target.score(text[:-1], target.new_cache(), hidden_layers=layers).hidden
    states = torch.cat([hidden[layer][0] for layer in layers], -1)
    states = torch.cat((states, tensors["mask_hidden"][0].expand(count - 1, -1)))
    ids = torch.cat((text[1:], torch.full((count - 1,), target.vocab_size - 2)))
    table = tensors.get("embed_tokens.weight", target.backend.embedding.weight)
    e, g = table[ids], states @ tensors["fc.weight"].T
    n = len(ids)
    angles = torch.arange(n).float()[:, None] * (1 / 10000 ** (torch.arange(4).float() / 4))
    cos, sin = (f(angles).double().repeat(1, 2)[:, None] for f in (torch.cos, torch.sin))
    turn = lambda x: x * cos + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin
    for layer in range(3):
        w = lambda name, layer=layer: tensors[f"layers.{layer}.{name}.weight"]
        x = norm(g, w("input_layernorm"))
        if layer == 0:
            state = norm(g, w("hidden_norm"))
            x = torch.cat((norm(e, w("input_layernorm")), state), -1)
            g = state if before else g
        q, k, v = ((x @ w(f"self_attn.{p}_proj").T).view(n, -1, 8) for p in "qkv")
        k, v = (part.repeat_interleave(2, 1) for part in (turn(k), v))
        scores = torch.einsum("ihd,jhd->hij", turn(q), k) / 8**0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).flatten(1)
        g = g + mixed @ w("self_attn.o_proj").T
        x = norm(g, w("post_attention_layernorm"))
        gate = torch.nn.functional.silu(x @ w("mlp.gate_proj").T)
        g = g + (gate * (x @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return (norm(g, tensors["norm.weight"]) @ tensors["lm_head.weight"].T)[-count:].softmax(-1)


def p_eagle_differences(target, drafter, tensors, before=False):
    """Return the largest difference of the rows of every draft."""
    text, apart = torch.tensor(PROMPT), []
    for step in generate(target, PROMPT, drafter, 16, 1.0, seed=1).steps:
        if count := len(step.tree):
            rows = p_eagle_rows(target, tensors, text, count, before)
            right = rows.gather(-1, step.tree.tokens[:, None])[:, 0]
            apart.append(float((torch.tensor(step.q) - right).abs().max()))
        text = torch.cat((text, torch.tensor(step.tokens)))
    assert len(apart) > 4
    return max(apart)


@pytest.mark.parametrize("own_embedding", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_p_eagle_head_drafts_what_its_layers_compute(own_embedding, before, tmp_path):
    tensors = p_eagle(tmp_path, TARGET, own_embedding, norm_before_residual=before)
    drafter = EagleDrafter.from_pretrained(TARGET, 3, tmp_path, 3)
    assert p_eagle_differences(TARGET, drafter, tensors, before) < 1e-6  # q is kept in float32
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)
    one = generate(TARGET, PROMPT, drafter, 24).stats
    assert one.draft_passes <= one.target_passes


def test_the_comparison_detects_wrong_parts_of_p_eagle(tmp_path):
    tensors = p_eagle(tmp_path, TARGET)
    for change in (
        lambda head: head.mask.zero_(),
        lambda head: head.more.__delitem__(1),
        lambda head: setattr(head, "embedding", None),
        lambda head: setattr(head, "mask_id", 3),
    ):
        head = read_eagle(tmp_path, TARGET, 3)
        change(head)
        assert p_eagle_differences(TARGET, EagleDrafter(TARGET, head, 3), tensors) > 1e-3


def test_a_p_eagle_head_drafts_no_tree(tmp_path):
    target = native(seed=5, vocab_size=3, **TINY)
    p_eagle(tmp_path, target, own_embedding=False, eagle_aux_hidden_state_layer_ids=[0, 1, 1])
    assert EagleDrafter.from_pretrained(target, 3, tmp_path).limits().is_chain
    with pytest.raises(ValueError, match="P-EAGLE head drafts a chain"):
        EagleDrafter.from_pretrained(target, 3, tmp_path, ConfidenceTree(2, 2, 3))


def test_p_eagle_of_speculators_is_read(tmp_path):
    """It names the kind and stores sizes apart; the mask's token may be called pard_token."""
    p_eagle(tmp_path, TARGET)
    one = EagleDrafter.from_pretrained(TARGET, 3, tmp_path, 3)
    config = json.loads((tmp_path / "config.json").read_text())
    top = {"eagle_aux_hidden_state_layer_ids": config.pop("eagle_aux_hidden_state_layer_ids")}
    top |= {"pard_token": config.pop("mask_token_id"), "speculators_model_type": "peagle"}
    config.pop("parallel_drafting")
    written = top | {"transformer_layer_config": config}
    (tmp_path / "config.json").write_text(json.dumps(written))
    assert same_drafts(EagleDrafter.from_pretrained(TARGET, 3, tmp_path, 3), one)
