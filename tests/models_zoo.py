"""Tiny random models for the tests: native ones, and one of every Hugging Face family.

The weights have a spread wide enough for varied greedy text, so that a test of argmax can fail.
"""

import math
from functools import lru_cache
from types import SimpleNamespace

import torch
import transformers

from specdec_lite import CausalLM, load_pair
from specdec_lite.contract import Drafter, Session
from specdec_lite.diagnosis.enumeration import tiny_draft
from specdec_lite.drafters import NgramModel
from specdec_lite.drafters.chain import Followed
from specdec_lite.drafters.trees import expand_tree, without_replacement
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.proposal import NOTHING
from specdec_lite.sampling import Sampling

VOCABULARY = 48
WINDOW = 6
PROMPT = [5, 17, 3, 41, 9, 28, 33, 12, 7, 20]  # longer than the window

COMMON = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,  # texts have the length that a test asks for
    initializer_range=0.3,
    tie_word_embeddings=False,
)
NATIVE = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    tied=False,
    max_positions=512,
)
GPT = dict(n_embd=32, n_layer=2, n_head=4, n_positions=512)
LATENT = dict(
    num_key_value_heads=4,
    kv_lora_rank=16,
    q_lora_rank=None,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=8,
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    first_k_dense_replace=1,
    topk_group=1,
    n_group=1,
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
ALTERNATING = dict(
    sliding_window=WINDOW,
    num_hidden_layers=3,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
)
FAMILIES = {
    "Llama": {},
    "Mistral": dict(sliding_window=WINDOW),
    "Qwen2": {},
    "Qwen3": dict(head_dim=8),
    "Qwen3Moe": dict(head_dim=8, **EXPERTS),
    "Mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    "Gemma": dict(head_dim=8),
    "Gemma2": dict(head_dim=8, query_pre_attn_scalar=8, **ALTERNATING),
    "Gemma3": dict(head_dim=8, query_pre_attn_scalar=8, **ALTERNATING),
    "Phi": dict(partial_rotary_factor=0.5),
    "Phi3": dict(sliding_window=WINDOW),
    "GPT2": GPT,
    "GPTNeo": dict(
        num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=WINDOW
    ),
    "GPTNeoX": {},
    "GPTJ": GPT | dict(rotary_dim=4),
    "OPT": dict(ffn_dim=48, word_embed_proj_dim=32),
    "Bloom": dict(n_layer=2, n_head=4),
    "Falcon": dict(multi_query=True, alibi=False),
    "FalconAlibi": dict(multi_query=True, alibi=True),
    "Mpt": dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=512),
    "StableLm": dict(partial_rotary_factor=0.5),
    "Cohere": dict(logit_scale=1.0),
    "Cohere2": ALTERNATING | dict(logit_scale=1.0),
    "Olmo2": {},
    "Starcoder2": dict(sliding_window=WINDOW),
    "Granite": {},
    "DeepseekV3": LATENT,
    "GptOss": dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, **ALTERNATING),
    "Llama4": dict(
        head_dim=8,
        num_local_experts=2,
        attention_chunk_size=8,
        intermediate_size_mlp=48,
        num_hidden_layers=4,
    ),
}
CLASSES = {
    "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    "Llama4": ("Llama4TextConfig", "Llama4ForCausalLM"),
    "GPT2": ("GPT2Config", "GPT2LMHeadModel"),
    "FalconAlibi": ("FalconConfig", "FalconForCausalLM"),
}
STATEFUL = {
    "Mamba": {},
    "Jamba": {},
    "Lfm2": dict(layer_types=["conv", "full_attention"]),
    "MiniMax": {},
    "RecurrentGemma": dict(num_hidden_layers=3),
    "Qwen3Next": dict(head_dim=8, num_hidden_layers=4, num_experts=4),
}


def build(family: str, options: dict, seed: int = 0):
    """Return a Hugging Face model of a family, with random weights in float32."""
    config_name, model_name = CLASSES.get(family, (f"{family}Config", f"{family}ForCausalLM"))
    config = getattr(transformers, config_name)(**COMMON | options)
    config._experts_implementation = "eager"  # the grouped kernels know no float64
    torch.manual_seed(seed)
    return getattr(transformers, model_name)(config).eval()


@lru_cache
def hugging_face(family: str) -> CausalLM:
    """Return a wrapped float64 model of a family; tests share it, because state is in caches."""
    return CausalLM(build(family, FAMILIES[family]).double())


@lru_cache
def shipped():
    """Return the shipped pair in float32 on the CPU; tests share it."""
    return load_pair(device="cpu", dtype="float32")


def native(
    seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 0.35, **shape
) -> CausalLM:
    """Return one of our own transformers with random weights."""
    config = TransformerConfig(**NATIVE | shape)
    model, generator = Transformer(config), torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=scale, generator=generator)
    return CausalLM(model.to(dtype).requires_grad_(False))


def perturbed(model: CausalLM, noise: float = 0.1, seed: int = 1) -> CausalLM:
    """Return a draft model that often agrees with a native model."""
    return tiny_draft(model, noise, seed)


@torch.inference_mode()
def logits_of(model: CausalLM, tokens: list[int]) -> torch.Tensor:
    """Return [n, V] of one pass over the whole text by the bare module, without our cache or mask."""
    ids = torch.tensor([tokens])
    return (
        model.model(ids)[0]
        if isinstance(model.model, Transformer)
        else model.model(input_ids=ids).logits[0]
    )


class Wrapped(Drafter):
    """A drafter that wraps another one."""

    def __init__(self, inner: Drafter):
        self.inner = inner
        self.hidden_layers = inner.hidden_layers

    def start(self, context):
        return self.inner.start(context)

    def check(self, target, positions):
        self.inner.check(target, positions)

    def limits(self):
        return self.inner.limits()


class TreeDrafter(Drafter, Session):
    """A drafter of trees without a cache: it runs `model` on the whole text for every node.

    At temperature 0 it uses the distribution at temperature 1, to choose the likeliest tokens.

    Args:
        model: the draft model.
        expand: (distribution of a prefix, levels, rng) → Proposal, as `grow` of broken.py returns.
        depth: levels of the tree.
    """

    def __init__(self, model, expand, depth):
        self.model, self.expand, self.depth = model, expand, depth

    def start(self, context):
        return self

    def propose(self, context):
        sampling = Sampling() if context.sampling.greedy else context.sampling
        text = context.tokens.tolist()
        distribution = lambda prefix: sampling(logits_of(self.model, [*text, *prefix])[-1])
        levels = min(self.depth, context.wanted - 1)
        return self.expand(distribution, levels, context.rng) if levels else NOTHING


class GrownDrafter(Drafter):
    """A draft model that expands a tree level by level over nodes that stay in its cache.

    Args:
        model: the draft model.
        children: (logits [V], context) → [(token, row)], as in `drafters.trees`.
        levels: of the tree.
    """

    def __init__(self, model, children, levels=2):
        self.model, self.children, self.levels = model, children, levels

    def draft_model(self):
        return self.model

    def start(self, context):
        return GrownSession(self, context)

    def check(self, target, positions):
        assert positions <= self.model.max_positions


class GrownSession(Session):
    """The session: its cache holds the committed text except the last one or two tokens."""

    def __init__(self, drafter, context):
        self.drafter, self.cache = drafter, drafter.model.new_cache()
        self.followed = Followed(self.cache)
        if len(context.tokens) > 1:
            drafter.model.score(self.followed.behind(context.tokens[:-1]), self.cache)

    def propose(self, context):
        score, children = self.drafter.model.score, self.drafter.children

        def expand(tree, nodes):
            self.passes += 1
            if nodes == [-1]:
                fed = self.followed.behind(context.tokens)
                rows = score(fed, self.cache, last=True).logits[0]
            else:
                stored = len(tree) - len(nodes)
                rows = score(tree.tokens[nodes], self.cache, tree, cached=stored).logits[0]
                self.followed.tree = tree
            return [children(row, context) for row in rows]

        return expand_tree(context, expand, self.drafter.levels)


def two_likeliest(logits, context):
    """Return the two likeliest tokens, chosen."""
    return [(token, None) for token in logits.topk(2).indices.tolist()]


def two_drawn(logits, context):
    """Return two tokens drawn without replacement; at temperature 1 if decoding is greedy."""
    sampling = Sampling() if context.sampling.greedy else context.sampling
    return without_replacement(sampling(logits), 2, context.rng)


def logits_in_chains(model: CausalLM, text: list[int], size: int) -> torch.Tensor:
    """Return the logits [n, V] after each token of a text that follows PROMPT, fed in chains."""
    cache = model.new_cache()
    model.score(PROMPT, cache)
    chains = [text[first : first + size] for first in range(0, len(text), size)]
    return torch.cat([model.score(chain, cache).logits[0] for chain in chains])


class Constant(NgramModel):
    """A model with the same distribution after every text."""

    def __init__(self, row):
        self.device, self.vocab_size, self.row = torch.device("cpu"), len(row), row
        self.counts = SimpleNamespace(keys=[()], row=lambda text: self.row)
        self.num_layers = self.hidden_size = 1
        self.dtype, self.longest_pass = torch.float64, math.inf
