"""Features: hidden states stored once, and never read for another target or text."""

import pytest
import torch
from models_zoo import hugging_face, native

from specdec_lite.engine.models import CausalLM
from specdec_lite.training.features import Features

WINDOWS = torch.randint(48, (3, 9), generator=torch.Generator().manual_seed(0))


def record_passes(target, monkeypatch):
    """Return a list that gets one entry per pass of the target."""
    passes, score = [], target.score
    monkeypatch.setattr(target, "score", lambda *a, **k: passes.append(1) or score(*a, **k))
    return passes


@pytest.mark.parametrize("target", [native(), hugging_face("Llama")])
def test_features_equal_the_hidden_states_of_each_window_alone(target, tmp_path):
    layers = (0, 1, "final")
    features = Features(target, tmp_path, layers, torch.float64)
    for _ in range(2):
        states = features(WINDOWS)
        assert tuple(states) == layers
        for layer, rows in states.items():
            for row, tokens in zip(rows, WINDOWS, strict=True):
                alone = target.score(tokens, target.new_cache(), hidden_layers=(layer,))
                torch.testing.assert_close(row, alone.hidden[layer][0], rtol=0, atol=1e-12)


def test_features_are_stored_in_bfloat16_and_read_in_the_targets_dtype(tmp_path):
    target = native(dtype=torch.float32)
    exact = Features(target, tmp_path, dtype=torch.float32)(WINDOWS)["final"]
    rounded = Features(target, tmp_path)(WINDOWS)["final"]
    assert exact.dtype == rounded.dtype == torch.float32
    assert rounded.equal(exact.bfloat16().float()) and not rounded.equal(exact)
    sizes = sorted(path.stat().st_size for path in tmp_path.iterdir())
    assert len(sizes) == 2 and sizes[1] - sizes[0] == pytest.approx(exact.numel() * 2, abs=16)


def test_a_second_head_or_run_needs_no_pass(tmp_path, monkeypatch):
    target = native()
    passes = record_passes(target, monkeypatch)
    first = Features(target, tmp_path)(WINDOWS)["final"]
    assert len(passes) == 1
    again = Features(target, tmp_path)(WINDOWS)["final"]
    assert len(passes) == 1 and again.equal(first)
    Features(target, tmp_path)(WINDOWS[:2])
    Features(target, tmp_path)(WINDOWS.flip(1))
    Features(target, tmp_path, (1,))(WINDOWS)
    assert len(passes) == 4, "other tokens and other layers have files of their own"


def test_gradients_of_a_loss_on_features_reach_the_head(tmp_path):
    target = native(dtype=torch.float32)
    scale = torch.nn.Parameter(torch.ones(target.hidden_size))
    with torch.autocast("cpu", torch.bfloat16):
        states = Features(target, tmp_path, dtype=torch.float32)(WINDOWS)["final"]
        (states * scale).sum().backward()
    assert scale.grad.abs().max() > 0
    exact = target.score(WINDOWS, target.new_cache(3), hidden_layers=("final",)).hidden["final"]
    torch.testing.assert_close(states, exact)


def test_each_target_and_dtype_has_files_of_its_own(tmp_path):
    one = Features(native(), tmp_path)
    other = Features(native(seed=1), tmp_path)
    assert not one(WINDOWS)["final"].equal(other(WINDOWS)["final"])
    in_float32 = CausalLM(native(dtype=torch.float32).model)
    assert Features(in_float32, tmp_path).path(WINDOWS) != one.path(WINDOWS)
