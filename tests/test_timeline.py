"""A profiled pass: every operation in order, the weights' products counted, gaps and shares adding up."""
import pytest
import torch
from models_zoo import native

from specdec_lite import timeline


def passes(**shape):
    model = native(dtype=torch.float32, **shape)
    cache = model.new_cache()
    model.score([1, 2, 3], cache)
    def job():
        model.score([5], cache)
        cache.crop(3)
    return timeline.operations(job)


def test_a_layer_has_four_products_and_one_attention():
    for layers in (1, 3):
        found = passes(num_layers=layers)
        kinds = [item.kind for item in found]
        assert kinds.count("weights") == 4 * layers + 1 and kinds.count("attention") == layers
        starts = [item.start for item in found]
        assert starts[0] == 0 and starts == sorted(starts) and min(item.seconds for item in found) >= 0


def test_operations_go_with_layers_not_with_width():
    assert len(passes(num_layers=2)) == len(passes(num_layers=2, hidden_size=64)) < len(passes(num_layers=4))


def test_shares_add_up():
    found = passes()
    shares = [timeline.share(found, kind) for kind in ("weights", "attention", "other", "gap")]
    assert sum(shares) == pytest.approx(1) and min(shares) >= 0


def test_without_a_gpu_there_are_no_kernels():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert timeline.kernels(lambda: torch.ones(2) + 1) == []
