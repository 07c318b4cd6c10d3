"""Which attention kernels a pass may choose on a GPU: not those that plan every new shape."""

import pytest
import torch
from models_zoo import PROMPT, native
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_lite.engine import models
from specdec_lite.engine.transformer import steady_attention

CUDA = torch.backends.cuda
GPU = torch.device("cuda")


@pytest.mark.parametrize("allowed", [True, False])
def test_cudnn_is_off_within_a_pass_and_afterwards_what_it_was(allowed):
    before = CUDA.cudnn_sdp_enabled()
    try:
        CUDA.enable_cudnn_sdp(allowed)
        with pytest.raises(KeyError), steady_attention(GPU):
            assert not CUDA.cudnn_sdp_enabled() and CUDA.flash_sdp_enabled()
            raise KeyError
        assert CUDA.cudnn_sdp_enabled() == allowed
    finally:
        CUDA.enable_cudnn_sdp(before)


def test_who_asks_for_cudnn_alone_keeps_it():
    asked = [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(asked), steady_attention(GPU):
        assert CUDA.cudnn_sdp_enabled()


def test_a_processor_is_left_alone():
    before = CUDA.cudnn_sdp_enabled()
    with steady_attention(torch.device("cpu")):
        assert CUDA.cudnn_sdp_enabled() == before


def test_every_pass_runs_within(monkeypatch):
    model, seen = native(), []
    score = model.backend.score
    monkeypatch.setattr(models, "steady_attention", lambda device: steady_attention(GPU))
    monkeypatch.setattr(
        model.backend,
        "score",
        lambda *args, **more: seen.append(CUDA.cudnn_sdp_enabled()) or score(*args, **more),
    )
    CUDA.enable_cudnn_sdp(True)
    model.score(PROMPT, model.new_cache())
    assert seen == [False] and CUDA.cudnn_sdp_enabled()
