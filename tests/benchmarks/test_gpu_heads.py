"""The heads' run on a GPU, at toy size on the CPU: what it writes, learns, stores and leaves out."""

import json
import time

import gguf
import numpy as np
import pytest
import torch
from models_zoo import native

from benchmarks import carried, gpu_heads
from specdec_lite import generate
from specdec_lite.drafters import EagleDrafter
from specdec_lite.drafters.eagle.feature_head import Eagle1Head, Eagle3Head
from specdec_lite.loading.weights import fingerprint, load
from specdec_lite.measure import stamps
from specdec_lite.training.head_texts import Sample
from specdec_lite.training.packed_text import Text, piece_paths, read_about, read_pieces
from specdec_lite.training.smollm2_prompts import GRAM, token_grams
from specdec_lite.training.static_text import Order, Writer


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_carried_blocks_are_dequantized_to_the_last_bit(kind):
    form = gguf.GGMLQuantizationType[kind]
    numbers = np.random.default_rng(0).normal(size=(6, 96)).astype(np.float32)
    blocks = gguf.quants.quantize(numbers, form)
    mine = carried.dequantized(kind, blocks.reshape(-1, carried.BLOCK_BYTES[kind]))
    assert np.array_equal(mine.reshape(6, 96), gguf.quants.dequantize(blocks, form))
    shuffled = blocks.reshape(-1, carried.BLOCK_BYTES[kind]).T.tobytes()
    coded = carried.deflated(shuffled).numpy().tobytes()
    assert carried.zlib.decompress(coded) == shuffled


def test_own_requests_resemble_no_excluded_prompt():
    before, after = (1, 9, 10), (2, 10, 1, 11)
    frames = lambda *messages: [
        Text("code", False, 0.0, 7 + len(m), torch.tensor([*before, *m, *after])) for m in messages
    ]
    requests, held_out = frames((30, 31), (32, 33, 34)), frames((40, 41, 42))
    assert gpu_heads.frame(requests) == (before, after)
    long = tuple(range(50, 50 + GRAM))
    evaluation = [Text("evaluation", True, 0.0, len(long), torch.tensor(long))]
    excluded = gpu_heads.excluded_grams(evaluation, held_out, (before, after))
    assert excluded == token_grams((40, 41, 42)) | {long}
    fresh, copied = (43, 44, 45), (7, *long, 8)

    class Stub:
        def write(self, orders, new_tokens, seconds):
            assert {order.prompt for order in orders} == {before} and len(orders) == 6
            for message in (fresh, (40, 41, 42), copied, fresh, (46, 47, 48)):
                end = () if message[0] == 46 else (2,)  # the last one is unfinished
                yield orders[0], torch.tensor([*before, *message, *end])

    own = gpu_heads.own_requests(Stub(), requests, 6, excluded, 1.0)
    assert own == [(*before, *fresh, *after)]


def test_batches_hold_every_answer_once():
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(20, 90, (50,), generator=generator).tolist()
    texts = [Sample(torch.randint(48, (n,), generator=generator), n // 3) for n in sizes]
    data = gpu_heads.batches(texts, 512, 5)
    assert all(tokens.numel() <= 512 for tokens, _ in data) and len(data) > 5
    written = [row[mask] for tokens, masks in data for row, mask in zip(tokens, masks)]
    expected = [text.ids[text.start :] for text in texts]
    assert sorted(map(torch.Tensor.tolist, written)) == sorted(map(torch.Tensor.tolist, expected))
    assert all(not masks[:, -5:].any() for _, masks in data)  # room for the unrolled passes


def toy_texts(target, count, temperatures=(0.0, 1.0)):
    torch.manual_seed(0)
    prompts = torch.randint(48, (count, 6)).tolist()
    orders = [Order(tuple(row), warm) for row in prompts for warm in temperatures]
    written = Writer(target, 64, 64, ()).write(orders, 40)
    return [Sample(ids, 6, "text", order.temperature) for order, ids in written]


@pytest.mark.slow
def test_a_toy_run_trains_heads_that_draft(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_heads, "FREE_BYTES", -1)
    target = native(dtype=torch.float32, max_positions=128)
    options = gpu_heads.parser().parse_args(
        f"--out {tmp_path} --batch-tokens 512 --least 0.1 --rate 0.005".split()
    )
    entries = {}
    training = gpu_heads.Training(
        target,
        toy_texts(target, 64),
        toy_texts(target, 8),
        options,
        time.monotonic() + 100,
        entries.__setitem__,
    )
    assert len(training.states.kept) == len(training.data)
    for name, arm in gpu_heads.ARMS.items():
        training.head(name, arm, 5.0)
    times = []
    monkeypatch.setattr(training, "head", lambda name, arm, seconds: times.append(seconds))
    training.heads()
    assert times[2] > times[1] > times[0] > 0, "the time that a head leaves is divided anew"
    training.deadline = time.monotonic()
    training.heads()
    assert len(times) == 3, "no head is begun without time"
    assert [*entries] == ["eagle1", "eagle3", "mtp"]
    for name, entry in entries.items():
        arm, curve = gpu_heads.ARMS[name], entry["curve"]
        fresh = gpu_heads.eagle.KINDS[arm.version].for_target(target, **arm.sizes)
        untrained = training.measure(gpu_heads.eagle.initialize_head(fresh, target))["all"]
        assert entry["seen"] > 0 and entry["steps"] > 0
        assert [point["seen"] for point in curve] == sorted({point["seen"] for point in curve})
        rate = lambda row: row["alpha"]["mean"][0]
        assert rate(entry["held_out"]["all"]) > rate(untrained) + 0.02, name
    prompt = [3, 14, 15, 9]
    plain = generate(target, prompt, max_new_tokens=40).tokens
    for version, name, kind in ((1, "eagle1", Eagle1Head), (3, "eagle3", Eagle3Head)):
        head = load(tmp_path / name, target, kind)
        drafted = EagleDrafter(target, head, 3)
        assert generate(target, prompt, drafted, max_new_tokens=40).tokens.equal(plain)
        # what was trained is what drafts: the stored head has the measured rates
        again = gpu_heads.eagle.measure(head, target, toy_texts(target, 8))["all"]["alpha"]
        stored = entries[name]["held_out"]["all"]["alpha"]
        assert again["mean"] == pytest.approx(stored["mean"], abs=0.02), version
    check_installation(tmp_path, target, entries, monkeypatch)


def check_bits(path, entries):
    """Fewer bits change the rates, and 16 bits have those of the run."""
    heads = json.loads(path.read_text("utf-8"))["heads"]
    assert [*heads] == ["eagle1", "eagle3"]
    for name, table in heads.items():
        assert [*table] == ["16", "8", "5", "4"]
        for rate in ("alpha", "agrees"):
            run = entries[name]["held_out"]["all"][rate]["mean"]
            assert table["16"][rate] == pytest.approx(run, abs=0.02)
            assert table["8"][rate] == pytest.approx(table["16"][rate], abs=0.02)
            assert table["4"][rate] == pytest.approx(table["16"][rate], abs=0.2)
        alphas = [row["alpha"] for row in table.values()]
        assert len({str(each) for each in alphas}) == 4


def check_installation(folder, target, entries, monkeypatch):
    """Install the heads beside an older one, and compare their reports with the run's."""
    texts = {"all": {"texts": 128, "tokens": 5120}}
    data = {"target": fingerprint(target), "texts": texts, "heads": entries}
    stamps.save(folder / "recording.json", stamps.stamp("toy", "a command"), data)
    held_out = [
        Text(text.kind, True, text.temperature, text.start, text.ids)
        for text in toy_texts(target, 8)
    ]
    monkeypatch.setattr(gpu_heads, "load_smollm2", lambda *options: (target, None))
    monkeypatch.setattr(gpu_heads, "read_pieces", lambda path: held_out)
    weights = folder / "repository" / "package" / "weights"
    for bits in (4, 8):  # the second time there is a head to replace
        gpu_heads.install(folder, ["eagle1", "eagle3"], weights, bits)
    check_bits(gpu_heads.compare_bits(folder, ["eagle1", "eagle3"], weights), entries)
    [recording] = (folder / "repository" / "results" / gpu_heads.EXPERIMENT).iterdir()
    assert recording.read_bytes() == (folder / "recording.json").read_bytes()
    assert sorted(path.name for path in weights.iterdir()) == ["eagle1", "eagle3"]
    for name, kind in (("eagle1", Eagle1Head), ("eagle3", Eagle3Head)):
        load(weights / name / "smollm2", target, kind)
        report = json.loads((weights / name / "smollm2" / "report.json").read_text())
        assert report["steps"] == entries[name]["steps"] and "curve" not in report
        assert report["bits"] == 8
        assert report["held_out"] == entries[name]["held_out"]


def test_the_text_is_stored_up_to_its_limit(tmp_path):
    torch.manual_seed(0)
    texts = [Text("code", False, 1.0, 4, torch.randint(40_000, (44,))) for _ in range(30)]
    gpu_heads.store(tmp_path / "all", texts, {"model": "toy"}, 10**6)
    stored = read_pieces(tmp_path / "all")
    assert [text.ids.tolist() for text in stored] == [text.ids.tolist() for text in texts]
    gpu_heads.store(tmp_path / "some", texts, {"model": "toy"}, 1800)
    pieces = list((tmp_path / "some").glob("*"))
    assert len(pieces) == gpu_heads.FILES and 10 < len(read_pieces(tmp_path / "some")) < 30
    assert sum(path.stat().st_size for path in pieces) <= 3000  # each has a header
    assert gpu_heads.summary(texts)["all"] == {"texts": 30, "tokens": 1200}
    for _ in range(2):
        gpu_heads.append_pieces(tmp_path / "all", tmp_path / "some", 10**6)
    assert len(read_pieces(tmp_path / "some")) > 60
    assert {str(read_about(path)) for path in piece_paths(tmp_path / "some")} == {
        "{'model': 'toy'}"
    }


def test_appended_text_has_prompts_with_two_answers_first(tmp_path):
    torch.manual_seed(0)
    row = lambda prompt, warm: Text(
        "code", False, warm, 6, torch.cat((torch.full((6,), prompt), torch.randint(40_000, (38,))))
    )
    texts = [row(prompt, 0.0) for prompt in range(20)] + [row(3, 1.0), row(17, 1.0)]
    gpu_heads.store(tmp_path / "all", texts, {"model": "toy"}, 10**6)
    gpu_heads.append_pieces(tmp_path / "all", tmp_path / "some", 700)
    some = read_pieces(tmp_path / "some")
    assert [int(text.ids[0]) for text in some[:4]] == [3, 3, 17, 17] and 4 <= len(some) < 20
