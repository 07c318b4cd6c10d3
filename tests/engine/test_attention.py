"""The attention kernels that a pass may choose on a GPU: none that plans every new shape."""

import pytest
import torch
from models_zoo import PROMPT, native
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_lite.engine import models, ragged
from specdec_lite.engine.models import steady_attention
from specdec_lite.tree import TokenTree

pytestmark = pytest.mark.numeric

CUDA = torch.backends.cuda
GPU = torch.device("cuda")


@pytest.mark.parametrize("device, allowed", [("cuda", True), ("cuda", False), ("cpu", True)])
def test_cudnn_is_off_within_a_pass_of_a_gpu_and_restored_after_it(device, allowed):
    before = CUDA.cudnn_sdp_enabled()
    try:
        CUDA.enable_cudnn_sdp(allowed)
        with pytest.raises(KeyError), steady_attention(torch.device(device)):
            assert CUDA.cudnn_sdp_enabled() == (device == "cpu") and CUDA.flash_sdp_enabled()
            raise KeyError
        assert CUDA.cudnn_sdp_enabled() == allowed
    finally:
        CUDA.enable_cudnn_sdp(before)


def test_cudnn_stays_on_if_it_is_the_only_fused_kernel():
    kernels = [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(kernels), steady_attention(GPU):
        assert CUDA.cudnn_sdp_enabled()
    for other in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        with sdpa_kernel([*kernels, other]), steady_attention(GPU):
            assert not CUDA.cudnn_sdp_enabled()


@pytest.mark.parametrize("batched", [False, True], ids=["one text", "a batch"])
def test_every_pass_runs_without_cudnn(monkeypatch, batched):
    model, enabled = native(), []
    watching = model.model.register_forward_pre_hook(
        lambda module, args: enabled.append(CUDA.cudnn_sdp_enabled())
    )
    for module in (models, ragged):
        monkeypatch.setattr(module, "steady_attention", lambda device: steady_attention(GPU))
    before = CUDA.cudnn_sdp_enabled()
    try:
        CUDA.enable_cudnn_sdp(True)
        if batched:
            storage, caches = ragged.row_caches(model, 2, 16)
            rows = [torch.tensor(PROMPT), torch.tensor(PROMPT[:3])]
            ragged.score_rows(model, storage, rows, caches, [TokenTree([], [])] * 2)
        else:
            model.score(PROMPT, model.new_cache())
        assert enabled == [False] and CUDA.cudnn_sdp_enabled()
    finally:
        watching.remove()
        CUDA.enable_cudnn_sdp(before)
