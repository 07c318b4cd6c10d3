"""Published block heads are read: DFlash with windows and mixed layers, DSpark, DFlash 2.

Folders have the names and shapes of the releases. What a head drafts is compared with a plain
computation of the published layers, which shares no code with the library and has a plain mask.
"""

import json
from copy import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from heads_zoo import published_tensors
from models_zoo import PROMPT, native
from safetensors.torch import save_file

from specdec_lite import generate
from specdec_lite.drafters import BlockDiffusionDrafter
from specdec_lite.drafters.published_blocks import read_blocks

TARGET = native(num_layers=6)
PLAIN = generate(TARGET, PROMPT, max_new_tokens=24).tokens
SIZE = 4
SLIDING, FULL = "sliding_attention", "full_attention"
EPS, THETA = 1e-6, 10000.0

DSPARK = {
    "projector_type": "dspark",
    "markov_head_type": "vanilla",
    "markov_rank": 6,
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}
DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 6, "selector_top_k": 5}
WINDOWED = {"use_sliding_window": True, "sliding_window": 3}
KINDS = {
    "DFlash": ({}, {}),
    "DFlash, a window in every layer": ({}, WINDOWED | {"layer_types": [SLIDING] * 2}),
    "DFlash, mixed layers": ({}, WINDOWED | {"layer_types": [SLIDING, FULL]}),
    "DFlash, a window that is not causal": (
        {"causal": False},
        WINDOWED | {"layer_types": [FULL, SLIDING]},
    ),
    "DFlash, a window of its own": ({"use_swa": True, "swa_window_size": 5}, {}),
    "DFlash, all causal": ({}, {"is_causal": True}),
    "DFlash from the anchor": ({}, {"sample_from_anchor": True}),
    "DSpark": (DSPARK, {}),
    "DFlash 2": (DFLASH2, WINDOWED | {"layer_types": [SLIDING] * 2, "is_causal": False}),
}
"""Name → entries of dflash_config, and of config.json."""


def write_head(folder, target, own=(), entries=(), words=0):
    """Write a head as its authors do, and return its tensors and config."""
    own, entries = dict(own), dict(entries)
    tensors = published_tensors(target, "blocks", own, words=words)
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "max_position_embeddings": 256,
        "hidden_act": "silu",
        "attention_bias": False,
        "block_size": SIZE,
        "dflash_config": {
            "mask_token_id": target.vocab_size - 1,
            "target_layer_ids": [0, target.num_layers - 1],
            **own,
        },
        **entries,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return tensors, config


# A plain computation of the published layers --------------------------------------------------------


def normed(x, weight):
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * weight


def turned(x, positions):
    """Rotate [n, heads, h] by positions [n]."""
    half = x.shape[-1] // 2
    angles = positions.float()[:, None] * (1 / THETA ** (torch.arange(half).float() / half))
    cos, sin = (f(angles).double().repeat(1, 2)[:, None] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def convolved(x, base, predicted):
    """Return Σ (base + predicted) · earlier positions of one block, one position at a time."""
    taps, groups = predicted.shape[1:]
    out = torch.zeros_like(x)
    for position in range(len(x)):
        for tap in range(min(taps, position + 1)):
            kernel = base[tap] + predicted[position, tap].repeat_interleave(x.shape[1] // groups)
            out[position] += kernel * x[position - tap]
    return out


def around(w, name, x, sublayer):
    """Return a sublayer's output, between two convolutions if the head has them."""
    if f"{name}.base_kernel" not in w:
        return sublayer(x)
    base = w[f"{name}.base_kernel"]
    taps = base.shape[1]
    predicted = (x @ w[f"{name}.kernel_projection.weight"].T).view(len(x), 2, taps, -1)
    inside = sublayer(convolved(x, base[0], predicted[:, 0]))
    return convolved(inside, base[1], predicted[:, 1])


def attended(w, x, context, window, causal):
    """Attend from a block x [s, d] to the context [n, d] and to the block itself."""
    n, s = len(context), len(x)
    positions = torch.arange(n + s).double()
    both = torch.cat((context, x))
    q, k, v = (
        rows @ w[f"self_attn.{name}_proj.weight"].T
        for rows, name in ((x, "q"), (both, "k"), (both, "v"))
    )
    q, k, v = (part.view(len(part), -1, 8) for part in (q, k, v))
    q = turned(normed(q, w["self_attn.q_norm.weight"]), positions[n:])
    k = turned(normed(k, w["self_attn.k_norm.weight"]), positions)
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    out = torch.zeros(s, q.shape[1], 8).double()
    for i in range(s):
        seen = [
            j
            for j in range(n + s)
            if (window is None or abs(n + i - j) < window) and not (causal and j > n + i)
        ]
        scores = torch.einsum("hd,jhd->hj", q[i], k[seen]) / 8**0.5
        out[i] = torch.einsum("hj,jhd->hd", scores.softmax(-1), v[seen])
    return out.flatten(1) @ w["self_attn.o_proj.weight"].T


def block_states(target, tensors, text, windows, causal):
    """Return the final states [s, d] of the block that follows a text [n] without its last token."""
    layers = (1, target.num_layers)
    hidden = target.score(text[:-1], target.new_cache(), hidden_layers=layers).hidden
    fused = torch.cat([hidden[layer][0] for layer in layers], -1) @ tensors["fc.weight"].T
    context = normed(fused, tensors["hidden_norm.weight"])
    masks = torch.full((SIZE - 1,), target.vocab_size - 1)
    x = target.embed(torch.cat((text[-1:], masks))).double()
    for layer in range(2):
        prefix = f"layers.{layer}."
        w = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        rule = windows[layer], causal[layer]
        attend = lambda y, w=w, rule=rule: attended(w, y, context, *rule)
        x = x + around(w, "attention_conv", normed(x, w["input_layernorm.weight"]), attend)

        def mlp(y, w=w):
            gate = F.silu(y @ w["mlp.gate_proj.weight"].T)
            return (gate * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T

        x = x + around(w, "mlp_conv", normed(x, w["post_attention_layernorm.weight"]), mlp)
    return normed(x, tensors["norm.weight"])


def layout(config):
    """Return the window and the causality of each layer, as the formats define them."""
    own = config["dflash_config"]
    types = config.get("layer_types", [FULL] * 2)
    window = own.get("swa_window_size", config.get("sliding_window"))
    stated = config.get("is_causal", own.get("causal"))
    causal = [kind == SLIDING if stated is None else stated for kind in types]
    return [window if kind == SLIDING or own.get("use_swa") else None for kind in types], causal


def published_rows(target, tensors, config, text, drafted):
    """Return the probabilities [len(drafted), V] of drafted tokens after a text."""
    own = config["dflash_config"]
    states = block_states(target, tensors, text, *layout(config))
    is_dspark = own.get("projector_type") == "dspark"
    states = states if config.get("sample_from_anchor", is_dspark) else states[1:]
    rows = []
    for state, before in zip(states, [text[-1], *drafted[:-1]]):
        row = state @ target.backend.head.weight.T
        if is_dspark:
            w1, w2 = (tensors[f"markov_head.markov_w{i}.weight"] for i in (1, 2))
            row = row + w2 @ w1[before]
        if "selector_rank" in own:
            part = {n.removeprefix("candidate_selector."): t for n, t in tensors.items()}
            gate = part["hidden_projection.weight"] @ state
            pairs = part["successor_codebook"] @ (part["predecessor_codebook"][before] * gate)
            kept = row.topk(own["selector_top_k"]).indices
            chosen = torch.full_like(row, -torch.inf)
            chosen[kept] = (row + pairs)[kept]
            row = chosen
        rows.append(row.softmax(-1))
    return torch.stack(rows)


def differences(target, folder, tensors, config, change=lambda head: None):
    """Return the largest difference of every draft's rows, and the length of the longest draft."""
    drafter = BlockDiffusionDrafter.from_pretrained(target, folder)
    drafter.head = copy(drafter.head)
    change(drafter.head)
    start, apart, lengths = drafter.start, [], []

    def begin(context):
        session = start(context)
        propose = session.propose

        def compared(context):
            proposal = propose(context)
            if count := len(proposal.tree):
                drafted = proposal.tree.tokens
                right = published_rows(target, tensors, config, context.tokens, drafted)
                apart.append(float((proposal.probs - right).abs().max()))
                lengths.append(count)
            return proposal

        session.propose = compared
        return session

    drafter.start = begin
    generate(target, PROMPT, drafter, 12, temperature=1.0, seed=1)
    return apart, max(lengths)


@pytest.mark.parametrize("own, entries", KINDS.values(), ids=KINDS)
def test_a_published_head_drafts_what_its_layers_compute(own, entries, tmp_path):
    tensors, config = write_head(tmp_path, TARGET, own, entries)
    apart, longest = differences(TARGET, tmp_path, tensors, config)
    assert len(apart) > 3 and max(apart) < 1e-10
    from_anchor = config.get("sample_from_anchor", "markov_rank" in own)
    assert longest == SIZE - (not from_anchor)
    drafter = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path)
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)


def without(**parts):
    def change(head):
        head.parts = replace(head.parts, **parts)

    return change


def uncorrected(head):
    head.correction = None


def unconvolved(head):
    head.blocks = torch.nn.ModuleList(map(copy, head.blocks))
    for block in head.blocks:
        block._modules = dict(block._modules)
        for name in ("around_attention", "around_mlp"):
            whole = block._modules[name]
            block._modules[name] = Bare(whole.norm)


class Bare(torch.nn.Module):
    """Broken: a norm without the convolutions around the sublayer."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, sublayer):
        return sublayer(self.norm(x))


@pytest.mark.parametrize(
    "kind, change",
    [
        ("DFlash, a window in every layer", without(windows=())),
        ("DFlash, a window in every layer", without(windows=(4, 4))),
        ("DFlash, a window in every layer", without(causal=())),
        ("DFlash, mixed layers", without(windows=(None, 3))),
        ("DFlash, a window that is not causal", without(causal=(False, True))),
        ("DFlash, a window of its own", without(windows=())),
        ("DFlash, all causal", without(causal=())),
        ("DSpark", uncorrected),
        ("DFlash 2", uncorrected),
        ("DFlash 2", unconvolved),
        ("DFlash 2", without(windows=())),
    ],
)
def test_the_comparison_detects_parts_that_are_ignored(kind, change, tmp_path):
    tensors, config = write_head(tmp_path, TARGET, *KINDS[kind])
    apart, _ = differences(TARGET, tmp_path, tensors, config, change)
    assert max(apart) > 1e-3


def speculators(folder, target, kind, words=(), **entries):
    """Write a head as `speculators` does: sizes apart, a draft vocabulary in another order."""
    own = DSPARK if kind == "dspark" else {}
    tensors, config = write_head(folder, target, own, {}, len(words))
    nested = config.pop("dflash_config")
    layer = {name: config.pop(name) for name in [*config] if name not in ("block_size",)}
    if len(words):
        tensors["d2t"] = torch.tensor(words) - torch.arange(len(words))
        tensors["lm_head.weight"] = target.backend.head.weight.detach()[list(words)].clone()
    tensors["embed_tokens.weight"] = target.backend.embedding.weight.detach().clone()
    written = {
        "architectures": ["DSparkSpeculator" if kind == "dspark" else "DFlashSpeculator"],
        "speculators_model_type": kind,
        "transformer_layer_config": layer | entries.pop("layer", {}),
        "draft_vocab_size": len(words) or target.vocab_size,
        "aux_hidden_state_layer_ids": [1, target.num_layers],
        "mask_token_id": target.vocab_size - 1,
        "block_size": config["block_size"],
        "sample_from_anchor": kind == "dspark",
        **({name: nested[name] for name in DSPARK if name != "projector_type"} if own else {}),
        **entries,
    }
    (folder / "config.json").write_text(json.dumps(written))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def test_dspark_with_a_draft_vocabulary_in_another_order(tmp_path):
    """The table of the tokens before has a row for each of the target's tokens."""
    words = [token for token in range(47, 0, -1) if token % 3]
    tensors = speculators(tmp_path, TARGET, "dspark", words)
    drafter = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path)
    steps = generate(TARGET, PROMPT, drafter, 16, 1.0, seed=2).steps
    text, compared = torch.tensor(PROMPT), 0
    w1, w2 = (tensors[f"markov_head.markov_w{i}.weight"] for i in (1, 2))
    for step in steps:
        if len(step.tree):
            states = block_states(TARGET, tensors, text, [None] * 2, [False] * 2)
            before = [int(text[-1]), *step.tree.tokens.tolist()]
            for state, last, token, q in zip(states, before, before[1:], step.q):
                logits = tensors["lm_head.weight"] @ state + w2 @ w1[last]
                right = dict(zip(words, logits.softmax(-1).tolist()))
                assert q == pytest.approx(right[token], abs=1e-10)
                compared += 1
        text = torch.cat((text, torch.tensor(step.tokens)))
    assert compared > 12
    assert torch.equal(generate(TARGET, PROMPT, drafter, 24).tokens, PLAIN)


def test_layers_with_a_window_of_speculators_are_causal_unless_it_says_otherwise(tmp_path):
    layer = WINDOWED | {"layer_types": [SLIDING, FULL]}
    for entries, causal in (
        ({}, (True, False)),
        ({"sliding_window_non_causal": False}, (True, False)),
        ({"sliding_window_non_causal": True}, ()),
    ):
        speculators(tmp_path, TARGET, "dflash", layer=layer, **entries)
        parts = read_blocks(tmp_path, TARGET).parts
        assert tuple(parts.causal) == causal and tuple(parts.windows) == (3, None)


def test_a_config_without_layer_types_states_the_first_layer_with_a_window(tmp_path):
    for first, windows in ((0, (3, 3)), (1, (None, 3)), (2, ())):
        write_head(tmp_path, TARGET, {}, WINDOWED | {"max_window_layers": first})
        assert tuple(read_blocks(tmp_path, TARGET).parts.windows) == windows


def test_the_confidence_of_dspark_ends_drafts(tmp_path):
    tensors, _ = write_head(tmp_path, TARGET, DSPARK)
    drafter = BlockDiffusionDrafter.from_pretrained(TARGET, tmp_path, least=0.5)
    weight, bias = (tensors[f"confidence_head.proj.{name}"] for name in ("weight", "bias"))
    w1, text, ended = tensors["markov_head.markov_w1.weight"], torch.tensor(PROMPT), 0
    for step in generate(TARGET, PROMPT, drafter, 40, 1.0, seed=2).steps:
        if len(PROMPT) + 40 - len(text) <= SIZE:
            break  # this draft ends with the text
        states = block_states(TARGET, tensors, text, [None] * 2, [False] * 2)
        before = [int(text[-1]), *step.tree.tokens.tolist()]
        count = len(step.tree)
        for position in range(1, min(count + 1, SIZE)):
            inputs = torch.cat((states[position], w1[before[position]]))
            goes_on = bool((weight @ inputs + bias).sigmoid() >= 0.5)
            assert goes_on == (position < count)
            ended += not goes_on
        text = torch.cat((text, torch.tensor(step.tokens)))
    assert ended > 2
    greedy = generate(TARGET, PROMPT, drafter, 24)
    assert torch.equal(greedy.tokens, PLAIN)


WRONG = {
    "a gated correction": (DSPARK | {"markov_head_type": "gated"}, {}, "markov_head_type='gated'"),
    "an attention sink": ({"attention_sink_bias": True}, {}, "attention_sink_bias=True"),
    "a cap of the logits": ({"final_logit_softcapping": 30.0}, {}, "final_logit_softcapping=30"),
    "shifted labels": ({}, {"shift_label": True}, "shift_label=True"),
    "experts": ({}, {"draft_ffn_type": "moe"}, "draft_ffn_type='moe'"),
    "an unknown kind of layer": ({}, {"layer_types": [FULL, "chunked_attention"]}, "layer_types"),
    "types of too few layers": ({}, {"layer_types": [FULL]}, "each of 2"),
    "a window without a size": ({}, {"layer_types": [SLIDING, FULL]}, "sliding_window=None"),
    "a window that is switched off": (
        {},
        {"layer_types": [SLIDING] * 2, "sliding_window": 4, "use_sliding_window": False},
        "use_sliding_window=false",
    ),
    "groups that do not divide the width": (
        DFLASH2 | {"conv_group_size": 7},
        {},
        "conv_group_size=7",
    ),
    "no candidates": (DFLASH2 | {"selector_top_k": 0}, {}, "selector_top_k=0"),
    "no block": ({}, {"block_size": None}, "block_size=None"),
    "no layers to read": ({"target_layer_ids": 3}, {}, "target_layer_ids=3"),
    "layers that do not exist": ({"target_layer_ids": [0, 9]}, {}, "are none of 0"),
    "a mask outside the vocabulary": ({"mask_token_id": 48}, {}, "mask_token_id=48"),
}


@pytest.mark.parametrize("own, entries, message", WRONG.values(), ids=WRONG)
def test_what_is_not_known_is_refused_by_name(own, entries, message, tmp_path):
    if own.get("conv_group_size") == 7:
        write_head(tmp_path, TARGET, DFLASH2)
        config = json.loads((tmp_path / "config.json").read_text())
        config["dflash_config"] |= own
        (tmp_path / "config.json").write_text(json.dumps(config))
    else:
        write_head(tmp_path, TARGET, own, entries)
    with pytest.raises(ValueError, match=message):
        read_blocks(tmp_path, TARGET)


@pytest.mark.parametrize(
    "own, change, message",
    [
        (DSPARK, {"markov_head.gate_proj.weight": (6, 38)}, "holds markov_head.gate_proj"),
        (DSPARK, {"confidence_head.proj.weight": (1, 40)}, "confidence.weight has shape"),
        (DFLASH2, {"candidate_selector.successor_codebook": (40, 6)}, "after.weight has shape"),
        (DFLASH2, {"layers.0.mlp_conv.base_kernel": None}, "lacks blocks.0.around_mlp.base"),
        (DFLASH2, {"candidate_selector.hidden_projection.weight": None}, "correction.gate.weight"),
        ({}, {"fc.weight": None}, "lacks fuse.weight"),
        ({}, {"layers.1.mlp.router.weight": (4, 32)}, "mlp.router.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(own, change, message, tmp_path):
    tensors, _ = write_head(tmp_path, TARGET, own)
    for name, shape in change.items():
        tensors.pop(name, None)
        if shape is not None:
            tensors[name] = torch.zeros(shape)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        read_blocks(tmp_path, TARGET)
