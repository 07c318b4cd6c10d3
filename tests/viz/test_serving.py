"""A server under load: its formulas are Python's, its task is solved by its slider, it fits."""

import itertools

import pytest
import traitlets
from javascript import evaluate
from mounting import outside_the_frame, says

from specdec_lite.serving.estimate import Hardware
from specdec_lite.serving.goodput import PassTimes, best_under_load, estimated, goodput, steady
from specdec_lite.viz import Serving
from specdec_lite.viz.serving import DENSE, MACHINES, MIXTURE, NOTHING, PAIRS, SMALL, table

NETWORKS = {0: (DENSE, SMALL), 3: (MIXTURE, NOTHING)}


def on(place: int, machine: int, context: int) -> dict:
    """Python's table of a preset."""
    target, draft = NETWORKS[place]
    names = ("bandwidth", "throughput", "fixed")
    hardware = Hardware(*(MACHINES[machine][name] for name in names))
    one = lambda batch: hardware.seconds(draft, batch, 1, context) if draft.parameters else 0.0
    seconds = lambda batch, k: hardware.seconds(target, batch, k, context)
    return table("", estimated(seconds, one))


@pytest.mark.parametrize("context", [512, 32768])
@pytest.mark.parametrize("place", NETWORKS)
@pytest.mark.parametrize("machine", range(3))
def test_the_drawing_computes_the_same_table_from_sizes(place, machine, context):
    call = {"name": "estimated", "args": [PAIRS[place], MACHINES[machine], context]}
    found, wanted = evaluate("serving", [call])[0], on(place, machine, context)
    assert (found["batches"], found["tokens"]) == (wanted["batches"], wanted["tokens"])
    assert found["drafting"] == pytest.approx(wanted["drafting"], rel=1e-12)
    for row, other in zip(found["seconds"], wanted["seconds"]):
        assert row == pytest.approx(other, rel=1e-12)


def test_caches_take_what_memory_the_weights_leave():
    calls = [
        {"name": "room", "args": [PAIRS[place], MACHINES[machine], context]}
        for place, machine, context in [(0, 0, 512), (0, 0, 32768), (3, 2, 512)]
    ]
    short, long, none = evaluate("serving", calls)
    left = 80e9 - 2 * (8.2e9 + 0.6e9)
    assert short == left // (512 * (147_456 + 114_688)) and long == left // (32768 * 262_144)
    assert none == 0, "the mixture's 60 GB do not fit into 24"


def times(found: dict) -> PassTimes:
    rows = tuple(map(tuple, found["seconds"]))
    return PassTimes(
        tuple(found["batches"]), tuple(found["tokens"]), rows, tuple(found["drafting"])
    )


def test_the_drawing_has_the_same_formulas():
    small = PassTimes((1, 3), (1, 2, 4), ((1.0, 1.5, 2.0), (1.1, 3.0, 4.5)), (0.1, 0.25))
    for found in (on(0, 0, 512), on(3, 1, 8192), table("small", small)):
        ours = times(found)
        full = steady(1e-9, 0.0, 0, ours, ours.batches[-1]).capacity
        gammas = (0, 2, ours.largest_gamma)
        points = list(itertools.product([0.01, 0.4, 0.9, 1.5], [0.0, 0.7, 1.0], gammas, [1, 2, 3]))
        calls = [
            {"name": "steady", "args": [found, share * full, *rest]} for share, *rest in points
        ]
        for (share, *rest), given in zip(points, evaluate("serving", calls)):
            alpha, gamma, slots = rest
            wanted = steady(share * full, alpha, gamma, ours, slots)
            assert given["overloaded"] == wanted.is_overloaded
            for name in ("batch", "latency", "capacity"):
                assert given[name] == pytest.approx(getattr(wanted, name), rel=1e-9)
        calls = [
            {"name": "bestUnderLoad", "args": [found, share * full, 0.7, ours.batches[-1]]}
            for share in (0.05, 0.6, 0.97)
        ]
        wanted = [
            best_under_load(share * full, 0.7, ours, ours.batches[-1])
            for share in (0.05, 0.6, 0.97)
        ]
        assert evaluate("serving", calls) == wanted
        call = {"name": "goodput", "args": [found, 0.6, 3, 2]}
        assert evaluate("serving", [call])[0] == pytest.approx(goodput([0.6] * 3, 2, ours))


@pytest.mark.browser
def test_the_task_is_solved_by_keyboard(mounted):
    page = mounted(Serving(), 1000)
    says(page, ".sdl-task-state", "still helps")
    load = page.locator("[data-name=load]")
    load.focus()
    page.keyboard.press("End")
    says(page, ".sdl-task-state", "smaller load")
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(170)
        if "Solved" in page.locator(".sdl-task-state").inner_text():
            break
    says(page, ".sdl-task-state", "Solved")
    assert page.evaluate("heard.length") == 0, "its keys do not move a notebook's cells"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1000, 374])
def test_it_stays_in_its_frame_and_fits_a_laptop(mounted, width):
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
    if width == 1000:
        assert page.locator(".sdl").bounding_box()["height"] < 700


@pytest.mark.browser
def test_a_drag_sets_the_load(mounted):
    page = mounted(Serving(), 1000)
    box = page.get_by_role("img", name="Time a token, by load").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 64, box["y"] + 80)
    assert page.evaluate("model.get('load')") == 2


def test_bad_values_are_refused():
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
