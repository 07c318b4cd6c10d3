"""Loading, saving and compatibility checks of pairs, and the properties of the shipped pair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models_zoo import PROMPT, build, native
from safetensors.torch import load_file, save_file

from specdec_lite import corpus, generate, load_pair
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.hugging_face import HuggingFaceBackend
from specdec_lite.engine.native import NativeBackend
from specdec_lite.loading import checkpoints
from specdec_lite.loading.checkpoints import load_model, save_model
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.model_config import config_from_hf
from specdec_lite.loading.pairs import SHIPPED, needed_memory, save_pair
from specdec_lite.measure.machine import machine_profile
from specdec_lite.training import train_tokenizer

TEXTS = ["def f(x):\n    return x\n", "It was 25 °C in Zürich – 東京 🙂"] * 20
ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocabulary=280)


@pytest.fixture
def folder(tmp_path, tokenizer):
    """Save a pair of tiny models in the layout of the shipped pair."""
    shape = dict(dtype=torch.float32, vocab_size=280, tied=True)
    save_pair(
        tmp_path,
        native(seed=1, **shape).model,
        native(seed=2, num_layers=1, **shape).model,
        tokenizer,
        {"all": {}},
    )
    return tmp_path


def hugging_face_model(path, dtype=torch.float32):
    """Load a folder with plain transformers."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)


@torch.no_grad()
def largest_difference(model, other, ids):
    """Return the largest difference between the logits of two models on one text."""
    return (
        (model.score(ids, model.new_cache()).logits[0] - other(torch.tensor([ids])).logits[0])
        .abs()
        .max()
        .item()
    )


# Saving and loading -------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [15 * MEGABYTE, 20_000], ids=["one file", "shards"])
@pytest.mark.parametrize(
    "shape",
    [dict(tied=True), dict(tied=False, num_kv_heads=4, head_size=16, rope_theta=500.0)],
    ids=["tied", "untied"],
)
def test_saved_models_load_here_and_in_plain_transformers(limit, shape, tmp_path, tokenizer):
    model = native(dtype=torch.float32, vocab_size=280, **shape)
    save_model(tmp_path, model.model, tokenizer, limit)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert (len(files) == 1) == (limit > 20_000) and all(
        file.stat().st_size < limit + 5000 for file in files
    )
    assert {t.dtype for file in files for t in load_file(file).values()} == {torch.bfloat16}
    ours = load_model(tmp_path, dtype="float32")
    assert (
        isinstance(ours.backend, NativeBackend)
        and largest_difference(ours, hugging_face_model(tmp_path), PROMPT) < 1e-4
    )
    rounded = {name: weight.bfloat16().float() for name, weight in model.model.state_dict().items()}
    assert all(
        torch.equal(weight, rounded[name]) for name, weight in ours.model.state_dict().items()
    )
    stored = load_model(tmp_path, dtype="bfloat16")
    assert stored.dtype == torch.bfloat16 and ours.model.config == model.model.config
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])


def test_a_stored_head_that_differs_from_its_tied_embedding_is_used(tmp_path, tokenizer):
    """A merged adapter leaves such files; a copy that is equal stays tied, as in transformers."""
    save_model(tmp_path, native(dtype=torch.float32, vocab_size=280, tied=True).model, tokenizer)
    weights = load_file(tmp_path / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    (tmp_path / "adapter_model.safetensors").write_bytes(b"another program's")
    for head, tied in ((embedding.clone(), True), (embedding.flip(0).contiguous(), False)):
        stored = weights | {"lm_head.weight": head}
        save_file(stored, tmp_path / "model.safetensors", {"format": "pt"})
        ours = load_model(tmp_path, dtype="float32")
        assert ours.model.config.tied == tied
        assert largest_difference(ours, hugging_face_model(tmp_path), PROMPT) < 1e-4


def test_the_shipped_tokenizer_is_the_one_that_transformers_would_load():
    from transformers import AutoTokenizer

    ours = checkpoints.load_tokenizer(SHIPPED / "target")
    theirs = AutoTokenizer.from_pretrained(SHIPPED / "target")
    assert type(ours) is type(theirs) and ours.init_kwargs == theirs.init_kwargs
    assert [ours.encode(text) for text in TEXTS[:2]] == [theirs.encode(text) for text in TEXTS[:2]]


def test_loading_the_shipped_pair_imports_no_compiler_and_no_model_of_transformers():
    """They would take more time than all else that a small process does."""
    code = "import sys, specdec_lite; specdec_lite.load_pair(); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "transformers" in modules
    assert not {"torch._dynamo", "sympy", "transformers.modeling_utils"} & {*modules}


def test_a_pair_from_folders_decodes(folder):
    pair = load_pair(folder / "target", str(folder / "draft"), device="cpu", dtype="float64")
    assert pair.target.dtype == pair.draft.dtype == torch.float64 and pair.draft.num_layers == 1
    prompt = pair.tokenizer.encode(TEXTS[0])
    plain = generate(pair.target, prompt, max_new_tokens=12).tokens
    assert torch.equal(generate(pair.target, prompt, ModelDrafter(pair.draft, 3), 12).tokens, plain)
    stored = load_pair(folder / "target", folder / "draft", device="cpu").draft.dtype
    assert stored == (torch.bfloat16 if has_bfloat16("cpu") else torch.float32)


def test_other_families_go_through_transformers(tmp_path, tokenizer):
    build("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)).save_pretrained(tmp_path)
    model = load_model(tmp_path, dtype="float32")
    assert (
        isinstance(model.backend, HuggingFaceBackend)
        and largest_difference(model, hugging_face_model(tmp_path), PROMPT) < 1e-4
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_older_configs_of_the_hub_are_read_like_new_ones(family, tmp_path, tokenizer):
    """Older configs have a top-level rope_theta, torch_dtype instead of dtype, and no layer types."""
    shape = dict(qkv_bias=family == "qwen2", rope_theta=500.0)
    save_model(tmp_path, native(dtype=torch.float32, vocab_size=280, **shape).model, tokenizer)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    rope, config["torch_dtype"], config["model_type"] = (
        config.pop("rope_parameters"),
        config.pop("dtype"),
        family,
    )
    config.pop("layer_types", None)
    config |= {
        "rope_theta": rope["rope_theta"],
        "architectures": [
            {
                "llama": "LlamaForCausalLM",
                "qwen2": "Qwen2ForCausalLM",
                "mistral": "MistralForCausalLM",
            }[family]
        ],
    }
    config |= {"use_sliding_window": False, "max_window_layers": 2} if family == "qwen2" else {}
    path.write_text(json.dumps(config))
    ours = load_model(tmp_path, dtype="bfloat16")
    assert ours.model.config.rope_theta == 500.0 and ours.dtype == torch.bfloat16
    assert (
        largest_difference(
            load_model(tmp_path, dtype="float32"), hugging_face_model(tmp_path), PROMPT
        )
        < 1e-4
    )


@pytest.mark.parametrize("first, window", [(0, 16), (2, None)])
def test_first_windowed_layer_is_read_from_an_older_qwen_config(first, window):
    config = dict(
        model_type="qwen2",
        vocab_size=48,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        use_sliding_window=True,
        max_window_layers=first,
        sliding_window=16,
    )
    assert config_from_hf(config).window == window
    assert (
        config_from_hf(config | dict(max_window_layers=1)) is None
    )  # transformers runs models with both kinds of layers


def test_configs_without_a_native_model_are_left_to_transformers():
    base = dict(
        model_type="llama",
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    assert config_from_hf(base).num_kv_heads == 2 and config_from_hf(base).rope_theta == 10000.0
    for change in (
        dict(model_type="gemma"),
        dict(attention_bias=True),
        dict(mlp_bias=True),
        dict(hidden_act="gelu"),
        dict(rope_scaling=dict(type="linear", factor=2)),
        dict(rope_parameters=dict(rope_type="llama3")),
    ):
        assert config_from_hf(base | change) is None
    assert config_from_hf(base | dict(quantization_config=dict(quant_method="fp8"))) is None
    assert (
        config_from_hf(base | dict(model_type="mistral", sliding_window=9)).window == 9
        and config_from_hf(base | dict(sliding_window=9)).window is None
    )
    assert (
        config_from_hf(
            base | dict(model_type="qwen2", sliding_window=9, use_sliding_window=False)
        ).window
        is None
    )
    assert (
        config_from_hf(
            base | dict(rope_parameters=dict(rope_type="default", rope_theta=5.0))
        ).rope_theta
        == 5.0
    )


def test_save_model_rejects_a_window(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="model has window=4"):
        save_model(tmp_path / "model", native(window=4).model, tokenizer)
    assert not (tmp_path / "model").exists()


# Bad input ----------------------------------------------------------------------------------------


def test_weights_that_the_model_does_not_have_are_rejected(folder):
    """Such as the scales of quantized weights: without them the other weights are noise."""
    file = folder / "draft" / "model.safetensors"
    save_file(
        load_file(file) | {"model.layers.0.mlp.down_proj.weight_scale_inv": torch.ones(1)}, file
    )
    with pytest.raises(ValueError, match=("model.layers.0.mlp.down_proj.weight_scale_inv")):
        load_model(folder / "draft")


def test_the_memory_of_a_pair_is_known_before_its_weights_are_there(folder):
    """It is what load_pair refuses with; different tokenizers are refused at the same time."""
    for file in folder.glob("*/*.safetensors"):
        file.unlink()
    both = folder / "target", folder / "draft"
    needs = needed_memory(*both, device="cpu", dtype="float32", context=10)
    half = needed_memory(*both, device="cpu", dtype="bfloat16", context=10)
    assert needs["target"] > needs["draft"] > 0
    assert needs == {name: 2 * count for name, count in half.items()}
    train_tokenizer(["a different text"] * 9, vocabulary=270).save_pretrained(folder / "draft")
    with pytest.raises(ValueError, match="different vocabularies"):
        needed_memory(*both)


def test_a_target_without_a_draft_is_rejected(folder):
    with pytest.raises(ValueError, match="target=.*draft=None"):
        load_pair(folder / "target")


def test_a_folder_without_a_model_is_rejected(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    for bad in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(ValueError, match="draft="):
            load_pair(folder / "target", bad)


def test_weights_that_can_run_code_are_not_loaded(folder):
    weights = folder / "draft" / "model.safetensors"
    torch.save(load_file(weights), folder / "draft" / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ValueError, match="no .*safetensors"):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_only_files_in_the_index_are_read(folder):
    """Some repositories contain the weights a second time."""
    weights = folder / "draft" / "model.safetensors"
    index = {"weight_map": dict.fromkeys(load_file(weights), weights.name)}
    (folder / "draft" / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "draft" / "consolidated.safetensors").write_bytes(b"not read")
    load_pair(folder / "target", folder / "draft", device="cpu")
    weights.unlink()
    with pytest.raises(ValueError, match="model.safetensors: "):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_a_truncated_file_is_rejected(folder):
    weights = folder / "draft" / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-100], whole[:5], b"", b"\x80\x02pickled" + whole[10:]):
        weights.write_bytes(damaged)
        with pytest.raises(ValueError, match="model.safetensors: "):
            load_pair(folder / "target", folder / "draft", device="cpu")


@pytest.mark.parametrize(
    "change", [dict(num_hidden_layers=3), dict(intermediate_size=40), dict(vocab_size=300)]
)
def test_weights_that_do_not_fit_their_config_are_rejected(folder, change):
    path = folder / "draft" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="draft: "):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_code_in_a_model_folder_is_never_run(folder):
    path = folder / "draft"
    config = json.loads((path / "config.json").read_text())
    config |= {
        "model_type": "homemade",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match="trust_remote_code|homemade"):
        load_pair(folder / "target", path, device="cpu")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("dtype", ["float8", "int8", "half precision"])
def test_unknown_dtypes_are_rejected(folder, dtype):
    with pytest.raises(ValueError, match=f"dtype='{dtype}': must be 'auto' or one of"):
        load_pair(folder / "target", folder / "draft", device="cpu", dtype=dtype)


def test_different_vocabularies_are_rejected(folder):
    train_tokenizer(["a different text"] * 9, vocabulary=270).save_pretrained(folder / "draft")
    with pytest.raises(ValueError, match="280 and 2"):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_tokenizers_that_split_text_differently_are_rejected(folder):
    path = folder / "draft" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"]["add_prefix_space"] = True
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match="into different tokens although"):
        load_pair(folder / "target", folder / "draft", device="cpu")


# The shipped pair ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return load_pair(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def report():
    return json.loads((SHIPPED / "report.json").read_text())


def size(path: Path, pattern: str = "*") -> int:
    return sum(file.stat().st_size for file in path.glob(pattern))


def test_the_shipped_pair_is_small_enough_to_clone():
    assert (
        size(SHIPPED / "target", "*.safetensors") <= 25 * MEGABYTE
        and size(SHIPPED / "draft", "*.safetensors") <= 3 * MEGABYTE
    )
    files = [file for file in SHIPPED.rglob("*") if file.is_file()]
    assert max(file.stat().st_size for file in files) <= 15 * MEGABYTE and {
        f.suffix for f in files
    } <= {".safetensors", ".json", ".md"}


@pytest.mark.parametrize("which", ["target", "draft"])
def test_the_shipped_pair_has_the_same_logits_in_transformers(shipped, which):
    ids = shipped.tokenizer.encode('def main():\n    """Print the calendar of a year."""\n')
    assert (
        len(ids) > 8
        and largest_difference(getattr(shipped, which), hugging_face_model(SHIPPED / which), ids)
        < 1e-3
    )
    assert {
        t.dtype
        for file in (SHIPPED / which).glob("*.safetensors")
        for t in load_file(file).values()
    } == {torch.bfloat16}


def test_load_pair_without_arguments_loads_the_shipped_pair():
    pair = load_pair(device="cpu")
    assert (
        pair.target.dtype == (torch.bfloat16 if has_bfloat16("cpu") else torch.float32)
        and pair.draft.dtype == torch.float32
        and pair.target.vocab_size == len(pair.tokenizer) == pair.draft.vocab_size
    )
    assert (SHIPPED / "README.md").is_file()


def test_the_target_reaches_its_goal_in_bits_per_byte(report):
    assert report["all"]["bits_per_byte"] <= 1.45


@pytest.mark.xfail(
    strict=True,
    reason=(
        "the shipped draft does not reach this goal, see the pair's card; strict, so that the mark"
        " must be removed once a draft does"
    ),
)
def test_the_draft_reaches_its_goal_in_acceptance_rate(report):
    assert report["all"]["alpha"] >= 0.8


def test_the_reports_totals_are_weighted_means_of_its_domains(report):
    domains = {*corpus.HELD_OUT}
    assert domains | {"all", "training"} <= set(report)
    for name in domains | {"all"}:
        assert set(report[name]) == {
            "bits_per_byte",
            "tokens",
            "bytes",
            "alpha",
            "argmax_agreement",
        }
    for key in ("tokens", "bytes"):
        assert report["all"][key] == sum(report[d][key] for d in domains)
    for key, weight in (
        ("bits_per_byte", "bytes"),
        ("alpha", "tokens"),
        ("argmax_agreement", "tokens"),
    ):
        mean = sum(report[d][key] * report[d][weight] for d in domains) / report["all"][weight]
        assert report["all"][key] == pytest.approx(mean, rel=1e-9)


def test_the_models_reproduce_the_reported_overlap(shipped, report):
    """Σ min(p, q) on one held-out document is close to the reported value of its domain."""
    document = corpus.held_out_text()["code"][0]
    ids = shipped.tokenizer.encode(document)[:800]
    p, q = (
        model.score(ids, model.new_cache()).logits[0].softmax(-1)
        for model in (shipped.target, shipped.draft)
    )
    assert torch.minimum(p, q).sum(-1).mean().item() == pytest.approx(
        report["code"]["alpha"], abs=0.08
    )


def differences_from_plain(pair, draft, prompts, count=64):
    """Compare speculative and plain greedy text."""
    differences = []
    for prompt in prompts:
        plain, other = (
            generate(pair.target, prompt, d, count).tokens.tolist()
            for d in (None, ModelDrafter(draft, 4))
        )
        at = next((i for i, (a, b) in enumerate(zip(plain, other)) if a != b), None)
        if at is not None:
            logits = (
                pair.target.score([*prompt, *plain[:at]], pair.target.new_cache(), last=True)
                .logits[0, -1]
                .float()
            )
            differences.append(
                ((logits[plain[at]] - logits[other[at]]).abs().item(), logits.abs().max().item())
            )
    return differences


ROUNDING = [("float32", 1e-5), pytest.param("bfloat16", 4 * 2**-8, marks=pytest.mark.registry)]


@pytest.mark.parametrize("dtype, rounding", ROUNDING)
def test_speculative_greedy_text_equals_plain_text(dtype, rounding):
    """Only a top-2 gap within rounding, relative to the largest logit, excuses a difference."""
    pair = load_pair(device="cpu", dtype=dtype)
    prompts = [
        pair.tokenizer.encode(domain[0]["text"])[:80]
        for domain in corpus.evaluation_prompts().values()
    ]
    assert all(
        gap <= rounding * largest
        for gap, largest in differences_from_plain(pair, pair.draft, prompts)
    )


def test_the_shipped_draft_is_accepted_as_often_as_reported(shipped, report):
    """Text sampled at T = 1 is not held-out text, so the bound is wide; an untrained draft is far
    below it.
    """
    prompts = [prompt["text"] for prompt in corpus.evaluation_prompts()["code"][:4]]
    runs = [
        generate(
            shipped.target,
            shipped.tokenizer.encode(text)[:80],
            ModelDrafter(shipped.draft, 4),
            64,
            temperature=1.0,
            seed=0,
        ).stats
        for text in prompts
    ]
    assert (
        sum(s.accepted for s in runs) / sum(s.tested for s in runs) > report["all"]["alpha"] - 0.2
    )


# Damaged and unusual folders ---------------------------------------------------------------------------

BARE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    "config, window",
    [
        (dict(model_type="mistral", sliding_window=8), 8),
        (dict(model_type="mistral", sliding_window=8, use_sliding_window=False), 8),
        (dict(model_type="mistral", sliding_window=None), None),
        (dict(model_type="mistral"), 4096),
        (
            dict(
                model_type="llama", sliding_window=8, use_sliding_window=True, max_window_layers=0
            ),
            None,
        ),
        (
            dict(
                model_type="qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=0
            ),
            8,
        ),
        (dict(model_type="qwen2", sliding_window=8, use_sliding_window=False), None),
    ],
    ids=str,
)
def test_the_window_is_the_one_that_transformers_uses(config, window):
    assert config_from_hf(BARE | config).window == window


def test_missing_weights_are_rejected(tmp_path):
    build("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(
        {name: weight for name, weight in load_file(file).items() if ".h.1." not in name},
        file,
        {"format": "pt"},
    )
    with pytest.raises(ValueError, match=r"lacks transformer\.h\.1\."):
        load_model(tmp_path)


def test_a_truncated_file_is_rejected_by_the_transformers_loader(tmp_path):
    build("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not whole safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "cannot be read"),
        ("[]", "holds a list"),
        ('{"model_type": "llama"}', "lacks 'num_attention_heads'"),
        (
            json.dumps(BARE | {"model_type": "llama", "dtype": "float8_e4m3fn"}),
            "stored in float8_e4m3fn",
        ),
    ],
    ids=["cut short", "a list", "bare", "float8"],
)
def test_a_malformed_config_is_rejected(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path)
    if "float8" not in text:
        with pytest.raises(ValueError, match=message):
            load_pair(tmp_path, tmp_path, device="cpu")


@pytest.mark.parametrize(
    "entry, value",
    [
        ("num_attention_heads", "four"),
        ("hidden_size", None),
        ("num_hidden_layers", 0),
        ("vocab_size", 4.5),
        ("num_key_value_heads", []),
        ("head_dim", -8),
        ("rms_norm_eps", "small"),
        ("rope_theta", 0),
        ("rope_parameters", [1]),
        ("rope_scaling", "llama3"),
    ],
)
def test_a_config_with_a_value_of_the_wrong_kind_names_file_and_entry(tmp_path, entry, value):
    config = BARE | {"model_type": "llama", entry: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"config.json: {entry}="):
        load_model(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '{"metadata": {"total_size": "big"}}'])
def test_a_malformed_index_is_named_before_the_download(tmp_path, text):
    config = BARE | {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"model.safetensors.index.json: "):
        checkpoints.model_size(tmp_path)


def test_an_index_without_names_is_rejected(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BARE | {"model_type": "llama"}))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="names no weights"):
        load_model(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_an_absent_device_is_rejected():
    for device in ("cuda", "cuda:3", "meta"):
        with pytest.raises(ValueError, match=f"device='{device}': there is no such device"):
            load_pair(device=device)
    with pytest.raises(ValueError, match="device='banana'"):
        machine_profile("banana")
    with pytest.raises(TypeError, match="target=5"):
        load_pair(5, 6)


def test_save_model_rejects_query_and_key_norms(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="qk_norm=True"):
        save_model(tmp_path / "model", native(qk_norm=True).model, tokenizer)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/model.safetensors", "a/b"])
def test_an_index_names_only_files_of_its_own_folder(name, tmp_path):
    index = {"weight_map": {"lm_head.weight": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must be a file in the same folder"):
        checkpoints.weight_patterns(tmp_path)


@pytest.mark.parametrize("limits", [(20_000, 10**9), (10**9, 20_000), (20_000, 30_000)])
def test_a_model_saved_over_another_replaces_it_whole(limits, tmp_path, tokenizer):
    shape = dict(dtype=torch.float32, vocab_size=280)
    for seed, limit in enumerate(limits):
        model = native(seed=seed, **shape).model
        save_model(tmp_path / "model", model, tokenizer, limit)
        (tmp_path / "model" / "README.md").write_text("a card")
    loaded = load_model(tmp_path / "model").model.embedding.weight.float()
    assert (loaded - model.embedding.weight).abs().max() < 0.01
    assert (tmp_path / "model" / "README.md").read_text() == "a card"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_that_cannot_be_written_leaves_the_old_one(tmp_path, tokenizer, monkeypatch):
    model = native(dtype=torch.float32, vocab_size=280).model
    save_model(tmp_path / "model", model, tokenizer)
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    monkeypatch.setattr(checkpoints, "save_file", broken_write)
    with pytest.raises(OSError, match="No space left"):
        save_model(tmp_path / "model", native(seed=3, vocab_size=280).model, tokenizer)
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def broken_write(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["weights.bin", "weights.pt", ".."])
def test_an_index_that_names_another_format_is_refused(name, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ValueError, match="must be"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "entries",
    [
        {"num_hidden_layers": 10**8, "use_sliding_window": True, "model_type": "qwen2"},
        {"num_hidden_layers": 10**5},
        {"vocab_size": "9" * 10**6},
        {"rope_parameters": [[1]]},
        {"layer_types": [[1]], "model_type": "qwen2"},
    ],
)
def test_a_config_of_absurd_size_is_refused_at_once_in_a_short_sentence(entries, tmp_path):
    sizes = dict(num_attention_heads=1, vocab_size=8, hidden_size=2, intermediate_size=2)
    config = {"model_type": "llama", "num_hidden_layers": 1, **sizes, **entries}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError) as error:
        load_model(tmp_path)
    assert len(str(error.value)) < 400


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("text", [DEEP, "{}", '{"model": 1}', "not JSON", ""])
@pytest.mark.parametrize("generic", [True, False])
def test_a_damaged_tokenizer_is_one_line_with_its_folder(folder, text, generic):
    (folder / "draft" / "tokenizer.json").write_text(text)
    if not generic:
        (folder / "draft" / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=f"{folder.name}.draft: its tokenizer cannot be read"):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_a_folder_without_a_tokenizer_is_named(folder):
    for file in (folder / "draft").glob("token*"):
        file.unlink()
    with pytest.raises(ValueError, match="draft: its tokenizer cannot be read"):
        load_pair(folder / "target", folder / "draft", device="cpu")


def test_a_deep_generation_config_ends_no_text(folder):
    (folder / "draft" / "generation_config.json").write_text(DEEP)
    assert load_pair(folder / "target", folder / "draft", device="cpu").draft


@pytest.mark.parametrize(
    "entries",
    [
        dict(model_type=["llama"]),
        dict(hidden_act="eval"),
        dict(hidden_act=["silu"]),
        dict(quantization_config=[1]),
        dict(rope_parameters=dict(rope_type="default", rope_theta="x")),
        dict(rope_parameters=dict(rope_type="default", rope_theta=-1)),
        dict(rope_parameters=dict(rope_type="linear", factor=0)),
        dict(rope_parameters=dict(rope_type=["llama3"])),
        dict(layer_types=[["full_attention"]], model_type="qwen3"),
        dict(dtype=["float32"]),
        dict(vocab_size="9" * 10_000_000),
    ],
    ids=lambda entries: "-".join(entries),
)
def test_a_value_of_a_wrong_kind_is_a_short_error_of_the_documented_type(folder, entries):
    path = folder / "draft" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    with pytest.raises(ValueError, match="draft|stored in") as caught:
        load_pair(folder / "target", folder / "draft", device="cpu")
    assert len(str(caught.value)) < 1000
