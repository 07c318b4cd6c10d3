"""A tiny model of every causal language model type of transformers, and whether it can be decoded.

`examine` runs one type in float64 and returns a `Finding`. `python -m tests.matrix` records the
findings of all types. The tests compare the record with fresh findings, so they notice every new
version of transformers and every change here.
"""

import inspect
from dataclasses import dataclass

import torch
from models_zoo import PROMPT, VOCABULARY, WINDOW, logits_of
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdec_lite import CausalLM
from specdec_lite.engine.ragged import row_caches, score_rows
from specdec_lite.engine.self_test import PARTS, in_pieces
from specdec_lite.tree import TokenTree

TYPES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
LARGEST = 4_000_000  # parameters of a tiny model

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
        " moe_topk num_global_key_value_heads linear_num_key_heads index_n_heads eos_token_id"
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
    is_decoder=True, tie_word_embeddings=False
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
# Their own code overflows in float64 or mixes it with float32, so they are examined in float32.
SINGLE = {"xglm", "inkling2_text"}
# Not tried: configs made of several others, most of them with images or sound. A text model with a
# type of its own is examined under that type.
COMPOSITE = (
    {
        kind: "text together with images or sound; its text model is examined under its own type"
        for kind in (
            "dots3_note",
            "gemma3",
            "gemma3n",
            "gemma4",
            "gemma4_unified",
            "llama4",
            "qwen3_5",
            "qwen3_5_moe",
            "qwen4_exp",
        )
    }
    | {
        kind: "text together with images or sound"
        for kind in (
            "emu3",
            "fuyu",
            "got_ocr2",
            "mllama",
            "moss_transcribe_diarize",
            "phi4_multimodal",
            "musicgen",
            "musicgen_melody",
        )
    }
    | {
        kind: "a drafter that reads its target's cache, no model of its own"
        for kind in ("gemma4_assistant", "gemma4_unified_assistant")
    }
    | {"blt": "bytes in patches: its decoder needs an encoder's states"}
)


@dataclass(frozen=True)
class Finding:
    """The result for one model type.

    Attributes:
        kind: the model type.
        outcome: "exact", "refused" or "not tried".
        trees: "one pass" or "path by path"; None unless exact.
        reason: why not; None if exact.
        varied: number of different argmax tokens in a short text.
    """

    kind: str
    outcome: str
    trees: str | None = None
    reason: str | None = None
    varied: int = 0


def options_of(config_class) -> set[str]:
    """Return the names of the options that a config class takes."""
    names: set[str] = set()
    for parent in config_class.__mro__:
        names |= set(getattr(parent, "__annotations__", {}))
        if "__init__" in parent.__dict__:
            names |= set(inspect.signature(parent.__init__).parameters)
    return names


def tiny(kind: str, seed: int = 0, positions: int = 512):
    """Return a random model of a type, in float64 and with at most LARGEST parameters."""
    config_class, options = CONFIG_MAPPING[kind], OPTIONS.get(kind, {})
    names = options_of(config_class)
    sizes = SMALL | dict.fromkeys(SIZES[512].split(), positions)
    config = config_class(**{name: size for name, size in sizes.items() if name in names} | options)
    config._experts_implementation = "eager"  # the grouped kernels know no float64
    with torch.device("meta"):
        size = sum(
            weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters()
        )
    assert size <= LARGEST, f"{kind}: {size} parameters are not tiny"
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    return model if kind in SINGLE else model.double()


TREE = TokenTree([20, 21, 22, 23, 24, 25, 26], [-1, -1, 0, 0, 1, 2, 4])
REST = [20, 30, 40, 1, 2, 3]


def largest_error(model: CausalLM) -> float:
    """Return the largest difference between logits in pieces and those of one pass.

    The pieces are the self-test's, on a text that is longer than the windows.
    """
    with torch.inference_mode():
        pairs = list(in_pieces(model.backend, torch.tensor(PROMPT), TREE))
    assert len(pairs) == len(PARTS)
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


def largest_batch_error(model: CausalLM) -> float:
    """Return the largest difference between logits of rows in one pass and of each row alone.

    The rows have different lengths and trees, and a second pass reads what the first one stored.
    """
    texts = [PROMPT, PROMPT[:4], PROMPT[:1]]
    trees = [TREE, TokenTree.chain(REST[:2]), TokenTree([], [])]
    storage, caches = row_caches(model, len(texts), 16)
    alone = [model.new_cache() for _ in texts]
    for cache, text in zip([*caches, *alone], texts * 2):
        if len(text) > 1:
            model.score(text[:-1], cache)
    worst = 0.0
    for again in (True, False):
        fed = [torch.tensor([text[-1], *tree.tokens.tolist()]) for text, tree in zip(texts, trees)]
        together = score_rows(model, storage, fed, caches, trees)
        for ours, row, cache, tree in zip(together, fed, alone, trees):
            theirs = model.score(row, cache, tree).logits
            worst = max(worst, (ours.logits - theirs).abs().max().item())
        if again:
            for cache in (*caches, *alone):
                cache.keep([0])
    return worst


def examine(kind: str) -> Finding:
    """Return what happens to a model type."""
    if kind in COMPOSITE:
        return Finding(kind, "not tried", reason=COMPOSITE[kind])
    module = tiny(kind)
    try:
        model = CausalLM(module)
    except ValueError as rejection:
        reason = str(rejection).removeprefix(type(module).__name__).split(" (off by")[0]
        return Finding(kind, "refused", reason=reason.strip())
    error = max(largest_error(model), largest_batch_error(model))
    assert error < (1e-3 if kind in SINGLE else 1e-5), (
        f"{kind} is accepted, but its logits are off by {error:.2g}"
    )
    varied = logits_of(model, PROMPT + REST).argmax(-1).unique().numel()
    return Finding(
        kind, "exact", "path by path" if model.backend.by_path else "one pass", varied=varied
    )
