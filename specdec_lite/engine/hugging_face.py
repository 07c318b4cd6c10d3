"""Passes of any Hugging Face causal language model.

What lives here: what the types need (masks, positions, scales), and which of them cannot be decoded
speculatively. What does not: loading (`pairs`), and checks that hold for every model (`models`).
"""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specdec_lite.engine.cache import Cache, Layer, Scores, additive, tree_positions, visible
from specdec_lite.tree import TokenTree


class HuggingFaceStorage:
    """A plain `DynamicCache`, even for sliding-window models: the window goes into the mask, so
    rollback stays possible.
    """

    by_layer = False

    def __init__(self):
        from transformers import DynamicCache

        self.cache = DynamicCache()

    def _each(self, change) -> None:
        for layer in self.cache.layers:
            if layer.is_initialized:
                layer.keys = change(layer.keys)
                layer.values = change(layer.values)

    def move(self, start: int, rows: Tensor) -> None:
        def gather(x: Tensor) -> Tensor:
            return torch.cat((x[..., :start, :], x[..., start + rows.to(x.device), :]), dim=-2)

        self._each(gather)

    def cut(self, length: int) -> None:
        self._each(lambda x: x[..., :length, :])

    def snapshot(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.keys, layer.values) for layer in self.cache.layers if layer.is_initialized]


# Layers whose state is not a list of keys and values, so that it cannot be cut back: refused.
STATEFUL = {"linear_attention", "conv", "mamba", "mamba2", "recurrent"}
# Models that refuse a tree mask or count distances in rows, not in positions (ALiBi, local
# attention). They verify a tree path by path, as do layers unknown here, models that take no
# positions, and attention kernels that take no mask of their own for every row (FlashAttention).
MASKLESS = {"bloom", "mpt", "gpt_neo"}
# Model types whose text cannot be continued from a plain cache of keys and values, and why. Found
# by running every type.
REFUSED = {
    kind: reason
    for reason, kinds in {
        "counts positions from its padding id, not from the start of the text": (
            "camembert",
            "data2vec-text",
            "roberta",
            "roberta-prelayernorm",
            "xlm-roberta",
            "xlm-roberta-xl",
            "xmod",
        ),
        "looks at later tokens too, so its logits change when text is added": (
            "cpmant",
            "prophetnet",
            "xlm",
            "xlnet",
        ),
        "keeps no cache": ("openai-gpt",),
        "keeps hashed buckets in place of keys and values": ("reformer",),
        "keeps an index of its own for sparse attention besides keys and values": (
            "axk2",
            "deepseek_v32",
            "dots3_note",
            "dots3_note_text",
            "glm_moe_dsa",
            "hy_v4",
        ),
        "mixes neighbouring tokens by convolutions whose state cannot be cut back": (
            "inkling_text",
            "inkling2_text",
        ),
        "decodes sound and text in step": ("moshi", "musicgen", "musicgen_melody"),
    }.items()
    for kind in kinds
}


# Types that are decoders only where their config says so, which is not its default.
BIDIRECTIONAL = {
    "bert",
    "bert-generation",
    "big_bird",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roc_bert",
    "roformer",
}


def context_length(config) -> int:
    """Positions that a Hugging Face model's text config allows; 2³⁰ where it names no limit.

    With "longrope" only the length it was first trained on: a pass that reaches beyond turns *all*
    its positions by other angles than a shorter one, so what a draft would make of the text depends
    on how far the draft reaches.
    """
    names = ("max_position_embeddings", "max_seq_len", "max_target_positions")
    limit = next(filter(None, (getattr(config, name, None) for name in names)), 1 << 30)
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        if rope.get("rope_type") == "longrope":
            limit = min(
                limit,
                rope.get("original_max_position_embeddings")
                or getattr(config, "original_max_position_embeddings", None)
                or limit,
            )
    return limit


# By how much a type multiplies its logits after the projection. (MPT has such a setting too, which
# transformers does not use.)
SCALED = {
    "cohere": lambda config: config.logit_scale or 1.0,
    "granite": lambda config: 1 / config.logits_scaling,
    "minicpm3": lambda config: 1 / config.logits_scaling,
    "hyperclovax": lambda config: config.logits_scaling,
}


class HuggingFaceBackend:
    """Any Hugging Face causal LM. Masks are additive float 4-D tensors; models that refuse them
    verify a tree path by path.
    """

    def __init__(self, model: nn.Module):
        config = model.config.get_text_config()
        name = type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise ValueError(
                f"{name} is an encoder–decoder: only decoder-only models are supported"
            )
        self.layer_types = set(getattr(config, "layer_types", None) or ())
        if getattr(model, "_is_stateful", False) or self.layer_types & STATEFUL:
            raise ValueError(
                f"{name} carries recurrent state, which cannot be cut back to an earlier token"
                " after a rejection"
            )
        if config.model_type in REFUSED:
            raise ValueError(
                f"{name} {REFUSED[config.model_type]}: it cannot be decoded speculatively"
            )
        if config.model_type in BIDIRECTIONAL and not config.is_decoder:
            raise ValueError(
                f"{name} looks at later tokens too unless its config says is_decoder=True: it"
                " cannot be decoded speculatively"
            )
        self.model = model
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        self.num_layers = config.num_hidden_layers
        self.hidden_size = config.hidden_size
        self.max_positions = context_length(config)
        self.embedding = model.get_input_embeddings()
        self.head = model.get_output_embeddings()
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.by_path = (
            not self.takes_positions
            or getattr(config, "alibi", False)
            or config.model_type in MASKLESS
            or getattr(config, "_attn_implementation", None) not in (None, "eager", "sdpa")
            or bool(self.layer_types - {"full_attention", "sliding_attention"})
        )
        knows_windows = hasattr(
            inspect.getmodule(type(model)), "create_sliding_window_causal_mask"
        )  # a setting that no code reads is none
        self.windowed = getattr(config, "sliding_window", None) if knows_windows else None
        self.scale = next(
            (scale(config) for kind, scale in SCALED.items() if config.model_type.startswith(kind)),
            1.0,
        )
        self.cap = getattr(config, "final_logit_softcapping", None)
        self.compared = False

    def storage(self, batch: int, capacity: int) -> HuggingFaceStorage:
        return HuggingFaceStorage()

    def logits(self, hidden: Tensor) -> Tensor:
        """The vocabulary projection, and what some types do after it. ValueError, at the first
        call, where a pass gives other logits.
        """
        if not self.compared:
            self._compare()
        return self._project(hidden)

    def _project(self, hidden: Tensor) -> Tensor:
        """With the type's scale of the logits (SCALED) and Gemma's soft cap."""
        logits = self.head(hidden) * self.scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    @torch.inference_mode()
    def _compare(self) -> None:
        """Read a few tokens (a padding one says nothing: its state may be zero) and hold `_project`
        against the pass's own logits.
        """
        tokens = torch.arange(min(8, self.vocab_size), device=self.head.weight.device)[None]
        scores = self._forward(tokens, self.storage(1, 8).cache, {}, ("final",), last=False)
        try:
            apart = self._project(scores.hidden["final"]) - scores.logits
        except RuntimeError:  # of another width
            apart = scores.logits
        if apart.abs().max() > 0.02 * scores.logits.abs().max():
            raise ValueError(
                f"{type(self.model).__name__} does something to its logits after the vocabulary"
                " projection that is not known here: heads cannot draft for it"
            )
        self.compared = True

    def score(
        self,
        tokens: Tensor,
        cache: Cache,
        tree: TokenTree | None,
        hidden_layers: Sequence[Layer],
        last: bool,
    ) -> Scores:
        if self.num_layers in hidden_layers:
            raise ValueError(
                f'hidden_layers={list(hidden_layers)}: Hugging Face models give "final" in place of'
                " the state after the last block"
            )
        if tree is not None and self.by_path:
            scores = self._paths(tokens, cache, tree, hidden_layers)
            return Scores(scores.logits[:, -1:], scores.hidden) if last else scores
        count, length = tokens.shape[1], cache.length
        options: dict = {}
        positions = tree_positions(length, count, tree, tokens.device)
        if self.takes_positions:
            options["position_ids"] = positions.expand(len(tokens), -1)
        if tree is not None:
            options["attention_mask"] = self._mask(length, count, tree, positions, len(tokens))
        return self._forward(tokens, cache.storage.cache, options, hidden_layers, last)

    def _mask(self, length: int, count: int, tree, positions: Tensor, batch: int):
        dtype = next(self.model.parameters()).dtype

        def build(window: int | None) -> Tensor:
            return additive(visible(length, count, tree, window, positions), dtype).expand(
                batch, 1, -1, -1
            )

        if not self.layer_types:
            return build(self.windowed)
        kinds = {"full_attention": None, "sliding_attention": self.windowed}
        masks = {kind: build(kinds[kind]) for kind in self.layer_types & set(kinds)}
        return masks if len(self.layer_types) > 1 else next(iter(masks.values()))

    def _forward(self, tokens: Tensor, storage, options: dict, hidden_layers, last: bool) -> Scores:
        if self.model.training:
            raise ValueError(
                f"{type(self.model).__name__} is in training mode, where dropout and gradient"
                " checkpointing change what a pass gives: call its eval() first"
            )
        out = self.model(
            input_ids=tokens,
            past_key_values=storage,
            use_cache=True,
            output_hidden_states=bool(hidden_layers),
            logits_to_keep=int(last),
            **options,
        )
        return Scores(
            out.logits[:, -1:] if last else out.logits, self._hidden(out, hidden_layers)
        )  # some ignore logits_to_keep

    def _hidden(self, out, hidden_layers) -> dict[Layer, Tensor]:
        # Hugging Face returns L + 1 states of which the last has been through the final norm.
        return {
            layer: out.hidden_states[self.num_layers if layer == "final" else layer]
            for layer in hidden_layers
        }

    def _paths(self, tokens: Tensor, cache: Cache, tree: TokenTree, hidden_layers) -> Scores:
        """A tree without a tree mask: one pass per leaf over the same prefix, rows and cache
        entries gathered by node.
        """
        storage = cache.storage
        start = cache.length
        before = tokens.shape[1] - len(tree)
        rows: dict[int, tuple] = {}
        for path in tree.paths():
            fed = torch.cat(
                (tokens[:, :before], tokens[:, [before + node for node in path]]), dim=1
            )
            scores = self._forward(fed, storage.cache, {}, hidden_layers, last=False)
            states = storage.snapshot()
            for row, node in enumerate((*range(-before, 0), *path)):
                rows.setdefault(
                    node,
                    (
                        row,
                        scores,
                        [(k[..., start + row, :], v[..., start + row, :]) for k, v in states],
                    ),
                )
            storage.cut(start)
        order = (*range(-before, 0), *range(len(tree)))
        for index, layer in enumerate(x for x in storage.cache.layers if x.is_initialized):
            layer.keys = torch.cat(
                (layer.keys, torch.stack([rows[n][2][index][0] for n in order], dim=-2)), dim=-2
            )
            layer.values = torch.cat(
                (layer.values, torch.stack([rows[n][2][index][1] for n in order], dim=-2)), dim=-2
            )
        pick = lambda get: torch.stack([get(rows[n][1])[:, rows[n][0]] for n in order], dim=1)
        return Scores(
            pick(lambda s: s.logits),
            {layer: pick(lambda s: s.hidden[layer]) for layer in hidden_layers},
        )
