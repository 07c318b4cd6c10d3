"""Language models behind one call, and the cache that is cut back.

`CausalLM` wraps our own `Transformer` or any Hugging Face causal language model. State lives in the cache, never in the
model, so one model can be target and drafter at once. Shapes: B batch (1 in `generate`), n tokens fed, V vocabulary,
d hidden size. Layer names: 0 = embedding, b = after block b, "final" = after the final norm (what enters the head).
"""
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .transformer import Storage, Transformer
from .tree import TokenTree

Layer = int | str


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pass returns: logits [B, n, V], and hidden states [B, n, d] by layer name for the layers asked for."""
    logits: Tensor
    hidden: dict[Layer, Tensor] = field(default_factory=dict)

    def along(self, path: Sequence[int]) -> "Scores":
        """The rows of the root and of the accepted nodes, when what was fed is [root] + tree.tokens."""
        prefix = tuple(path) == tuple(range(len(path)))   # a slice: no index has to travel to the device
        rows = slice(0, len(path) + 1) if prefix else torch.tensor([0, *(node + 1 for node in path)], device=self.logits.device)
        return Scores(self.logits[:, rows], {layer: states[:, rows] for layer, states in self.hidden.items()})


class Cache:
    """Keys and values of the tokens scored so far: `length` of them. Cut back with `keep` or `crop`.

    A view (`view(layers=E)`) shares the storage of the first E layers and has a length of its own: what an early exit
    drafts with.
    """

    def __init__(self, storage, batch: int = 1, layers: int | None = None):
        self.storage, self.batch, self.layers = storage, batch, layers
        self.length = 0
        self.before_last_pass = 0

    @torch.inference_mode()
    def keep(self, indices: Sequence[int]) -> None:
        """Of the tokens of the last pass keep those at `indices` (ascending, 0 = its first token), in that order."""
        start, indices = self.before_last_pass, list(indices)
        fed = self.length - start
        if any(not 0 <= i < fed for i in indices) or any(a >= b for a, b in zip(indices, indices[1:])):
            raise ValueError(f"indices={indices}: must ascend within the last pass, which fed {fed} tokens")
        if indices != list(range(len(indices))):
            self.storage.move(start, torch.tensor(indices))
        self.crop(start + len(indices))

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length={length}: the cache holds {self.length} tokens")
        self.length = length
        self.before_last_pass = min(self.before_last_pass, length)
        self.storage.cut(length)

    def view(self, layers: int) -> "Cache":
        """The first `layers` layers of this cache: the same storage, a length of its own. ValueError for a model of Hugging Face."""
        if isinstance(self.storage, HuggingFaceStorage):
            raise ValueError("view(layers=…) needs a native model: Hugging Face modules run all their layers, and cutting their cache cuts all of it")
        other = Cache(self.storage, self.batch, layers)
        other.length = other.before_last_pass = self.length
        return other


class NativeStorage:
    """Preallocated storage of a native model; it grows by doubling, never by a token."""

    def __init__(self, model: Transformer, batch: int, capacity: int):
        weight = model.embedding.weight
        self.make = lambda size: Storage(model.config, batch, size, weight.device, weight.dtype)
        self.tensors = self.make(capacity)

    def reserve(self, capacity: int) -> None:
        if capacity > self.tensors.capacity:
            old, self.tensors = self.tensors, self.make(max(capacity, 2 * self.tensors.capacity))
            self.tensors.keys[..., :old.capacity, :] = old.keys
            self.tensors.values[..., :old.capacity, :] = old.values

    def move(self, start: int, rows: Tensor) -> None:
        """Bring the entries at start + rows to start, start + 1, …"""
        for tensor in (self.tensors.keys, self.tensors.values):
            tensor[..., start:start + len(rows), :] = tensor[..., start + rows.to(tensor.device), :]

    def cut(self, length: int) -> None:
        """Nothing to do: what lies beyond the length is overwritten."""


class HuggingFaceStorage:
    """A plain `DynamicCache`, even for sliding-window models: the window goes into the mask, so rollback stays possible."""

    def __init__(self):
        from transformers import DynamicCache
        self.cache = DynamicCache()

    def _each(self, change) -> None:
        for layer in self.cache.layers:
            if layer.is_initialized:
                layer.keys, layer.values = change(layer.keys), change(layer.values)

    def move(self, start: int, rows: Tensor) -> None:
        def gather(x: Tensor) -> Tensor:
            return torch.cat((x[..., :start, :], x[..., start + rows.to(x.device), :]), dim=-2)
        self._each(gather)

    def cut(self, length: int) -> None:
        self._each(lambda x: x[..., :length, :])

    def snapshot(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.keys, layer.values) for layer in self.cache.layers if layer.is_initialized]


def visible(length: int, count: int, tree: TokenTree | None, window: int | None, positions: Tensor) -> Tensor:
    """Which keys each fed token may see: bool [n, length + n].

    Everything stored, itself, earlier fed tokens, and in the tree's part (the last len(tree) tokens) ancestors only.
    window: also nothing `window` or more positions back. positions: [n] of the fed tokens.
    """
    mask = torch.ones(count, length + count, dtype=torch.bool, device=positions.device).tril(length)
    if tree is not None and len(tree):
        mask[-len(tree):, -len(tree):] = tree.mask.to(mask.device)
    if window is not None:
        keys = torch.cat((torch.arange(length, device=positions.device), positions))
        mask &= keys[None, :] > positions[:, None] - window
    return mask


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as the number added to attention scores: 0 where visible, the dtype's most negative number elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


class CausalLM:
    """A causal language model behind `score`: one of ours (`Transformer`) or any Hugging Face causal LM.

    Attributes: model, vocab_size, num_layers, max_positions (context length), hidden_size, device, dtype.
    Raises TypeError for anything else, and ValueError for a model whose cache cannot be cut back: encoder–decoders and
    models with recurrent state.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        if isinstance(model, Transformer):
            self.backend = NativeBackend(model)
        elif hasattr(model, "can_generate") and model.can_generate():
            self.backend = HuggingFaceBackend(model)
        else:
            raise TypeError(f"model is a {type(model).__name__}: must be a specdec_lite Transformer or a Hugging Face causal language model, head included")
        model.eval()
        for name in ("vocab_size", "num_layers", "max_positions", "hidden_size"):
            setattr(self, name, getattr(self.backend, name))
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        return f"CausalLM({type(self.model).__name__}, {size / 1e6:.1f}M parameters, {self.num_layers} layers, {self.dtype}, {self.device})"

    def new_cache(self, batch: int = 1, capacity: int = 256) -> Cache:
        """An empty cache. capacity: tokens to make room for at once (a hint, not a limit)."""
        return Cache(self.backend.storage(batch, capacity), batch)

    @torch.inference_mode()
    def score(self, tokens: Tensor | Sequence[int], cache: Cache, tree: TokenTree | None = None,
              hidden_layers: Sequence[Layer] = (), last: bool = False) -> Scores:
        """Feed tokens after what the cache holds and extend the cache by them.

        tokens: [B, n] ids (or [n], or a list, for B = 1). tree: the last len(tree) tokens are its nodes, hanging from the
        token before them; None: a chain. last: only the last row of logits is wanted (a prefill).
        """
        tokens = torch.as_tensor(tokens, device=self.device)
        tokens = tokens[None] if tokens.dim() == 1 else tokens
        if tokens.dim() != 2 or tokens.shape[0] != cache.batch or tokens.shape[1] == 0:
            raise ValueError(f"tokens has shape {tuple(tokens.shape)}: must be [{cache.batch}, n] with n ≥ 1")
        if tokens.is_floating_point():
            raise TypeError(f"tokens has dtype {tokens.dtype}: must be whole numbers")
        tokens = tokens.long()
        if tree is not None and tree.is_chain:
            tree = None
        if tree is not None and len(tree) >= tokens.shape[1]:
            raise ValueError(f"tokens holds {tokens.shape[1]} ids for a tree of {len(tree)} nodes: the token before the tree must be fed too")
        reach = tokens.shape[1] if tree is None else tokens.shape[1] - len(tree) + int(tree.depth.max()) + 1
        if cache.length + reach > self.max_positions:
            raise ValueError(f"tokens: {reach} positions after {cache.length} exceed the model's context length of {self.max_positions}")
        unknown = [layer for layer in hidden_layers if layer != "final" and layer not in range(self.num_layers + 1)]
        if unknown:
            raise ValueError(f"hidden_layers={list(hidden_layers)}: {unknown} are none of 0 (embedding), 1 … {self.num_layers} (after that block), 'final'")
        scores = self.backend.score(tokens, cache, tree, hidden_layers, last)
        cache.before_last_pass = cache.length
        cache.length += tokens.shape[1]
        return scores

    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings: ids [...] → [..., d]."""
        return self.backend.embedding(ids.to(self.device))

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states "final" [..., d] → logits [..., V]; gradients flow through it when a drafter is trained."""
        return self.backend.logits(hidden.clone() if hidden.is_inference() else hidden)


def tree_positions(length: int, count: int, tree: TokenTree | None, device) -> Tensor:
    """Position ids [n] of the fed tokens: consecutive, and in the tree's part the root's position plus depth plus one."""
    positions = torch.arange(length, length + count, device=device)
    if tree is not None and len(tree):
        positions[-len(tree):] = positions[-len(tree) - 1] + 1 + tree.depth.to(device)
    return positions


TRIANGLE = 4096   # side of the largest stored triangle: 64 MiB in float32


class NativeBackend:
    """Our own transformer. Causal masks are slices of one stored triangle, since at batch 1 building one costs a layer."""

    def __init__(self, model: Transformer):
        self.model, config = model, model.config
        self.vocab_size, self.num_layers, self.max_positions, self.hidden_size = (
            config.vocab_size, config.num_layers, config.max_positions, config.hidden_size)
        self.embedding, self.head = model.embedding, model.head
        self.triangle = torch.zeros(0, 0)

    def storage(self, batch: int, capacity: int) -> NativeStorage:
        return NativeStorage(self.model, batch, capacity)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)

    def _causal(self, length: int, count: int, weight: Tensor) -> Tensor:
        total = length + count
        if total > TRIANGLE:
            positions = torch.arange(length, total, device=weight.device)
            return additive(visible(length, count, None, None, positions), weight.dtype)
        if len(self.triangle) < total or self.triangle.device != weight.device or self.triangle.dtype != weight.dtype:
            size = min(TRIANGLE, max(total, 2 * len(self.triangle), 512))
            self.triangle = additive(torch.ones(size, size, dtype=torch.bool, device=weight.device).tril(), weight.dtype)
        return self.triangle[length:total, :total]

    def score(self, tokens: Tensor, cache: Cache, tree, hidden_layers, last: bool) -> Scores:
        count, length, weight, window = tokens.shape[1], cache.length, self.embedding.weight, self.model.config.window
        cache.storage.reserve(length + count)
        positions = bias = None
        if tree is not None or (window is not None and length + count > window):
            positions = tree_positions(length, count, tree, weight.device)
            bias = additive(visible(length, count, tree, window, positions), weight.dtype)
        elif count > 1 and length:
            bias = self._causal(length, count, weight)
        hidden = dict.fromkeys(hidden_layers)
        logits = self.model(tokens, cache.storage.tensors, length, positions, bias, cache.layers, hidden, last)
        return Scores(logits, hidden)


# Layers whose state is not a list of keys and values, and models that refuse a tree mask or count distances in rows, not
# in positions (ALiBi, local attention): these verify a tree path by path, as do layers unknown here,
# models that take no positions, and attention kernels that take no mask of their own for every row (FlashAttention).
STATEFUL = {"linear_attention", "conv", "mamba", "mamba2", "recurrent"}
MASKLESS = {"bloom", "mpt", "gpt_neo"}
# Model types whose text cannot be continued from a plain cache of keys and values, and why. Found by running every type.
REFUSED = {kind: reason for reason, kinds in {
    "counts positions from its padding id, not from the start of the text":
        ("camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    "looks at later tokens too, so its logits change when text is added": ("cpmant", "prophetnet", "xlm", "xlnet"),
    "keeps no cache": ("openai-gpt",), "keeps hashed buckets in place of keys and values": ("reformer",),
    "keeps an index of its own for sparse attention besides keys and values":
        ("axk2", "deepseek_v32", "dots3_note", "dots3_note_text", "glm_moe_dsa", "hy_v4"),
    "mixes neighbouring tokens by convolutions whose state cannot be cut back": ("inkling_text", "inkling2_text"),
    "decodes sound and text in step": ("moshi", "musicgen", "musicgen_melody"),
}.items() for kind in kinds}


# Types that are decoders only where their config says so, which is not its default.
BIDIRECTIONAL = {"bert", "bert-generation", "big_bird", "electra", "ernie", "megatron-bert", "rembert", "roc_bert", "roformer"}


def context_length(config) -> int:
    """Positions that a Hugging Face model's text config allows; 2³⁰ where it names no limit.

    With "longrope" only the length it was first trained on: a pass that reaches beyond turns *all* its positions by other
    angles than a shorter one, so what a draft would make of the text depends on how far the draft reaches.
    """
    names = ("max_position_embeddings", "max_seq_len", "max_target_positions")
    limit = next(filter(None, (getattr(config, name, None) for name in names)), 1 << 30)
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        if rope.get("rope_type") == "longrope":
            limit = min(limit, rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None) or limit)
    return limit


# By how much a type multiplies its logits after the projection. (MPT has such a setting too, which transformers does not use.)
SCALED = {"cohere": lambda config: config.logit_scale or 1.0, "granite": lambda config: 1 / config.logits_scaling,
          "minicpm3": lambda config: 1 / config.logits_scaling, "hyperclovax": lambda config: config.logits_scaling}


class HuggingFaceBackend:
    """Any Hugging Face causal LM. Masks are additive float 4-D tensors; models that refuse them verify a tree path by path."""

    def __init__(self, model: nn.Module):
        config = model.config.get_text_config()
        name = type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise ValueError(f"{name} is an encoder–decoder: only decoder-only models are supported")
        self.layer_types = set(getattr(config, "layer_types", None) or ())
        if getattr(model, "_is_stateful", False) or self.layer_types & STATEFUL:
            raise ValueError(f"{name} carries recurrent state, which cannot be cut back to an earlier token after a rejection")
        if config.model_type in REFUSED:
            raise ValueError(f"{name} {REFUSED[config.model_type]}: it cannot be decoded speculatively")
        if config.model_type in BIDIRECTIONAL and not config.is_decoder:
            raise ValueError(f"{name} looks at later tokens too unless its config says is_decoder=True: it cannot be decoded speculatively")
        self.model = model
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        self.num_layers, self.hidden_size = config.num_hidden_layers, config.hidden_size
        self.max_positions = context_length(config)
        self.embedding, self.head = model.get_input_embeddings(), model.get_output_embeddings()
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.by_path = (not self.takes_positions or getattr(config, "alibi", False) or config.model_type in MASKLESS
                        or getattr(config, "_attn_implementation", None) not in (None, "eager", "sdpa")
                        or bool(self.layer_types - {"full_attention", "sliding_attention"}))
        self.windowed = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        self.scale = next((scale(config) for kind, scale in SCALED.items() if config.model_type.startswith(kind)), 1.0)
        self.cap, self.compared = getattr(config, "final_logit_softcapping", None), False

    def storage(self, batch: int, capacity: int) -> HuggingFaceStorage:
        return HuggingFaceStorage()

    def logits(self, hidden: Tensor) -> Tensor:
        """The vocabulary projection, and what some types do after it. ValueError, at the first call, where a pass gives other logits."""
        if not self.compared:
            self._compare()
        return self._project(hidden)

    def _project(self, hidden: Tensor) -> Tensor:
        """With Cohere's, Granite's and HyperCLOVA's scale of the logits, and Gemma's soft cap."""
        logits = self.head(hidden) * self.scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    @torch.inference_mode()
    def _compare(self) -> None:
        """Read a few tokens (a padding one says nothing: its state may be zero) and hold `_project` against the pass's own logits."""
        tokens = torch.arange(min(8, self.vocab_size), device=self.head.weight.device)[None]
        scores = self._forward(tokens, self.storage(1, 8).cache, {}, ("final",), last=False)
        try:
            apart = self._project(scores.hidden["final"]) - scores.logits
        except RuntimeError:   # of another width
            apart = scores.logits
        if apart.abs().max() > 0.02 * scores.logits.abs().max():
            raise ValueError(f"{type(self.model).__name__} does something to its logits after the vocabulary projection that is not known here: "
                             "heads cannot draft for it")
        self.compared = True

    def score(self, tokens: Tensor, cache: Cache, tree, hidden_layers, last: bool) -> Scores:
        if tree is not None and self.by_path:
            return self._paths(tokens, cache, tree, hidden_layers)
        count, length = tokens.shape[1], cache.length
        options: dict = {}
        positions = tree_positions(length, count, tree, tokens.device)
        if self.takes_positions:
            options["position_ids"] = positions.expand(len(tokens), -1)
        if tree is not None or (self.windowed and not self.by_path):
            options["attention_mask"] = self._mask(length, count, tree, positions, len(tokens))
        return self._forward(tokens, cache.storage.cache, options, hidden_layers, last)

    def _mask(self, length: int, count: int, tree, positions: Tensor, batch: int):
        dtype = next(self.model.parameters()).dtype
        def build(window: int | None) -> Tensor:
            return additive(visible(length, count, tree, window, positions), dtype).expand(batch, 1, -1, -1)
        if not self.layer_types:
            return build(self.windowed)
        kinds = {"full_attention": None, "sliding_attention": self.windowed}
        masks = {kind: build(kinds[kind]) for kind in self.layer_types & set(kinds)}
        return masks if len(self.layer_types) > 1 else next(iter(masks.values()))

    def _forward(self, tokens: Tensor, storage, options: dict, hidden_layers, last: bool) -> Scores:
        out = self.model(input_ids=tokens, past_key_values=storage, use_cache=True, output_hidden_states=bool(hidden_layers),
                         logits_to_keep=int(last), **options)
        return Scores(out.logits[:, -1:] if last else out.logits, self._hidden(out, hidden_layers))   # some ignore logits_to_keep

    def _hidden(self, out, hidden_layers) -> dict[Layer, Tensor]:
        # Hugging Face returns L + 1 states of which the last has been through the final norm.
        last = self.num_layers
        if last in hidden_layers:
            raise ValueError(f"hidden_layers={list(hidden_layers)}: Hugging Face models give \"final\" in place of the state after the last block")
        return {layer: out.hidden_states[last if layer == "final" else layer] for layer in hidden_layers}

    def _paths(self, tokens: Tensor, cache: Cache, tree: TokenTree, hidden_layers) -> Scores:
        """A tree without a tree mask: one pass per leaf over the same prefix, rows and cache entries gathered by node."""
        storage, start, before = cache.storage, cache.length, tokens.shape[1] - len(tree)
        rows: dict[int, tuple] = {}
        for path in tree.paths():
            fed = torch.cat((tokens[:, :before], tokens[:, [before + node for node in path]]), dim=1)
            scores = self._forward(fed, storage.cache, {}, hidden_layers, last=False)
            states = storage.snapshot()
            for row, node in enumerate((*range(-before, 0), *path)):
                rows.setdefault(node, (row, scores, [(k[..., start + row, :], v[..., start + row, :]) for k, v in states]))
            storage.cut(start)
        order = (*range(-before, 0), *range(len(tree)))
        for index, layer in enumerate(x for x in storage.cache.layers if x.is_initialized):
            layer.keys = torch.cat((layer.keys, torch.stack([rows[n][2][index][0] for n in order], dim=-2)), dim=-2)
            layer.values = torch.cat((layer.values, torch.stack([rows[n][2][index][1] for n in order], dim=-2)), dim=-2)
        pick = lambda get: torch.stack([get(rows[n][1])[:, rows[n][0]] for n in order], dim=1)
        return Scores(pick(lambda s: s.logits), {layer: pick(lambda s: s.hidden[layer]) for layer in hidden_layers})
