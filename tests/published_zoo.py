"""Small random heads in the formats in which others publish them, and what their layers compute.

The computation shares no code with the library, reads the stored tensors and has a plain mask.
"""

import json
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from heads_zoo import published_tensors
from models_zoo import native
from safetensors.torch import save_file

TARGET = native(num_layers=8)
BLOCK, EPS, THETA = 4, 1e-6, 10000.0
SLIDING, FULL = "sliding_attention", "full_attention"
LAYER = dict(model_type="llama", vocab_size=48, hidden_size=32, intermediate_size=24)
LAYER |= dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256)
LAYER |= dict(rms_norm_eps=EPS, rope_theta=THETA, hidden_act="silu", attention_bias=False)
"""Entries of config.json that state the sizes of a layer."""
OWN = {
    "eagle": dict(num_hidden_layers=1),
    "eagle3": dict(num_hidden_layers=1),
    "peagle": dict(num_hidden_layers=3, parallel_drafting=True, mask_token_id=46)
    | {"eagle_aux_hidden_state_layer_ids": [0, 1, 8]},
    "blocks": dict(model_type="qwen3", num_hidden_layers=2, block_size=BLOCK)
    | {"dflash_config": {"mask_token_id": 47, "target_layer_ids": [0, 7]}},
    "medusa": dict(medusa_num_heads=3, medusa_num_layers=1),
}
READS = {"eagle": ("final",), "eagle3": (2, 4, 5), "peagle": (0, 1, 8), "blocks": (1, 8)}
"""Kind → the target's layers that a head reads unless its config names others."""


@dataclass(frozen=True)
class Checkpoint:
    """A head as it is published.

    Attributes:
        kind: "eagle", "eagle3", "peagle", "blocks" or "medusa".
        own: further entries of config.json; of dflash_config for block heads.
        entries: further entries of config.json.
        words: the tokens of the draft vocabulary, in the order of its rows.
        drop: tensors that are not stored.
        extra: tensors that are stored besides.
        speculators: the kind under which `speculators` stores it: sizes apart, other names.
        file: the file of its tensors; with EAGLE's authors the layer of an EAGLE-3 head is "midlayer".
        reads: the target's layers that it reads.
    """

    kind: str
    own: tuple | dict = ()
    entries: tuple | dict = ()
    words: tuple = ()
    drop: tuple = ()
    extra: tuple | dict = ()
    speculators: str = ""
    file: str = "model.safetensors"
    reads: tuple = ()

    @property
    def layers(self):
        return self.reads or READS.get(self.kind, ("final",))

    def config(self):
        """Return config.json as the head's authors write it."""
        config = LAYER | OWN[self.kind] | dict(self.entries)
        if self.kind == "blocks":
            return config | {"dflash_config": config["dflash_config"] | dict(self.own)}
        return config | dict(self.own)

    def tensors(self):
        """Return the tensors that the head's layers read, as their authors name them."""
        if self.kind == "medusa":
            generator = torch.Generator().manual_seed(0)
            sizes = {"0.linear.weight": (32, 32), "0.linear.bias": (32,), "1.weight": (48, 32)}
            names = {f"{i}.{name}": size for i in range(3) for name, size in sizes.items()}
            draw = lambda size: 0.3 * torch.randn(size, generator=generator).double()
            return {name: draw(size) for name, size in names.items()}
        depth = OWN[self.kind]["num_hidden_layers"]
        tensors = published_tensors(
            TARGET, self.kind, dict(self.own), depth, len(self.layers), len(self.words)
        )
        head = TARGET.backend.head.weight.detach()
        if self.kind == "blocks" and self.words:
            tensors["lm_head.weight"] = head[list(self.words)].clone()
        if self.words:
            tensors["d2t"] = torch.tensor(self.words) - torch.arange(len(self.words))
        kept = {name: t for name, t in tensors.items() if name not in self.drop}
        return kept | dict(self.extra)

    def write(self, folder):
        """Write the head, and return it."""
        config, tensors = self.config(), self.tensors()
        if self.speculators:
            config, tensors = self._of_speculators(config, tensors)
        (folder / "config.json").write_text(json.dumps(config))
        self.store(folder, tensors)
        return self

    def store(self, folder, tensors):
        """Write the file of the tensors."""
        if self.file == "model.safetensors":
            save_file(tensors, folder / self.file)
        else:
            own = {name.replace("layers.0.", "midlayer."): t for name, t in tensors.items()}
            torch.save(own, folder / self.file)

    @property
    def from_anchor(self):
        """Whether the row of a block's first position predicts the next token."""
        is_dspark = "markov_rank" in dict(self.own)
        stated = dict(self.own) | self.config() | self.config().get("dspark_config", {})
        return stated.get("sample_from_anchor", is_dspark)

    def _of_speculators(self, config, tensors):
        layer = {name: config.pop(name) for name in (*LAYER, "num_hidden_layers")}
        config |= config.pop("dflash_config", {})
        config |= {"speculators_model_type": self.speculators, "transformer_layer_config": layer}
        config |= {"draft_vocab_size": len(self.words) or 48}
        if self.kind == "blocks":
            layer |= {name: config.pop(name) for name in WINDOWED if name in config}
            config["aux_hidden_state_layer_ids"] = [n + 1 for n in config.pop("target_layer_ids")]
            config.pop("projector_type", None)
        if self.kind == "peagle":
            config |= {"pard_token": config.pop("mask_token_id")}
            config.pop("parallel_drafting")
            return config, tensors
        copies = {"embed_tokens.weight": TARGET.backend.embedding.weight.detach().clone()}
        if self.kind != "eagle":
            return config, copies | tensors
        copies["lm_head.weight"] = TARGET.backend.head.weight.detach().clone()
        names = {name: name.replace("layers.0.", "transformer.") for name in tensors}
        renamed = {new.replace("fc.", "fusion_fc."): tensors[old] for old, new in names.items()}
        return config, copies | renamed

    def rows(self, context, drafted):
        """Return the distributions of the tokens of a path [k], as the layers compute them."""
        text = context.tokens
        scores = TARGET.score(text[:-1], TARGET.new_cache(), hidden_layers=(*self.layers, "final"))
        states = [scores.hidden[layer][0] for layer in self.layers]
        compute = {"blocks": block_rows, "medusa": medusa_rows}.get(self.kind, eagle_rows)
        logits = compute(self, states, text, drafted)
        if self.words:
            wide = logits.new_full((len(logits), 48), -torch.inf)
            wide[:, list(self.words)] = logits
            logits = wide
        return logits.softmax(-1)


WINDOWED = {"use_sliding_window": True, "sliding_window": 3, "layer_types": [SLIDING, FULL]}


# Layers -------------------------------------------------------------------------------------------


def normed(x, weight):
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * weight


def turned(x, positions):
    """Rotate [n, heads, 8] by positions [n]."""
    angles = positions.float()[:, None] * (1 / THETA ** (torch.arange(4).float() / 4))
    cos, sin = (f(angles).double().repeat(1, 2)[:, None] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin


def attended(w, x, known, seen):
    """Attend from rows x [s, d] at the last positions to all rows known [n, d] that are seen [s, n]."""
    parts = (("q", x), ("k", known), ("v", known))
    q, k, v = (
        (rows @ w[f"self_attn.{name}_proj"].T).view(len(rows), -1, 8) for name, rows in parts
    )
    if "self_attn.q_norm" in w:
        q, k = normed(q, w["self_attn.q_norm"]), normed(k, w["self_attn.k_norm"])
    places = torch.arange(len(known)).double()
    q, k = turned(q, places[-len(x) :]), turned(k, places)
    k, v = (part.repeat_interleave(2, 1) for part in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / 8**0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hij,jhd->ihd", weights, v).flatten(1) @ w["self_attn.o_proj"].T


def mlp(w, x):
    return (F.silu(x @ w["mlp.gate_proj"].T) * (x @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T


def layer_of(tensors, number):
    """Return the weights of one layer, without the ends of their names."""
    prefix = f"layers.{number}."
    own = {name: t for name, t in tensors.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix).removesuffix(".weight"): t for name, t in own.items()}


# EAGLE and P-EAGLE --------------------------------------------------------------------------------


def through(head, w, ids, states):
    """Return the outputs [n, d] of pairs of a token and the state before it."""
    e = w.get("embed_tokens.weight", TARGET.backend.embedding.weight)[ids]
    seen = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    first = layer_of(w, 0)
    if head.kind == "eagle":
        x = torch.cat((e, states), -1) @ w["fc.weight"].T + w.get("fc.bias", 0.0)
        x = x + attended(first, x, x, seen)
        return x + mlp(first, normed(x, first["post_attention_layernorm"]))
    g = states
    for number in range(OWN[head.kind]["num_hidden_layers"]):
        layer = layer_of(w, number)
        x = normed(g, layer["input_layernorm"])
        if number == 0:
            state = normed(g, layer["hidden_norm"])
            x = torch.cat((normed(e, layer["input_layernorm"]), state), -1)
            g = state if head.config().get("norm_before_residual") else g
        g = g + attended(layer, x, x, seen)
        g = g + mlp(layer, normed(g, layer["post_attention_layernorm"]))
    return g


def eagle_rows(head, states, text, drafted):
    w, config = head.tensors(), head.config()

    def fused(parts):
        if config.get("fc_norm"):
            parts = [normed(part, w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)]
        x = torch.cat([*parts], -1)
        x = normed(x, w["input_norm.weight"]) if config.get("norm_before_fc") else x
        return x @ w["fc.weight"].T

    ids, count = text[1:], len(drafted)
    g = states[0] if head.kind == "eagle" else fused(states)
    if head.kind == "peagle":
        mask = fused(w["mask_hidden"].flatten().split(32))
        ids = torch.cat((ids, torch.full((count - 1,), 46)))
        outputs = through(head, w, ids, torch.cat((g, mask.expand(count - 1, -1))))[-count:]
    else:
        outputs = g[:0]
        for token in drafted:
            last = through(head, w, ids, g)[-1:]
            outputs = torch.cat((outputs, last))
            g = torch.cat(
                (g, normed(last, w["norm.weight"]) if config.get("norm_output") else last)
            )
            ids = torch.cat((ids, token[None]))
    outputs = outputs if head.kind == "eagle" else normed(outputs, w["norm.weight"])
    return outputs @ w.get("lm_head.weight", TARGET.backend.head.weight).T


# Medusa -------------------------------------------------------------------------------------------


def medusa_rows(head, states, text, drafted):
    """Head i computes x + SiLU(W x + b), then its own projection, and guesses i + 2 tokens ahead."""
    x, w = states[0][-1], head.tensors()
    linear = lambda i: w[f"{i}.0.linear.weight"] @ x + w[f"{i}.0.linear.bias"]
    return torch.stack([w[f"{i}.1.weight"] @ (x + F.silu(linear(i))) for i in range(len(drafted))])


# Block diffusion ----------------------------------------------------------------------------------


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
    predicted = (x @ w[f"{name}.kernel_projection"].T).view(len(x), 2, base.shape[1], -1)
    inside = sublayer(convolved(x, base[0], predicted[:, 0]))
    return convolved(inside, base[1], predicted[:, 1])


def seen_by(head, known):
    """Return the mask [s, n] of each layer, as the formats define windows and causality."""
    config = head.config()
    own = config["dflash_config"]
    first = config.get("max_window_layers", 2)
    types = config.get("layer_types") or [FULL if n < first else SLIDING for n in range(2)]
    window = own.get("swa_window_size", config.get("sliding_window"))
    stated = config.get("is_causal", own.get("causal"))
    if config.get("sliding_window_non_causal"):
        stated = False
    distance = torch.arange(known, known + BLOCK)[:, None] - torch.arange(known + BLOCK)
    for kind in types:
        near = window if kind == SLIDING or own.get("use_swa") else known + BLOCK
        is_causal = kind == SLIDING if stated is None else stated
        yield (distance.abs() < near) & ((distance >= 0) | (not is_causal))


def block_states(head, states, text):
    """Return the final states [s, d] of the block that follows a text [n] without its last token."""
    w = head.tensors()
    context = normed(torch.cat(states, -1) @ w["fc.weight"].T, w["hidden_norm.weight"])
    x = TARGET.embed(torch.cat((text[-1:], torch.full((BLOCK - 1,), 47)))).double()
    for number, seen in enumerate(seen_by(head, len(context))):
        layer = layer_of(w, number)
        attend = lambda y: attended(layer, y, torch.cat((context, y)), seen)  # noqa: B023
        x = x + around(layer, "attention_conv", normed(x, layer["input_layernorm"]), attend)
        inputs = normed(x, layer["post_attention_layernorm"])
        x = x + around(layer, "mlp_conv", inputs, lambda y: mlp(layer, y))  # noqa: B023
    return normed(x, w["norm.weight"])


def block_rows(head, states, text, drafted):
    w, own = head.tensors(), head.config()["dflash_config"]
    block = block_states(head, states, text)[not head.from_anchor :]
    rows = []
    for state, before in zip(block, [text[-1], *drafted[:-1]]):
        row = w.get("lm_head.weight", TARGET.backend.head.weight) @ state
        if "markov_rank" in own:
            row = (
                row + w["markov_head.markov_w2.weight"] @ w["markov_head.markov_w1.weight"][before]
            )
        if "selector_rank" in own:
            part = {n.removeprefix("candidate_selector."): t for n, t in w.items()}
            gate = part["hidden_projection.weight"] @ state
            pairs = part["successor_codebook"] @ (part["predecessor_codebook"][before] * gate)
            kept = row.topk(own["selector_top_k"]).indices
            row = torch.full_like(row, -torch.inf).scatter(0, kept, (row + pairs)[kept])
        rows.append(row)
    return torch.stack(rows)
