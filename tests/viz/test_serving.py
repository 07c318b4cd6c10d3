"""A server under load: its formulas equal Python's, its slider solves its task, it fits."""

import itertools
from dataclasses import asdict

import pytest
import traitlets
from chosen import one_of
from javascript import evaluate
from mounting import outside_the_frame, pause, says

from specdec_book.viz import Serving
from specdec_book.viz.serving import DENSE, MACHINES, MIXTURE, NOTHING, PAIRS, SMALL, table
from specdec_lite.simulation.estimate import FITTED, Hardware, tabulate
from specdec_lite.simulation.goodput import PassTimes, best_under_load, goodput, steady

NETWORKS = {0: (DENSE, SMALL), 3: (MIXTURE, NOTHING)}


def estimated_table(pair: int, machine: int, context: int) -> dict:
    """Return Python's table of a preset, in the form that the module reads."""
    target, draft = NETWORKS[pair]
    names = ("bandwidth", "throughput", "per_layer", "gpus")
    hardware = Hardware(*(MACHINES[machine][name] for name in names))
    return table("", tabulate(target, draft, hardware, context))


@pytest.mark.parametrize("context", [512, 32768])
@pytest.mark.parametrize("pair", NETWORKS)
@pytest.mark.parametrize("machine", range(3))
def test_the_module_computes_the_same_table_from_sizes(pair, machine, context):
    call = {"name": "estimate", "args": [PAIRS[pair], MACHINES[machine], asdict(FITTED), context]}
    result, expected = evaluate("serving", [call])[0], estimated_table(pair, machine, context)
    assert (result["batches"], result["tokens"]) == (expected["batches"], expected["tokens"])
    assert result["drafting"] == pytest.approx(expected["drafting"], rel=1e-12)
    for row, other in zip(result["seconds"], expected["seconds"]):
        assert row == pytest.approx(other, rel=1e-12)


def test_capacity_is_the_memory_beside_the_weights():
    calls = [
        {"name": "capacity", "args": [PAIRS[pair], MACHINES[machine], context]}
        for pair, machine, context in [(0, 0, 512), (0, 0, 32768), (3, 2, 512)]
    ]
    short, long, none = evaluate("serving", calls)
    left = 80e9 - 2 * (8.2e9 + 0.6e9)
    assert short == left // (512 * (147_456 + 114_688)) and long == left // (32768 * 262_144)
    assert none == 0, "the mixture's 60 GB do not fit into 24"


def pass_times(entry: dict) -> PassTimes:
    rows = tuple(map(tuple, entry["seconds"]))
    return PassTimes(
        tuple(entry["batches"]), tuple(entry["tokens"]), rows, tuple(entry["drafting"])
    )


def test_the_module_has_the_same_formulas():
    small = PassTimes((1, 3), (1, 2, 4), ((1.0, 1.5, 2.0), (1.1, 3.0, 4.5)), (0.1, 0.25))
    for entry in (estimated_table(0, 0, 512), estimated_table(3, 1, 8192), table("small", small)):
        times = pass_times(entry)
        full = steady(1e-9, 0.0, 0, times, times.batches[-1]).capacity
        gammas = (0, 2, times.largest_gamma)
        points = list(itertools.product([0.01, 0.4, 0.9, 1.5], [0.0, 0.7, 1.0], gammas, [1, 2, 3]))
        calls = [
            {"name": "steady", "args": [entry, share * full, *rest]} for share, *rest in points
        ]
        for (share, *rest), result in zip(points, evaluate("serving", calls)):
            alpha, gamma, slots = rest
            expected = steady(share * full, alpha, gamma, times, slots)
            assert result["overloaded"] == expected.is_overloaded
            for name in ("batch", "latency", "capacity"):
                assert result[name] == pytest.approx(getattr(expected, name), rel=1e-9)
        calls = [
            {"name": "bestUnderLoad", "args": [entry, share * full, 0.7, times.batches[-1]]}
            for share in (0.05, 0.6, 0.97)
        ]
        assert evaluate("serving", calls) == [
            best_under_load(share * full, 0.7, times, times.batches[-1])
            for share in (0.05, 0.6, 0.97)
        ]
        call = {"name": "goodput", "args": [entry, 0.6, 3, 2]}
        assert evaluate("serving", [call])[0] == pytest.approx(goodput([0.6] * 3, 2, times))


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard(mounted):
    page = mounted(Serving(), 1000)
    says(page, ".sdl-task-state", "still helps")
    load = page.locator("[data-name=load]")
    load.focus()
    page.keyboard.press("End")
    says(page, ".sdl-task-state", "also hurts at a smaller load")
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
        pause(page, 170)
        if "Solved" in page.locator(".sdl-task-state").inner_text():
            break
    says(page, ".sdl-task-state", "Solved")
    assert page.evaluate("heard.length") == 0, "its keys must not reach the notebook"


@pytest.mark.browser
@pytest.mark.parametrize("width", one_of(__name__, [1000, 374]))
def test_it_stays_in_its_frame_and_fits_a_screen(mounted, width):
    small = PassTimes((1, 16), (1, 9), ((0.01, 0.01), (0.02, 0.08)), (0.001, 0.002))
    page = mounted(Serving(tables=[table("measured", small)]), width)
    settings = [
        {"alpha": 0.0, "gamma": 8, "load": 2.0},
        {"alpha": 1.0, "gamma": 8, "pair": 1},
        {"slots": 1, "pair": 3, "load": 0.05},
        {"pair": 3, "machine": 2, "context": 131072, "experts": 32},
        {"pair": 4},
    ]
    for setting in settings:
        assert outside_the_frame(page, setting) == [], setting


@pytest.mark.browser
def test_a_drag_sets_the_load(mounted):
    page = mounted(Serving(), 1000)
    box = page.get_by_role("img", name="Time per token, by load").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 64, box["y"] + 80)
    assert page.evaluate("model.get('load')") > 1


def test_bad_values_are_rejected():
    for bad in (
        {"alpha": 1.1},
        {"gamma": 9},
        {"load": 0},
        {"pair": 4},
        {"machine": 3},
        {"slots": 0},
    ):
        with pytest.raises(traitlets.TraitError):
            Serving(**bad)
