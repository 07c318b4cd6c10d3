"""Passes of any Hugging Face causal language model.

What lives here: what the types need (masks, positions, scales), and the self-test that finds out
whether a model can be decoded speculatively. What does not: loading (`pairs`), and checks that hold
for every model (`models`).
"""

import inspect
from collections.abc import Callable, Iterator, Sequence

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


# The self-test: what it looks at, in order, and the tree that it feeds (two paths, interleaved).
PARTS = (
    "a prompt",
    "a block of tokens",
    "a token after its cache was cut back",
    "a tree",
    "what follows a kept path",
)
PARENTS = (-1, -1, 0, 1, 2, 3)
TEXT = 11
ATTEMPTS = 3
ROUNDINGS = 20
"""Errors of so many units of rounding are none. Models of 32 layers, each module of which was made
to round at random, came to 7 units (Llama) and 18 (Gemma 2); a mixture of experts may exceed that
where it sends a token elsewhere, so other texts are tried. Types that cannot be decoded came to 40
and more with wide random weights, a tree that is misread to 30 in a trained model in bfloat16, but a
gap of one position there stays below. No dtype counts as finer than float16, since GPUs may multiply
float32 in TF32.
"""


def in_pieces(
    backend: "HuggingFaceBackend", prompt: Tensor, tree: TokenTree
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each of PARTS the logits [n, V] of a model that reads in pieces, and those of one plain
    pass over the whole text.

    Args:
        prompt: [n ≥ 2] ids of a text; the last of them is the tree's root.
        tree: what may follow; its last path is kept.
    """
    root, nodes = prompt[-1:], tree.tokens.to(prompt.device)
    start = len(prompt) - 1
    paths = [list(path) for path in tree.paths()]
    texts = [torch.cat((prompt, nodes[path], root)) for path in paths]
    whole = [backend.model(input_ids=text[None]).logits[0] for text in texts]
    cache = Cache(backend.storage(1, 0))

    def feed(tokens: Tensor, tree: TokenTree | None = None) -> Tensor:
        logits = backend.score(tokens[None], cache, tree, (), False).logits[0]
        cache.length += len(tokens)
        return logits

    yield feed(prompt[:-1]), whole[0][:start]
    if not cache.storage.snapshot():
        raise ValueError("it puts no keys and values in the cache that it is given")
    yield feed(texts[0][start:]), whole[0][start:]
    cache.crop(start)
    yield feed(root), whole[0][start : start + 1]
    cache.crop(start)
    logits = feed(torch.cat((root, nodes)), tree)
    rows = [[0, *(node + 1 for node in path)] for path in paths]
    yield logits[sum(rows, [])], torch.cat([theirs[start:-1] for theirs in whole])
    cache.storage.move(start, torch.tensor(rows[-1]))
    cache.crop(start + len(rows[-1]))
    yield feed(root), whole[-1][-1:]


def deviations(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """The largest error of a row in each pair of logits [n, V], as a share of the spread of all.

    What the second of a pair leaves out (NaN, infinities, the number that masks tokens) counts in
    neither.
    """
    theirs = torch.cat([rows for _, rows in pairs])
    seen = theirs.isfinite() & (theirs > torch.finfo(theirs.dtype).min / 2)
    rows = theirs.float().masked_fill(~seen, torch.nan)
    spread = (rows - rows.nanmean(-1, keepdim=True)).square().nanmean(-1).nanmean().sqrt()
    floor = rows.square().nanmean().sqrt() / ROUNDINGS  # logits themselves are rounded
    apart = torch.cat([ours for ours, _ in pairs]).float() - rows
    apart = apart.nan_to_num(torch.inf).masked_fill(~seen, torch.nan).square().nanmean(-1)
    errors = (apart.sqrt() / torch.maximum(spread, floor)).nan_to_num(0.0, torch.inf)
    return [part.max().item() for part in errors.split([len(rows) for rows, _ in pairs])]


class HuggingFaceBackend:
    """Any Hugging Face causal LM. Masks are additive float 4-D tensors; models that refuse them
    verify a tree path by path.

    One self-test decides whether a model can be decoded speculatively, and how it takes trees. What
    a short text cannot show is read from the config: windows, chunks, local attention, the reach of
    "longrope". ValueError for a model whose logits in pieces are not those of one pass.
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
        self.model = model
        self.config = config
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        self.num_layers = config.num_hidden_layers
        self.hidden_size = config.hidden_size
        self.max_positions = context_length(config)
        self.embedding = model.get_input_embeddings()
        self.head = model.get_output_embeddings()
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        kinds = self.layer_types | set(getattr(config, "attention_layers", ()))
        self.by_path = (
            not self.takes_positions
            or getattr(config, "_attn_implementation", None) not in (None, "eager", "sdpa")
            or bool(kinds - {"full_attention", "sliding_attention", "global"})
        )
        knows_windows = hasattr(
            inspect.getmodule(type(model)), "create_sliding_window_causal_mask"
        )  # a setting that no code reads is none
        self.windowed = getattr(config, "sliding_window", None) if knows_windows else None
        self.scale = None
        self.cap = getattr(config, "final_logit_softcapping", None)
        self._judge()

    def _judge(self) -> None:
        """The self-test: raises ValueError for a model that fails it. One that cannot run here (its
        weights are on the meta device, its kernels not installed), or reads less than the test, is
        not judged, and takes trees path by path. Leaves the model and the global random numbers as
        they were.
        """
        device = next(self.model.parameters()).device
        if device.type == "meta" or self.max_positions in range(TEXT):
            self.by_path = True
            return
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng([device] * (device.type == "cuda")):
                part, fault = self._fault(device)
                if part in PARTS[3:] and not self.by_path:
                    self.by_path = True
                    part, fault = self._fault(device)
        except ImportError:
            self.by_path, part = True, None
        finally:
            for module, mode in modes.items():
                module.training = mode
        if part is not None:
            raise ValueError(f"{type(self.model).__name__} {fault}")

    def _fault(self, device: torch.device) -> tuple[str | None, str]:
        """The first of PARTS that goes wrong with the last of ATTEMPTS texts, and how; (None, "")
        as soon as one text goes well.
        """
        size = min(self.vocab_size, len(self.embedding.weight))
        padding = getattr(self.config, "pad_token_id", None)
        ids = torch.arange(1, TEXT + 1, device=device) * size // (TEXT + 2)
        part, fault = None, ""
        for attempt in range(ATTEMPTS):
            text = (ids + attempt) % size
            text = text if padding is None else (text + (text == padding)) % size
            nodes = text[-len(PARENTS) :]
            part, fault = self._difference(text[: -len(PARENTS)], TokenTree(nodes.cpu(), PARENTS))
            if part is None:
                break
        return part, fault

    def _difference(self, prompt: Tensor, tree: TokenTree) -> tuple[str | None, str]:
        """The same for one text."""
        pairs: list[tuple[Tensor, Tensor]] = []
        try:
            for ours, theirs in in_pieces(self, prompt, tree):
                if len(ours) != len(theirs):
                    raise ValueError(f"it gives {len(ours)} rows for {len(theirs)} tokens")
                pairs.append((ours, theirs))
        except (ImportError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            part = PARTS[len(pairs)]
            reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
            return part, f"fails on {part}: it cannot be decoded speculatively ({reason})"
        dtype = pairs[0][1].dtype
        tolerance = ROUNDINGS * max(torch.finfo(dtype).eps, torch.finfo(torch.float16).eps)
        for part, error in zip(PARTS, deviations(pairs)):
            if error > tolerance:
                encoder = getattr(self.config, "is_decoder", None) is False
                hint = "; its config says is_decoder=False" if encoder else ""
                return part, (
                    f"gives other logits for {part} than in one pass over the whole text: it cannot"
                    f" be decoded speculatively (off by {error:.0%} of their spread; rounding to"
                    f" {dtype} explains {tolerance:.0%} at most{hint})"
                )
        return None, ""

    def storage(self, batch: int, capacity: int) -> HuggingFaceStorage:
        return HuggingFaceStorage()

    def logits(self, hidden: Tensor) -> Tensor:
        """The vocabulary projection, and what some types do after it. ValueError, at the first
        call, where a pass gives other logits.
        """
        if self.scale is None:
            self.scale = self._learn_scale()
        return self._project(hidden, self.scale)

    def _project(self, hidden: Tensor, scale: float) -> Tensor:
        """With a scale of the logits, and Gemma's soft cap."""
        logits = self.head(hidden) * scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    @torch.inference_mode()
    def _learn_scale(self) -> float:
        """Of what the config names as the logits' scale, which some types multiply by, some divide
        by and some ignore, the one that gives a pass's own logits for a few tokens (more than one:
        a padding token's state may be zero).
        """
        names = ("logit_scale", "logits_scaling")
        named = [getattr(self.config, name, None) for name in names]
        numbers = [float(value) for value in named if isinstance(value, int | float) and value]
        tokens = torch.arange(min(8, self.vocab_size), device=self.head.weight.device)[None]
        scores = self._forward(tokens, self.storage(1, 8).cache, {}, ("final",), last=False)

        def error(scale: float) -> float:
            ours = self._project(scores.hidden["final"], scale)
            return (ours - scores.logits).abs().max().item()

        try:
            scale = min((1.0, *numbers, *(1 / number for number in numbers)), key=error)
            fits = error(scale) <= 0.02 * scores.logits.abs().max().item()
        except RuntimeError:  # of another width
            fits = False
        if not fits:
            raise ValueError(
                f"{type(self.model).__name__} does something to its logits after the vocabulary"
                " projection that is not known here: heads cannot draft for it"
            )
        return scale

    def score(
        self,
        tokens: Tensor,
        cache: Cache,
        tree: TokenTree | None,
        hidden_layers: Sequence[Layer],
        last: bool,
        cached: int = 0,
        states: tuple[int, Tensor] | None = None,
    ) -> Scores:
        """The pass behind `CausalLM.score`. ValueError for `states`, and for `cached` where a tree
        is verified path by path.
        """
        name = type(self.model).__name__
        if states is not None:
            raise ValueError(
                f"states begins behind block {states[0]}: {name} always runs all its layers; only"
                " native models take states"
            )
        if cached and self.by_path:
            raise ValueError(
                f"cached={cached}: {name} verifies a tree path by path; cut the cache back to the"
                " tree's root and feed the whole tree again"
            )
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
        part = {"cached": cached} if cached else {}
        positions = tree_positions(length, count, tree, tokens.device, **part)
        if self.takes_positions:
            options["position_ids"] = positions.expand(len(tokens), -1)
        if tree is not None:
            options["attention_mask"] = self._mask(
                lambda window: visible(length, count, tree, window, positions, **part), len(tokens)
            )
        return self._forward(tokens, cache.storage.cache, options, hidden_layers, last)

    def _mask(self, seen: Callable[[int | None], Tensor], batch: int):
        """Of what is `seen` through a window (None: there is none) the mask of each type of layer."""
        dtype = next(self.model.parameters()).dtype

        def build(window: int | None) -> Tensor:
            return additive(seen(window), dtype).expand(batch, 1, -1, -1)

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
