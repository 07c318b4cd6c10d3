"""Loading, saving and compatibility checks of pairs, and the properties of the shipped pair."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, TEXTS
from models_zoo import PROMPT, build, native
from safetensors.torch import load_file, save_file

from specdec_lite import corpus, generate, load_pair
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.native import NativeBackend
from specdec_lite.loading import checkpoints
from specdec_lite.loading.checkpoints import load_model, save_model
from specdec_lite.loading.files import MOST_BYTES
from specdec_lite.loading.memory import has_bfloat16
from specdec_lite.loading.model_config import config_from_hf
from specdec_lite.loading.pairs import SHIPPED, needed_memory, save_pair
from specdec_lite.training import train_tokenizer

MEGABYTE = 1_000_000


@pytest.fixture
def folder(tmp_path, tokenizer):
    """Save a pair of tiny models in the layout of the shipped pair."""
    shape = dict(dtype=torch.float32, vocab_size=280, tied=True)
    models = native(seed=1, **shape).model, native(seed=2, num_layers=1, **shape).model
    save_pair(tmp_path, *models, tokenizer, {"all": {}})
    return tmp_path


def hugging_face_model(path, dtype=torch.float32):
    """Load a folder with plain transformers."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)


@torch.no_grad()
def largest_difference(model, other, ids):
    """Return the largest difference between the logits of two models on one text."""
    ours = model.score(ids, model.new_cache()).logits[0]
    return (ours - other(torch.tensor([ids])).logits[0]).abs().max().item()


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
    assert (len(files) == 1) == (limit > 20_000)
    assert all(file.stat().st_size < limit + 5000 for file in files)
    assert {t.dtype for file in files for t in load_file(file).values()} == {torch.bfloat16}
    ours = load_model(tmp_path, dtype="float32")
    assert isinstance(ours.backend, NativeBackend)
    assert largest_difference(ours, hugging_face_model(tmp_path), PROMPT) < 1e-4
    saved, own = model.model.state_dict(), ours.model.state_dict()
    assert all(torch.equal(weight, saved[name].bfloat16().float()) for name, weight in own.items())
    stored = load_model(tmp_path, dtype="bfloat16")
    assert stored.dtype == torch.bfloat16 and ours.model.config == model.model.config
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])


def test_a_stored_head_that_differs_from_its_tied_embedding_is_used(tmp_path, tokenizer):
    """As in transformers: a merged adapter leaves two matrices, some files store the head alone."""
    save_model(tmp_path, native(dtype=torch.float32, vocab_size=280, tied=True).model, tokenizer)
    weights = load_file(tmp_path / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    (tmp_path / "adapter_model.safetensors").write_bytes(b"another program's")
    alone = {name: weight for name, weight in weights.items() if "embed" not in name}
    same, other = embedding.clone(), embedding.flip(0).contiguous()
    for rest, head, tied in ((weights, same, True), (weights, other, False), (alone, other, True)):
        stored = rest | {"lm_head.weight": head}
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


def test_decoding_with_the_shipped_pair_imports_little():
    """A compiler and models would take more time than all else. Chapter 1 uses these names."""
    names = "s.load_pair(dtype='float32'), s.generate, s.timing.samples"
    code = f"import sys, specdec_lite as s; {names}; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "transformers" in modules
    assert not {"torch._dynamo", "sympy", "transformers.modeling_utils"} & {*modules}
    paths = [ROOT / each.replace(".", "/") for each in modules if each.startswith("specdec_lite")]
    files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) < 5500


def test_a_pair_from_folders_decodes(folder):
    pair = load_pair(folder / "target", str(folder / "draft"), device="cpu", dtype="float64")
    assert pair.target.dtype == pair.draft.dtype == torch.float64 and pair.draft.num_layers == 1
    prompt = pair.tokenizer.encode(TEXTS[0])
    plain = generate(pair.target, prompt, max_new_tokens=12).tokens
    assert torch.equal(generate(pair.target, prompt, ModelDrafter(pair.draft, 3), 12).tokens, plain)
    stored = load_pair(folder / "target", folder / "draft", device="cpu").draft.dtype
    assert stored == (
        torch.bfloat16 if has_bfloat16("cpu") else torch.float32
    )  # too small to share


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_older_configs_of_the_hub_are_read_like_new_ones(family, tmp_path, tokenizer):
    """Older configs have a top-level rope_theta, torch_dtype instead of dtype, and no layer types."""
    shape = dict(qkv_bias=family == "qwen2", rope_theta=500.0)
    save_model(tmp_path, native(dtype=torch.float32, vocab_size=280, **shape).model, tokenizer)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"], config["model_type"] = config.pop("dtype"), family
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["architectures"] = [f"{family.capitalize()}ForCausalLM"]
    config.pop("layer_types", None)
    config |= {"use_sliding_window": False, "max_window_layers": 2} if family == "qwen2" else {}
    path.write_text(json.dumps(config))
    ours = load_model(tmp_path, dtype="bfloat16")
    assert ours.model.config.rope_theta == 500.0 and ours.dtype == torch.bfloat16
    ours = load_model(tmp_path, dtype="float32")
    assert largest_difference(ours, hugging_face_model(tmp_path), PROMPT) < 1e-4


BARE = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
BARE |= dict(num_attention_heads=4, model_type="llama")
SLIDES = dict(sliding_window=8, use_sliding_window=True)
LONG = dict(original_max_position_embeddings=9)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)


@pytest.mark.parametrize(
    "config, name, value",
    [
        (dict(), "num_kv_heads", 4),
        (dict(), "rope_theta", 10000.0),
        (dict(rope_parameters=dict(rope_type="default", rope_theta=5.0)), "rope_theta", 5.0),
        (dict(model_type="mistral", sliding_window=8), "window", 8),
        (dict(model_type="mistral", sliding_window=8, use_sliding_window=False), "window", 8),
        (dict(model_type="mistral", sliding_window=None), "window", None),
        (dict(model_type="mistral"), "window", 4096),
        (SLIDES | dict(max_window_layers=0), "window", None),
        (dict(sliding_window=9), "window", None),
        (dict(model_type="qwen2", sliding_window=8, use_sliding_window=False), "window", None),
        (dict(model_type="gemma"), None, None),
        (dict(rope_scaling=dict(type="linear", factor=2)), None, None),
        (dict(rope_parameters=dict(rope_type="llama3")), None, None),
        (dict(rope_parameters=dict(full_attention=dict(rope_theta=5.0))), None, None),
        (dict(rope_parameters=dict(rope_type="default"), rope_scaling=YARN), "rope_scaling", YARN),
        (LONG | dict(rope_scaling=YARN), "rope_scaling", YARN | LONG),
        (dict(partial_rotary_factor=0.5), None, None),
        (dict(max_position_embeddings=None), "max_positions", 2048),
        (dict(rms_norm_eps=None), "norm_eps", 1e-6),
        (dict(model_type="qwen3", layer_types=["chunked_attention"] * 2), None, None),
        (dict(quantization_config=dict(quant_method="fp8")), None, None),
    ],
    ids=str,
)
def test_a_config_is_read_as_transformers_reads_it_or_left_to_it(config, name, value):
    found = config_from_hf(BARE | config)
    assert found is None if name is None else getattr(found, name) == value


# Bad input ----------------------------------------------------------------------------------------


def add_weights(draft, **extra):
    """Such as the scales of quantized weights: without them the other weights are noise."""
    file = draft / "model.safetensors"
    save_file(load_file(file) | {name: torch.ones(1) for name in extra}, file)


def store_as_pickle(draft):
    torch.save(load_file(draft / "model.safetensors"), draft / "pytorch_model.bin")
    (draft / "model.safetensors").unlink()


def damage(change):
    def damaged(draft):
        file = draft / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return damaged


def change_tokenizer(draft):
    train_tokenizer(["a different text"] * 9, vocabulary=270).save_pretrained(draft)


def split_differently(draft):
    path = draft / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"]["add_prefix_space"] = True
    path.write_text(json.dumps(tokenizer))


def delete_tokenizer(draft):
    for file in draft.glob("token*"):
        file.unlink()


def write_tokenizer(text, generic):
    def written(draft):
        (draft / "tokenizer.json").write_text(text)
        if not generic:
            (draft / "tokenizer_config.json").unlink()

    return written


def write_index(text):
    return lambda draft: (draft / "model.safetensors.index.json").write_text(text)


def names_in_index(name):
    return write_index(json.dumps({"weight_map": {"lm_head.weight": name}}))


def store_twice(draft):
    """As in a folder of two sets of shards whose index is lost."""
    stored = load_file(draft / "model.safetensors")
    (draft / "model.safetensors").rename(draft / "a.safetensors")
    save_file({"model.norm.weight": stored["model.norm.weight"] + 1}, draft / "b.safetensors")


def store_two_sets(draft):
    (draft / "other.safetensors").touch()
    names_in_index("other.safetensors")(draft)


def make_pipe(name):
    """Readers would wait for it."""
    return lambda draft: (draft / name).unlink() or os.mkfifo(draft / name)


def make_huge(name):
    """The file takes no place on the disk."""

    def made(draft):
        with open(draft / name, "wb") as file:
            file.truncate(MOST_BYTES + 1)

    return made


def change_config(entries):
    def changed(draft):
        config = json.loads((draft / "config.json").read_text()) | entries
        (draft / "config.json").write_text(json.dumps(config))

    return changed


quantize = change_config({"quantization_config": {"quant_method": "fp8"}})
WRONG = [
    dict(num_attention_heads="four"),
    dict(hidden_size=None),
    dict(num_hidden_layers=0),
    dict(vocab_size=4.5),
    dict(num_key_value_heads=[]),
    dict(head_dim=-8),
    dict(rms_norm_eps="small"),
    dict(rope_theta=0),
    dict(rope_parameters=[1]),
    dict(layer_types="full_attention", model_type="qwen2"),
    dict(rope_scaling="llama3", rope_parameters=None),
]
"""The error names the file and the entry."""
ABSURD = [
    dict(num_hidden_layers=3),
    dict(intermediate_size=40),
    dict(vocab_size=300),
    dict(num_hidden_layers=10**8, use_sliding_window=True, model_type="qwen2"),
    dict(vocab_size="9" * 10**7),
    dict(layer_types=[[1]], model_type="qwen2"),
    dict(layer_types=[["full_attention"]], model_type="qwen3"),
    dict(model_type=["llama"]),
    dict(hidden_act="eval"),
    dict(hidden_act=["silu"]),
    dict(quantization_config=[1]),
    dict(rope_parameters=dict(rope_type="default", rope_theta="x")),
    dict(rope_parameters=dict(rope_type="default", rope_theta=-1)),
    dict(rope_parameters=dict(rope_type="linear", factor=0)),
    dict(rope_parameters=dict(rope_type=["llama3"])),
    dict(dtype=["float32"]),
    dict(dtype="float8_e4m3fn"),
]
ENDLESS = [
    dict(model_type="gpt2", n_layer=10**9),
    dict(model_type="mixtral", num_local_experts=10**9),
    dict(model_type="gemma3", text_config=dict(num_hidden_layers=10**5)),
    dict(num_hidden_layers=10**400),
    dict(max_position_embeddings=10**12),
]
"""Modules for hours, whatever family it names, and whoever would run the model."""
DEEP = "[" * 100_000 + "]" * 100_000
UNREAD = "draft: its tokenizer cannot be read"
BAD = {
    "more weights": (lambda draft: add_weights(draft, weight_scale_inv=1), "weight_scale_inv"),
    "a pickle": (store_as_pickle, "no .*safetensors"),
    "a short file": (damage(lambda whole: whole[:-100]), "model.safetensors: "),
    "a shorter file": (damage(lambda whole: whole[:5]), "model.safetensors: "),
    "an empty file": (damage(lambda whole: b""), "model.safetensors: "),
    "a pickled file": (damage(lambda whole: b"\x80\x02p" + whole[10:]), "model.safetensors: "),
    "another vocabulary": (change_tokenizer, "280 and 2"),
    "other tokens": (split_differently, "into different tokens although"),
    "no tokenizer": (delete_tokenizer, UNREAD),
    **{
        f"tokenizer {text[:9]}, generic {generic}": (write_tokenizer(text, generic), UNREAD)
        for text in (DEEP, "{}", '{"model": 1}', "not JSON", "")
        for generic in (True, False)
    },
    "an empty index": (write_index("{}"), "names no weights"),
    **{
        f"quantized, index {t[:9]}": (
            lambda d, t=t: quantize(d) or write_index(t)(d),
            "index.json:",
        )
        for t in ("[]", "{", '{"metadata": {"total_size": "big"}}')
    },
    "two sets of weights": (store_two_sets, "model.safetensors: .* names other files"),
    "two files of one tensor": (store_twice, "b.safetensors: holds another model.norm.weight"),
    **{
        f"an index of {name}": (names_in_index(name), message)
        for name, message in (
            ("../model.safetensors", "must be a file in the same folder"),
            ("/etc/model.safetensors", "must be a file in the same folder"),
            ("a/b", "must be a file in the same folder"),
            ("..", "must be"),
            ("weights.bin", "can run code"),
            ("weights.pt", "can run code"),
            ("absent.safetensors", "absent.safetensors: named by"),
        )
    },
    **{
        f"config {text[:9]}": (lambda draft, t=text: (draft / "config.json").write_text(t), message)
        for text, message in (
            ("{", "cannot be read"),
            ("[]", "holds a list"),
            ('{"model_type": "llama"}', "lacks 'num_att"),
        )
    },
    **{f"{x!s:.60}": (change_config(x), f"config.json: {[*x][0]}=") for x in WRONG},
    **{f"{x!s:.60}": (change_config(x), "draft|stored in") for x in ABSURD},
    **{f"{x!s:.60}": (change_config(x), "config.json: .*must be ≤") for x in ENDLESS},
    "a pipe as config.json": (make_pipe("config.json"), "must be .* folder that holds config.json"),
    **{
        f"a pipe as {name}": (make_pipe(name), f"{name}: must be a file")
        for name in ("tokenizer.json", "model.safetensors")
    },
    **{
        f"a huge {name}": (make_huge(name), f"{name}: has {MOST_BYTES + 1} bytes")
        for name in ("config.json", "tokenizer.json", "model.safetensors.index.json")
    },
}


@pytest.mark.parametrize("change, message", BAD.values(), ids=BAD)
def test_a_bad_folder_is_refused_by_name(change, message, folder):
    change(folder / "draft")
    with pytest.raises(ValueError, match=message) as caught:
        load_pair(folder / "target", folder / "draft", device="cpu")
    assert len(str(caught.value)) < 1000


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
    assert size(SHIPPED / "target", "*.safetensors") <= 25 * MEGABYTE
    assert size(SHIPPED / "draft", "*.safetensors") <= 3 * MEGABYTE
    files = [file for file in SHIPPED.rglob("*") if file.is_file()]
    assert max(file.stat().st_size for file in files) <= 15 * MEGABYTE
    assert {file.suffix for file in files} <= {".safetensors", ".json", ".md"}


@pytest.mark.parametrize("which", ["target", "draft"])
def test_the_shipped_pair_has_the_same_logits_in_transformers(shipped, which):
    ids = shipped.tokenizer.encode('def main():\n    """Print the calendar of a year."""\n')
    theirs, files = hugging_face_model(SHIPPED / which), (SHIPPED / which).glob("*.safetensors")
    assert len(ids) > 8 and largest_difference(getattr(shipped, which), theirs, ids) < 1e-3
    assert {t.dtype for file in files for t in load_file(file).values()} == {torch.bfloat16}


def test_the_target_reaches_its_goal_in_bits_per_byte(report):
    assert report["all"]["bits_per_byte"] <= 1.45


MEANS = {"bits_per_byte": "bytes", "alpha": "tokens", "argmax_agreement": "tokens"}
"""What the report has of each domain, and what weighs it in the mean."""


def test_the_reports_totals_are_weighted_means_of_its_domains(report):
    domains = {*corpus.HELD_OUT}
    assert domains | {"all", "training"} <= set(report)
    for name in domains | {"all"}:
        assert set(report[name]) == {"tokens", "bytes", *MEANS}
    for key in ("tokens", "bytes"):
        assert report["all"][key] == sum(report[d][key] for d in domains)
    for key, weight in MEANS.items():
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
    overlap = torch.minimum(p, q).sum(-1).mean().item()
    assert overlap == pytest.approx(report["code"]["alpha"], abs=0.08)


# Damaged and unusual folders ---------------------------------------------------------------------------


def test_the_transformers_loader_refuses_missing_weights_and_short_files(tmp_path):
    build("GPT2", dict(n_positions=64)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    kept = {name: weight for name, weight in load_file(file).items() if ".h.1." not in name}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks transformer\.h\.1\."):
        load_model(tmp_path)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=f"{tmp_path}: its model cannot be read .SafetensorError"):
        load_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= BARE | {"rope_scaling": {"type": "mrope"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=f"{tmp_path}: its model cannot be read .KeyError: 'mrope'"
    ):
        load_model(tmp_path)


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
    monkeypatch.setattr("safetensors.torch.save_file", broken_write)
    with pytest.raises(OSError, match="No space left"):
        save_model(tmp_path / "model", native(seed=3, vocab_size=280).model, tokenizer)
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def broken_write(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "text, ends",
    [(DEEP, (0,)), ('\ufeff{"eos_token_id": [7, 9, 280, -1, true]}', (7, 9)), ("{}\r\n", (0,))],
)
def test_a_text_ends_where_the_files_state_it(text, ends, folder):
    (folder / "draft" / "generation_config.json").write_text(text, "utf-8")
    assert load_model(folder / "draft").end_of_text == ends
