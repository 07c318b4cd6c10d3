"""Tiny random models for the tests: native ones, and one of every Hugging Face family.

The weights have a spread wide enough for varied greedy text, so that a test of argmax can fail.
"""

import inspect
import math
import re
from functools import lru_cache
from types import SimpleNamespace

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdec_lite import CausalLM, load_pair
from specdec_lite.contract import Drafter, Session
from specdec_lite.diagnosis.enumeration import tiny_draft
from specdec_lite.drafters import NgramModel
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.proposal import NOTHING
from specdec_lite.sampling import Sampling

VOCABULARY = 48
WINDOW = 6
PROMPT = [5, 17, 3, 41, 9, 28, 33, 12, 7, 20]  # longer than the window

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
TYPES = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
"""Every causal language model type of transformers → the name of its class."""
# Value → all names that the families use for it. A config gets those that it has.
SIZES = {
    32: (
        "hidden_size d_model n_embd embed_dim embedding_size word_embed_proj_dim"
        " cross_attention_hidden_size"
    ),
    48: (
        "vocab_size vocab_size_per_layer_input intermediate_size ffn_dim n_inner d_ff d_inner dff"
        " decoder_ffn_dim encoder_ffn_dim ffn_hidden_size intermediate_size_mlp"
    ),
    2: (
        "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers"
        " num_decoder_layers num_encoder_layers num_key_value_heads num_experts_per_tok moe_k"
        " moe_topk num_global_key_value_heads linear_num_key_heads index_n_heads"
    ),
    4: (
        "num_attention_heads n_head n_heads num_heads decoder_attention_heads"
        " encoder_attention_heads num_decoder_attention_heads num_encoder_attention_heads"
        " num_experts num_local_experts n_routed_experts moe_num_experts rotary_dim"
        " qk_rope_head_dim rope_dim linear_num_value_heads index_topk"
    ),
    8: (
        "head_dim dim_head attention_head_dim head_size kv_channels global_head_dim"
        " qk_nope_head_dim v_head_dim query_pre_attn_scalar num_buckets mamba_n_heads mamba_d_head"
        " mamba_d_state mamba_num_heads mamba_head_dim ssm_state_size state_size"
        " linear_key_head_dim linear_value_head_dim index_head_dim attention_chunk_size"
        " hidden_size_per_layer_input"
    ),
    16: (
        "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size"
        " expert_ffn_hidden_size shared_intermediate_size kv_lora_rank q_lora_rank"
        " max_2d_position_embeddings"
    ),
    512: "max_position_embeddings n_positions max_seq_len max_target_positions block_size",
    1: (
        "n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace"
        " topk_group n_group mamba_n_groups bos_token_id"
    ),
    0: "pad_token_id num_kv_shared_layers",
    WINDOW: "sliding_window window_size attention_window",
    0.3: "initializer_range init_std",
    0.5: "partial_rotary_factor",
}
SMALL = {name: size for size, names in SIZES.items() for name in names.split()} | dict(
    is_decoder=True, tie_word_embeddings=False, eos_token_id=None
)
MIXED = dict(layer_types=["sliding_attention", "full_attention"])
OPTIONS = {
    kind: dict(num_key_value_heads=4)
    for kind in (
        "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite glm_moe_dsa"
        " minicpm3 youtu"
    ).split()
} | {
    "cohere_compass_text": (
        MIXED
        | dict(
            rope_parameters={
                kind: dict(rope_type="default", rope_theta=1e4) for kind in MIXED["layer_types"]
            }
        )
    ),
    "dbrx": dict(
        attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2),
    ),
    "gemma2": MIXED,
    "gemma3_text": MIXED,
    "cohere2": MIXED,
    "exaone4": MIXED,
    "olmo3": MIXED,
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]]),
    "lfm2": dict(layer_types=["conv", "full_attention"]),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"]),
    "zaya": dict(num_experts_per_tok=1),
    "zamba": dict(layer_types=["mamba", "hybrid"]),
    "zamba2": dict(layer_types=["mamba", "hybrid"]),
    "mamba2": dict(num_heads=8),
    "falcon_h1": dict(mamba_d_ssm=64),
    "longcat_flash": dict(num_key_value_heads=4, head_dim=4, num_layers=1, num_hidden_layers=2),
    "modernbert-decoder": dict(local_attention=2 * WINDOW),
    "qwen2": dict(use_sliding_window=True, max_window_layers=1),
    "qwen3": dict(use_sliding_window=True, max_window_layers=1),
    "reformer": dict(axial_pos_shape=[16, 32], axial_pos_embds_dim=[16, 16]),
    "roc_bert": dict(
        enable_pronunciation=False,
        enable_shape=False,
        pronunciation_vocab_size=8,
        shape_vocab_size=8,
        pronunciation_embed_dim=8,
        shape_embed_dim=8,
    ),
    "xlm": dict(emb_dim=32, n_words=VOCABULARY),
    "xmod": dict(default_language="en_XX", languages=("en_XX",)),
    "git": dict(
        vision_config=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            image_size=16,
            patch_size=8,
        )
    ),
}
KINDS = {re.sub("(ForCausalLM|LMHeadModel)$", "", str(name)): kind for kind, name in TYPES.items()}
"""Name of a family, as its class begins → its type."""
KINDS["FalconAlibi"] = KINDS["Falcon"]
FAMILIES = {
    name: OPTIONS.get(KINDS[name], {})
    for name in (
        "Llama Mistral Qwen3Moe Mixtral Gemma Gemma2 Gemma3 Phi Phi3 GPT2 GPTNeo GPTNeoX GPTJ OPT"
        " Bloom Falcon Mpt StableLm Olmo2 Starcoder2 Granite DeepseekV3 GptOss"
    ).split()
} | {
    "Qwen2": {},
    "Qwen3": {},
    "FalconAlibi": dict(alibi=True),
    "Cohere": dict(logit_scale=1.0),
    "Cohere2": MIXED | dict(logit_scale=1.0),
    "Llama4": dict(num_hidden_layers=4),
}
"""Families that all tests of models run → their options beside SMALL."""


def options_of(config_class) -> set[str]:
    """Return the names of the options that a config class takes."""
    names: set[str] = set()
    for parent in config_class.__mro__:
        names |= set(getattr(parent, "__annotations__", {}))
        if "__init__" in parent.__dict__:
            names |= set(inspect.signature(parent.__init__).parameters)
    return names


def of_kind(kind: str, options: dict, seed: int = 0, positions: int = 512):
    """Return a Hugging Face model of a type, with random weights in float32."""
    config_class = CONFIG_MAPPING[kind]
    names = options_of(config_class)
    sizes = SMALL | dict.fromkeys(SIZES[512].split(), positions)
    config = config_class(**{name: size for name, size in sizes.items() if name in names} | options)
    config._experts_implementation = "eager"  # the grouped kernels know no float64
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).eval()


def build(family: str, options: dict, seed: int = 0):
    """Return a Hugging Face model of a family, with random weights in float32."""
    return of_kind(KINDS[family], options, seed)


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
