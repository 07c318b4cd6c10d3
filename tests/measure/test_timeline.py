"""Profiled passes: order and kinds of operations, gaps and shares."""

from types import SimpleNamespace

import pytest
import torch
from models_zoo import native

from specdec_lite import load_pair, timeline
from specdec_lite.engine.linear import is_packed
from specdec_lite.measure import profiler


def profile_pass(**shape):
    """Return the operations of a pass over one token."""
    model = native(dtype=torch.float32, **shape)
    cache = model.new_cache()
    model.score([1, 2, 3], cache)

    def job():
        model.score([5], cache)
        cache.crop(3)

    return timeline.operations(job)


def test_a_layer_has_four_products_and_one_attention():
    for layers in (1, 3):
        items = profile_pass(num_layers=layers)
        kinds = [item.kind for item in items]
        assert kinds.count("weights") == 4 * layers + 1 and kinds.count("attention") == layers
        starts = [item.start for item in items]
        assert starts[0] == 0 and starts == sorted(starts)
        assert min(item.seconds for item in items) >= 0


def test_packed_products_count_as_products():
    target = load_pair(dtype="float32").target
    cache = target.new_cache()
    items = timeline.operations(lambda: (target.score([5], cache), cache.crop(0)))
    assert [item.kind for item in items].count("weights") == 4 * 8 + 1
    assert any(item.name.startswith("mkldnn::") for item in items) == is_packed(target.model)


def test_shares_add_up():
    items = profile_pass()
    shares = timeline.shares(items)
    assert sum(shares.values()) == pytest.approx(1) and min(shares.values()) >= 0
    assert list(shares) == [*timeline.KINDS, "gap"]
    assert {item.kind for item in items} == set(timeline.KINDS)
    assert all(timeline.share(items, kind) == part for kind, part in shares.items())


def test_without_a_gpu_there_are_no_kernels():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert timeline.kernels(lambda: torch.ones(2) + 1) == []


@pytest.mark.parametrize(
    "name, kind",
    [
        ("void gemv2T_kernel_val<int, int, float>", "weights"),
        ("ampere_bf16_s16816gemm_bf16_128x64", "weights"),
        ("nvjet_tst_64x8_64x16", "weights"),
        ("void cutlass::Kernel2<cutlass_80_tensorop>", "weights"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<>", "attention"),
        ("void at::native::vectorized_elementwise_kernel<4>", "other"),
        ("cudnn_generated_fort_native_sdpa_sm90_knob_6_128x128x64", "attention"),
        ("Memcpy DtoD", "other"),
    ],
)
def test_the_name_of_a_gpu_kernel_determines_its_kind(name, kind):
    assert timeline.kind_of(name) == kind


def event(name, start, end, device="CPU", parent=None):
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    kind = getattr(torch.autograd.DeviceType, device)
    return SimpleNamespace(name=name, time_range=span, device_type=kind, cpu_parent=parent)


def test_a_replayed_graph_is_one_operation_without_gaps():
    copy = event("aten::copy_", 0, 4)
    events = [
        copy,
        event("cudaLaunchKernel", 1, 3, parent=copy),
        event("cudaGraphLaunch", 4, 10),
        event("gemv", 5, 9, device="CUDA"),
    ]
    items = profiler._calls(events)
    assert [item.name for item in items] == ["aten::copy_", "cudaGraphLaunch"]
    assert timeline.share(items, "gap") == 0


def test_overlapping_kernels_have_no_negative_gap():
    times = [(0.0, 4.0), (1.0, 2.0), (2.0, 4.0), (8.0, 2.0)]
    items = [timeline.Operation("gemm", start, seconds, "weights") for start, seconds in times]
    assert timeline.idle(items) == 2.0 and timeline.share(items, "gap") == 0.2
    assert timeline.share(items, "weights") == 1.2


def test_shares_of_no_operations_are_zero():
    assert timeline.share([], "gap") == timeline.share([], "weights") == timeline.span([]) == 0
    assert set(timeline.shares([]).values()) == {0.0}
